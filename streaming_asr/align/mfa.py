"""Word times from the Montreal Forced Aligner (McAuliffe et al. 2017), driven as a program.

MFA lives in a conda environment of its own. It is taken from PATH where it is there, else from the
environment `environment`. A batch of utterances is written in its corpus layout,
<speaker>/<utterance>.wav next to <utterance>.lab; `mfa align` leaves a TextGrid for each that it
could align, and its words are laid on the transcript's (`corpora.alignments.match`).

Run with montreal-forced-aligner 3.4.3 (docs/align.md names the data). The tests replay what it
printed and wrote there.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from streaming_asr.align.result import UNTIMED, Aligned, is_timed, words_of
from streaming_asr.corpora.alignments import laid_on, read_textgrid, read_tier
from streaming_asr.errors import UserError, check_range
from streaming_asr.method import SAMPLE_RATE
from streaming_asr.text.normalise import light_key
from streaming_asr.utterance import TimedWord, Utterance

INSTALL = """\
  conda create -n aligner -c conda-forge montreal-forced-aligner
  conda run -n aligner mfa model download dictionary english_mfa
  conda run -n aligner mfa model download acoustic english_mfa"""
MANAGERS = ("conda", "mamba", "micromamba")
# The clean-up of TextGrids joins "dogs' tempting" to one word. A user's global_config.yaml changes
# the options that are not given.
FIXED = (
    "align --clean --final_clean --overwrite --quiet --output_format long_textgrid "
    "--no_textgrid_cleanup --no_use_postgres"
)
CLOSE_S = 120  # for what a program that was killed has printed
LIMIT_S = 1800
"""A call may last so long and its audio once more. A call of 20 clips took 15 to 80 s of CPU time,
mostly start-up, and MFA can wait for ever for a worker that ended."""
NONE_ALIGNED = re.compile(r"^\S*\b(NoAlignmentsError|FeatureGenerationError):", re.MULTILINE)
NO_MODEL = re.compile(r'Could not find a model named "([^"]+)"\s+for\s+(\w+)')
NO_PROGRAM = re.compile(r"Could not find '([^']+)'|No such file or directory: '(sqlite3)'")
BRACKETS = str.maketrans("", "", "()[]{}<>\uff1c\uff1e")
UNKNOWN_PHONE = "spn"


class MfaAligner:
    """Aligns with MFA."""

    def __init__(
        self,
        dictionary: str = "english_mfa",
        acoustic: str = "english_mfa",
        environment: str = "aligner",
        g2p: str | None = None,
        single_speaker: bool = False,
        jobs: int = 3,
        batch: int = 2000,
    ) -> None:
        """Find MFA. Raises UserError where it is not installed.

        dictionary, acoustic: names of models that MFA has downloaded, or paths. environment: of
        conda. g2p: a model for words outside the dictionary. single_speaker: adapt to no speaker,
        for a corpus that names none. jobs: processes. batch: utterances per call of MFA.
        """
        settings: dict[str, Any] = {"aligner.jobs": jobs, "aligner.batch": batch}
        check_range(1, **settings)
        self._dictionary = _model("dictionary", dictionary)
        self._acoustic = _model("acoustic", acoustic)
        self._g2p = _model("g2p", g2p) if g2p else None
        self._single_speaker = single_speaker
        self._jobs, self._batch = jobs, batch
        self._command = find_mfa(environment)

    def align(self, utterances: Sequence[Utterance]) -> Iterator[Aligned]:
        """Yield the results batch by batch. Raises UserError where MFA itself fails."""
        for first in range(0, len(utterances), self._batch):
            yield from self._align_batch(utterances[first : first + self._batch])

    def _align_batch(self, utterances: Sequence[Utterance]) -> Iterator[Aligned]:
        """Yield the results of one call of MFA, those that cannot be read first."""
        with tempfile.TemporaryDirectory(prefix="mfa-") as name:
            folder = Path(name)
            with_file: list[tuple[Utterance, Path]] = []
            audio_s = 0.0
            for i, utterance in enumerate(utterances):
                try:
                    file, length_s = _write(folder / "corpus", f"u{i:06d}", utterance)
                except UserError as error:
                    yield Aligned(utterance, None, str(error))
                else:
                    with_file.append((utterance, file))
                    audio_s += length_s
            why_none = self._run(folder, LIMIT_S + audio_s) if with_file else ""
            for utterance, file in with_file:
                grid = folder / "aligned" / file.with_suffix(".TextGrid")
                if grid.is_file():
                    yield _read(utterance, grid)
                else:
                    why = why_none or _export_error(folder / "aligned") or "no TextGrid"
                    yield Aligned(
                        utterance, None, f"{utterance.id}: MFA could not align it ({why})"
                    )

    def _run(self, folder: Path, limit_s: float) -> str:
        """Run `mfa align` from folder/corpus to folder/aligned, `limit_s` seconds at most.

        Return "", or why it could align none of the utterances. Raises UserError where MFA fails.
        """
        command = [*self._command, *FIXED.split()]
        command += ["--single_speaker"] if self._single_speaker else []
        # MFA's links break where the folder of temporary files is relative.
        command += ["-j", str(self._jobs), "-t", str((folder / "temporary").absolute())]
        command += ["--g2p_model_path", self._g2p] if self._g2p else []
        command += [str(folder / "corpus"), self._dictionary, self._acoustic]
        command.append(str(folder / "aligned"))
        status, output = _call(command, limit_s)
        if status == 0:
            return ""
        none_aligned = NONE_ALIGNED.search(output)
        if status is not None and none_aligned:
            return f"it aligned none of these utterances, {none_aligned[1]}"
        how, remedy = _diagnosis(status, output, limit_s)
        tail = "".join(f"  {line}\n" for line in output.splitlines()[-8:])
        raise UserError(
            f"mfa align {how}\n{tail}{remedy}"
            "What was aligned before is kept: the same command goes on with the rest"
        )


def _call(command: Sequence[str], limit_s: float) -> tuple[int | None, str]:
    """Run a program; return its status, None where it took more than `limit_s` seconds and was
    killed, and its output, standard error last."""
    # In a session of its own, so that its workers end with it.
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=limit_s)
        return process.returncode, output + errors
    except subprocess.TimeoutExpired:
        return None, _end(process)
    except BaseException:
        _end(process)
        raise


def _end(process: subprocess.Popen[str]) -> str:
    """Kill a program and its workers; return their output, standard error last."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    try:
        return "".join(process.communicate(timeout=CLOSE_S))
    except subprocess.TimeoutExpired:  # a worker in a session of its own has the pipe open
        return ""


def _diagnosis(status: int | None, output: str, limit_s: float) -> tuple[str, str]:
    """Return how a call of MFA failed, and a sentence with the remedy, "" where it is unknown.

    status: None after the time limit, negative for a signal.
    """
    if status is None:
        return f"did not end within {limit_s:.0f} s, its time limit, and was killed", (
            "MFA can wait for ever where it cannot write: free disk space in the temporary folder "
            "(TMPDIR); where the machine is slow, give a smaller aligner.batch. "
        )
    if status < 0 or status > 128:  # a signal; 128 + its number where a shell started MFA
        how = f"was killed (signal {abs(status) % 128})"
        return how, "Signal 9 is most often memory: give fewer aligner.jobs. "
    how = f"ended with status {status}"
    if "PretrainedModelNotFoundError" in output:
        # MFA prints it in a box of 80 columns: remove the frame and the line breaks.
        plain = re.sub(r"[\s│]+", " ", output)
        names = [f"mfa model download {kind} {name}" for name, kind in NO_MODEL.findall(plain)]
        return how, f"A model is missing: {'; '.join(names) or 'mfa model download'}. "
    if program := NO_PROGRAM.search(output):
        name = program[1] or program[2]
        return how, f"{name} is missing: MFA's conda environment has it. Install it:\n{INSTALL}\n"
    return how, ""


def _model(key: str, name: str) -> str:
    """Return a model's name or path as MFA takes it. Raises UserError for a path to no file.

    key: the setting, for the message.
    """
    path = Path(name).expanduser()
    if path.is_file():
        return str(path)
    if "/" in name or path.suffix in (".zip", ".dict", ".txt", ".yaml"):
        raise UserError(
            f"aligner.{key}={name}: no such file; correct the path, or give the name of a model "
            "that `mfa model download` has"
        )
    return name


def find_mfa(environment: str) -> list[str]:
    """Return the command that starts MFA: on PATH, else in the conda environment. Raises UserError
    with what to install; whether it works is seen when it runs."""
    if (program := shutil.which("mfa")) is not None:
        return [program]
    for name in MANAGERS:
        if (manager := shutil.which(name)) is not None:
            return [manager, "run", "-n", environment, "mfa"]
    raise UserError(
        f"aligner=mfa: neither mfa nor conda is on PATH. Install it:\n{INSTALL}\n"
        "or name its environment with aligner.environment=, or take aligner=whisper or aligner=ctc"
    )


def _write(corpus: Path, name: str, utterance: Utterance) -> tuple[Path, float]:
    """Write the utterance, audio and text, in MFA's layout; return the audio's path below `corpus`
    and its length in seconds. Raises UserError where it has no words or its audio cannot be read.
    """
    import soundfile

    words_of(utterance)  # raises where there are none
    # Words without letters are left out. MFA divides a language without spaces into words itself.
    # It takes text in brackets for one noise.
    text = " ".join(filter(light_key, utterance.text.split())).translate(BRACKETS)
    samples = utterance.load()
    speaker = re.sub(r"[^\w-]", "_", utterance.speaker or "unknown")
    # MFA takes a folder for a speaker, and adapts its model to each.
    file = Path(speaker) / f"{name}.wav"
    (corpus / speaker).mkdir(parents=True, exist_ok=True)
    soundfile.write(corpus / file, samples, SAMPLE_RATE, subtype="PCM_16")
    (corpus / file).with_suffix(".lab").write_text(f"{text}\n", encoding="utf-8")
    return file, len(samples) / SAMPLE_RATE


def _export_error(aligned: Path) -> str | None:
    """Return the last line of the file in which MFA lists what it could not export, or None."""
    file = aligned / "output_errors.txt"
    if not file.is_file():
        return None
    lines = file.read_text(encoding="utf-8", errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), None)


def _read(utterance: Utterance, grid: Path) -> Aligned:
    """Return the utterance's words with the times in a TextGrid of MFA; words whose pronunciation
    MFA does not know are UNTIMED."""
    try:
        words = laid_on(utterance, read_textgrid(grid))
        phones = read_tier(grid, "phone")
    except UserError as error:
        return Aligned(utterance, None, str(error))
    # A word outside the dictionary has this phone. Its middle, as edges may be rounded.
    unknown_s = [(phone.start + phone.end) / 2 for phone in phones if phone.text == UNKNOWN_PHONE]
    words = tuple(
        TimedWord(word.text, UNTIMED, UNTIMED)
        if any(word.start <= middle_s < word.end for middle_s in unknown_s)
        else word
        for word in words
    )
    if not any(map(is_timed, words)):
        return Aligned(
            utterance,
            None,
            f"{utterance.id}: none of its words is in MFA's dictionary; name a model that "
            "pronounces them (aligner.g2p=)",
        )
    return Aligned(utterance, words)
