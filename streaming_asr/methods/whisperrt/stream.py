"""WhisperRT (arXiv 2508.12301): a causal Whisper that decodes in step with the audio.

Per chunk: log-mel of the new samples, the block-causal encoder on the new frames, then one
verification pass of the decoder over the text so far and cached steps for what is new.

What is committed is in `commit.py`: by default whole words among the tokens older than the last n,
which are never verified again; with commit=paper a crop may take words back, counted in
`Update.retracted`.

At the end of the stream the last block is filled up with zeros, decoded, and all is committed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from streaming_asr.errors import check_one_of, check_range
from streaming_asr.method import NULL, Recorder, Samples, Update, Word
from streaming_asr.methods.whisperrt.beam import decode_beam
from streaming_asr.methods.whisperrt.commit import Committer
from streaming_asr.methods.whisperrt.greedy import Row, decode_greedy
from streaming_asr.methods.whisperrt.hypothesis import Hypothesis, Settings
from streaming_asr.methods.whisperrt.state import Pool, StreamState
from streaming_asr.whisper.decoder import Decoder
from streaming_asr.whisper.encoder import encode_parts
from streaming_asr.whisper.features import LOOKAHEAD_SAMPLES, StreamingLogMel, mel_of_frames
from streaming_asr.whisper.flops import block_flops
from streaming_asr.whisper.guard import GUARDS
from streaming_asr.whisper.seam import Seam
from streaming_asr.whisper.search import TOKENS_PER_SECOND
from streaming_asr.whisper.settings import Chunked
from streaming_asr.whisper.together import Passes, SharedPasses, run_together


@dataclass(kw_only=True, eq=False)
class WhisperRT(SharedPasses, Chunked):
    """The method. Weights and settings; a stream's own things are in its `StreamState`.

    weights: folder of an adapter to merge, or none. beam: 0 or 1 greedy, else the beam's
    width b. n: last tokens verified per chunk. tolerance: a log-probability that fell by no more
    has not fallen; 0 is the paper's definition. commit: see `commit.py`. decoder_cache: keep the
    decoder's self-attention of tokens older than n (VI-B), an approximation. guard: repeats or
    none, see `whisper/guard.py`. Raises UserError on settings out of range.
    """

    weights: str | None
    beam: int
    n: int
    tolerance: float
    commit: str
    decoder_cache: bool
    guard: str

    lookahead_samples = LOOKAHEAD_SAMPLES

    def __post_init__(self) -> None:
        check_one_of(("stable", "paper"), commit=self.commit)
        check_one_of(GUARDS, guard=self.guard)
        check_range(0, n=self.n, beam=self.beam, tolerance=self.tolerance)
        super().__post_init__()
        whisper = self._whisper = self.load(self.weights)
        self._decoder = Decoder(whisper)
        self._seam = Seam.of(whisper.context_frames, self._chunk_frames, self._first_frames)
        self._commit_stable = self.commit == "stable"
        self._words = Committer(whisper, self._decoder, self.n, stable=self._commit_stable)
        self._settings = Settings(
            self._decoder,
            whisper.eot,
            n=self.n,
            # A quarter of the positions, so that a model that never ends its text leaves room.
            max_new=min(TOKENS_PER_SECOND * math.ceil(self.chunk_s), whisper.max_tokens // 4),
            beam=max(self.beam, 1),
            keep_cache=self.decoder_cache,
            tolerance=self.tolerance,
            guard=GUARDS[self.guard],
            chunk_frames=self._chunk_frames,
        )

    # ---- the protocol -----------------------------------------------------------------------

    def start(self, *, language: str | None = None, recorder: Recorder = NULL) -> StreamState:
        """Return the state of a new stream. `language` is for multilingual models (default en)."""
        return self.start_many(1, language=language, recorder=recorder)[0]

    def start_many(
        self, n: int, *, language: str | None = None, recorder: Recorder = NULL
    ) -> list[StreamState]:
        """Return `n` streams of one pool; when greedy and in phase they share their attention
        calls.

        In int8 they share nothing, see `whisper.quantise`.
        """
        beam = self._settings.beam
        prompt = self._whisper.prompt(language)
        # In int8 a row's numbers depend on the rows beside it, and beams need rows of their own.
        if beam == 1 and self.dtype != "int8":
            pool = Pool(self._whisper, self._decoder, n)
            places = [(pool, row) for row in range(n)]
        else:  # hypotheses of one stream are rows of its own pool
            places = [(Pool(self._whisper, self._decoder, 1, beam), 0) for _ in range(n)]
        return [
            StreamState(
                pool=pool,
                row=row,
                mel=pool.mel[row],
                prompt=list(prompt),
                language=language,
                recorder=recorder,
                features=StreamingLogMel(self._whisper.n_mels, device=self._whisper.device),
                chunk_frames=self._chunk_frames,
                next_end=self._first_frames,
            )
            for pool, row in places
        ]

    def step_many(
        self, states: Sequence[StreamState], audio: Sequence[Samples], *, last: Sequence[bool]
    ) -> list[Update]:
        """Advance each stream by one step, wherever each is; they share passes of the encoder and,
        when greedy, of the decoder.

        Frames and tokens are packed, not padded, see `whisper.together`; streams of one pool at the
        same place share their attention calls too.
        """
        committed: dict[int, list[Word]] = {id(state): [] for state in states}
        retracted: dict[int, int] = dict.fromkeys(committed, 0)
        arrived = list(audio)
        while True:
            for i, state in enumerate(states):
                with state.recorder.part("feature"):
                    state.hear(arrived[i], last[i], self._seam.limit)
                arrived[i] = np.zeros(0, np.float32)
            ready = [state for state in states if state.ready]
            if not ready:
                break
            groups = _in_phase(ready)
            self._encode(groups)
            self._decode(groups)
            for state in ready:
                with state.recorder.part("policy"):
                    words, taken_back = self._words.settle(state)
                committed[id(state)] += words
                retracted[id(state)] += taken_back
                if self._window_is_full(state):
                    committed[id(state)] += self._cut(state)
        for state, ends in zip(states, last, strict=True):
            if ends:
                with state.recorder.part("finalise"):
                    words, taken_back = self._words.finish(state)
                committed[id(state)] += words
                retracted[id(state)] += taken_back
        return [
            Update(tuple(committed[id(s)]), s.partial, retracted=retracted[id(s)]) for s in states
        ]

    # ---- one round --------------------------------------------------------------------------

    @torch.inference_mode()
    def _encode(self, groups: list[list[StreamState]], *, again: bool = False) -> None:
        with groups[0][0].recorder.part("encode"):
            parts = []
            for state, *rest in groups:
                start, ends, rows = state.position, state.ready, _rows([state, *rest])
                mel = mel_of_frames(state.pool.mel, start, ends[-1])[rows]
                parts.append(state.pool.encoder.part(mel, start, ends, rows))
            encoded = encode_parts(self._whisper.model, parts)
            for group, hidden in zip(groups, encoded, strict=True):
                state = group[0]
                self._decoder.append_frames(
                    state.pool.decoder, hidden, state.position, _rows(group)
                )
        for state in itertools.chain(*groups):
            start, ends, state.ready = state.position, state.ready, []
            state.encoded(ends, block_flops(self._whisper.config, start, ends), again=again)

    def _decode(self, groups: list[list[StreamState]]) -> None:
        recorder = groups[0][0].recorder
        if self._settings.beam == 1:
            run_together([self._greedy(group) for group in groups], recorder)
            return
        with recorder.part("decode"):
            for state in itertools.chain(*groups):
                n_frames = state.position
                state.hypotheses = decode_beam(
                    self._settings,
                    state.pool.decoder,
                    state.hypotheses,
                    state.prompt,
                    state.floor,
                    state.window_start + n_frames,
                    n_frames,
                    state.recorder,
                    raise_floor=self._commit_stable,
                    last=not state.more_to_come,
                )

    def _greedy(self, group: list[StreamState]) -> Passes[None]:
        first, n_frames = group[0], group[0].position
        rows = [
            Row(s.row, s.prompt, s.hypotheses[0], s.floor, s.window_start + n_frames) for s in group
        ]
        return decode_greedy(self._settings, first.pool.decoder, rows, n_frames, first.recorder)

    # ---- beyond the context -----------------------------------------------------------------

    def _tokens_are_full(self, state: StreamState, n_dropped: int = 0) -> bool:
        used = len(state.prompt) + len(state.hypotheses[0].tokens) - n_dropped
        return used + self._settings.max_new > self._whisper.max_tokens

    def _window_is_full(self, state: StreamState) -> bool:
        if not state.more_to_come:
            return False
        next_end = state.next_end - state.window_start
        return next_end > self._seam.limit or self._tokens_are_full(state)

    def _cut(self, state: StreamState) -> list[Word]:
        """Move the window past a word's end and encode what is kept at its new place."""
        with state.recorder.part("policy"):
            words = self._words.spell(state)
            times = self._words.align(state)
            start, n_before = self._seam.cut(
                [times[word.stop - 1][1] for word in words],
                len(state.emitted),
                state.position,
                self._chunk_frames,
            )
            # A loop of the decoder may fill all positions with words that never age: they go too.
            while n_before < len(words) and self._tokens_are_full(
                state, words[n_before - 1].stop if n_before else 0
            ):
                n_before += 1
            committed = self._words.emit(state, words, n_before)
            n_dropped = words[n_before - 1].stop if n_before else 0
            del state.hypotheses[1:]  # the other hypotheses may differ in what is dropped
            hypothesis: Hypothesis = state.hypotheses[0]
            hypothesis.drop(n_dropped)
            state.floor = max(0, state.floor - n_dropped)
            del state.emitted[:n_before]
            state.goes_on = state.goes_on or n_before > 0
            ends = state.move_window(start)
            state.partial = tuple(
                Word(word.text) for word in self._words.spell(state)[len(state.emitted) :]
            )
            state.ready = ends
        # Positions are absolute, so what is kept has to be encoded at its new place.
        self._encode([[state]], again=True)
        return committed


def _in_phase(states: list[StreamState]) -> list[list[StreamState]]:
    """Group states that can share a pass: of one pool, one place, the same new blocks."""
    groups: dict[tuple[int, int, tuple[int, ...]], list[StreamState]] = {}
    for state in states:
        key = (id(state.pool), state.position, tuple(state.ready))
        groups.setdefault(key, []).append(state)
    return [sorted(group, key=lambda state: state.row) for group in groups.values()]


def _rows(group: list[StreamState]) -> slice | torch.Tensor:
    rows = [state.row for state in group]
    if rows[-1] - rows[0] == len(rows) - 1:
        return slice(rows[0], rows[-1] + 1)
    return torch.tensor(rows, device=group[0].pool.mel.device)
