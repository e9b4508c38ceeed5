"""What is done to text: one normaliser for every method, and subtitles."""
