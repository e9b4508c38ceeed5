"""The commands of `streaming-asr NAME` that have no room of their own."""
