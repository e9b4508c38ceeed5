"""The torch backend: this project's own Whisper, padded windows, greedy or beam."""

from __future__ import annotations

from streaming_asr.method import Recorder, Samples
from streaming_asr.whisper.load import Whisper
from streaming_asr.whisper.recogniser import BufferTranscript, sentence_ends_s
from streaming_asr.whisper.together import alone
from streaming_asr.whisper.transcribe import WindowDecoder, transcribe_buffer


class Backbone:
    """Word times by the alignment heads. Its segments are sentences: it decodes no timestamps.

    A buffer longer than the model's context is taken in windows, cut where a word ends.
    """

    def __init__(self, whisper: Whisper, beam: int = 1, *, guard: str = "none") -> None:
        self._whisper = whisper
        self._windows = WindowDecoder(whisper, beam, guard=guard)
        self.context_s: float = whisper.context_s

    def check_language(self, language: str | None) -> None:
        self._whisper.prompt(language)

    def transcribe(
        self, audio: Samples, *, prompt: str | None, language: str | None, recorder: Recorder
    ) -> BufferTranscript:
        """See `Recogniser`; less than 0.1 s of audio has no words."""
        passes = transcribe_buffer(self._windows, audio, prompt, language, recorder)
        words, _ = alone(passes, recorder)
        return BufferTranscript(tuple(words), sentence_ends_s(words))
