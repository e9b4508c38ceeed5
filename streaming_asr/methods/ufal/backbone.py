"""The torch backend: this project's own Whisper, padded windows, greedy or beam."""

from __future__ import annotations

from streaming_asr.method import SAMPLE_RATE, Recorder, Samples, Word
from streaming_asr.whisper.features import FRAME_SAMPLES
from streaming_asr.whisper.load import Whisper
from streaming_asr.whisper.recogniser import Hypothesis, sentence_ends_s
from streaming_asr.whisper.transcribe import WindowDecoder, as_words
from streaming_asr.whisper.words import refuse_other_than_english


class Backbone:
    """Word times by the alignment heads. Its segments are sentences: it decodes no timestamps.

    A buffer longer than the model's context is taken in windows, cut where a word ends.
    """

    def __init__(self, whisper: Whisper, beam: int = 1) -> None:
        self._whisper = whisper
        self._windows = WindowDecoder(whisper, beam)
        self.context_s: float = whisper.context_s

    def check_language(self, language: str | None) -> None:
        if not self._whisper.multilingual:
            refuse_other_than_english(language)
        self._whisper.prompt(language)

    def transcribe(
        self, audio: Samples, *, prompt: str | None, language: str | None, recorder: Recorder
    ) -> Hypothesis:
        """See `Recogniser`; less audio than one encoder frame has no words."""
        words: list[Word] = []
        start, context = 0, self._windows.context_samples
        text = prompt or ""
        previous = self._tokens(text)
        while audio.size - start >= FRAME_SAMPLES:
            window = self._windows.decode(
                audio[start : start + context], language, recorder, previous
            )
            whole = audio.size - start <= context
            with recorder.part("decode"):  # the alignment is one more pass of the decoder
                if whole:
                    step, n_words = audio.size - start, len(window.words)
                else:
                    step, n_words = self._windows.seam(window)
                words += as_words(
                    window,
                    n_words,
                    self._windows.times(window),
                    start / SAMPLE_RATE,
                    audio.size / SAMPLE_RATE,
                    goes_on=bool(words),
                    language=language,
                )
            start += max(step, FRAME_SAMPLES)
            if words and not whole:
                previous = self._tokens(text + "".join(word.text for word in words))
        return Hypothesis(tuple(words), sentence_ends_s(words))

    def _tokens(self, text: str) -> list[int]:
        """The last tokens of `text`, at most half of the decoder's positions, as Whisper does."""
        if not text.strip():
            return []
        ids = self._whisper.tokenizer.encode(" " + text.strip(), add_special_tokens=False)
        return list(ids)[-(self._whisper.max_tokens // 2 - 1) :]
