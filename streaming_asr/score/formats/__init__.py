"""Other tools' logs, in: a rival's run is scored by the same code (docs/formats.md)."""
