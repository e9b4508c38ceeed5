"""Transcribe audio at once: one window, or a buffer of any length window by window."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F

from streaming_asr.method import FRAME_S, SAMPLE_RATE, Recorder, Samples, Word
from streaming_asr.whisper.alignment import alignment_times
from streaming_asr.whisper.decoder import Decoder, DecoderCache
from streaming_asr.whisper.encoder import encode_parts, part_of
from streaming_asr.whisper.features import FRAME_SAMPLES, log_mel
from streaming_asr.whisper.flops import encoder_flops
from streaming_asr.whisper.load import Whisper
from streaming_asr.whisper.seam import Seam
from streaming_asr.whisper.search import TOKENS_PER_SECOND, BeamSearch, Guide
from streaming_asr.whisper.timestamps import Timestamps, segmented
from streaming_asr.whisper.together import Passes, Wanted, alone
from streaming_asr.whisper.words import Emitter, TokenWord, probability_of

Times = list[tuple[float, float]]

SHORTEST_SAMPLES = SAMPLE_RATE // 10
"""The least audio that is decoded: 0.1 s hold no word, whatever a model outputs."""


@torch.inference_mode()
def window_pass(
    whisper: Whisper,
    decoder: Decoder,
    cache: DecoderCache,
    audio: Samples,
    recorder: Recorder,
) -> Passes[torch.Tensor]:
    """Encode (n,) samples padded to the context and write their keys and values into the cache.

    A step of `together`; returns (1, context, d).
    """
    n_frames = whisper.context_frames
    with recorder.part("feature"):
        samples = torch.from_numpy(np.ascontiguousarray(audio, dtype=np.float32))
        padded = F.pad(samples, (0, n_frames * FRAME_SAMPLES - samples.numel()))
        mel = log_mel(padded.to(whisper.device)[None], whisper.n_mels)
    with recorder.part("encode"):
        part = part_of(whisper.model, mel)
    hidden = yield Wanted("encode", partial(encode_parts, whisper.model), part)
    with recorder.part("encode"):
        decoder.append_frames(cache, hidden, 0)
    recorder.count(
        frames_real=_frames(audio),
        frames_computed=n_frames,
        encoder_flops=encoder_flops(whisper.config, n_frames),
    )
    return hidden


@dataclass(slots=True)
class DecodedWindow:
    """Text of one window and what is needed for its word times."""

    cache: DecoderCache
    prompt: list[int]
    tokens: list[int]
    log_probs: list[float]
    words: list[TokenWord]
    n_frames: int
    """Frames that word times may lie in."""
    end: int | None = None
    """The frame at which the text ends by its timestamps; None: it has none."""


class WindowDecoder:
    """The offline model on windows of at most its context."""

    def __init__(
        self,
        whisper: Whisper,
        beam: int = 1,
        max_tokens: int | None = None,
        *,
        guard: str = "none",
    ) -> None:
        self.whisper = whisper
        self.decoder = Decoder(whisper)
        self.search = BeamSearch(self.decoder, whisper.eot, max(1, beam), guard)
        self.max_tokens = max_tokens or whisper.max_tokens
        self.limit_samples = whisper.context_frames * FRAME_SAMPLES

    def decoding(
        self,
        audio: Samples,
        language: str | None,
        recorder: Recorder,
        previous: Sequence[int] = (),
        *,
        in_segments: bool = False,
    ) -> Passes[DecodedWindow]:
        """Transcribe (n,) samples, n at most the context, after the text of `previous` tokens.

        in_segments: with timestamps, as a window of a longer recording, by a model that has them.
        Of a full window only the segments that have ended count, since the next window begins where
        the last of them ends; all text counts where none has ended, and in the recording's last
        window, which is shorter. A step of `together`, as are all functions here that return
        `Passes`.
        """
        cache = DecoderCache(self.decoder, rows=self.search.beam)
        yield from window_pass(self.whisper, self.decoder, cache, audio, recorder)
        n_frames, first_timestamp = self.whisper.context_frames, self.whisper.first_timestamp
        guide = Timestamps(self.whisper) if in_segments and first_timestamp is not None else None
        window = yield from self.search_window(
            cache, n_frames, n_frames, language, recorder, previous, guide, _frames(audio)
        )
        if guide is None or first_timestamp is None:
            return window
        text_indices, n_complete, end = segmented(window.tokens, first_timestamp)
        if audio.size < self.limit_samples:  # the last window
            end = None
        if end is not None:
            text_indices = text_indices[:n_complete]
        window.tokens = [window.tokens[i] for i in text_indices]
        window.log_probs = [window.log_probs[i] for i in text_indices]
        window.words = self.whisper.detokenizer.words(window.tokens, language=language)
        # Without timestamps, as the tokens to align.
        window.prompt = self.whisper.prompt(language, previous)
        window.end, window.n_frames = end, end or n_frames
        return window

    def _most_tokens(self, n_frames: int) -> int:
        """Return how many tokens a text of `n_frames` of speech can have at most."""
        return min(self.max_tokens, math.ceil(TOKENS_PER_SECOND * n_frames * FRAME_S))

    def decode(self, audio: Samples, language: str | None, recorder: Recorder) -> DecodedWindow:
        """Run `decoding` by itself, for a single stream."""
        return alone(self.decoding(audio, language, recorder), recorder)

    def search_window(
        self,
        cache: DecoderCache,
        n_frames: int,
        n_timed: int,
        language: str | None,
        recorder: Recorder,
        previous: Sequence[int] = (),
        guide: Guide | None = None,
        n_heard: int | None = None,
        search: BeamSearch | None = None,
    ) -> Passes[DecodedWindow]:
        """Decode the text of the cache's first `n_frames` frames.

        n_timed: the frames in which word times may lie; the text has no more tokens than speech of
        that length can have. previous: tokens of the text before. n_heard: frames that hold audio
        of the new text, by default n_timed. search: by default self.search. guide: see
        `BeamSearch.passes`.
        """
        has_stamps = isinstance(guide, Timestamps)
        prompt = self.whisper.prompt(language, previous, timestamps=has_stamps)
        best = yield from (search or self.search).passes(
            cache,
            prompt,
            n_frames,
            self._most_tokens(n_timed),
            recorder,
            guide,
            n_heard or n_timed,
        )
        tokens = list(best.tokens)
        words = self.whisper.detokenizer.words(tokens, language=language)
        return DecodedWindow(cache, prompt, tokens, list(best.log_probs), words, n_timed)

    def times(self, window: DecodedWindow) -> Times:
        """Return (start, end) of each word in seconds of the window, by the alignment heads."""
        token_times = alignment_times(
            self.decoder,
            window.cache,
            self.whisper.alignment_heads,
            window.prompt,
            window.tokens,
            window.n_frames,
        )
        return [
            (token_times[word.start][0], token_times[word.stop - 1][1]) for word in window.words
        ]

    def seam(self, times: Times, end: int | None = None) -> tuple[int, int]:
        """Return where a full window is cut: the sample at which the next one begins, and the
        number of words before it.

        times: of the words. end: the frame at which the last segment ends, if timestamps give one.
        """
        if end:
            return end * FRAME_SAMPLES, len(times)
        n_frames = self.limit_samples // FRAME_SAMPLES
        ends_s = [end_s for _, end_s in times]
        first_start_s = times[0][0] if times else 0.0
        frame, n_before = Seam.of_full(n_frames).cut(
            ends_s, len(ends_s), n_frames, first_start=first_start_s
        )
        return frame * FRAME_SAMPLES, n_before


def emit_window(
    emitter: Emitter,
    window: DecodedWindow,
    n_words: int,
    times: Times,
    offset_s: float,
    heard_s: float,
) -> list[Word]:
    """Return the first `n_words` of a window as committed words of the stream.

    times: of the words, in seconds of the window, which begins at `offset_s` of the stream.
    heard_s: how much audio the stream has; no word ends later.
    """
    return [
        emitter.emit(
            word.text,
            start + offset_s,
            end + offset_s,
            heard_s,
            probability_of(word, window.log_probs),
        )
        for word, (start, end) in zip(window.words[:n_words], times, strict=False)
    ]


def _frames(audio: Samples) -> int:
    """Return the encoder frames that hold (n,) samples, rounded up."""
    return -(-len(audio) // FRAME_SAMPLES)


DecodeWindow = Callable[[Samples, list[int]], Passes[DecodedWindow]]
"""Called with samples of at most a window and the tokens of the text before."""


def transcribe_buffer(
    windows: WindowDecoder,
    audio: Samples,
    prompt: str | None,
    language: str | None,
    recorder: Recorder,
    decode: DecodeWindow | None = None,
) -> Passes[tuple[list[Word], list[int]]]:
    """Transcribe (n,) samples after the text `prompt`; return the words and their tokens.

    A buffer longer than a window is processed in windows, cut where a word ends; the prompt of each
    is the text before it. decode: instead of `windows.decoding`. Less than 0.1 s of audio has no
    words.
    """
    emitter = Emitter(language)
    words: list[Word] = []
    tokens: list[int] = []
    start = 0
    while audio.size - start >= SHORTEST_SAMPLES:
        samples = audio[start : start + windows.limit_samples]
        text_before = (prompt or "") + "".join(word.text for word in words)
        previous = windows.whisper.tokens_before(text_before)
        if decode is None:
            window = yield from windows.decoding(samples, language, recorder, previous)
        else:
            window = yield from decode(samples, previous)
        with recorder.part("decode"):  # the alignment is one more pass of the decoder
            times = windows.times(window)
            n_samples, n_words = audio.size - start, len(times)
            # More audio follows: the end of this window is left to the next one, which has it
            # whole.
            if n_samples > windows.limit_samples:
                n_samples, n_words = windows.seam(times)
            start_s, heard_s = start / SAMPLE_RATE, audio.size / SAMPLE_RATE
            words += emit_window(emitter, window, n_words, times, start_s, heard_s)
            tokens += window.tokens[: window.words[n_words - 1].stop if n_words else 0]
        # At least a frame, so that audio with no word in it comes to an end.
        start += max(n_samples, FRAME_SAMPLES)
    return words, tokens
