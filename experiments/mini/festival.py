"""festival as a child process that reads Scheme from its standard input.

One process per worker and many utterances per process: its start costs more than a sentence.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import tempfile

import numpy as np
import soundfile

VOICES = {
    "kal": "voice_kal_diphone",
    "ked": "voice_ked_diphone",
    "hts": "voice_cmu_us_slt_arctic_hts",
}
_DONE = "@done"


class _Festival:
    def __init__(self) -> None:
        self.process = subprocess.Popen(
            ["festival", "--pipe"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        folder = "/dev/shm" if os.path.isdir("/dev/shm") else None
        descriptor, self.wave_path = tempfile.mkstemp(suffix=".wav", dir=folder)
        os.close(descriptor)
        self.voice = ""

    def run(self, scheme: str) -> list[str]:
        """Evaluates ``scheme``. Returns the lines printed."""
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None and stdout is not None
        stdin.write(f'{scheme}\n(format t "\\n{_DONE}\\n")(fflush nil)\n')
        stdin.flush()
        lines = []
        while True:
            line = stdout.readline()
            if not line:
                raise RuntimeError(f"festival ended while it read: {scheme[:200]}")
            if line.strip() == _DONE:
                return lines
            lines.append(line.rstrip("\n"))


@functools.cache
def _festival() -> _Festival:
    return _Festival()


def available() -> bool:
    """Whether the program and its three voices are installed here."""
    if shutil.which("festival") is None:
        return False
    asked = subprocess.run(
        ["festival", "--pipe"], input='(format t "%l" (voice.list))', capture_output=True, text=True
    )
    return all(voice.removeprefix("voice_") in asked.stdout for voice in VOICES.values())


def speak(
    text: str, voice: str, *, stretch: float
) -> tuple[np.ndarray, int, list[tuple[str, float, float]]]:
    """Speaks ``text``. Returns samples (int16), their rate in Hz, (name, start_s, end_s) per word.

    ``stretch`` multiplies all durations.
    """
    festival = _festival()
    if festival.voice != voice:
        festival.run(f"({VOICES[voice]})")
        festival.voice = voice
    lines = festival.run(
        f"(Parameter.set 'Duration_Stretch {stretch:.3f})"
        f'(set! u (utt.synth (Utterance Text "{text}")))'
        "(utt.wave.resample u 16000)"
        f'(utt.save.wave u "{festival.wave_path}" \'riff)'
        '(mapcar (lambda (w) (format t "\\n@word %s %f %f\\n" (item.name w)'
        ' (item.feat w "word_start") (item.feat w "word_end"))) (utt.relation.items u \'Word))'
    )
    timed = []
    for line in lines:
        if line.startswith("@word "):
            _, name, start, end = line.split()
            timed.append((name, float(start), float(end)))
    samples, rate_hz = soundfile.read(festival.wave_path, dtype="int16")
    return samples, rate_hz, timed
