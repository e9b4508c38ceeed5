"""Audits a stream: is it as good as the same recogniser's batch mode, and where does it lose?

streaming-asr audit ws://127.0.0.1:8000/v1/realtime limit=20
streaming-asr audit outputs/default/method=whisperrt
streaming-asr audit CELL --batch CELL
"""

from __future__ import annotations

import argparse
import base64
import io
import os
import re
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from streaming_asr.cells import folder as folders
from streaming_asr.errors import UserError, parts_of_url
from streaming_asr.files import give_json, write_text
from streaming_asr.method import SAMPLE_RATE, Samples
from streaming_asr.metrics.losses import PARTS
from streaming_asr.score.audit import Audit, PartErrors, Place, audit
from streaming_asr.score.folder import find_cells, write_cell
from streaming_asr.terminal import (
    add_json,
    command_parser,
    end_if_stopped,
    exit_status,
    format_number,
    show_table,
    wrapped,
)

EPILOG = """\
what is audited
  URL   of a server: recordings are streamed to it (method=remote) and uploaded to it as files
  CELL  results of `run`, or an events.jsonl in it: its offline pass runs on the same recordings
  CELL --batch CELL   two logs of the same recordings, imported ones too; nothing runs

KEY=VALUE settings are those of `run`: data=voices limit=20, audio's folder as data.path=talks,
method.protocol=deepgram. The status is 1 where the stream is surely worse by more than --worse.

examples
  streaming-asr audit ws://127.0.0.1:8000/v1/realtime data=voices limit=20
  streaming-asr audit outputs/default/method=whisperrt --worse 0.5
  streaming-asr audit outputs/a/method=ufal --batch outputs/a/method=offline"""
UPLOAD = "/v1/audio/transcriptions"
PATIENCE_S = (10.0, 600.0)  # to connect, and for the text of an upload of any length
TRIES = 3  # recordings; where none of the first came back, the others are not sent
MARGIN_S = 1.0  # of sound around a place
USUAL = {"data": "voices", "limit": "20", "chunk": "100ms", "first_chunk": "100ms"}
# What a cell sets that its offline pass does not take.
OWN = re.compile(r"(method|chunk|first_chunk|feed|batch|streams|name|tracker|pieces?)(\.|=|$)")
HEADS = ("errors per 100 words", "stream", "batch", "difference", "95 % interval")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    about = "Is a stream as good as the same recogniser's batch mode, and where does it lose?"
    parser = command_parser("streaming-asr audit", about, EPILOG)
    parser.add_argument("what", metavar="URL|CELL|LOG", help="the stream")
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE", help="of the run")
    parser.add_argument("--batch", metavar="CELL|LOG", help="the batch log to compare with")
    parser.add_argument("--upload", metavar="URL", help=f"a server's batch endpoint: {UPLOAD}")
    parser.add_argument("--worse", type=float, default=0.0, metavar="POINTS", help="allowed; 0")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="of the page: outputs/audit")
    add_json(parser)
    return exit_status(lambda: _audit(parser.parse_args(argv)))


def _audit(arguments: argparse.Namespace) -> int:
    if not 0 <= arguments.worse <= 100:
        raise UserError(f"--worse {arguments.worse}: points from 0 to 100, as in --worse 0.5")
    sounds: Callable[[str], Samples | None] | None = None
    if "://" in arguments.what:
        stream, batch, sounds = _of_server(arguments)
    else:
        stream = _cell(arguments.what)
        if arguments.batch is None:
            batch = _offline(stream, arguments.settings)
        elif arguments.settings:
            raise UserError(f"{arguments.settings[0]}: nothing runs with --batch; leave it out")
        else:
            batch = _cell(arguments.batch)
    answer = audit(stream, batch)
    verdict = answer.verdict(arguments.worse)
    page = _page(answer, verdict, stream, arguments.out or Path("outputs", "audit"), sounds)
    if arguments.json is not None:
        rows: dict[str, Sequence[Any]] = {
            "total": [answer.total],
            "parts": answer.parts,
            "places": answer.places,
        }
        plain = {name: [each._asdict() for each in several] for name, several in rows.items()}
        differences = {row.name: asdict(row.difference) for row in (answer.total, *answer.parts)}
        content = {"verdict": verdict, "differences": differences, "growth": answer.growth, **plain}
        give_json({**content, "page": str(page)}, arguments.json)
    if arguments.json != "-":
        show_table(HEADS, _texts(answer))
        for line in _lines(answer):
            print(wrapped(line))
        print(f"page: {page}")
        print(wrapped(verdict))
    return int(answer.is_worse(arguments.worse))


def _cell(text: str) -> Path:
    """Return the folder of a cell or of its log. Raises UserError for none and for several."""
    path = Path(text)
    cells = find_cells(path.parent if path.name == folders.EVENTS else path)
    if len(cells) > 1:
        raise UserError(f"{text}: holds {len(cells)} cells; name one of them, {cells[0]} say")
    return cells[0]


# -- what runs ------------------------------------------------------------------------------------


def _run(settings: Sequence[str]) -> Path:
    """Run one cell and return its folder. Raises UserError where it left no log to compare."""
    from streaming_asr.config.command_line import CommandLine
    from streaming_asr.run import command
    from streaming_asr.run.plan import plan

    line = CommandLine(settings)
    line.default_data()
    folder = plan(line).cells[0].folder
    end_if_stopped(status := command.main(line.argv, lambda place: None))
    if status > 1 or not (folder / folders.RESULT).is_file():
        raise UserError(f"{folder}: did not run to its end; the message above says why")
    return folder


def _offline(cell: Path, settings: Sequence[str]) -> Path:
    """Return the offline pass of a cell's model on its recordings."""
    import yaml

    config = (folders.header_of(cell) or {}).get("config") or {}
    name = str((config.get("method") or {}).get("name"))
    saved = cell / folders.SAVED / "overrides.yaml"
    if name in ("remote", "u2", "chunkformer", "star") or not saved.is_file():
        why = f"method={name} has no offline pass here" if saved.is_file() else "not run by `run`"
        raise UserError(f"{cell}: {why}; name its batch log with --batch")
    before = yaml.safe_load(saved.read_text(encoding="utf-8")) or []
    settings = [each for each in (*before, *settings) if not OWN.match(each.lstrip("+~"))]
    return _run([*settings, "method=offline", "tracker=none", f"name='audit/{cell.parent.name}'"])


def _of_server(
    arguments: argparse.Namespace,
) -> tuple[Path, Path, Callable[[str], Samples | None]]:
    """Return the cells of a server's stream and of its uploads, and the recordings' sounds."""
    from streaming_asr.config.build import build
    from streaming_asr.config.command_line import CommandLine
    from streaming_asr.config.settle import compose

    line = CommandLine(arguments.settings)
    line.default_data()
    line.default(**USUAL)
    host = re.sub(r"\W+", "_", parts_of_url(arguments.what, arguments.what).netloc)
    fixed = {"method": "remote", "method.url": f"'{arguments.what}'", "feed": "realtime"}
    fixed |= {"tracker": "none", "name": f"'audit/{host}'"}
    for key in fixed:
        line.pop(key)
    line.default(**fixed)
    settings = line.settings
    config = compose(settings)
    utterances = {each.id: each for each in build(config.data).utterances(config.limit)}
    served = config.method.served
    if arguments.batch is None:  # first: whether there is an endpoint shows at once
        url = arguments.upload or _upload_url(arguments.what)
        parts_of_url(url, url)
        sent = []
        for each in utterances.values():
            sent.append(_uploaded(url, each, served, config.language))
            if len(sent) == min(TRIES, len(utterances)) and all(log.error for log in sent):
                raise UserError(f"{url}: {sent[0].error}")
    stream = _run(settings)
    if arguments.batch is not None:
        batch = _cell(arguments.batch)
    else:
        from streaming_asr.metrics.table import CU, EVERYTHING, INSIDE, STEPS, unmeasured

        tells = EVERYTHING - {CU, STEPS, INSIDE}
        header = folders.header_of(stream) or {}
        header = {key: header[key] for key in ("config", "versions", "machine") if key in header}
        header["config"] = header["config"] | {"method": {"name": "upload", "url": url}}
        header |= {"knows": sorted(tells), "unmeasured": unmeasured(tells)}
        batch = stream.parent / "method=upload"
        shutil.rmtree(batch, ignore_errors=True)
        write_cell(batch, header, sent, f"{url}: gave no valid text")
    return stream, batch, lambda utt: utterances[utt].load()


def _upload_url(url: str) -> str:
    address = urlsplit(url)
    scheme = {"ws": "http", "wss": "https"}.get(address.scheme)
    if scheme is None:
        raise UserError(
            f"{url}: has no batch endpoint that is known; name it with --upload, or a batch log "
            "with --batch"
        )
    return f"{scheme}://{address.netloc}{UPLOAD}"


def _uploaded(url: str, utterance: Any, served: str | None, language: str | None) -> Any:
    """Return the log of a recording that is sent as a file, by OpenAI's POST. Raises UserError
    where there is no endpoint."""
    import requests

    from streaming_asr.events.log import Step, UtteranceLog
    from streaming_asr.text.tokens import pieces

    samples = utterance.load()
    log = UtteranceLog.of(utterance)
    log.duration_samples = log.duration_samples or len(samples)
    fields = {"response_format": "json", "model": served, "language": language}
    token = os.environ.get("STREAMING_ASR_TOKEN")
    begin = time.perf_counter_ns()
    try:
        answer = requests.post(
            url,
            data={name: value for name, value in fields.items() if value not in (None, "detect")},
            files={"file": ("audio.wav", _wav(samples), "audio/wav")},
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=PATIENCE_S,
        )
        if answer.status_code in (404, 405, 501):
            raise UserError(
                f"{url}: the server has no batch endpoint there ({answer.status_code}); name it "
                "with --upload, or a batch log with --batch"
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
    lines = [
        f"{100 * answer.gaps:.0f} % of the gaps between words are at most one word from a boundary "
        "of steps"
    ]
    if not answer.is_labelled:
        lines.append("no reference: errors are the distance to batch's text")
    if p50 is not None:
        line = (
            f"lag of final words: at most {p50:.2f} s for half, {format_number(p90, 2)} s for 90 %"
        )
        if answer.growth is not None:
            line += f"; within a recording it changes by {answer.growth:+.2f} s per minute"
        lines.append(line)
    if metrics["turns_cut_off"] is not None:
        late = format_number(metrics["turn_end_delay_p90_ca_s"], 2)
        lines.append(
            f"turns: {metrics['turns_cut_off']:.0f} % cut off, "
            f"{format_number(metrics['turns_missed'], 0)} % missed; "
            f"90 % of the ends come within {late} s"
        )
    for name, n in zip(("stream", "batch"), answer.n_failed, strict=True):
        if n:
            lines.append(f"{n} recordings failed in the {name}: they count with an empty text")
    total = answer.total.difference
    p = "" if total.p_value is None else f", p {total.p_value:.4f}"
    return [*lines, f"stream and batch differ in {total.n_differ} of {answer.clusters}{p}"]


def _page(
    answer: Audit,
    verdict: str,
    stream: Path,
    folder: Path,
    sounds: Callable[[str], Samples | None] | None,
) -> Path:
    from jinja2 import Environment, FileSystemLoader
    from markupsafe import Markup

    from streaming_asr.report.page import HERE, PALETTE

    template = Environment(loader=FileSystemLoader(HERE), autoescape=True).get_template(
        "audit.html.j2"
    )
    sounds = sounds or _sounds_of(stream)
    text = template.render(
        title=f"Audit of {stream.parent.name}/{stream.name}",
        css=Markup(PALETTE + (HERE / "page.css").read_text(encoding="utf-8")),
        verdict=verdict,
        heads=HEADS,
        rows=_texts(answer),
        lines=_lines(answer),
        parts=PARTS,
        is_labelled=answer.is_labelled,
        places=[(place, _clip(place, sounds)) for place in answer.places],
    )
    name = re.sub(r"[^\w.=,+-]", "_", f"{stream.resolve().parent.name}-{stream.resolve().name}")
    return write_text(folder / f"{name[:80]}.html", text)


def _sounds_of(stream: Path) -> Callable[[str], Samples | None]:
    """Return what loads a recording of a cell: its file, else from its corpus."""
    from streaming_asr.config.build import build
    from streaming_asr.corpora.audio import load_audio
    from streaming_asr.events.log import read_log

    log = read_log(stream / folders.EVENTS)
    paths = {each.utt: each.audio_path for each in log.utterances}
    config = log.header.get("config") or {}
    corpus: dict[str, Any] = {}
    for extra in (("word_times", "licence"), ("word_times", "licence", "name")):
        data = {k: v for k, v in (config.get("data") or {}).items() if k not in extra}
        if corpus or "_target_" not in data:
            continue
        try:
            corpus = {each.id: each for each in build(data).utterances(config.get("limit"))}
        except (UserError, TypeError):
            continue

    def load(utt: str) -> Samples | None:
        path = paths.get(utt)
        if utt in corpus:
            return corpus[utt].load()  # type: ignore[no-any-return]
        return load_audio(path) if path and Path(path).is_file() else None

    return load


def _clip(place: Place, sounds: Callable[[str], Samples | None]) -> str | None:
    """Return the sound around a place as a data URL; None where it cannot be read here."""
    try:
        samples = sounds(place.utt)
    except UserError:
        return None
    if samples is None:
        return None
    begin, end = (max(place.start - MARGIN_S, 0.0), place.end + MARGIN_S)
    part = _wav(samples[round(begin * SAMPLE_RATE) : round(end * SAMPLE_RATE)])
    return f"data:audio/wav;base64,{base64.b64encode(part).decode('ascii')}"
