"""score import and score export: logs of other tools, in and out (docs/formats.md)."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from streaming_asr.errors import UserError
from streaming_asr.events.check import N_LISTED, InvalidLog
from streaming_asr.events.log import EventWriter, UtteranceLog, read_log
from streaming_asr.files import beside
from streaming_asr.metrics import METRICS_VERSION
from streaming_asr.metrics.table import unmeasured
from streaming_asr.score.folder import EVENTS, find_cells, score_folder
from streaming_asr.score.formats import FORMATS
from streaming_asr.score.formats.foreign import meet, reference
from streaming_asr.score.formats.nist import references as stm_references
from streaming_asr.terminal import command_parser
from streaming_asr.text.normalise import NORMALISERS
from streaming_asr.utterance import Utterance

IMPORT_EPILOG = """\
formats
{formats}

references
  --manifest takes a manifest (JSONL, as the corpora are written), an STM file, or a cell of
  results, whose references are taken. Recordings of it that FILE does not hold count as failed.
  An instances.log holds its own references; the others need --manifest.

  What FILE does not tell stays null: docs/formats.md has a table.

examples
  python -m streaming_asr.score import simuleval instances.log --into outputs/rivals/theirs
  python -m streaming_asr.score import whisper_online lines/ --manifest test.jsonl --name ufal
"""
EXPORT_EPILOG = """\
formats
{formats}

  Files go to FOLDER/FORMAT/ or, below --into, to the same place for every cell.

examples
  python -m streaming_asr.score export simuleval outputs/default
  python -m streaming_asr.score export whisper_online outputs/default --comp-unaware
"""


def import_command(argv: Sequence[str]) -> int:
    """Make a cell of results of another tool's log and score it."""
    parser = _parser("import", "Score another tool's log by the same code.", IMPORT_EPILOG)
    parser.add_argument("format", choices=FORMATS, metavar="FORMAT")
    parser.add_argument("file", type=Path, metavar="FILE", help="the log, or a folder of them")
    parser.add_argument("--manifest", type=Path, help="the references: JSONL, STM or a cell")
    parser.add_argument("--into", type=Path, metavar="FOLDER", help="outputs/imported/NAME")
    parser.add_argument("--name", help="what the method is called in tables; default: FILE's name")
    parser.add_argument(
        "--comp-unaware",
        action="store_true",
        help="the times were made without waiting for the compute (whisper_online and "
        "SimulStreaming with --comp_unaware)",
    )
    parser.add_argument(
        "--normaliser", choices=NORMALISERS, default="whisper", help="of error rates; whisper"
    )
    arguments = parser.parse_args(argv)
    if not arguments.file.exists():
        raise UserError(f"{arguments.file}: no such file; correct the path.")
    name = arguments.name or arguments.file.stem
    folder = arguments.into or Path("outputs", "imported", name)
    if (folder / EVENTS).exists():
        raise UserError(
            f"{folder}: holds an {EVENTS} already; remove it, or name another folder with --into."
        )
    each = FORMATS[arguments.format]
    options = _options(arguments)
    expected = None if arguments.manifest is None else references(arguments.manifest)
    streams, known = each.read(arguments.file, **options)
    if not streams:
        raise UserError(f"{arguments.file}: no recording in it; was the run finished?")
    imported = meet(streams, expected, arguments.file)
    header = {
        "config": {
            "method": {"name": name},
            "normaliser": arguments.normaliser,
            "imported": {"format": arguments.format, "file": str(arguments.file)},
        },
        "versions": {},
        "machine": {},
        "metrics_version": METRICS_VERSION,
        "knows": sorted(known),
        "unmeasured": unmeasured(known),
    }
    _write(folder, header, imported.utterances)
    result = score_folder(folder)
    wer = result["metrics"]["wer"]
    print(
        f"{folder}: {result['n_utterances']} utterances"
        + (f", {len(imported.absent)} of them absent from the file" if imported.absent else "")
        + f"; knows {', '.join(sorted(known))}"
        + ("" if wer is None else f"; WER {wer:.2f} %")
    )
    return 0


def _write(folder: Path, header: dict[str, Any], utterances: Sequence[UtteranceLog]) -> None:
    """Write folder/events.jsonl, or nothing where the log would be invalid or the disk is full."""
    is_new = not folder.exists()
    try:
        with beside(folder / EVENTS) as scratch:
            with EventWriter(scratch, header) as writer:
                for utterance in utterances:
                    writer.write_utterance(utterance)
            read_log(scratch)
    except InvalidLog as error:
        listed = "\n  ".join(error.violations[:N_LISTED])
        raise UserError(
            f"{header['config']['imported']['file']}: gives no valid log, so nothing was imported; "
            f"by the line of {EVENTS}:\n  {listed}"
        ) from error
    finally:
        if is_new:
            with suppress(OSError):
                folder.rmdir()  # which an import that failed leaves empty


def export_command(argv: Sequence[str]) -> int:
    """Write the log of every cell in another tool's format."""
    parser = _parser("export", "Write logs in another tool's format.", EXPORT_EPILOG, writing=True)
    writable = [name for name, each in FORMATS.items() if each.write is not None]
    parser.add_argument("format", choices=writable, metavar="FORMAT")
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="a cell or a folder of cells")
    parser.add_argument("--into", type=Path, metavar="FOLDER", help="where to write instead")
    parser.add_argument(
        "--comp-unaware",
        action="store_true",
        help="whisper_online: times without the compute (default: with)",
    )
    arguments = parser.parse_args(argv)
    write = FORMATS[arguments.format].write
    assert write is not None
    for cell in find_cells(arguments.folder):
        place = cell
        if arguments.into is not None:
            place = arguments.into / cell.relative_to(arguments.folder)
        target = place / arguments.format
        written = write(read_log(cell / EVENTS), target, **_options(arguments))
        print(f"{target}: {len(written)} file{'' if len(written) == 1 else 's'}")
    return 0


def references(path: Path) -> list[Utterance]:
    """Return what was said, from a manifest, an STM file, a log or the folder of one."""
    if path.suffix == ".stm":
        return stm_references(path)
    log = path / EVENTS if path.is_dir() else path
    if log.name == EVENTS:
        known = ("words", "speaker", "language", "audio_path")
        return [
            reference(u.utt, u.text, u.duration_s, **{name: getattr(u, name) for name in known})
            for u in read_log(log).utterances
        ]
    from streaming_asr.corpora.manifest import read_manifest

    return read_manifest(path)


def _options(arguments: argparse.Namespace) -> dict[str, bool]:
    if arguments.comp_unaware and not FORMATS[arguments.format].two_modes:
        raise UserError(
            f"--comp-unaware: the times of {arguments.format} have one meaning; leave it out."
        )
    return {"comp_unaware": True} if arguments.comp_unaware else {}


def _parser(
    name: str, description: str, epilog: str, *, writing: bool = False
) -> argparse.ArgumentParser:
    listed = [
        f"  {key:15} {each.what}"
        for key, each in FORMATS.items()
        if each.write is not None or not writing
    ]
    text = epilog.format(formats="\n".join(listed))
    return command_parser(f"python -m streaming_asr.score {name}", description, text)
