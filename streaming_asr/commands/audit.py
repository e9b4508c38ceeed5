"""Audits a stream: is it as good as the same recogniser's batch mode, and where does it lose?"""

from __future__ import annotations

import argparse
import base64
import io
import os
import re
import shutil
import sys
import time
from collections.abc import Sequence, Set
from dataclasses import asdict
from pathlib import Path
from typing import Any

from streaming_asr.cells import folder as folders
from streaming_asr.config.command_line import CommandLine
from streaming_asr.errors import UserError, check_range, parts_of_url
from streaming_asr.events.invariants import TOLERANCE
from streaming_asr.events.log import Step, UtteranceLog, read_log
from streaming_asr.files import give_json, short_name, write_text
from streaming_asr.method import SAMPLE_RATE, Samples
from streaming_asr.metrics.losses import PARTS
from streaming_asr.score.audit import Audit, PartErrors, Place, audit
from streaming_asr.score.folder import one_cell, write_cell
from streaming_asr.terminal import (
    add_audio,
    add_config_dir,
    add_json,
    command_parser,
    end_if_stopped,
    exit_status,
    format_number,
    loading,
    show_table,
    wrapped,
)

EPILOG = """\
what is compared
  URL                a server: recordings are streamed to it and uploaded as
                     files
  CELL               a folder that `run` wrote for one method: the offline pass
                     of the same model runs on the same recordings
  CELL --batch CELL  two results for the same recordings, imported ones too;
                     nothing runs

KEY=VALUE settings are those of `run`: data=voices limit=20 (the default for a
server), your audio as data.path=talks, a server's protocol as
method.protocol=deepgram. Of the settings saved in CELL only model, data (with
their paths, if you give --yes, and data.split), limit, language and seed are
taken.

Every error of the stream and of batch belongs to one part; the parts add up to
the difference. The page has the ten places where the stream loses most, with
their sound. The exit status is 1 where the whole interval of the difference is
above --worse, 2 for bad input.

examples
  streaming-asr audit ws://127.0.0.1:8000/v1/realtime data=voices limit=20
  streaming-asr audit outputs/default/method=whisperrt --worse 0.5
  streaming-asr audit outputs/a/method=ufal --batch outputs/a/method=offline"""
UPLOAD = "/v1/audio/transcriptions"
PATIENCE_S = (10.0, 600.0)  # to connect, and for the text of an upload of any length
TRIES = 3  # recordings; where none of the first came back, the others are not sent
MARGIN_S = 1.0  # of sound around a place
OUTPUT = Path("outputs", "audit")  # of the page
# What a cell sets that its offline pass does not take.
OWN = re.compile(r"(method|chunk|first_chunk|feed|batch|streams|name|tracker|pieces?)(\.|=|$)")
NAME, NUMBER, LANGUAGE = r"\w[\w.+-]*", r"\d+|null", r"[\w-]+"
PLACE = r"""[^'"\\()\[\]{},$\0-\x1f]+|'([^'\\{}$\0-\x1f]|\\')*'|"([^"\\{}$\0-\x1f]|\\")*\""""
# What it does take, and the values that may be: the folder may be a stranger's.
TAKEN = {
    "model": NAME,
    "model.path": PLACE,
    "data": NAME,
    "data.path": PLACE,
    "data.split": rf"{NAME}|\[{NAME}(, ?{NAME})*\]",
    "limit": NUMBER,
    "language": LANGUAGE,
    "seed": NUMBER,
}
PLACES = ("model.path=", "data.path=")  # of this machine or the hub, read only with --yes
HEADS = ("errors per 100 words", "stream", "batch", "difference", "95 % interval")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    about = "Is a stream as good as the same recogniser's batch mode, and where does it lose?"
    parser = command_parser("streaming-asr audit", about, EPILOG)
    parser.add_argument("what", metavar="URL|CELL", help="the stream: a server, or results")
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE", help="settings of what runs")
    parser.add_argument("--batch", metavar="CELL", help="the results of the batch mode")
    upload = f"where a server takes files; default: {UPLOAD} of its host"
    parser.add_argument("--upload", metavar="URL", help=upload)
    worse = "how many errors per 100 words the stream may have more; default 0"
    parser.add_argument("--worse", type=float, default=0.0, metavar="POINTS", help=worse)
    add_config_dir(parser)
    add_audio(parser)
    yes = "read the paths and load the models that the settings saved in CELL name"
    parser.add_argument("--yes", action="store_true", help=yes)
    add_json(parser)
    return exit_status(lambda: _audit(parser.parse_intermixed_args(argv)))


def _audit(arguments: argparse.Namespace) -> int:
    check_range(0, 100, **{"--worse": arguments.worse})
    if arguments.batch is not None and arguments.settings and "://" not in arguments.what:
        raise UserError(f"{arguments.settings[0]}: nothing runs with --batch; leave it out")
    audio_from = [*arguments.audio]
    if "://" in arguments.what:
        stream, batch = _of_server(arguments)
        audio_from += _data_of(stream)
    else:
        stream = one_cell(arguments.what)
        batch = (
            _offline(stream, arguments.settings, arguments.yes, arguments.config_dir)
            if arguments.batch is None
            else one_cell(arguments.batch)
        )
        audio_from += _data_of(batch) if arguments.batch is None else []
    answer = audit(stream, batch)
    verdict = answer.verdict(arguments.worse)
    page = _page(answer, verdict, stream, audio_from)
    if arguments.json is not None:
        give_json({"verdict": verdict, **asdict(answer), "page": str(page)}, arguments.json)
    if arguments.json != "-":
        show_table(HEADS, _texts(answer))
        for line in (*_lines(answer), f"page: {page}", verdict):
            print(wrapped(line))
    return int(answer.is_worse(arguments.worse))


# -- what runs ------------------------------------------------------------------------------------


def _run(settings: Sequence[str]) -> Path:
    """Run the cell of `settings` (KEY=VALUE each) and return its folder. Raises UserError where it
    left no log to compare."""
    from streaming_asr.run import command
    from streaming_asr.run.plan import plan

    line = CommandLine(settings)
    line.default_data()
    folder = folders.cell_of(plan(line).cells[0].folder)
    status = command.main(line.argv, lambda *_: None)  # shows no table of the run
    end_if_stopped(status)
    # A status of 1 means recordings that failed, which the audit counts itself.
    if status > 1 or not (folder / folders.RESULT).is_file():
        raise UserError(f"{folder}: did not run to its end; the message above has the cause")
    return folder


def _data_of(cell: Path) -> list[Path]:
    """Return what the settings of a cell that was just run name as its data."""
    data = (folders.header_of(cell) or {}).get("config", {}).get("data", {})
    return [Path(data["path"]).expanduser()] if isinstance(data.get("path"), str) else []


def _offline(cell: Path, settings: Sequence[str], yes: bool, config_dir: Sequence[str]) -> Path:
    """Return the offline pass of a cell's model on its recordings. yes: --yes was given.
    config_dir: -cd and its folder, or nothing."""
    config = (folders.header_of(cell) or {}).get("config")
    method = config.get("method") if isinstance(config, dict) else None
    name = method.get("name") if isinstance(method, dict) else None
    before = folders.saved_settings(cell)
    if before is None or name in ("remote", "u2", "chunkformer", "star"):
        why = "was not made by `run`" if before is None else f"method={name} has no offline pass"
        raise UserError(f"{cell}: {why}; name the results of its batch mode with --batch")
    own_keys = {setting.lstrip("+~").partition("=")[0] for setting in settings}
    before = _taken(before, own_keys, cell / folders.SAVED / folders.SETTINGS, yes)
    settings = [*before, *(each for each in settings if not OWN.match(each.lstrip("+~")))]
    name = re.sub(r"[^\w.=,+-]", "_", cell.resolve().parent.name)
    return _run([*config_dir, *settings, "method=offline", "tracker=none", f"name='audit/{name}'"])


def _taken(saved: Sequence[str], own_keys: Set[str], file: Path, yes: bool) -> list[str]:
    """Return what the offline pass takes of the settings `saved` in a file, and show it. Raises
    UserError for any that is neither of the stream nor TAKEN, and for paths without --yes.

    own_keys: those on the command line, which replace the saved ones.
    """
    taken = []
    for setting in saved:
        key, _, value = setting.partition("=")
        if key in own_keys or (OWN.match(setting) and not re.search(r"[{}$]|_target_", setting)):
            continue
        if not re.fullmatch(TAKEN.get(key, "(?!)"), value):
            raise UserError(
                f"{setting[:200]!r}: {file} has it, and audit takes of saved settings only plain "
                f"values of {', '.join(TAKEN)}; if you trust it give {key[:80]}= on this command "
                "line, or the results of the batch mode with --batch"
            )
        taken.append(setting)
    print(f"from {file}: {' '.join(taken) or 'nothing'}", file=sys.stderr, flush=True)
    places = [setting for setting in taken if setting.startswith(PLACES)]
    if places and not yes:
        raise UserError(
            f"{' '.join(places)}: {file} names what would be read; give --yes if you trust it, or "
            "the setting on this command line"
        )
    return taken


def _of_server(arguments: argparse.Namespace) -> tuple[Path, Path]:
    """Return the cells of a server's stream and of its uploads, or of --batch."""
    from streaming_asr.metrics.table import CU, EVERYTHING, INSIDE, STEPS, unmeasured

    line = CommandLine([*arguments.config_dir, *arguments.settings])
    host = re.sub(r"\W+", "_", parts_of_url(arguments.what, arguments.what).netloc)
    line.pop("name")
    line.to_server(arguments.what, limit="20", name=f"'audit/{host}'")
    if arguments.batch is not None:
        batch = one_cell(arguments.batch)
        return _run(line.argv), batch
    url = arguments.upload or _upload_url(arguments.what)
    sent = _uploads(url, line)  # first: whether there is an endpoint shows at once
    stream = _run(line.argv)
    tells = EVERYTHING - {CU, STEPS, INSIDE}
    header = folders.header_of(stream) or {}
    header = {key: header[key] for key in ("config", "versions", "machine") if key in header}
    header["config"] = header["config"] | {"method": {"name": "upload", "url": url}}
    header |= {"knows": sorted(tells), "unmeasured": unmeasured(tells)}
    batch = stream.parent / "method=upload"
    shutil.rmtree(batch, ignore_errors=True)
    write_cell(batch, header, sent, f"{url}: gave no valid text")
    return stream, batch


def _upload_url(url: str) -> str:
    address = parts_of_url(url, url)
    scheme = {"ws": "http", "wss": "https"}.get(address.scheme)
    if scheme is None:
        raise UserError(
            f"{url}: has no batch endpoint that is known; name it with --upload, or results of the "
            "batch mode with --batch"
        )
    return f"{scheme}://{address.netloc}{UPLOAD}"


def _uploads(url: str, line: CommandLine) -> list[UtteranceLog]:
    """Return the logs of recordings that are sent as files. Raises UserError where there is no
    endpoint, and where none of the first TRIES has a text."""
    from streaming_asr.config.build import build
    from streaming_asr.config.settle import compose

    parts_of_url(url, url)
    config = compose(line.settings, config_dir=line.config_dir)
    utterances = build(config.data).utterances(config.limit)
    fields = {"response_format": "json", "model": config.method.served, "language": config.language}
    fields = {name: value for name, value in fields.items() if value not in (None, "detect")}
    loading(f"the texts of {len(utterances)} uploads to {url}")
    sent: list[UtteranceLog] = []
    for each in utterances:
        sent.append(_uploaded(url, each, fields))
        if len(sent) == min(TRIES, len(utterances)) and all(log.error for log in sent):
            raise UserError(f"{url}: {sent[0].error}")
    return sent


def _uploaded(url: str, utterance: Any, fields: dict[str, str]) -> UtteranceLog:
    """Return the log of a recording that is sent as a file, by OpenAI's POST. Raises UserError
    where there is no endpoint."""
    import requests

    from streaming_asr.text.tokens import pieces

    samples = utterance.load()
    log = UtteranceLog.of(utterance)
    log.duration_samples = log.duration_samples or len(samples)
    token = os.environ.get("STREAMING_ASR_TOKEN")
    begin = time.perf_counter_ns()
    try:
        answer = requests.post(
            url,
            data=fields,
            files={"file": ("audio.wav", _wav(samples), "audio/wav")},
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=PATIENCE_S,
        )
        if answer.status_code in (404, 405, 501):
            raise UserError(
                f"{url}: the server has no batch endpoint there ({answer.status_code}); name it "
                "with --upload, or results of the batch mode with --batch"
            )
        content = answer.json() if answer.ok else None
        text = content.get("text") if isinstance(content, dict) else None
    except requests.ConnectionError:
        log.error = "nobody answers; start the server, or correct the address"
    except requests.RequestException as refusal:
        log.error = f"no text came back: {refusal}"
    else:
        if isinstance(text, str):
            wall = {"wall": time.perf_counter_ns() - begin}
            log.steps = [Step("flush", log.duration_samples, wall, committed=list(pieces(text)))]
            return log
        log.error = f"no text came back: {answer.status_code}: {answer.text[:300]}"
    log.status = "failed"
    return log


def _wav(samples: Samples) -> bytes:
    import soundfile

    file = io.BytesIO()
    soundfile.write(file, samples, SAMPLE_RATE, format="WAV", subtype="PCM_16")
    return file.getvalue()


# -- what is shown --------------------------------------------------------------------------------


def _texts(answer: Audit) -> list[list[str]]:
    def row(each: PartErrors, name: str) -> list[str]:
        low, high = each.difference.low, each.difference.high
        bounds = "–" if low is None else f"{low:+.1f} to {high:+.1f}"
        values = (f"{each.stream:.1f}", f"{each.batch:.1f}", f"{each.difference.value:+.1f}")
        return [name, *values, bounds]

    named = [row(each, PARTS[each.name]) for each in answer.parts if each.stream or each.batch]
    return [row(answer.total, "all"), *named]


def _lines(answer: Audit) -> list[str]:
    metrics = answer.metrics
    p50, p90 = (metrics[f"word_latency_committed_{p}_ca_s"] for p in ("p50", "p90"))
    lines = []
    if any(each.name == "boundary" and each.stream for each in answer.parts):
        lines.append(
            f"{100 * answer.gaps:.0f} % of the gaps between words are within one word of a "
            "boundary, so that share of lost words would fall there by chance"
        )
    if not answer.is_labelled:
        lines.append("no reference: the errors are words in which the stream differs from batch")
    if p50 is not None:
        lines.append(
            f"lag of final words: at most {p50:.2f} s for half, {format_number(p90, 2)} s for 90 %"
        )
    if metrics["turns_cut_off"] is not None:
        late = format_number(metrics["turn_end_delay_p90_ca_s"], 2)
        lines.append(
            f"turns: {metrics['turns_cut_off']:.0f} % cut off, "
            f"{format_number(metrics['turns_missed'], 0)} % missed; "
            f"90 % of the ends come within {late} s"
        )
    for name, n in zip(("stream", "batch"), answer.n_failed, strict=True):
        if n:
            lines.append(f"failed in the {name}: {n} recordings, which count with an empty text")
    total = answer.total.difference
    p = "" if total.p_value is None else f", p {total.p_value:.4f}"
    return [*lines, f"the errors differ in {total.n_differ} of {answer.drawn}{p}"]


def _page(answer: Audit, verdict: str, stream: Path, audio_from: Sequence[Path]) -> Path:
    from streaming_asr.report.page import render

    name = re.sub(r"[^\w.=,+-]", "_", f"{stream.resolve().parent.name}-{stream.resolve().name}")
    report = stream.resolve().parent / "report.html"
    log = read_log(stream / folders.EVENTS, only={place.utt for place in answer.places})
    logged = {each.utt: each for each in log.utterances}
    text = render(
        "audit.html.j2",
        title="Where a stream loses against batch",
        stream=f"{stream.parent.name}/{stream.name}",
        report=os.path.relpath(report, OUTPUT.resolve()) if report.is_file() else None,
        verdict=verdict,
        heads=HEADS,
        rows=_texts(answer),
        lines=_lines(answer),
        parts=PARTS,
        is_labelled=answer.is_labelled,
        places=[
            (place, _clip(place, logged[place.utt], stream, audio_from)) for place in answer.places
        ],
    )
    return write_text(OUTPUT / f"{short_name(name)}.html", text)


def _clip(place: Place, log: UtteranceLog, stream: Path, audio_from: Sequence[Path]) -> str | None:
    """Return the sound around a place as a data URL; None where its file cannot be read here, may
    not be shown (`sound_file`), or holds more than this recording."""
    from streaming_asr.corpora.audio import load_audio
    from streaming_asr.report.page import sound_file

    file, _ = sound_file(log.audio_path or "", stream, audio_from)
    if file is None:
        return None
    try:
        samples = load_audio(str(file))
    except UserError:
        return None
    if abs(len(samples) - log.duration_samples) > TOLERANCE:
        return None
    begin, end = (max(place.start - MARGIN_S, 0.0), place.end + MARGIN_S)
    part = _wav(samples[round(begin * SAMPLE_RATE) : round(end * SAMPLE_RATE)])
    return f"data:audio/wav;base64,{base64.b64encode(part).decode('ascii')}"
