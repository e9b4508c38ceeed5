"""The command that checks a corpus and makes shards of it; the speech that the package holds."""
