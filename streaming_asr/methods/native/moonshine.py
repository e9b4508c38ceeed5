"""Moonshine Streaming: an encoder with a sliding window, and a decoder that attends to all of it.

The class has no cache: the encoder runs again over the newest frames and those that they see, and
a frame is frozen once no later audio reaches it. The decoder decodes the segment again at every
chunk; a word is final when two decodings in turn have it. A segment is at most 20 s long,
and no longer than the model has positions; with gate=speech it ends at a pause.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from streaming_asr.errors import UserError
from streaming_asr.method import NULL, SAMPLE_RATE, Recorder, Samples
from streaming_asr.methods.native.again import Redecoded, Redecoder
from streaming_asr.methods.native.base import Placed, ends_of
from streaming_asr.models.native import Kind
from streaming_asr.text.tokens import common_prefix

SEGMENT_S = 20.0
TOKENS_PER_S = 6.5  # the most, as the model's authors limit them
STRIDE = 4  # of the embedder: frames of it in one of the encoder


@dataclass
class MoonshineState(Redecoded):
    """A stream: the newest audio, from frame `first` of the encoder on, and the frozen frames."""

    audio: Samples = field(default_factory=lambda: np.zeros(0, dtype=np.float32))
    first: int = 0
    n_frozen: int = 0  # of the stream
    frames: list[Tensor] = field(default_factory=list)  # frozen, of the segment: (n, d) each
    tail: Tensor | None = None  # (n, d) that later audio may change


class Moonshine(Redecoder):
    """The method. Weights and settings; a stream's own things are in its `MoonshineState`."""

    def __init__(self, folder: Path, kind: Kind, placed: Placed) -> None:
        """Load the model. Raises UserError where its features need the whole recording."""
        super().__init__(folder, kind, placed)
        if getattr(self.processor.feature_extractor, "do_normalize", False):
            raise UserError(
                f"model.path={folder}: its extractor normalises by the whole recording, so it "
                "cannot stream; take the published moonshine-streaming"
            )
        config = self.model.config.encoder_config
        self._unit = round(config.sample_rate * config.frame_ms / 1000)  # samples of an embedding
        self._frame_samples = STRIDE * self._unit
        self._most = int(self.model.config.max_position_embeddings)  # frames of a segment
        windows = config.sliding_windows  # of each layer: frames to the left and right
        # How many frames before and after it all layers together let a frame depend on.
        self._n_after = sum(max(0, after - 1) for _, after in windows)
        # Two convolutions of the embedder reach 12 embeddings back, which are 3 frames.
        self._n_before = sum(before - 1 for before, _ in windows) + 3
        self._ends = ends_of(self.model.config.eos_token_id)

    def start(self, *, language: str | None = None, recorder: Recorder = NULL) -> MoonshineState:
        """Return the state of a new stream."""
        if language not in (None, "en"):
            raise UserError(f"language={language}: Moonshine Streaming knows English only")
        return MoonshineState(recorder, self.writer(language))

    def hypothesis(self, state: MoonshineState, audio: Samples) -> list[int]:
        """Encode new audio, (n,), and decode the segment."""
        is_end = state.is_closed and not len(state.waiting)
        with state.recorder.part("encode"):
            self._encode(state, audio, is_end=is_end)
        with state.recorder.part("decode"):
            tail = [] if state.tail is None else [state.tail]
            n_frozen, n_step = sum(map(len, state.frames)), -(-len(audio) // self._frame_samples)
            n_frames = n_frozen + sum(map(len, tail))
            if n_frames > self._most:
                raise UserError(
                    f"a step of {len(audio) / SAMPLE_RATE:g} s: the model has positions for "
                    f"{self._most * self._frame_samples / SAMPLE_RATE:g} s; give a shorter chunk"
                )
            is_full = n_frozen * self._frame_samples >= SEGMENT_S * SAMPLE_RATE
            if is_full or (n_frozen and n_frames + n_step > self._most):
                self._end_segment(state)
            frames = torch.cat([*state.frames, *tail])
            return self.decode(frames, state.tokens[: state.n_final], state.recorder)

    def _encode(self, state: MoonshineState, audio: Samples, *, is_end: bool) -> None:
        """Encode the kept audio with new (n,), and freeze the frames that no later audio reaches.

        Of the audio only what later frames need is kept. is_end: no more audio comes.
        """
        state.audio = np.concatenate([state.audio, audio])
        n = len(state.audio) // self._unit * self._unit
        if is_end:  # the last frame is padded with silence
            n = -(-len(state.audio) // self._unit) * self._unit
            state.audio = np.pad(state.audio, (0, n - len(state.audio)))
        if not n:
            return
        values = torch.from_numpy(state.audio[:n])[None].to(self.device, self.dtype)
        # Without a mask the class leaves the sliding window out.
        mask = torch.ones(values.shape, dtype=torch.long, device=self.device)
        encoder = self.model.get_encoder()
        (frames,) = encoder(values, attention_mask=mask).last_hidden_state
        end = state.first + len(frames)
        n_frozen = max(state.n_frozen, end if is_end else end - self._n_after)
        n_newly_frozen = n_frozen - state.n_frozen
        not_frozen = frames[state.n_frozen - state.first :]
        state.frames.append(not_frozen[:n_newly_frozen])
        state.tail = not_frozen[n_newly_frozen:]
        state.recorder.count(frames_real=n_newly_frozen, frames_computed=len(frames))
        state.n_frozen = n_frozen
        first = max(state.first, n_frozen - self._n_before)
        state.audio = state.audio[(first - state.first) * self._frame_samples :]
        state.first = first

    def _end_segment(self, state: MoonshineState) -> None:
        """Commit all text of the frozen frames and begin with those after them."""
        state.tokens = self.decode(
            torch.cat(state.frames), state.tokens[: state.n_final], state.recorder
        )
        self.commit(state, len(state.tokens))
        state.tokens, state.n_final, state.frames = [], 0, []

    def decode(self, frames: Tensor, final: Sequence[int], recorder: Recorder = NULL) -> list[int]:
        """Decode frames, (n, d), greedily; return the tokens, which begin with the `final` ones."""
        if not len(frames):
            return list(final)
        from transformers.models.moonshine_streaming import modeling_moonshine_streaming

        encoder_output = modeling_moonshine_streaming.MoonshineStreamingEncoderModelOutput
        max_tokens = int(TOKENS_PER_S * len(frames) * self._frame_samples / SAMPLE_RATE) + 1
        start = self.model.generation_config.decoder_start_token_id
        start = self.model.config.bos_token_id if start is None else start
        tokens, cache = list(final), None
        ids = [start, *tokens]  # all at once, then one token a step
        while len(tokens) < max_tokens:
            output = self.model(
                decoder_input_ids=torch.tensor([ids], device=self.device),
                # The class adds positions to it in place.
                encoder_outputs=encoder_output(last_hidden_state=frames[None].clone()),
                past_key_values=cache,
                use_cache=True,
            )
            recorder.count(decode_steps=1, beam_sum=1)
            cache, token = output.past_key_values, int(output.logits[0, -1].argmax())
            if token in self._ends:
                break
            tokens.append(token)
            ids = [token]
        return tokens

    def n_stable(self, state: MoonshineState, before: Sequence[int]) -> int:
        """Return how many tokens the decodings of two chunks share."""
        return common_prefix(before, state.tokens)
