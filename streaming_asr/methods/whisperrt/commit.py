"""Which words of a hypothesis are final, and what is known of each.

stable  at the end of a chunk the tokens older than the last n are final: never verified again,
        never cropped. Committed are the whole words among them.
paper   the same words, but a later crop may reach them; those it takes back are counted.
"""

from __future__ import annotations

from dataclasses import replace

from streaming_asr.method import Word
from streaming_asr.methods.whisperrt.state import WhisperRTState
from streaming_asr.text.tokens import common_prefix
from streaming_asr.whisper.alignment import alignment_times
from streaming_asr.whisper.decoder import Decoder
from streaming_asr.whisper.load import Whisper
from streaming_asr.whisper.window import FRAME_S
from streaming_asr.whisper.words import TokenWord, probability_of, spaced


class Committer:
    """Turns tokens of a stream's best hypothesis into committed and partial words."""

    def __init__(
        self, whisper: Whisper, decoder: Decoder, n: int, *, stable: bool, aligns: bool
    ) -> None:
        """aligns: words are timed by the alignment heads, one pass of the decoder more for each
        chunk that commits words; else by the chunks in which they appeared."""
        self._whisper = whisper
        self._decoder = decoder
        self._n = n
        self._stable = stable
        self._aligns = aligns

    def settle(self, state: WhisperRTState) -> tuple[list[Word], int]:
        """Return, after a chunk, newly committed words and how many were taken back before them."""
        if self._stable:
            state.floor = max(state.floor, len(state.hypotheses[0].tokens) - self._n)
        return self._commit(state, everything=False)

    def finish(self, state: WhisperRTState) -> tuple[list[Word], int]:
        """Commit all there is, after the last chunk."""
        return self._commit(state, everything=True)

    def _commit(self, state: WhisperRTState, *, everything: bool) -> tuple[list[Word], int]:
        """Commit the words that end before the last `n` tokens of the best hypothesis, or all.

        Returns the new words and how many earlier ones were taken back; what is not committed
        becomes the state's partial words.
        """
        hypothesis = state.hypotheses[0]
        n_tokens = len(hypothesis.tokens)
        words = self.spell(state)
        # With commit=paper a crop may have changed words that were given out.
        n_same = common_prefix([word.text for word in words], state.emitted)
        taken_back = len(state.emitted) - n_same
        del state.emitted[n_same:]
        n_final = state.floor if self._stable else n_tokens - self._n
        target = sum(everything or word.stop < n_final for word in words)
        new = self.emit(state, words, max(n_same, target))
        rest = words[len(state.emitted) :]
        state.partial = tuple(Word(word.text) for word in rest)
        return new, taken_back

    def spell(self, state: WhisperRTState) -> list[TokenWord]:
        """Return the words of the best hypothesis, the first after a cut with its space."""
        words: list[TokenWord] = self._whisper.detokenizer.words(
            state.hypotheses[0].tokens, language=state.language
        )
        if words and state.goes_on:
            words[0] = replace(words[0], text=spaced(words[0].text, state.language))
        return words

    def emit(self, state: WhisperRTState, words: list[TokenWord], n_words: int) -> list[Word]:
        """Commit words up to the `n_words`-th of the window."""
        hypothesis = state.hypotheses[0]
        committed = []
        times = self.align(state) if self._aligns and len(state.emitted) < n_words else None
        for word in words[len(state.emitted) : n_words]:
            if times is None:
                # Known only to the chunk: from the first token's appearance to the last one's.
                start, end = (hypothesis.born[i] * FRAME_S for i in (word.start, word.stop - 1))
                start, end = state.emitter.in_order(start, end, state.heard_s)
            else:
                window_s = state.window_start * FRAME_S
                start, end = times[word.start][0] + window_s, times[word.stop - 1][1] + window_s
                start, end = state.emitter.aligned(start, end, state.heard_s)
            probability = probability_of(word, hypothesis.log_probs)
            committed.append(Word(word.text, start, end, probability))
            state.emitted.append(word.text)
        return committed

    def align(self, state: WhisperRTState) -> list[tuple[float, float]]:
        """Return (start, end) of each token of the best hypothesis, in seconds of the window.

        What the cache holds of the tokens stays.
        """
        tokens = state.hypotheses[0].tokens
        n_tokens = len(state.prompt) + len(tokens)
        row = [each[0, :, :n_tokens] for each in (*state.cache.keys, *state.cache.values)]
        saved = [each.clone() for each in row]
        times = alignment_times(
            self._decoder,
            state.cache,
            self._whisper.alignment_heads,
            state.prompt,
            tokens,
            state.position,
        )
        for each, before in zip(row, saved, strict=True):
            each.copy_(before)
        return times
