"""Checks a method, yours or the package's, against the contract that every method keeps.

    streaming-asr check method=mine -cd mine
    streaming-asr check method=whisperrt model=tiny.en chunk=1s

It uses no future audio, takes no final word back, gives no times ahead of the audio, keeps streams
apart, outputs the same at another seed and in a batch, and takes empty and short audio in pieces of
any size. The audio is speech of the package (model=mini unless you name another); nothing else is
needed. A broken rule is one sentence, and makes the exit status 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from streaming_asr.config.command_line import CommandLine
from streaming_asr.config.settle import compose
from streaming_asr.errors import UserError
from streaming_asr.method import SAMPLE_RATE
from streaming_asr.terminal import with_settings

if TYPE_CHECKING:
    from streaming_asr.contract import Setting

PACED = ("remote",)  # their text comes at any time, so that no step can be repeated


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status: 1 where the contract is broken."""
    return with_settings(__doc__, _check, argv, resumes=False)


def _check(argv: list[str]) -> int:
    line = CommandLine([*argv, "tracker=none"])
    name = line.get("method")
    if name is None or "," in name:
        raise UserError("method: name one, as in streaming-asr check method=mine -cd mine")
    if name in PACED:
        raise UserError(f"method={name}: a server keeps no contract; its text comes at any time")
    line.default(model="mini", data="mini", chunk="300ms")
    config = compose(line.settings, config_dir=line.config_dir)

    from streaming_asr.contract import broken
    from streaming_asr.run.method import method_of

    method, _ = method_of(config)
    setting = speech(config)
    n_broken = 0
    for check, problem in broken(method, setting):
        n_broken += problem is not None
        print(f"{'broken' if problem else 'ok':6}  {check.replace('_', ' ')}", flush=True)
        if problem:
            print(f"        {problem}", flush=True)
    rules = "1 rule" if n_broken == 1 else f"{n_broken} rules"
    print(f"{name}: breaks {rules}" if n_broken else f"{name}: keeps the contract")
    return int(n_broken > 0)


def speech(config: Any) -> Setting:
    """Return two recordings of mini for a configuration's chunk, the first long enough for it."""
    import numpy as np

    from streaming_asr.chunking import first_chunk_ms, parse_duration
    from streaming_asr.contract import Setting
    from streaming_asr.corpora import Mini

    chunk_ms = parse_duration(config.chunk)
    first_ms = first_chunk_ms(config.chunk, config.first_chunk)
    long_s = max(3.0, (first_ms + 3 * chunk_ms) / 1000 + 1)
    clips = np.concatenate([each.load() for each in Mini("clean", limit=8).utterances()])
    longer, shorter = int(long_s * SAMPLE_RATE), int(1.7 * SAMPLE_RATE)
    audio, other = clips[:longer], clips[longer : longer + shorter]
    per_ms = SAMPLE_RATE // 1000
    return Setting(chunk_ms * per_ms, first_ms * per_ms, audio, other, config.language)
