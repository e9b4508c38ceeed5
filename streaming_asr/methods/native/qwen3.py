"""Qwen3-ASR: it does not stream, so all audio so far is encoded and decoded again at every chunk.

The next decoding begins with its text, except the newest 5 tokens (rollback), as in the authors'
streaming inference; the first two chunks are decoded without. Those words are final.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from streaming_asr.errors import UserError
from streaming_asr.method import NULL, SAMPLE_RATE, Recorder, Samples
from streaming_asr.methods.native.again import Redecoded, Redecoder
from streaming_asr.methods.native.base import Placed, ends_of
from streaming_asr.models.native import Kind

ROLLBACK = 5  # tokens
FREE_CHUNKS = 2  # the first ones, whose text is not kept
LEAST_SAMPLES = SAMPLE_RATE // 10  # shorter audio is padded with silence
TOKENS_PER_S = 12.0  # the most
MARK = "<asr_text>"  # between the language and the text


@dataclass
class Qwen3State(Redecoded):
    """A stream: all its audio and its prompt, without the audio in it."""

    audio: Samples = field(default_factory=lambda: np.zeros(0, dtype=np.float32))
    prompt: str = ""
    names_language: bool = False  # the model begins with the language


class Qwen3(Redecoder):
    """The method. Weights and settings; a stream's own things are in its `Qwen3State`."""

    def __init__(self, folder: Path, kind: Kind, placed: Placed) -> None:
        """Load the model."""
        super().__init__(folder, kind, placed)
        self._ends = ends_of(self.model.config.eos_token_id)
        self._mark = self.processor.tokenizer.convert_tokens_to_ids(MARK)

    def start(self, *, language: str | None = None, recorder: Recorder = NULL) -> Qwen3State:
        """Return the state of a new stream. Raises UserError for an unknown language."""
        try:
            (prompt,) = self.processor.apply_transcription_request(
                np.zeros(SAMPLE_RATE, dtype=np.float32), language=language, tokenize=False
            )
        except ValueError as error:
            raise UserError(
                f"language={language}: Qwen3-ASR has no such language ({error}); leave language out"
            ) from error
        state = Qwen3State(recorder, self.writer(language), prompt=prompt)
        state.names_language = language is None
        return state

    def hypothesis(self, state: Qwen3State, audio: Samples) -> list[int]:
        """Decode all audio, with new (n,); return the tokens, which begin with the final ones."""
        state.audio = np.concatenate([state.audio, audio])
        with state.recorder.part("feature"):
            padded = np.pad(state.audio, (0, max(0, LEAST_SAMPLES - len(state.audio))))
            inputs = self.processor(text=[state.prompt], audio=[padded])
        return self.decode(inputs, state.tokens[: state.n_final], len(state.audio), state.recorder)

    def decode(
        self, inputs: Any, final: Sequence[int], n_samples: int, recorder: Recorder = NULL
    ) -> list[int]:
        """Decode the processor's inputs greedily; return the tokens, beginning with the final ones.

        n_samples: of the audio, which limits the tokens.
        """
        with recorder.part("encode"):
            features = inputs["input_features"].to(self.device, self.dtype)
            audio = self.model.get_audio_features(
                features, inputs["input_features_mask"].to(self.device)
            ).pooler_output
            recorder.count(frames_real=len(audio), frames_computed=len(audio))
        tokens, cache = list(final), None
        with recorder.part("decode"):
            prompt = inputs["input_ids"].to(self.device)
            ids = torch.cat([prompt, torch.tensor([tokens], dtype=torch.long).to(prompt)], dim=1)
            # Of the prompt and the final tokens, with the audio's frames in its places.
            vectors = self.model.get_input_embeddings()(ids)
            audio_places = self.model.model.get_placeholder_mask(ids, vectors, audio)
            vectors = vectors.masked_scatter(audio_places, audio.to(vectors))
            max_tokens = int(TOKENS_PER_S * n_samples / SAMPLE_RATE) + ROLLBACK
            while len(tokens) < max_tokens:
                output = self.model(
                    inputs_embeds=vectors, past_key_values=cache, use_cache=True, logits_to_keep=1
                )
                recorder.count(decode_steps=1, beam_sum=1)
                cache, token = output.past_key_values, int(output.logits[0, -1].argmax())
                if token in self._ends:
                    break
                tokens.append(token)
                vectors = self.model.get_input_embeddings()(prompt.new_tensor([[token]]))
        return tokens

    def n_stable(self, state: Qwen3State, before: Sequence[int]) -> int:
        """Return the tokens that stay: all but the newest, once the first chunks have passed."""
        return 0 if state.n_blocks <= FREE_CHUNKS else max(0, len(state.tokens) - ROLLBACK)

    def n_hidden(self, state: Qwen3State) -> int:
        """Return how many tokens name the language: all, until the mark behind the name."""
        if not state.names_language:
            return 0
        if self._mark in state.tokens:
            return state.tokens.index(self._mark) + 1
        return len(state.tokens)
