"""score import: a cell of results from simulstream's log (docs/formats.md)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from streaming_asr.corpora.nist import Segment, segments
from streaming_asr.corpora.rows import names_of
from streaming_asr.errors import UserError, did_you_mean
from streaming_asr.events.log import read_log
from streaming_asr.metrics import METRICS_VERSION
from streaming_asr.metrics.table import unmeasured
from streaming_asr.score.folder import EVENTS, write_cell
from streaming_asr.score.simulstream import meet, read, reference
from streaming_asr.terminal import command_parser
from streaming_asr.text.languages import LANGUAGES, language_code
from streaming_asr.text.normalise import NORMALISERS, default_kind
from streaming_asr.utterance import Utterance

EPILOG = """\
references
  --manifest takes a manifest (JSONL, as the corpora are written), an STM file, or a cell of
  results, whose references are taken. Recordings of it that FILE does not hold count as failed;
  --only-these leaves them out.

  A manifest names its language, an STM does not: --language. It decides the normaliser, and whether
  words or characters are counted.

  What FILE does not tell stays null.

example
  streaming-asr score import simulstream metrics.jsonl --manifest test.jsonl --name theirs
"""


def main(argv: Sequence[str]) -> int:
    """Make a cell of results of simulstream's log and score it."""
    about = "Score simulstream's log by the same code."
    parser = command_parser("streaming-asr score import", about, EPILOG)
    parser.add_argument("format", choices=("simulstream",), metavar="simulstream")
    parser.add_argument("file", type=Path, metavar="FILE", help="its metrics.jsonl")
    parser.add_argument("--manifest", type=Path, help="the references: JSONL, STM or a cell")
    parser.add_argument(
        "--only-these", action="store_true", help="count only the recordings that FILE holds"
    )
    parser.add_argument("--into", type=Path, metavar="FOLDER", help="outputs/imported/NAME")
    parser.add_argument("--name", help="what the method is called in tables; default: FILE's name")
    parser.add_argument(
        "--normaliser", choices=NORMALISERS, help="of error rates; default: that of the language"
    )
    parser.add_argument(
        "--language", help="of recordings whose references name none, as en or zh-CN; default: en"
    )
    arguments = parser.parse_args(argv)
    if arguments.language and len(language_code(arguments.language)) > 3:
        raise UserError(
            f"--language {arguments.language}: no language that is known here"
            f"{did_you_mean(arguments.language, LANGUAGES)}; give a code such as en, de or zh-CN"
        )
    if not arguments.file.exists():
        raise UserError(f"{arguments.file}: no such file; correct the path.")
    name = arguments.name or arguments.file.stem
    folder = arguments.into or Path("outputs", "imported", name)
    if folder.exists():
        raise UserError(f"{folder}: is there already; remove it, or name another with --into.")
    if arguments.manifest is None:
        raise UserError(f"{arguments.file}: holds no reference texts; give --manifest.")
    expected = references(arguments.manifest)
    recordings, metadata = read(arguments.file)
    if not recordings:
        raise UserError(
            f"{arguments.file}: no recording of simulstream in it; was the run finished, and is "
            "the log of this program?"
        )
    if arguments.only_these:
        names = {name for recording in recordings for name in recording.names}
        expected = [each for each in expected if each.id in names] or expected
    utterances, notes = meet(
        recordings,
        expected,
        arguments.file,
        arguments.language,
        open_ended=arguments.manifest.suffix == ".stm",
    )
    languages = {utterance.language for utterance in utterances}
    header = {
        "config": {
            "method": {"name": name},
            "normaliser": arguments.normaliser or default_kind(languages),
            "imported": {"format": arguments.format, "file": str(arguments.file)},
        },
        "versions": {},
        "machine": {},
        "metrics_version": METRICS_VERSION,
        "knows": sorted(metadata),
        "unmeasured": unmeasured(metadata),
        "n_utterances": len(utterances),
    }
    if notes:
        header["warnings"] = notes
    advice = (
        f"{arguments.file}: gives no valid log, so nothing was imported; are its times in the "
        "units of the format, and its references those of this audio?"
    )
    result = write_cell(folder, header, utterances, advice)
    n_absent = len(utterances) - len(recordings)
    absent = f", {n_absent} of them absent from the file (--only-these leaves them out)"
    wer = result["metrics"]["wer"]
    print(
        f"{folder}: {len(utterances)} utterances"
        + (absent if n_absent else "")
        + f"; knows {', '.join(sorted(metadata))}"
        + ("" if wer is None else f"; WER {wer:.2f} %")
    )
    for warning in result["warnings"]:
        print(f"warning: {warning}")
    return 0


def references(path: Path) -> list[Utterance]:
    """Return the references of a manifest, an STM file, a log or the folder of a log."""
    if path.suffix == ".stm":
        return [_joined(names_of(name)[-1], parts) for name, parts in segments(path).items()]
    log = path / EVENTS if path.is_dir() else path
    if log.name == EVENTS:
        columns = ("words", "speaker", "language", "audio_path")
        return [
            reference(u.utt, u.text, u.duration_s, **{name: getattr(u, name) for name in columns})
            for u in read_log(log).utterances
        ]
    from streaming_asr.corpora.manifest import read_manifest

    return read_manifest(path)


def _joined(name: str, parts: Sequence[Segment]) -> Utterance:
    """Return the segments of one recording of an STM as one reference; its duration is the end of
    the last segment, as an STM does not give the recording's."""
    speakers = {part.speaker for part in parts}
    return reference(
        name,
        " ".join(part.text for part in parts if part.text),
        max(part.end_s for part in parts),
        speaker=parts[0].speaker if len(speakers) == 1 else None,
    )
