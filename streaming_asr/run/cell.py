"""Runs, resumes or skips one cell: method -> simulate -> score -> save."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from omegaconf import DictConfig, OmegaConf

from streaming_asr.align.auto import give_times
from streaming_asr.cells import folder as folders
from streaming_asr.cells import pieces
from streaming_asr.cells.hashes import changed_settings, config_hash, hash_of, modules, targets_of
from streaming_asr.config.build import build
from streaming_asr.config.settle import check_known, is_server
from streaming_asr.config.weights import own_network, unheard
from streaming_asr.errors import UserError
from streaming_asr.method import LongForm, Method, Paced
from streaming_asr.metrics.table import CU, EVERYTHING, INSIDE, STEPS, unmeasured
from streaming_asr.models.find import find_here
from streaming_asr.models.hash import model_hash
from streaming_asr.models.shared import of_files
from streaming_asr.references import problems
from streaming_asr.run.method import method_of, samples_of
from streaming_asr.run.progress import Progress, data_places, report_page
from streaming_asr.terminal import loading, wrapped
from streaming_asr.text.normalise import default_kind

if TYPE_CHECKING:
    from streaming_asr.track.tracker import Tracker
    from streaming_asr.utterance import Utterance

MOST_NAMED = 5  # settings or modules that a message about a changed cell names


@dataclass(frozen=True)
class Job:
    """A cell that is about to run: its settings, its corpus, and where its results go."""

    config: DictConfig
    """Settled settings (`config.settle`)."""
    settings: dict[str, Any]
    """The same as plain containers, with what a result reports besides: the names of method, model
    and data, the normaliser, and what timed the words."""
    corpus: Any
    folder: Path
    hashes: dict[str, str]
    """Of configuration, code, model and data: results of the same ones are the same."""
    code: dict[str, str]
    """Hash of every module that can change an output, by its name."""
    title: str
    """What messages begin with."""
    launcher: str

    @classmethod
    def of(
        cls, config: DictConfig, folder: Path, hydra_node: Any, launcher: str, number: int | None
    ) -> Job:
        """Return the job of a cell. Raises UserError for bad input. See `run_cell`."""
        settings: dict[str, Any] = OmegaConf.to_container(config)  # type: ignore[assignment]
        choices = hydra_node.runtime.choices
        for group in ("method", "model", "data"):
            settings[group] = {"name": str(choices[group])} | settings[group]
        title = f"{settings['method']['name']} {config.chunk}"
        if number is not None:
            title = f"[{number}] {title}"
        if is_server(config):  # it loads nothing, so its settings are checked before the corpus
            build(config.method)
        model = "" if config.model.path is None else f" and model={choices['model']}"
        loading(f"data={choices['data']}{model} for {title}")
        corpus = build(config.data)
        languages = {config.language} - {None, "detect"} or getattr(corpus, "languages", set)()
        if config.language is None:
            check_known(config, languages)
        settings["normaliser"] = config.normaliser or default_kind(languages)
        if warning := unheard(settings, languages):
            print(wrapped(f"{title}: {warning}"))
        settings["data"] |= _facts(corpus, config.language)
        code = modules(*targets_of(settings["method"]))
        hashes = {
            "config": config_hash(settings),
            "code": hash_of(code),
            "model": model_hash(settings),
            "data": corpus.data_hash(),
        }
        return cls(config, settings, corpus, folder, hashes, code, title, launcher)

    @property
    def whole(self) -> Path:
        """Return the cell's folder, where this is a piece of it."""
        return folders.cell_of(self.folder)

    def report(self, message: str) -> None:
        """Print a message about the cell."""
        print(wrapped(f"{self.title}: {message}"))

    def tracked(self, folder: Path) -> AbstractContextManager[Tracker]:
        """Return the tracker of the results in `folder`; a piece has none, its cell has one."""
        from streaming_asr.track.tracker import tracker

        is_piece = folders.is_piece(folder)
        settings = self.settings | ({"tracker": None} if is_piece else {"piece": None})
        cell = folders.name_of(folder)
        return tracker(settings, folder=folder, experiment=settings["name"], cell=cell)

    def score(self, folder: Path) -> dict[str, Any]:
        """Score the log in `folder` and return the content of metrics.json."""
        from streaming_asr.score import score_folder

        name = folders.name_of(folder)
        return score_folder(folder, experiment=self.settings["name"], cell=name)

    def changes(self) -> str:
        """Return what differs between the results in the folder and the same cell now, in words."""
        header = folders.header_of(self.folder) or {}
        before, old_code = header.get("hashes") or {}, folders.saved_code(self.folder)
        modules_changed = [
            name.removeprefix("streaming_asr.")
            for name in {**old_code, **self.code}
            if old_code and old_code.get(name) != self.code.get(name)
        ]
        details = {
            "config": changed_settings(header.get("config") or {}, self.settings),
            "code": modules_changed,
        }
        parts = []
        for key, value in self.hashes.items():
            if before.get(key) != value:
                names = details.get(key, [])
                examples = names[:MOST_NAMED] + ["..."] * (len(names) > MOST_NAMED)
                parts.append(f"{key} ({', '.join(examples)})" if names else key)
        return " and ".join(parts)


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
    configuration, with the choices. number: of the cell in a sweep, which does not wait for another
    process that is writing the cell.
    Raises UserError for bad input, folder.Busy where it does not wait, and KeyboardInterrupt; what
    was logged until then stays and is resumed.
    """
    from streaming_asr.events.log import forget_failed
    from streaming_asr.metrics import METRICS_VERSION

    folders.check_writable(folder)
    job = Job.of(config, folder, hydra_node, launcher, number)
    whole, is_piece = job.whole, folders.is_piece(folder)
    waiting = partial(job.report, "another process is writing it; waiting")
    with folders.lock(folder, waiting if number is None else None):
        folders.check_links(folder)
        folders.forget_failure(folder)
        header = folders.header_of(folder)
        if is_piece and folders.finished(whole, job.hashes, METRICS_VERSION):
            if not (result := folders.result_of(whole)).get("n_failed"):
                job.report("its cell is finished, skipped")
                return result
            (whole / folders.EVENTS).unlink(missing_ok=True)  # it is joined again
        if header is not None and (header.get("hashes") or {}) != job.hashes:
            changed = job.changes()
            job.report(f"{changed} changed; the old results are now {folders.set_aside(folder)}")
        elif (n_failed := forget_failed(folder / folders.EVENTS)) > 0:
            (folder / folders.RESULT).unlink(missing_ok=True)  # a killed run is not finished
            job.report(f"{n_failed} of its recordings failed earlier and are tried again")
        elif folders.finished(folder, job.hashes, METRICS_VERSION):
            job.report("finished earlier, skipped")
            result = folders.result_of(folder)
            if is_piece:
                return _join(job) or result
            return result
        work = _prepared(job)
        folders.save_configuration(folder, config, hydra_node.overrides.task)
        folders.save_code(folder, job.code)
        if work is not None:
            _simulate(job, work)
        result = job.score(folder)
        _send(job, folder, result)
        if is_piece and (joined := _join(job)) is not None:
            folder, result = whole, joined
        folders.forget_failure(folder)  # of a process that gave up on it meanwhile
        return result


def _facts(corpus: Any, language: str | None) -> dict[str, str]:
    """Return what a result reports of its corpus: what timed its words, and its licence."""
    facts = {}
    try:
        if (aligner := give_times(corpus, language)) is not None:
            facts["word_times"] = aligner.name
    except UserError as error:  # everything but latency can still be measured
        print(f"no word times, so latency columns stay empty. {error}")
    if (licence := getattr(corpus, "licence", None)) is not None:
        facts["licence"] = f"{corpus.name}: {licence()}"
    return facts


class Work(NamedTuple):
    """What a cell has left to do: all its recordings, those that are in the log, those that are
    not, and the method that runs them."""

    utterances: list[Utterance]
    closed: Collection[str]
    todo: list[Utterance]
    method: Any
    synchronise: Callable[[], None]


def _prepared(job: Job) -> Work | None:
    """Return what the cell has left to do, with its method loaded; None for nothing. Raises
    UserError for bad recordings first, and then for settings that the method refuses."""
    from streaming_asr.events.log import resume

    config = job.config
    utterances = _utterances(job)
    path = job.folder / folders.EVENTS
    closed = resume(path)
    todo = [utterance for utterance in utterances if utterance.id not in closed]
    if config.language not in (None, "detect"):
        todo = [replace(utterance, language=config.language) for utterance in todo]
    if not todo:
        job.report("every recording is in its log, which is scored again")
        return None
    if closed:
        job.report(f"goes on after {len(utterances) - len(todo)} of {len(utterances)} utterances")
    of_files(job.hashes["model"])
    method, synchronise = method_of(config)
    if config.language == "detect":
        from streaming_asr.whisper.detect import IgnoresLanguage

        method = IgnoresLanguage(method)
    return Work(utterances, closed, todo, method, synchronise)


def _simulate(job: Job, work: Work) -> None:
    """Write the log of the recordings that it does not have yet."""
    from streaming_asr.events.log import EventWriter
    from streaming_asr.simulate.feeds import simulate

    config, path = job.config, job.folder / folders.EVENTS
    utterances, closed, todo, method, synchronise = work
    header = _header(job, method, len(utterances))
    with EventWriter(path, header) as writer, Progress(job.title, utterances) as progress:

        def closed_now(utterance: Utterance, error: str | None) -> None:
            progress.closed(utterance)
            if not path.exists():
                raise UserError(
                    f"{path}: was removed or moved during the run, so nothing of it can be kept; "
                    "give the same command again, and leave the folder until it ends"
                )

        for utterance in utterances:
            if utterance.id in closed:
                progress.closed(utterance, earlier=True)
        try:
            simulate(
                method,
                todo,
                writer=writer,
                feed=config.feed,
                chunk_samples=samples_of(config.chunk),
                first_chunk_samples=samples_of(config.first_chunk),
                batch=config.batch,
                synchronise=synchronise,
                on_utterance=closed_now,
                on_progress=progress.heard,
            )
        except KeyboardInterrupt:
            with suppress(OSError):
                job.report(f"{len(writer.closed)} of {len(utterances)} utterances are done")
            raise


def _utterances(job: Job) -> list[Utterance]:
    """Return the recordings of the cell, or of its piece. Raises UserError for a bad reference."""
    config, corpus = job.config, job.corpus
    utterances: list[Utterance] = corpus.utterances(config.limit)
    for utterance in utterances:  # of a corpus of one's own too, before anything is computed
        if problem := next(problems(utterance), None):
            raise UserError(f"{corpus.name}: {utterance.id}: {problem}")
    if "prompt" not in config.method and any(utterance.prompt for utterance in utterances):
        raise UserError(
            f"{corpus.name}: its recordings have a prompt, and method="
            f"{job.settings['method']['name']} takes none; leave `prompt` out there"
        )
    if config.piece is not None:
        pieces.check_fits(job.whole, config.pieces, len(utterances))
        utterances = utterances[config.piece - 1 :: config.pieces]
    if not any(utterance.words for utterance in utterances) and any(u.text for u in utterances):
        job.report(
            f"the words of {corpus.name} have no times, so latency columns stay empty; "
            "data.align=auto makes the times once, data.alignments=<folder> takes those of "
            "`streaming-asr align`"
        )
    return utterances


_reported_origins: set[str] = set()
"""The origins of weights that this process has reported."""


def _header(job: Job, method: Method[Any], n_utterances: int) -> dict[str, Any]:
    """Return the first line of the cell's log, which has `n_utterances`."""
    from streaming_asr import machine
    from streaming_asr.metrics import METRICS_VERSION

    config = job.config
    header: dict[str, Any] = {
        "config": job.settings,
        "hashes": job.hashes,
        "versions": machine.versions(),
        "machine": machine.machine(device=config.device, launcher=job.launcher),
        "metrics_version": METRICS_VERSION,
        "n_utterances": n_utterances,
        "longform": isinstance(method, LongForm) and method.samples_together is not None,
    }
    if config.piece is not None:
        header["piece"] = [config.piece, config.pieces, n_utterances]
    if isinstance(method, Paced):  # nobody sees what happens inside a server
        columns = EVERYTHING - {CU, STEPS, INSIDE}
        header |= {"unmeasured": unmeasured(columns), "knows": sorted(columns)}
    if (weights := _weights(config)) is not None:
        header["weights"] = weights
        origin = f"weights of {config.model.path} from {weights['found']}"
        if weights["found"] != "model.path" and origin not in _reported_origins:
            _reported_origins.add(origin)  # the cells of a sweep have the same
            job.report(origin)
    return header


def _weights(config: DictConfig) -> dict[str, str | None] | None:
    """Return where the Whisper of this run lies and its weights' hash; None without a Whisper."""
    from streaming_asr.models.hash import weights_hash

    path = config.model.get("path")
    folder = None if path is None or own_network(config) else find_here(path)
    return None if folder is None else {"found": folder.where, "hash": weights_hash(path)}


def _join(job: Job) -> dict[str, Any] | None:
    """Return the result of a cell from its pieces; None while one of them is not finished, or must
    be computed again, which another job may be about to do."""
    try:
        if not pieces.join(job.whole):
            return None
    except UserError as error:
        print(f"not joined yet: {error}")
        return None
    result = job.score(job.whole)
    _send(job, job.whole, result)
    return result


def _send(job: Job, folder: Path, result: dict[str, Any]) -> None:
    """Give the tracker, if there is one, the result of a cell."""
    with job.tracked(folder) as track:
        if track.alive:
            from streaming_asr.score.results import read_results

            (cell,) = read_results(folder)
            track.summary(result["metrics"])
            track.series(cell.series)
            track.events(folder / folders.EVENTS)
            track.report(report_page(folder, data_places(job.config)))
