"""One Whisper backbone for all methods, on Hugging Face weights."""
