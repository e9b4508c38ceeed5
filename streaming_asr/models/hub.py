"""Published weights by their name on the hub: OWNER/REPO, OWNER/REPO/FILE or a short name.

@REVISION may follow REPO. A name is looked up in the hub's cache; only `fetch` asks the hub.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from streaming_asr.errors import UserError, did_you_mean
from streaming_asr.files import cache_root
from streaming_asr.machine import no_way
from streaming_asr.models.native import KINDS, type_of

CARD = "README.md"
FOLDER_FILES = (
    # of a ChunkFormer
    "config.yaml",
    "vocab.txt",
    "global_cmvn",
    # of an adapter of peft, a model built for streaming or a Whisper
    "*.json",
    "tokenizer.model",
    "merges.txt",
)
"""The files that a repository without a FILE in its name is asked for, next to its weights."""
WEIGHTS = (
    *("pytorch_model.*", "pytorch_model-*-of-*.bin", "adapter_model.*"),
    *("model.bin", "model-*-of-*.safetensors", "model.safetensors"),
)
WHISPERRT = "MLSpeech/CarelessWhisper-Streaming"
WHISPERRT_CHUNKS = {
    "base": (40, 100, 200, 300),
    "small": (40, 100, 200, 300, 1000),
    "large-v2": (40, 100, 200, 300, 1000),
}
"""The chunks in ms of the checkpoints that WhisperRT's authors publish, by the size of Whisper."""

DETECTORS = "simul-whisper-detectors"
"""The short name of the detectors that Simul-Whisper's authors publish, which git fetches."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A repository of the hub and a file in it; file=None: the repository's weights."""

    repository: str
    revision: str | None = None
    file: str | None = None

    def __str__(self) -> str:
        at = f"@{self.revision}" if self.revision else ""
        return f"{self.repository}{at}" + (f"/{self.file}" if self.file else "")


@dataclass(frozen=True, slots=True)
class PublishedWeights:
    """Weights that the authors of a method publish, and the settings that use them."""

    reference: Reference
    use: str


def published() -> dict[str, PublishedWeights]:
    """Return the published weights by their short names."""
    table = {}
    for size, chunks in WHISPERRT_CHUNKS.items():
        use = f"method=whisperrt model={size} method.weights="
        for chunk in chunks:
            name = f"whisperrt-{size}-{chunk}ms"
            file = Reference(WHISPERRT, file=f"{size}_{chunk}.pt")
            table[name] = PublishedWeights(file, f"{use}{name} chunk={chunk}ms")
        name = f"whisperrt-{size}-any_chunk"
        table[name] = PublishedWeights(Reference(WHISPERRT, file=f"{size}_rcs.pt"), f"{use}{name}")
    name = "whisperrt-large-v2-300ms-multilingual"
    use = f"method=whisperrt model=large-v2 method.weights={name} chunk=300ms"
    table[name] = PublishedWeights(Reference(WHISPERRT, file="large-v2_300_multi.pt"), use)
    for name, repository in (
        ("chunkformer-en", "khanld/chunkformer-large-en-libri-960h"),
        ("chunkformer-vi", "khanld/chunkformer-ctc-large-vie"),
    ):
        use = f"method=chunkformer model=chunkformer model.path={name}"
        table[name] = PublishedWeights(Reference(repository), use)
    for name, kind in KINDS.items():
        table[name] = PublishedWeights(Reference(kind.repository), f"method=native model={name}")
    return table


def detectors_folder() -> Path:
    """Return the folder of Simul-Whisper's published detectors, a file for each Whisper size."""
    return cache_root() / "published" / DETECTORS / "cif_models"


def reference(name: str) -> Reference | None:
    """Return the reference that a short name or OWNER/REPO[@REVISION][/FILE] means; None for a path
    and for any other word."""
    if name in published():
        return published()[name].reference
    if name.startswith((".", "/", "~")) or os.path.exists(name):
        return None
    part = r"[\w-][\w.-]*"
    match = re.fullmatch(rf"({part}/{part})(?:@([\w.-]+))?((?:/{part})*)", name)
    if match is None or len(match[1]) > 96:  # the hub's limit
        return None
    return Reference(match[1], match[2], match[3].removeprefix("/") or None)


def cached(source: Reference) -> Path | None:
    """Return a reference's file or folder in the hub's cache; None if missing or incomplete.

    The rule of the hub's client, whose import takes longer: refs/<name> holds a commit, and
    snapshots/<commit> its files.
    """
    from huggingface_hub import constants

    home = Path(constants.HF_HUB_CACHE) / f"models--{source.repository.replace('/', '--')}"
    revision = source.revision or "main"
    with suppress(OSError, ValueError):
        revision = (home / "refs" / revision).read_text(encoding="utf-8").strip()
    folder = home / "snapshots" / revision
    if source.file is None:
        return folder if folder.is_dir() and _is_whole(folder) else None
    file = folder / source.file
    return file if file.is_file() else None


def _is_whole(folder: Path) -> bool:
    """Return whether a folder holds weights with all their parts; `fetch` downloads them last."""
    weights = _weights([file.name for file in folder.iterdir() if file.is_file()])
    if not weights:
        return False
    n_parts = re.search(r"-of-0*(\d+)\.", weights[0])  # as in model-00001-of-00002.safetensors
    return n_parts is None or len(weights) == int(n_parts[1])


def _weights(names: Sequence[str]) -> list[str]:
    """Return the names of the weights among the files of a repository: one file, or its parts.

    The first pattern of WEIGHTS that matches counts for a ChunkFormer, the last one for others.
    """
    by_kind = [[name for name in names if fnmatchcase(name, each)] for each in WEIGHTS]
    is_chunkformer = "config.yaml" in names
    if not is_chunkformer:
        by_kind.reverse()
    chosen = next((files for files in by_kind if files), [])
    return sorted(chosen) if len(chosen) > 1 and "-of-" in chosen[0] else chosen[:1]


def fetch(source: Reference, *, whisper: bool = False) -> Path:
    """Return the file or folder of a reference, downloaded where the hub's cache lacks it.

    whisper: it is a Whisper, not other weights. Raises UserError where the hub cannot be reached or
    has no such repository or file.
    """
    place = cached(source)
    if place is not None:
        return place
    from huggingface_hub import HfApi, constants, hf_hub_download

    endpoint = os.environ.get("HF_ENDPOINT") or constants.ENDPOINT
    if constants.HF_HUB_OFFLINE or os.environ.get("HF_HUB_OFFLINE") == "1":
        raise UserError(f"{source}: is not on this machine, and HF_HUB_OFFLINE is set; unset it")
    problem = no_way(endpoint)
    if problem:
        raise UserError(
            f"{source}: is not on this machine, and {problem}; where there is a network: "
            f"{_hf_command(source)}"
        )
    with _explained(source):
        info = HfApi(endpoint=endpoint).model_info(source.repository, revision=source.revision)
        names = [sibling.rfilename for sibling in info.siblings or ()]
        for name in _chosen(source, names):
            if not whisper and name.startswith("model") and name.endswith(".safetensors"):
                _refuse_others(source)  # its config.json was downloaded before
            path = hf_hub_download(
                source.repository, name, revision=source.revision, endpoint=endpoint
            )
    folder = Path(path).parents[name.count("/")]  # of the repository, in the cache
    return folder / source.file if source.file else folder


def _refuse_others(source: Reference) -> None:
    """Raise UserError for a model that method=native does not run, by its cached config.json."""
    from huggingface_hub import try_to_load_from_cache

    file = try_to_load_from_cache(source.repository, "config.json", revision=source.revision)
    stated = type_of(Path(file).parent) if isinstance(file, str) else None
    if not any(stated in kind.classes for kind in KINDS.values()):
        whisper = f"; give model=whisper model.path={source}" if stated == "whisper" else ""
        raise UserError(
            f"{source}: the repository holds a model of type {stated}, which method=native does "
            f"not run{whisper}"
        )


def on_this_machine(name: str) -> str:
    """Return the path of the weights that a name means, downloaded if it is a name of the hub; a
    path stays as it is. Raises UserError as `fetch`.
    """
    source = reference(name)
    return name if source is None else str(fetch(source))


def _chosen(source: Reference, names: Sequence[str]) -> list[str]:
    """Return which files to download, weights last. Raises UserError where no method has a use."""
    card = [CARD] if CARD in names else []
    if source.file is not None:
        if source.file not in names:
            near = did_you_mean(source.file, names)
            raise UserError(
                f"{source}: the repository has no such file{near}; it has {_some(names)}"
            )
        return [*card, source.file]
    weights = _weights(names)
    if not weights:
        raise UserError(
            f"{source}: the repository holds neither a ChunkFormer nor an adapter, nor a model "
            f"built for streaming; it has {_some(names)}. Name a file as {source.repository}/FILE, "
            "or a Whisper by model.path"
        )
    top = [name for name in names if "/" not in name]
    small = [name for name in top if any(fnmatchcase(name, each) for each in FOLDER_FILES)]
    return [*card, *small, *weights]


def _some(names: Sequence[str]) -> str:
    listed = sorted(name for name in names if not name.startswith(".") and name != CARD)
    more = f" and {len(listed) - 30} more" if len(listed) > 30 else ""
    return (", ".join(listed[:30]) or "no files") + more


@contextmanager
def _explained(source: Reference) -> Iterator[None]:
    """Turn errors of the hub's client inside the block into a UserError with the remedy."""
    from huggingface_hub import errors

    page = f"https://huggingface.co/{source.repository}"
    login = "log in with `hf auth login`, or set HF_TOKEN"
    try:
        yield
    except errors.GatedRepoError as error:
        raise UserError(
            f"{source}: the repository is gated; accept its conditions at {page} and {login}"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise UserError(
            f"{source}: the repository has no revision {source.revision}; leave it out, or take "
            f"one from {page}"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise UserError(
            f"{source}: the hub has no such repository, or it is private; correct the name, or, "
            f"for a private one, {login}"
        ) from error
    except UserError:
        raise
    except Exception as error:  # of the HTTP client too; a mirror's answer may be of another form
        reason = next((line for line in str(error).splitlines() if line.strip()), repr(error))
        if isinstance(error, (TypeError, KeyError, AttributeError)):
            reason = "the answer has another form than the hub's; is HF_ENDPOINT a mirror of it?"
        raise UserError(
            f"{source}: could not be downloaded ({reason.strip().rstrip('.')}); run the same "
            f"command again, or use {_hf_command(source)}"
        ) from error


def _hf_command(source: Reference) -> str:
    file = f" {source.file}" if source.file else ""
    revision = f" --revision {source.revision}" if source.revision else ""
    return f"`hf download {source.repository}{file}{revision}`"


def licence_of(place: Path, source: Reference) -> str:
    """Return the licence that a repository's card states; place: the result of `fetch(source)`."""
    from huggingface_hub import metadata_load

    # The file may lie in a folder of the repository.
    depth = len(Path(source.file).parts) if source.file else 0
    folder = place.parents[depth - 1] if depth else place
    card = folder / CARD
    try:
        stated: Any = metadata_load(card) if card.is_file() else None
    except (OSError, ValueError):
        stated = None
    licence = stated.get("license") if isinstance(stated, dict) else None
    name = stated.get("license_name") if isinstance(stated, dict) else None
    return str(name or licence or f"none stated; see https://huggingface.co/{source.repository}")
