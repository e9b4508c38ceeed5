"""Runs one method over one corpus: configuration -> method -> simulate -> score -> save.

    python -m streaming_asr.run method=whisperrt chunk=300ms limit=60
    python -m streaming_asr.run -m method=offline,whisperrt chunk=100ms,300ms,1s

A cell is one such run; its results lie in <output>/<name>/<cell>/. A cell that is finished is
skipped while its configuration, code, model and data are what they were; where one of them
changed, the old folder is renamed and the cell begins anew. A cell that was stopped, however
abruptly, goes on at the first utterance whose log is not closed. A cell that fails in a sweep
leaves failed.json, and the sweep goes on.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from streaming_asr import cells, memory, pieces
from streaming_asr.align.auto import give_times
from streaming_asr.config import build, check_known, check_name, check_options, settle
from streaming_asr.durations import parse_duration
from streaming_asr.errors import UserError
from streaming_asr.files import write_text
from streaming_asr.formats.stream import CU, EVERYTHING, INSIDE, STEPS, unmeasured
from streaming_asr.get import with_model
from streaming_asr.hashes import code_hash, config_hash, model_hash
from streaming_asr.machine import let_waiting_threads_sleep
from streaming_asr.method import SAMPLE_RATE, LongForm, Paced
from streaming_asr.models.find import find_here
from streaming_asr.paths import CONF_DIR
from streaming_asr.screen import Progress, report_page, show, show_segments
from streaming_asr.terminal import stoppable, stopped
from streaming_asr.weights import own_network

if TYPE_CHECKING:
    from streaming_asr.utterance import Utterance

EXIT_BAD_INPUT, EXIT_FAILED = 2, 1
MULTIRUN = ("-m", "--multirun")
LOST_SHOWN = 10  # recordings that failed


def run_cell(
    config: DictConfig,
    folder: Path,
    *,
    hydra_node: Any,
    launcher: str = "basic",
    waits: bool = True,
    say: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Run, resume or skip one cell; return the content of its metrics.json.

    config: settled (`config.settle`). folder: where its results lie. hydra_node: Hydra's own
    configuration, which says what was chosen. waits: for another process that is writing the cell.
    Raises UserError for bad input, cells.Busy where it does not wait, and KeyboardInterrupt; what
    was logged until then stays and is resumed.
    """
    from streaming_asr.metrics import METRICS_VERSION

    plain: dict[str, Any] = OmegaConf.to_container(config)  # type: ignore[assignment]
    for group in ("method", "model", "data"):  # the choices' names, for those who read the result
        plain[group] = {"name": str(hydra_node.runtime.choices[group])} | plain[group]
    cell, whole = pieces.name_of(folder), pieces.cell_of(folder)
    cells.check_writable(folder)
    corpus = build(config.data)
    if config.language is None:
        check_known(config, getattr(corpus, "languages", set)())
    plain["data"] |= _speech(corpus, say)
    hashes = {
        "config": config_hash(plain),
        "code": code_hash(plain["method"]["_target_"]),
        "model": model_hash(plain),
        "data": corpus.data_hash(),
    }
    on_wait = (lambda: say(f"{cell}: another process is writing it; waiting")) if waits else None
    with ExitStack() as stack:
        stack.enter_context(cells.lock(folder, on_wait))
        (folder / "failed.json").unlink(missing_ok=True)
        header = cells.header_of(folder)
        begun_with = hashes if header is None else header.get("hashes") or {}
        if whole != folder and cells.finished(whole, hashes, METRICS_VERSION):
            say(f"{cell}: its cell is finished, skipped")
            return dict(json.loads((whole / "metrics.json").read_text(encoding="utf-8")))
        if begun_with != hashes:
            changed = [key for key in hashes if begun_with.get(key) != hashes[key]]
            old = cells.set_aside(folder)
            say(f"{cell}: {' and '.join(changed)} changed; the old results are now {old}")
        elif cells.finished(folder, hashes, METRICS_VERSION):
            say(f"{cell}: finished earlier, skipped")
            result = dict(json.loads((folder / "metrics.json").read_text(encoding="utf-8")))
            if whole != folder:
                return _join(plain, whole, hashes, say) or result
            if "WANDB_SWEEP_ID" in os.environ:  # an agent waits for the numbers of every cell
                _track(plain, folder, result, cell)
            return result
        _save_configuration(folder, config, hydra_node)
        with _attention(config.model.get("attention")):
            _simulate(config, plain, folder, corpus, hashes, launcher, say, cell)
        result = _score(plain, folder, hashes, cell)
        if whole != folder and (joined := _join(plain, whole, hashes, say)) is not None:
            folder, result = whole, joined
        if (cells.header_of(folder) or {}).get("longform"):  # not only a measurement
            from streaming_asr.segments import write_segments

            write_segments(folder)
        with suppress(FileNotFoundError):  # of a process that gave up on it meanwhile
            (folder / "failed.json").unlink()
        return result


def _speech(corpus: Any, say: Callable[[str], None]) -> dict[str, str]:
    """What a result says of its corpus: what timed its words, its licence, where there is any."""
    told = {}
    try:
        if (aligner := give_times(corpus)) is not None:
            told["word_times"] = aligner.name
    except UserError as error:  # everything but latency can still be measured
        say(f"no word times, so latency columns stay empty. {error}")
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
    say: Callable[[str], None],
    cell: str,
) -> None:
    from streaming_asr import machine
    from streaming_asr.events import EventWriter, resume
    from streaming_asr.metrics import METRICS_VERSION
    from streaming_asr.simulate import simulate

    utterances = corpus.utterances(config.limit)
    if config.piece is not None:
        pieces.check_fits(pieces.cell_of(folder), config.pieces, len(utterances))
        utterances = utterances[config.piece - 1 :: config.pieces]
    if not any(utterance.words for utterance in utterances) and any(u.text for u in utterances):
        say(
            f"{cell}: the words of {corpus.name} have no times, so latency columns stay empty; "
            "data.align=auto makes the times once, data.alignments=<folder> takes those of "
            "`python -m streaming_asr.align`"
        )
    path = folder / "events.jsonl"
    closed = resume(path)
    todo = [utterance for utterance in utterances if utterance.id not in closed]
    if config.language not in (None, "detect"):
        todo = [replace(utterance, language=config.language) for utterance in todo]
    if not todo:
        return
    if closed:
        say(f"{cell}: goes on after {len(utterances) - len(todo)} of {len(utterances)} utterances")
    method, synchronise = method_of(config)
    header = {
        "config": plain,
        "hashes": dict(hashes),
        "versions": machine.versions(),
        "machine": machine.machine(device=config.device, launcher=launcher),
        "metrics_version": METRICS_VERSION,
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
            say(f"{cell}: weights of {config.model.path} from {weights['found']}")
    with EventWriter(path, header) as writer, Progress(cell, utterances) as progress:

        def closed_now(utterance: Utterance, error: str | None) -> None:
            progress.closed(utterance, error)
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
                chunk_samples=_samples(config.chunk),
                first_chunk_samples=_samples(config.first_chunk),
                batch=config.batch,
                streams=config.streams,
                seed=config.seed,
                synchronise=synchronise,
                on_utterance=closed_now,
                on_heard=progress.heard,
            )
        except KeyboardInterrupt:
            with suppress(OSError):
                say(f"{cell}: {len(writer.closed)} of {len(utterances)} utterances are done")
            raise


def _weights(config: DictConfig) -> dict[str, str | None] | None:
    """Where the Whisper of this run was found and its weights' hash; None without a Whisper."""
    from streaming_asr.models.hash import weights_hash

    path = config.model.get("path")
    found = None if path is None or own_network(config) else find_here(path)
    return None if found is None else {"found": found.where, "hash": weights_hash(path)}


def _attention(name: str | None) -> AbstractContextManager[None]:
    if name is None:
        return nullcontext()
    from streaming_asr.whisper.attention import attention  # torch comes with it

    return attention(name)


def method_of(config: DictConfig) -> tuple[Any, Callable[[], None]]:
    """Return the method, seeded, and the function that waits for its device."""
    import random

    random.seed(config.seed)
    if str(config.method._target_).startswith("streaming_asr.") or config.device != "cpu":
        import torch

        if config.device.startswith("cuda") and not torch.cuda.is_available():
            raise UserError(f"device={config.device}: torch finds no CUDA GPU; use device=cpu")
        if config.threads is not None:
            torch.set_num_threads(config.threads)
        torch.manual_seed(config.seed)
    method = build(config.method)
    if config.language == "detect":
        from streaming_asr.whisper.detect import DetectsLanguage
        from streaming_asr.whisper.load import load_whisper

        whisper = load_whisper(config.model.path, device=config.device, dtype=config.dtype)
        method = DetectsLanguage(method, whisper)
    if config.device.startswith("cuda"):
        return method, lambda: torch.cuda.synchronize(config.device)
    return method, lambda: None


def _score(
    plain: dict[str, Any], folder: Path, hashes: dict[str, str], cell: str
) -> dict[str, Any]:
    from streaming_asr.score import score_folder

    result = score_folder(folder, config=plain, hashes=hashes, experiment=plain["name"], cell=cell)
    if plain.get("piece") is None:
        _track(plain, folder, result, cell)
    return result


def _join(
    plain: dict[str, Any], whole: Path, hashes: dict[str, str], say: Callable[[str], None]
) -> dict[str, Any] | None:
    """Return the result of a cell from its pieces; None while one of them is not finished, or must
    be computed anew, which another job may be about to do."""
    try:
        if not pieces.join(whole):
            return None
    except UserError as error:
        say(f"not joined yet: {error}")
        return None
    return _score(plain | {"piece": None}, whole, hashes, whole.name)


def _track(plain: dict[str, Any], folder: Path, result: Mapping[str, Any], cell: str) -> None:
    if (plain["tracker"] or {}).get("name", "none") != "none":
        from streaming_asr.data.manifest import text_lines
        from streaming_asr.track import tracker

        with tracker(plain, folder=folder, experiment=plain["name"], cell=cell) as track:
            track.summary(result["metrics"])
            track.utterances([json.loads(line) for line in text_lines(folder / "utterances.jsonl")])
            track.report(report_page(folder))


def _samples(duration: str) -> int:
    return parse_duration(duration) * SAMPLE_RATE // 1000


def _save_configuration(folder: Path, config: DictConfig, hydra_node: Any) -> None:
    """Write what Hydra would write, once the folder is known to be this cell's."""
    place = folder / ".hydra"
    try:
        place.mkdir(exist_ok=True)
        OmegaConf.save(config, place / "config.yaml")
        OmegaConf.save(hydra_node.overrides.task, place / "overrides.yaml")
        OmegaConf.save(hydra_node, place / "hydra.yaml")
    except OSError as error:
        raise UserError(
            f"{place}: cannot be written ({error.strerror}); make room or name another folder "
            "with output=<folder>"
        ) from error


# -- the program ----------------------------------------------------------------------------


def job(config: DictConfig) -> dict[str, Any] | None:
    """Run one cell as Hydra calls it, in this process or in a launcher's."""
    node = HydraConfig.get()
    folder = Path(os.path.relpath(node.runtime.output_dir))
    sweeping = node.mode == RunMode.MULTIRUN
    launcher = str(node.runtime.choices["hydra/launcher"])
    if launcher != "basic" and not sweeping:
        print(f"error: hydra/launcher={launcher}: starts a sweep's jobs; add -m", file=sys.stderr)
        raise SystemExit(EXIT_BAD_INPUT)
    memory.release()
    if sweeping:
        print(f"[{node.job.num + 1}] {pieces.name_of(folder)}", flush=True)
    try:
        settled = settle(config, node.runtime.choices)
        result = run_cell(settled, folder, hydra_node=node, launcher=launcher, waits=not sweeping)
    except KeyboardInterrupt as error:
        raise SystemExit(stopped(error)) from None
    except cells.Busy:
        print(f"{folder.name}: another process is writing it; passed over", flush=True)
        return None
    except Exception as error:
        if memory.ran_out(error):
            told = memory.remedy(
                error, batch=config.batch, device=config.device, dtype=config.dtype
            )
            error = UserError(told).with_traceback(error.__traceback__)
        expected = isinstance(error, UserError)
        _save_failure(folder, str(error) if expected else f"{type(error).__name__}: {error}")
        if not (folder / ".hydra").exists():  # what was to run, for the row in the report
            with suppress(UserError):
                _save_configuration(folder, config, node)
        if not sweeping and not expected:
            raise
        if not expected:
            import traceback

            traceback.print_exc()
        print(f"error: {folder.name if sweeping else ''}{': ' * sweeping}{error}", file=sys.stderr)
        if not sweeping:
            raise SystemExit(EXIT_BAD_INPUT) from None
        return None
    if not sweeping:
        show(pieces.cell_of(folder))
        show_segments(pieces.cell_of(folder))
    return {"cell": result["cell"], "wer": result["metrics"].get("wer")}


def _save_failure(folder: Path, error: str) -> None:
    with suppress(UserError):  # a full disk may be what failed
        text = json.dumps({"status": "failed", "error": error}, ensure_ascii=False)
        write_text(folder / "failed.json", text + "\n")


class ReportSweep(Callback):  # type: ignore[misc]
    """Shows the table of all cells and the page after a sweep."""

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        folder = Path(config.hydra.sweep.dir)
        if any(folder.glob("*/metrics.json")):
            show(folder)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status: 0; 1 where a cell or a recording failed; 2
    for bad input; 128 and the number of the signal that stopped it, which is 130 for Ctrl-C."""
    argv = list(sys.argv[1:] if argv is None else argv)
    # Hydra's parser refuses -m between overrides; a stable sort moves nothing else.
    argv.sort(key=lambda argument: argument not in MULTIRUN)
    try:
        for argument in argv:
            try:
                argument.encode()
            except UnicodeEncodeError as error:
                raise UserError(f"{argument!r}: is no UTF-8 text; rename the file") from error
            check_name(argument)
        check_options(argv)
        let_waiting_threads_sleep()
        argv = _own_speech(argv)
        with stoppable():
            if "hydra/launcher=submitit_slurm" in argv:
                _check_slurm()
            argv, planned = _in_pieces(argv, _plan(argv))
            for folder in {cell.folder.parent for cell in planned}:
                cells.check_writable(folder)
            for cell in planned:
                (cell.folder / "failed.json").unlink(missing_ok=True)
            _hydra(argv)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    except KeyboardInterrupt as error:
        return stopped(error)
    failed = [cell.folder for cell in planned if (cell.folder / "failed.json").exists()]
    wholes = {pieces.cell_of(cell.folder) for cell in planned} - {cell.folder for cell in planned}
    for whole in sorted(wholes):
        try:  # once more, since on a shared disk the last two jobs may not have seen each other
            if pieces.join(whole) and not (whole / "metrics.json").exists():
                from streaming_asr.score import score_folder

                score_folder(whole)
        except UserError as error:
            print(f"error: {error}", file=sys.stderr)
            return EXIT_FAILED
    if failed:
        print(f"{len(failed)} of {len(planned)} cells failed:", file=sys.stderr)
        for folder in failed:
            print(f"  {folder}: {pieces.failure(folder)}", file=sys.stderr)
    lost = [line for cell in planned for line in _lost(cell.folder)]
    print(*lost, sep="\n", end="\n" * bool(lost), file=sys.stderr)
    return EXIT_FAILED if failed or lost else 0


def _own_speech(argv: list[str]) -> list[str]:
    """Return the command line, with the corpus and the model that `data.path=FILE` alone means."""
    given = dict(argument.split("=", 1) for argument in argv if "=" in argument)
    if "data.path" not in given or {"data", "experiment", "+experiment"} & given.keys():
        return argv
    kind = "manifest" if given["data.path"].endswith((".jsonl", ".json")) else "folder"
    return with_model([*argv, f"data={kind}"])


def _lost(folder: Path) -> list[str]:
    """Return what to say of the recordings of a cell that failed; nothing where none did."""
    try:
        result = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
        failed = [f"  {each['utt']}: {each['error']}" for each in result["failed"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    if not failed:
        return []
    rest = [f"  and {len(failed) - LOST_SHOWN} more: {folder / 'metrics.json'}"]
    told = f"{folder.name}: {len(failed)} of {result['n_utterances']} recordings failed:"
    return [told, *failed[:LOST_SHOWN], *rest * (len(failed) > LOST_SHOWN)]


def _plan(argv: Sequence[str]) -> list[cells.Planned]:
    """Return the cells this command line runs; none where it only asks (--help, --cfg)."""
    overrides, multirun, config_dir = [], False, None
    rest = iter(argv)
    for argument in rest:
        if argument in MULTIRUN:
            multirun = True
        elif argument in ("-cd", "--config-dir"):
            config_dir = next(rest, None)
        elif argument.startswith("-"):
            return []
        else:
            overrides.append(argument)
    return cells.plan(overrides, multirun=multirun, config_dir=config_dir)


def _check_slurm() -> None:
    """Raise UserError where no job can be given to Slurm."""
    if shutil.which("sbatch") is None:
        told = "there is no sbatch here"
    else:
        asked = subprocess.run(["sinfo", "--noheader"], capture_output=True, text=True)
        if not asked.returncode:
            return
        told = f"Slurm does not answer ({asked.stderr.strip().rpartition(chr(10))[2]})"
    raise UserError(
        f"hydra/launcher=submitit_slurm: {told}; give the command on a machine that submits to "
        "Slurm, or take hydra/launcher=joblib"
    )


def _in_pieces(
    argv: list[str], planned: list[cells.Planned]
) -> tuple[list[str], list[cells.Planned]]:
    """Return the command line and its cells, one for each piece where cells are to be split.

    Raises UserError for more than one number of pieces, and for more pieces than utterances.
    """
    split = [cell for cell in planned if cell.config is not None and cell.config.pieces > 1]
    whole = [cell for cell in split if cell.config is not None and cell.config.piece is None]
    if not whole:
        return argv, planned
    numbers = sorted({cell.config.pieces for cell in planned if cell.config is not None})
    if len(numbers) > 1:
        raise UserError(f"pieces={','.join(map(str, numbers))}: a command has one number of pieces")
    lengths: dict[str, int] = {}
    for folder, config in ((cell.folder, cell.config) for cell in whole):
        assert config is not None
        key = f"{config.data} {config.limit}"
        if key not in lengths:
            lengths[key] = len(build(config.data).utterances(config.limit))
        pieces.check_fits(folder, numbers[0], lengths[key])
    argv = ["-m", *(a for a in argv if a not in MULTIRUN), f"piece=range(1,{numbers[0] + 1})"]
    return argv, _plan(argv)


def _hydra(argv: Sequence[str]) -> None:
    before = sys.argv
    # Completion is installed for the command that a shell sees.
    completes = argv[:1] in (["-sc"], ["--shell-completion"])
    sys.argv = ["streaming-asr" if completes else "run", *argv]
    try:
        hydra.main(config_path=str(CONF_DIR), config_name="run", version_base="1.3")(job)()
    finally:
        sys.argv = before


if __name__ == "__main__":
    # As the module that the launchers' processes import, not as __main__.
    from streaming_asr import run

    sys.exit(run.main())
