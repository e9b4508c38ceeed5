"""U2-Whisper: CTC first pass, attention rescoring."""
