"""Models as files: where a Whisper is, its form, tensors and hash; no network is built here."""
