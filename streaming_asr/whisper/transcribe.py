"""Decode one window of audio, padded to the context, once: greedy or beam."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

from streaming_asr.method import Recorder, Samples, Word
from streaming_asr.whisper.alignment import alignment_times
from streaming_asr.whisper.decoder import Decoder, DecoderCache
from streaming_asr.whisper.encoder import encode_padded
from streaming_asr.whisper.features import FRAME_SAMPLES, log_mel
from streaming_asr.whisper.flops import encoder_flops
from streaming_asr.whisper.load import Whisper
from streaming_asr.whisper.words import LANGUAGES_WITHOUT_SPACES, TokenWord

SAMPLE_RATE = 16_000
SEAM_S = 2.0


@dataclass(slots=True)
class Window:
    """Text of one window and what is needed for its word times."""

    cache: DecoderCache
    prompt: list[int]
    tokens: list[int]
    log_probs: list[float]
    words: list[TokenWord]


class WindowDecoder:
    """The offline model on windows of at most its context."""

    def __init__(self, whisper: Whisper, beam: int = 1, max_tokens: int | None = None) -> None:
        self.whisper = whisper
        self.decoder = Decoder(whisper)
        self.beam = max(1, beam)
        self.max_tokens = max_tokens or whisper.max_tokens
        self.context_samples = whisper.context_frames * FRAME_SAMPLES

    @torch.inference_mode()
    def decode(
        self,
        audio: Samples,
        language: str | None,
        recorder: Recorder,
        previous: Sequence[int] = (),
    ) -> Window:
        """Transcribe (n,) samples, n at most the context, after the text of `previous` tokens."""
        whisper = self.whisper
        with recorder.part("feature"):
            samples = torch.from_numpy(np.ascontiguousarray(audio, dtype=np.float32))
            padded = F.pad(samples, (0, self.context_samples - samples.numel()))
            mel = log_mel(padded.to(whisper.device)[None], whisper.n_mels)
        with recorder.part("encode"):
            hidden = encode_padded(whisper.model, mel)
            cache = DecoderCache(self.decoder, rows=self.beam, streams=1)
            self.decoder.append_frames(cache, hidden, 0)
        recorder.count(
            frames_real=-(-samples.numel() // FRAME_SAMPLES),
            frames_computed=whisper.context_frames,
            encoder_flops=encoder_flops(whisper.config, whisper.context_frames),
        )
        prompt = whisper.prompt(language, previous=previous)
        with recorder.part("decode"):
            tokens, log_probs = self._search(cache, prompt, recorder)
        words = whisper.detokenizer.words(tokens, language=language)
        return Window(cache, prompt, tokens, log_probs, words)

    def _search(
        self, cache: DecoderCache, prompt: list[int], recorder: Recorder
    ) -> tuple[list[int], list[float]]:
        """Best text by beam search of width `beam` (1: greedy), without its end token.

        Hypotheses that predict the end are set aside until there are `beam`; the best mean
        log-probability wins, the end token included.
        """
        eot = self.whisper.eot
        beams: list[tuple[list[int], list[float]]] = [([], [])]
        ended: list[tuple[list[int], list[float]]] = []
        feed = [list(prompt)]
        while True:
            start = len(prompt) + len(beams[0][0]) - (1 if beams[0][0] else len(prompt))
            hidden = self.decoder.run(
                cache, feed, [start] * len(feed), self.whisper.context_frames, stream=0
            )
            top = self.decoder.log_probs(hidden)[:, 0].topk(self.beam)
            recorder.count(decode_steps=1, beam_sum=len(beams))
            candidates = [
                (sum(log_probs) + log_prob, i, token, log_prob)
                for i, (_, log_probs) in enumerate(beams)
                for token, log_prob in zip(
                    top.indices[i].tolist(), top.values[i].tolist(), strict=True
                )
            ]
            candidates.sort(reverse=True)
            parents: list[int] = []
            grown: list[tuple[list[int], list[float]]] = []
            for _, i, token, log_prob in candidates[: 2 * self.beam]:
                tokens, log_probs = beams[i]
                if token == eot:
                    ended.append((tokens, [*log_probs, log_prob]))
                elif len(grown) < self.beam:
                    grown.append(([*tokens, token], [*log_probs, log_prob]))
                    parents.append(i)
                if len(ended) >= self.beam:
                    break
            if len(ended) >= self.beam or not grown:
                break
            length = len(prompt) + len(grown[0][0])
            beams = grown
            if length >= self.decoder.max_tokens or len(grown[0][0]) >= self.max_tokens:
                ended = ended or grown
                break
            cache.reorder(parents, length)
            feed = [[tokens[-1]] for tokens, _ in beams]
        return max(ended, key=lambda text: sum(text[1]) / len(text[1]))

    def times(self, window: Window) -> list[tuple[float, float]]:
        """(start, end) of each word in seconds of the window, by the alignment heads."""
        tokens = alignment_times(
            self.decoder,
            window.cache,
            self.whisper.alignment_heads,
            window.prompt,
            window.tokens,
            self.whisper.context_frames,
            0,
            0,
        )
        return [(tokens[word.start][0], tokens[word.stop - 1][1]) for word in window.words]

    def seam(self, window: Window) -> tuple[int, int]:
        """Where a full window is cut: (samples, words before the cut).

        At the end of the last word that ends two seconds (an eighth of a short context) before
        the window does; where there is none, before the first word or at those two seconds.
        """
        context_s = self.whisper.context_s
        limit = context_s - min(SEAM_S, context_s / 8)
        times = self.times(window)
        n_before = sum(1 for _, end in times if end <= limit)
        if n_before and times[n_before - 1][1] > 0:
            cut = times[n_before - 1][1]
        else:
            n_before = 0
            cut = min([limit, *(start for start, _ in times[:1] if start > 0)])
        return round(cut * SAMPLE_RATE), n_before


def as_words(
    window: Window,
    n_words: int,
    times: list[tuple[float, float]] | None,
    offset_s: float,
    heard_s: float,
    *,
    goes_on: bool,
    language: str | None,
) -> list[Word]:
    """The first `n_words` with their times in the stream; `goes_on`: text stands before them."""
    words = []
    for i, word in enumerate(window.words[:n_words]):
        text = word.text
        if i == 0 and goes_on and not text.startswith(" "):
            text = text if language in LANGUAGES_WITHOUT_SPACES else " " + text
        log_probs = window.log_probs[word.start : word.stop]
        probability = float(np.exp(min(0.0, sum(log_probs) / len(log_probs))))
        start = end = None
        if times is not None:
            start, end = (min(t + offset_s, heard_s) for t in times[i])
        words.append(Word(text, start, end, probability))
    return words
