"""Word times from the Montreal Forced Aligner (McAuliffe et al. 2017), driven as a program.

MFA lives in a conda environment of its own. It is taken from PATH where `mfa version` works there,
else from the environment `environment`. A batch of utterances is written in its corpus layout,
<speaker>/<utterance>.wav beside <utterance>.lab; `mfa align` leaves a TextGrid for each that it
could align, and its words are laid on the transcript's (`corpora.alignments.match`).

Written from montreal-forced-aligner 3.4.3's documentation and sources, and tested against a program
that stands in for it: not run against the real one here.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from streaming_asr.align.result import Aligned, words_of
from streaming_asr.corpora.alignments import laid_on, read_textgrid
from streaming_asr.errors import UserError, check_range
from streaming_asr.method import SAMPLE_RATE
from streaming_asr.utterance import Utterance

INSTALL = """\
  conda create -n aligner -c conda-forge montreal-forced-aligner
  conda run -n aligner mfa model download dictionary english_mfa
  conda run -n aligner mfa model download acoustic english_mfa"""
MANAGERS = ("conda", "mamba", "micromamba")
PROBE_S = 120


class MfaAligner:
    """Aligns with MFA. dictionary, acoustic: names it has downloaded, or paths."""

    def __init__(
        self,
        dictionary: str = "english_mfa",
        acoustic: str = "english_mfa",
        environment: str = "aligner",
        g2p: str | None = None,
        jobs: int = 3,
        batch: int = 2000,
    ) -> None:
        """Find MFA, or raise UserError. g2p: a model for words outside the dictionary. batch:
        utterances per call, after which what was found is kept."""
        settings: dict[str, Any] = {"aligner.jobs": jobs, "aligner.batch": batch}
        check_range(1, **settings)
        self._dictionary, self._acoustic, self._g2p = dictionary, acoustic, g2p
        self._jobs, self._batch = jobs, batch
        self._command = find_mfa(environment)

    def align(self, utterances: Sequence[Utterance]) -> Iterator[Aligned]:
        """Yield the results batch by batch. Raises UserError where MFA itself fails."""
        for first in range(0, len(utterances), self._batch):
            yield from self._align_batch(utterances[first : first + self._batch])

    def _align_batch(self, utterances: Sequence[Utterance]) -> Iterator[Aligned]:
        with tempfile.TemporaryDirectory(prefix="mfa-") as name:
            folder = Path(name)
            written: list[tuple[Utterance, Path]] = []
            for i, utterance in enumerate(utterances):
                try:
                    place = _write(folder / "corpus", f"u{i:06d}", utterance)
                except UserError as error:
                    yield Aligned(utterance, None, str(error))
                else:
                    written.append((utterance, place))
            if written:
                self._run(folder)
            for utterance, place in written:
                yield _read(utterance, folder / "aligned" / place.with_suffix(".TextGrid"))

    def _run(self, folder: Path) -> None:
        fixed = "align --clean --final_clean --overwrite --quiet --output_format long_textgrid"
        command = [*self._command, *fixed.split(), "-j", str(self._jobs)]
        command += ["-t", str(folder / "temporary")]
        command += ["--g2p_model_path", self._g2p] if self._g2p else []
        command += [str(folder / "corpus"), self._dictionary, self._acoustic]
        command.append(str(folder / "aligned"))
        done = subprocess.run(command, capture_output=True, text=True, errors="replace")
        if done.returncode == 0:
            return
        how = f"ended with status {done.returncode}"
        remedy = (
            f"Missing models: mfa model download acoustic {self._acoustic}; "
            f"mfa model download dictionary {self._dictionary}. "
        )
        if done.returncode < 0 or done.returncode > 128:  # as a shell in between counts it
            how = f"was killed (signal {abs(done.returncode) % 128})"
            remedy = "Signal 9 is most often memory: give fewer aligner.jobs. "
        said = "\n".join(f"  {line}" for line in (done.stderr + done.stdout).splitlines()[-8:])
        raise UserError(
            f"mfa align {how}\n{said}\n{remedy}"
            "What was aligned before is kept: the same command goes on with the rest"
        )


def find_mfa(environment: str) -> list[str]:
    """Return the command that starts MFA, or raise UserError with what to install.

    The package can be installed without what it needs, so `mfa version` must succeed.
    """
    tried = []
    for name in ("mfa", *MANAGERS):
        if program := shutil.which(name):
            inside = [] if name == "mfa" else ["run", "-n", environment, "mfa"]
            if _works([program, *inside]):
                return [program, *inside]
            tried.append(f"`{' '.join([name, *inside])} version` fails")
    reason = "; ".join(tried) or "neither mfa nor conda is on PATH"
    raise UserError(
        f"aligner=mfa: no Montreal Forced Aligner ({reason}). Install it:\n{INSTALL}\n"
        "or name its environment with aligner.environment=, or take aligner=whisper or aligner=ctc"
    )


def _works(command: Sequence[str]) -> bool:
    try:
        done = subprocess.run([*command, "version"], capture_output=True, timeout=PROBE_S)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _write(corpus: Path, name: str, utterance: Utterance) -> Path:
    """Write the utterance in MFA's layout; return its place below `corpus`. Raises UserError."""
    import soundfile

    words = words_of(utterance)
    samples = utterance.load()
    speaker = re.sub(r"[^\w-]", "_", utterance.speaker or "unknown")
    place = Path(speaker) / f"{name}.wav"
    (corpus / speaker).mkdir(parents=True, exist_ok=True)
    soundfile.write(corpus / place, samples, SAMPLE_RATE, subtype="PCM_16")
    # MFA takes a folder for a speaker, and adapts its model to each.
    (corpus / place).with_suffix(".lab").write_text(" ".join(words) + "\n", encoding="utf-8")
    return place


def _read(utterance: Utterance, grid: Path) -> Aligned:
    if not grid.is_file():
        return Aligned(utterance, None, f"{utterance.id}: MFA could not align it (no TextGrid)")
    try:
        return Aligned(utterance, laid_on(utterance, read_textgrid(grid)))
    except UserError as error:
        return Aligned(utterance, None, str(error))
