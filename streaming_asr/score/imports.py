"""score import: a cell of results from another tool's log (docs/formats.md)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from streaming_asr.corpora.nist import Segment, segments
from streaming_asr.corpora.rows import names_of
from streaming_asr.errors import UserError, did_you_mean
from streaming_asr.events.invariants import too_early
from streaming_asr.events.log import UtteranceLog, read_log
from streaming_asr.metrics import METRICS_VERSION
from streaming_asr.metrics.table import COMMITS, unmeasured
from streaming_asr.score.folder import EVENTS, write_cell
from streaming_asr.score.formats.foreign import meet, reference
from streaming_asr.score.formats.readers import FORMATS
from streaming_asr.terminal import command_parser
from streaming_asr.text.languages import LANGUAGES, language_code
from streaming_asr.text.normalise import NORMALISERS, default_kind
from streaming_asr.utterance import Utterance

_FORMATS = "\n".join(["formats", *(f"  {name:<15} {f.files}" for name, f in FORMATS.items())])
EPILOG = f"""\
{_FORMATS}

references
  --manifest takes a manifest (JSONL, as the corpora are written), an STM file, or a cell of
  results, whose references are taken. Recordings of it that FILE does not hold count as failed;
  --only-these leaves them out.
  An instances.log holds its own references; the others need --manifest.

  A manifest names its language, an instances.log and an STM do not: --language. It decides the
  normaliser, and whether words or characters are counted.

  What FILE does not tell stays null: docs/formats.md has a table.

examples
  streaming-asr score import simuleval instances.log --into outputs/rivals/theirs
  streaming-asr score import simulstream metrics.jsonl --manifest test.jsonl --name theirs
"""


def main(argv: Sequence[str]) -> int:
    """Make a cell of results of another tool's log and score it."""
    about = "Score another tool's log by the same code."
    parser = command_parser("streaming-asr score import", about, EPILOG)
    parser.add_argument("format", choices=FORMATS, metavar="FORMAT")
    parser.add_argument("file", type=Path, metavar="FILE", help="the log")
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
    expected = None if arguments.manifest is None else references(arguments.manifest)
    recordings, metadata = FORMATS[arguments.format].read(arguments.file)
    if not recordings:
        raise UserError(
            f"{arguments.file}: no recording of {arguments.format} in it; was the run "
            "finished, and is the log of this program?"
        )
    if arguments.only_these and expected is None:
        raise UserError(
            "--only-these: the references are those of FILE; give --manifest, or not it"
        )
    if arguments.only_these:
        names = {name for recording in recordings for name in recording.names}
        expected = [each for each in expected or () if each.id in names] or expected
    notes: list[str] = []
    utterances = meet(
        recordings,
        expected,
        arguments.file,
        arguments.language,
        open_ended=arguments.manifest is not None and arguments.manifest.suffix == ".stm",
        notes=notes,
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
    if COMMITS in metadata and (
        doubt := too_early(utterances) or _in_the_first_quarter(utterances)
    ):
        notes.append(doubt)
    if notes:
        header["warnings"] = notes
    advice = (
        f"{arguments.file}: gives no valid log, so nothing was imported; are its times in the "
        "units of the format, and its references those of this audio?"
    )
    result = write_cell(folder, header, utterances, advice)
    n_absent = len(utterances) - len(recordings)
    absent = f", {n_absent} of them absent from the file (--only-these leaves them out)"
    clock = "ca" if result["metrics"]["al_ca_ms"] is not None else "cu"
    figures = {"WER {:.2f} %": "wer", "AL {:.0f} ms": f"al_{clock}_ms"}
    figures["LAAL {:.0f} ms"] = f"laal_{clock}_ms"
    values = {text: result["metrics"][name] for text, name in figures.items()}
    print(
        f"{folder}: {len(utterances)} utterances"
        + (absent if n_absent else "")
        + f"; knows {', '.join(sorted(metadata))}"
        + "".join(f"; {text.format(value)}" for text, value in values.items() if value is not None)
    )
    for warning in result["warnings"]:
        print(f"warning: {warning}")
    return 0


def _in_the_first_quarter(utterances: Sequence[UtteranceLog]) -> str | None:
    """Return a warning if more than half of the recordings have their last commit in the first
    quarter of the audio; else None. This check of the times needs no word times."""
    n_early = n_with_text = 0
    for utterance in utterances:
        commits = [step.audio_samples for step in utterance.steps if step.committed]
        if commits:
            n_with_text += 1
            n_early += 4 * max(commits) < utterance.duration_samples
    if 2 * n_early <= n_with_text:
        return None
    return (
        f"in {n_early} of {n_with_text} recordings the whole text is final in the first quarter of "
        "the audio; are the times in the units of the format?"
    )


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
