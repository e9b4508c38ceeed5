"""Which words of a hypothesis are final, and what is known of each.

stable  at the end of a chunk the tokens older than the last n are final: never verified again,
        never cropped. Committed are the whole words among them.
paper   the same words, but a later crop may reach them; those it takes back are counted.
"""

from __future__ import annotations

from dataclasses import replace

from streaming_asr.method import Word
from streaming_asr.methods.whisperrt.hypothesis import WhisperRTState
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
        """Commit `n` tokens behind the end of the text; stable: see the module.

        aligns: words are timed by the alignment heads, which costs one more pass of the decoder in
        each chunk that commits words; else by the chunks in which their tokens appeared.
        """
        self._whisper = whisper
        self._decoder = decoder
        self._n = n
        self._stable = stable
        self._aligns = aligns

    def settle(self, state: WhisperRTState) -> tuple[list[Word], int]:
        """Commit after a chunk; return the new words and how many earlier ones were taken back."""
        if self._stable:
            state.floor = max(state.floor, len(state.hypotheses[0].tokens) - self._n)
        return self._commit(state, everything=False)

    def finish(self, state: WhisperRTState) -> tuple[list[Word], int]:
        """Commit all words after the last chunk; returns as `settle` does."""
        return self._commit(state, everything=True)

    def _commit(self, state: WhisperRTState, *, everything: bool) -> tuple[list[Word], int]:
        """Commit the whole words in the final tokens of the best hypothesis, or all of its words.

        Returns the new words and how many earlier ones were taken back; what is not committed
        becomes the state's partial words.
        """
        words = self.spell(state)
        # With commit=paper a crop may have changed words that were committed.
        n_unchanged = common_prefix([word.text for word in words], state.emitted)
        n_retracted = len(state.emitted) - n_unchanged
        del state.emitted[n_unchanged:]
        n_words = len(words)
        if not everything:
            n_tokens = len(state.hypotheses[0].tokens)
            n_final = state.floor if self._stable else n_tokens - self._n
            # `<`: a word is whole only when a final token follows it, which else could extend it.
            n_words = sum(word.stop < n_final for word in words)
        committed = self.emit(state, words, n_words)
        state.partial = tuple(Word(word.text) for word in words[len(state.emitted) :])
        return committed, n_retracted

    def spell(self, state: WhisperRTState) -> list[TokenWord]:
        """Return the words of the best hypothesis; after a cut the first gets its leading space."""
        words: list[TokenWord] = self._whisper.detokenizer.words(
            state.hypotheses[0].tokens, language=state.language
        )
        if words and state.goes_on:
            words[0] = replace(words[0], text=spaced(words[0].text, state.language))
        return words

    def emit(self, state: WhisperRTState, words: list[TokenWord], n_words: int) -> list[Word]:
        """Commit those of the first `n_words` of the window that are not committed; return them.

        Their times are in seconds of the stream.
        """
        hypothesis = state.hypotheses[0]
        new_words = words[len(state.emitted) : n_words]
        times = self.align(state) if self._aligns and new_words else None
        committed = []
        for word in new_words:
            first, last = word.start, word.stop - 1  # tokens
            if times is None:
                # Known only to the chunk: from the first token's appearance to the last one's.
                start_s = hypothesis.predicted_at[first] * FRAME_S
                end_s = hypothesis.predicted_at[last] * FRAME_S
                start_s, end_s = state.emitter.in_order(start_s, end_s, state.heard_s)
            else:
                window_s = state.window_start * FRAME_S
                start_s, end_s = times[first][0] + window_s, times[last][1] + window_s
                start_s, end_s = state.emitter.aligned(start_s, end_s, state.heard_s)
            probability = probability_of(word, hypothesis.log_probs)
            committed.append(Word(word.text, start_s, end_s, probability))
            state.emitted.append(word.text)
        return committed

    def align(self, state: WhisperRTState) -> list[tuple[float, float]]:
        """Return (start, end) of each token of the best hypothesis, in seconds of the window.

        The pass of the decoder overwrites row 0 of the cache, which is put back afterwards.
        """
        tokens = state.hypotheses[0].tokens
        n_positions = len(state.prompt) + len(tokens)
        row = [tensor[0, :, :n_positions] for tensor in (*state.cache.keys, *state.cache.values)]
        saved = [tensor.clone() for tensor in row]
        times = alignment_times(
            self._decoder,
            state.cache,
            self._whisper.alignment_heads,
            state.prompt,
            tokens,
            state.position,
        )
        for tensor, before in zip(row, saved, strict=True):
            tensor.copy_(before)
        return times
