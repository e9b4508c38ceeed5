"""Models as files: where a Whisper is, which form it has, its tensors and their hash; no network
is built here."""
