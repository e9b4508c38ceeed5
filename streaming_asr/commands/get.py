"""Obtains what runs on real speech need and prints where it lies and its licence.

streaming-asr get tiny.en base prompts prompts:fr other-100 clean-10 cv-native
streaming-asr get whisperrt-base-300ms chunkformer-en simul-whisper-detectors OWNER/REPO/FILE
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from streaming_asr.errors import UserError, did_you_mean
from streaming_asr.files import CONF_DIR
from streaming_asr.models.hub import reference
from streaming_asr.run.obtain import Got, get_published, table
from streaming_asr.terminal import command_parser, exit_status


def main(argv: Sequence[str] | None = None) -> int:
    """Obtain what is named and return the exit status."""
    names_of = table()
    about = "Obtains weights and recordings, prints where they lie and their licence."
    parser = command_parser("streaming-asr get", about)
    parser.add_argument(
        "name",
        nargs="+",
        help=f"any of {', '.join(names_of)}; OWNER/REPO or OWNER/REPO/FILE of the hub",
    )
    names = parser.parse_args(argv).name
    return exit_status(lambda: _get(names_of, names))


def _get(sources: Mapping[str, Callable[[], Got]], names: Sequence[str]) -> None:
    for name in names:
        if (CONF_DIR / "model" / f"{name}.yaml").exists() and name not in sources:
            raise UserError(
                f"{name}: no package carries it; the first run with model={name} takes it from the "
                "hub, or give model.path=<folder>"
            )
        if name not in sources and reference(name) is None:
            near = did_you_mean(name, sources)
            raise UserError(f"{name}: nothing to get of that name{near}; {', '.join(sources)}")
    for name in names:
        got = sources[name]() if name in sources else get_published(name)
        print(f"{name}: {got.folder}\n  from {got.source}\n  licence: {got.licence}")
        print(f"  use: {got.use}", flush=True)
