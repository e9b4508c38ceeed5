"""Runs, resumes or skips one cell: method -> simulate -> score -> save."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf

from streaming_asr.align.auto import give_times
from streaming_asr.cells import folder as folders
from streaming_asr.cells import pieces
from streaming_asr.cells.hashes import changed_settings, config_hash, hash_of, modules, targets_of
from streaming_asr.config.build import build
from streaming_asr.config.settle import check_known
from streaming_asr.config.weights import own_network, unheard
from streaming_asr.errors import UserError
from streaming_asr.method import LongForm, Paced
from streaming_asr.metrics.table import CU, EVERYTHING, INSIDE, STEPS, unmeasured
from streaming_asr.models.find import find_here
from streaming_asr.models.hash import model_hash
from streaming_asr.models.shared import of_files
from streaming_asr.references import problems
from streaming_asr.run.method import method_of, samples_of
from streaming_asr.run.progress import LiveWriter, Progress, report_page
from streaming_asr.terminal import loading, wrapped
from streaming_asr.text.normalise import default_kind

if TYPE_CHECKING:
    from streaming_asr.track.tracker import Tracker
    from streaming_asr.utterance import Utterance

MOST_NAMED = 5  # settings or modules that a message about a changed cell names


def run_cell(
    config: DictConfig,
    folder: Path,
    *,
    hydra_node: Any,
    launcher: str = "basic",
    number: int | None = None,
) -> dict[str, Any]:
    """Run, resume or skip one cell; return the content of its metrics.json.

    config: settled (`config.settle`). folder: where its results lie. hydra_node: Hydra's own
    configuration, which says what was chosen. number: of the cell in a sweep, which does not wait
    for another process that is writing the cell.
    Raises UserError for bad input, folder.Busy where it does not wait, and KeyboardInterrupt; what
    was logged until then stays and is resumed.
    """
    from streaming_asr.metrics import METRICS_VERSION

    plain: dict[str, Any] = OmegaConf.to_container(config)  # type: ignore[assignment]
    for group in ("method", "model", "data"):  # the choices' names, for those who read the result
        plain[group] = {"name": str(hydra_node.runtime.choices[group])} | plain[group]
    cell, whole = folders.name_of(folder), folders.cell_of(folder)
    called = f"{plain['method']['name']} {config.chunk}"
    if number is not None:
        called = f"[{number}] {called}"
    folders.check_writable(folder)
    chosen = hydra_node.runtime.choices
    loading(f"data={chosen['data']} and model={chosen['model']} for {called}")
    corpus = build(config.data)
    spoken = {config.language} - {None, "detect"} or getattr(corpus, "languages", set)()
    if config.language is None:
        check_known(config, spoken)
    plain["normaliser"] = config.normaliser or default_kind(spoken)
    if told := unheard(plain, spoken):
        print(wrapped(f"{called}: {told}"))
    plain["data"] |= _speech(corpus, None if config.language == "detect" else config.language)
    code = modules(*targets_of(plain["method"]))
    hashes = {
        "config": config_hash(plain),
        "code": hash_of(code),
        "model": model_hash(plain),
        "data": corpus.data_hash(),
    }
    waiting = partial(print, f"{called}: another process is writing it; waiting")
    with ExitStack() as stack:
        stack.enter_context(folders.lock(folder, waiting if number is None else None))
        folders.forget_failure(folder)
        header = folders.header_of(folder)
        begun_with = hashes if header is None else header.get("hashes") or {}
        if whole != folder and folders.finished(whole, hashes, METRICS_VERSION):
            print(f"{called}: its cell is finished, skipped")
            return folders.result_of(whole)
        if begun_with != hashes:
            changed = _changes(folder, header or {}, plain, hashes, code)
            old = folders.set_aside(folder)
            print(wrapped(f"{called}: {changed} changed; the old results are now {old}"))
        elif folders.finished(folder, hashes, METRICS_VERSION):
            print(f"{called}: finished earlier, skipped")
            result = folders.result_of(folder)
            if whole != folder:
                return _join(plain, whole, hashes) or result
            if "WANDB_SWEEP_ID" in os.environ:  # an agent waits for the numbers of every cell
                with _tracked(plain, folder, cell) as track:
                    _send(track, folder, result)
            return result
        folders.save_configuration(folder, config, hydra_node.overrides.task)
        folders.save_code(folder, code)
        with _tracked(plain, folder, cell) as track:
            _simulate(config, plain, folder, corpus, hashes, launcher, called, track)
            result = _score(plain, folder, hashes, cell)
            _send(track, folder, result)
        if whole != folder and (joined := _join(plain, whole, hashes)) is not None:
            folder, result = whole, joined
        if (folders.header_of(folder) or {}).get("longform"):  # not only a measurement
            from streaming_asr.run.segments import write_segments

            write_segments(folder)
        folders.forget_failure(folder)  # of a process that gave up on it meanwhile
        return result


def _changes(
    folder: Path,
    header: Mapping[str, Any],
    plain: Mapping[str, Any],
    hashes: Mapping[str, str],
    code: Mapping[str, str],
) -> str:
    """Return what differs between the results in a folder and the same cell now, in words.

    header: of the old log. plain, hashes, code: the cell's configuration, hashes and modules now.
    """
    before, old_code = header.get("hashes") or {}, folders.saved_code(folder)
    modules_changed = [
        name.removeprefix("streaming_asr.")
        for name in {**old_code, **code}
        if old_code and old_code.get(name) != code.get(name)
    ]
    details = {
        "config": changed_settings(header.get("config") or {}, plain),
        "code": modules_changed,
    }
    parts = []
    for key in hashes:
        if before.get(key) != hashes[key]:
            names = details.get(key, [])
            most = names[:MOST_NAMED] + ["..."] * (len(names) > MOST_NAMED)
            parts.append(f"{key} ({', '.join(most)})" if names else key)
    return " and ".join(parts)


def _speech(corpus: Any, language: str | None) -> dict[str, str]:
    """Return what a result says of its corpus: what timed its words, its licence, if any."""
    told = {}
    try:
        if (aligner := give_times(corpus, language)) is not None:
            told["word_times"] = aligner.name
    except UserError as error:  # everything but latency can still be measured
        print(f"no word times, so latency columns stay empty. {error}")
    if (licence := getattr(corpus, "licence", None)) is not None:
        told["licence"] = f"{corpus.name}: {licence()}"
    return told


def _simulate(
    config: DictConfig,
    plain: dict[str, Any],
    folder: Path,
    corpus: Any,
    hashes: Mapping[str, str],
    launcher: str,
    called: str,
    track: Tracker,
) -> None:
    from streaming_asr import machine
    from streaming_asr.events.log import resume
    from streaming_asr.metrics import METRICS_VERSION
    from streaming_asr.simulate.feeds import simulate

    utterances = corpus.utterances(config.limit)
    for utterance in utterances:  # of a corpus of one's own too, before anything is computed
        if problem := next(problems(utterance), None):
            raise UserError(f"{corpus.name}: {utterance.id}: {problem}")
    if config.piece is not None:
        pieces.check_fits(folders.cell_of(folder), config.pieces, len(utterances))
        utterances = utterances[config.piece - 1 :: config.pieces]
    if not any(utterance.words for utterance in utterances) and any(u.text for u in utterances):
        told = (
            f"{called}: the words of {corpus.name} have no times, so latency columns stay empty; "
            "data.align=auto makes the times once, data.alignments=<folder> takes those of "
            "`python -m streaming_asr.align`"
        )
        print(wrapped(told))
    path = folder / folders.EVENTS
    closed = resume(path)
    todo = [utterance for utterance in utterances if utterance.id not in closed]
    if config.language not in (None, "detect"):
        todo = [replace(utterance, language=config.language) for utterance in todo]
    if not todo:
        return
    if closed:
        print(
            f"{called}: goes on after {len(utterances) - len(todo)} of {len(utterances)} utterances"
        )
    of_files(hashes["model"])
    method, synchronise = method_of(config)
    if config.language == "detect":
        from streaming_asr.whisper.detect import Untold

        method = Untold(method)
    header = {
        "config": plain,
        "hashes": dict(hashes),
        "versions": machine.versions(),
        "machine": machine.machine(device=config.device, launcher=launcher),
        "metrics_version": METRICS_VERSION,
        "n_utterances": len(utterances),
        "longform": isinstance(method, LongForm) and method.samples_together is not None,
    }
    if config.piece is not None:
        header["piece"] = [config.piece, config.pieces, len(utterances)]
    if isinstance(method, Paced):  # what happens inside a server cannot be told
        known = EVERYTHING - {CU, STEPS, INSIDE}
        header |= {"unmeasured": unmeasured(known), "knows": sorted(known)}
    if (weights := _weights(config)) is not None:
        header["weights"] = weights
        if weights["found"] != "model.path":
            print(wrapped(f"{called}: weights of {config.model.path} from {weights['found']}"))
    progress_of = partial(Progress, track=track, normaliser=plain["normaliser"])
    with LiveWriter(path, header) as writer, progress_of(called, utterances) as progress:

        def closed_now(utterance: Utterance, error: str | None) -> None:
            said = writer.committed.pop(utterance.id)
            # What a failed utterance said before it failed is not its result.
            progress.closed(utterance, "".join(said) if error is None else "")
            if not path.exists():
                raise UserError(
                    f"{path}: was removed or moved during the run, so nothing of it can be kept; "
                    "give the same command again, and leave the folder until it ends"
                )

        for utterance in utterances:
            if utterance.id in closed:
                progress.closed(utterance)
        try:
            simulate(
                method,
                todo,
                writer=writer,
                feed=config.feed,
                chunk_samples=samples_of(config.chunk),
                first_chunk_samples=samples_of(config.first_chunk),
                batch=config.batch,
                streams=config.streams,
                seed=config.seed,
                synchronise=synchronise,
                on_utterance=closed_now,
                on_heard=progress.heard,
            )
        except KeyboardInterrupt:
            with suppress(OSError):
                print(f"{called}: {len(writer.closed)} of {len(utterances)} utterances are done")
            raise


def _weights(config: DictConfig) -> dict[str, str | None] | None:
    """Return where the Whisper of this run lies and its weights' hash; None without a Whisper."""
    from streaming_asr.models.hash import weights_hash

    path = config.model.get("path")
    found = None if path is None or own_network(config) else find_here(path)
    return None if found is None else {"found": found.where, "hash": weights_hash(path)}


def _score(
    plain: dict[str, Any], folder: Path, hashes: dict[str, str], cell: str
) -> dict[str, Any]:
    from streaming_asr.score import score_folder

    return score_folder(folder, config=plain, hashes=hashes, experiment=plain["name"], cell=cell)


def _join(plain: dict[str, Any], whole: Path, hashes: dict[str, str]) -> dict[str, Any] | None:
    """Return the result of a cell from its pieces; None while one of them is not finished, or must
    be computed anew, which another job may be about to do."""
    try:
        if not pieces.join(whole):
            return None
    except UserError as error:
        print(f"not joined yet: {error}")
        return None
    plain = plain | {"piece": None}
    result = _score(plain, whole, hashes, whole.name)
    with _tracked(plain, whole, whole.name) as track:
        _send(track, whole, result)
    return result


def _tracked(plain: dict[str, Any], folder: Path, cell: str) -> AbstractContextManager[Tracker]:
    """Return the tracker of a cell; a piece has none, the cell it is of has one at the end."""
    from streaming_asr.track.tracker import tracker

    told = plain if plain.get("piece") is None else plain | {"tracker": None}
    return tracker(told, folder=folder, experiment=plain["name"], cell=cell)


def _send(track: Tracker, folder: Path, result: Mapping[str, Any]) -> None:
    """Give the tracker, if there is one, the result of a cell."""
    if track.alive:
        from streaming_asr.chunking import parse_duration
        from streaming_asr.corpora.rows import text_lines

        chunk_ms = parse_duration(result["config"]["chunk"])
        track.results(result["metrics"], chunk_ms=chunk_ms)
        lines = text_lines(folder / folders.UTTERANCES)
        track.table("utterances", [json.loads(line) for line in lines])
        track.events(folder / folders.EVENTS)
        track.report(report_page(folder))
