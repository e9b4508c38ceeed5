"""What the streaming models share: loading, the step over blocks of audio, batches of streams."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from streaming_asr.errors import UserError
from streaming_asr.method import NULL, SAMPLE_RATE, Recorder, Samples, Update, Word
from streaming_asr.methods.native.words import SPACES, Writer
from streaming_asr.models.native import Kind, type_of
from streaming_asr.models.tensors import quiet
from streaming_asr.whisper.together import SharedPasses

FAULTS = (OSError, RuntimeError, ValueError, LookupError, TypeError, ImportError)
NEWEST = "5.13"  # the first release of transformers that has most of the classes


@dataclass
class NativeState:
    """What every stream has. n_blocks: blocks computed; streams with as many may share a pass."""

    recorder: Recorder
    writer: Writer
    n_samples: int = 0  # received, at 16 kHz
    n_blocks: int = 0
    is_closed: bool = False
    committed: list[Word] = field(default_factory=list)  # in this step

    @property
    def heard_s(self) -> float:
        """Seconds of audio received."""
        return self.n_samples / SAMPLE_RATE


class Placed(NamedTuple):
    """What all models are built with."""

    chunk_ms: int
    device: str
    dtype: str


class Native(SharedPasses):
    """A model that takes audio in blocks of one size; a subclass defines the block."""

    lookahead_samples = 0
    reader = "AutoProcessor"
    """The class of transformers that reads what the model needs next to its weights."""

    def __init__(self, folder: Path, kind: Kind, placed: Placed) -> None:
        """Load the model. Raises UserError where the folder does not hold all of it."""
        self.model, self.processor = load(folder, kind, self.reader, placed)
        self.chunk_ms, self.device, self.dtype = placed.chunk_ms, placed.device, self.model.dtype

    # ---- what a subclass has ------------------------------------------------------------

    def start(self, *, language: str | None = None, recorder: Recorder = NULL) -> Any:
        """Return the state of a new stream. Raises UserError for an unknown language."""
        raise NotImplementedError

    def writer(self, language: str | None) -> Writer:
        """Return the words of a stream's final tokens."""
        tokenizer = self.processor.tokenizer
        return Writer(
            lambda ids: tokenizer.decode(list(ids), skip_special_tokens=True),
            lambda token: tokenizer.convert_ids_to_tokens(token).startswith(SPACES),
            language,
        )

    def take_in(self, state: Any, audio: Samples) -> None:
        """Keep new audio, (n,)."""
        state.mel.push(audio)

    def close(self, state: Any) -> None:
        """Pad the audio with silence to whole blocks; there is some."""
        raise NotImplementedError

    def block(self, state: Any) -> Tensor | None:
        """Take and return the next block, (1, ...); None where it is not whole yet."""
        raise NotImplementedError

    def run(self, states: Sequence[Any], blocks: Tensor) -> None:
        """Compute the next block, (n, ...), of n streams that are equally far; count it."""
        raise NotImplementedError

    def partial(self, state: Any) -> tuple[Word, ...]:
        """Return the words that are not final; none after `finish`."""
        words: tuple[Word, ...] = state.writer.partial(state.heard_s)
        return words

    def finish(self, state: Any) -> None:
        """Commit what is not final yet: the stream has ended."""
        state.committed += state.writer.finish(state.heard_s)

    # ---- the protocol -------------------------------------------------------------------

    @torch.inference_mode()
    def step_many(
        self, states: Sequence[Any], audio: Sequence[Samples], *, last: Sequence[bool]
    ) -> list[Update]:
        """Take in new audio of each stream, (n_i,), and return what changed in each.

        Streams that have computed as many blocks share passes.
        """
        for state, samples, is_last in zip(states, audio, last, strict=True):
            with state.recorder.part("feature"):
                state.n_samples += len(samples)
                if len(samples):
                    self.take_in(state, np.asarray(samples, dtype=np.float32))
                if is_last and state.n_samples and not state.is_closed:
                    self.close(state)
                    state.is_closed = True
        while self._pass(states):
            pass
        updates = []
        for state, is_last in zip(states, last, strict=True):
            if is_last:
                with state.recorder.part("finalise"):
                    self.finish(state)
            updates.append(Update(tuple(state.committed), self.partial(state)))
            state.committed = []
        return updates

    def _pass(self, states: Sequence[Any]) -> bool:
        """Compute one block of every stream that has one; False where none has."""
        groups: dict[tuple[int, torch.Size], list[tuple[Any, Tensor]]] = {}
        for state in states:
            with state.recorder.part("feature"):
                block = self.block(state)
            if block is not None:
                groups.setdefault((state.n_blocks, block.shape), []).append((state, block))
        for pairs in groups.values():
            self.run([state for state, _ in pairs], torch.cat([block for _, block in pairs]))
        return bool(groups)


def ends_of(tokens: int | Sequence[int] | None) -> set[int]:
    """Return the tokens that end a text, of a configuration's `eos_token_id`."""
    return {tokens} if isinstance(tokens, int) else set(tokens or ())


def load(folder: Path, kind: Kind, reader: str, placed: Placed) -> tuple[Any, Any]:
    """Return the model of a folder, and its processor, read by the class `reader` of transformers.

    Raises UserError where transformers is too old, or files are missing or do not fit.
    """
    import transformers
    from safetensors import SafetensorError

    name = kind.classes[type_of(folder) or ""]
    model_class = getattr(transformers, name, None)
    if model_class is None:
        raise UserError(
            f"model={kind.name}: transformers {transformers.__version__} has no {name}; "
            f"`pip install 'transformers>={NEWEST}'` brings it, other methods need no newer one"
        )
    try:
        with quiet(), _no_report():
            model, report = model_class.from_pretrained(
                folder,
                dtype=getattr(torch, placed.dtype),
                local_files_only=True,
                ignore_mismatched_sizes=True,  # refused below
                output_loading_info=True,
            )
            processor = getattr(transformers, reader).from_pretrained(folder, local_files_only=True)
    except (*FAULTS, SafetensorError) as error:
        first = next((line for line in str(error).splitlines() if line.strip()), repr(error))
        raise UserError(
            f"model.path={folder}: could not be loaded ({first.strip()}); download it again"
        ) from error
    for fault in ("missing_keys", "mismatched_keys"):
        names = sorted(map(str, report[fault]))
        if names:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            raise UserError(
                f"model.path={folder}: its weights do not fit its config.json ({fault}: {names[0]}"
                f"{more}); download it again"
            )
    return model.to(placed.device).eval().requires_grad_(False), processor


@contextmanager
def _no_report() -> Iterator[None]:
    """Keep away transformers' tables of what is missing, which `load` refuses."""
    from transformers.utils import logging

    level = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)


class Mel:
    """Log-mel frames of one stream, made by the model's own extractor as the audio comes in.

    Frame k has its middle at sample k * hop: the first frames see silence before the audio.
    """

    def __init__(self, extractor: Any, *, drops_last: bool = False) -> None:
        """drops_last: the extractor leaves out the last frame that its input has."""
        self._extract, self._drops_last = extractor, drops_last
        self._hop, self._width = int(extractor.hop_length), int(extractor.n_fft)
        self._audio = np.zeros(self._width // 2, dtype=np.float32)

    def push(self, audio: Samples) -> None:
        """Keep new audio, (n,)."""
        self._audio = np.concatenate([self._audio, audio])

    @property
    def n_ready(self) -> int:
        """How many frames `take` can return."""
        return max(0, (len(self._audio) - self._width) // self._hop + 1)

    def take(self, n: int) -> Tensor | None:
        """Return the features of the next `n` frames, (1, n, n_mels) or as the extractor has it.

        None where audio is missing.
        """
        if not 1 <= n <= self.n_ready:
            return None
        audio = self._audio[: (n - 1) * self._hop + self._width]
        if self._drops_last:
            audio = np.pad(audio, (0, self._hop))
        self._audio = self._audio[n * self._hop :]
        output = self._extract(audio, sampling_rate=SAMPLE_RATE, center=False, return_tensors="pt")
        return output["input_features"]

    def pad(self, n: int) -> None:
        """Add silence, so that `take(n)` has its audio."""
        n_lacking = (n - 1) * self._hop + self._width - len(self._audio)
        self.push(np.zeros(max(0, n_lacking), dtype=np.float32))


@contextmanager
def together(caches: Sequence[Any]) -> Iterator[Any]:
    """Join the caches of several streams for a `with` block; afterwards each has its row again.

    caches: keys and values (DynamicCache), or the left context of convolutions; of one row each,
    and of the same length.
    """
    if len(caches) == 1:
        yield caches[0]
        return
    joined = copy.copy(caches[0])
    joined.layers = _layers(joined.layers)
    for key, layer in _items(joined.layers):
        for name in TENSORS:
            if getattr(layer, name, None) is not None:
                rows = [getattr(cache.layers[key], name) for cache in caches]
                setattr(layer, name, torch.cat(rows))
    yield joined
    for i, cache in enumerate(caches):
        cache.layers = _layers(joined.layers)
        for _, layer in _items(cache.layers):
            for name in TENSORS:
                tensor = getattr(layer, name, None)
                if tensor is not None:
                    # A copy, since later passes write into it in place.
                    setattr(layer, name, tensor[i : i + 1].clone())


TENSORS = ("keys", "values", "cache")


def _layers(layers: Any) -> Any:
    """Return copies of the layers of a cache, in a dictionary or a list."""
    if isinstance(layers, dict):
        return {key: copy.copy(layer) for key, layer in layers.items()}
    return [copy.copy(layer) for layer in layers]


def _items(layers: Any) -> Iterable[tuple[Any, Any]]:
    return layers.items() if isinstance(layers, dict) else enumerate(layers)
