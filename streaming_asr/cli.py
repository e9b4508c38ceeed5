"""The console script: `streaming-asr X ...` is `python -m streaming_asr.X ...`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from streaming_asr.errors import did_you_mean
from streaming_asr.terminal import exit_status

COMMANDS = {
    "demo": "real speech through real Whisper, or what this machine has of both",
    "transcribe": "your recordings: text as it comes, subtitles, JSON",
    "compare": "methods side by side on one recording, in the player",
    "live": "methods side by side on your microphone or a file, in the terminal",
    "serve": "the same for a browser and for programs: OpenAI's Realtime wire format",
    "run": "one method over one corpus, or a sweep (the default)",
    "train": "train what a method needs: an adapter, a model",
    "align": "word times of a corpus by forced alignment: mfa, ctc or whisper",
    "data": "check a corpus; make training shards of it",
    "score": "score logs again, retime them, compare them; other tools' logs in and out",
    "report": "table and HTML page of a folder of results",
    "capacity": "how many streams one device carries, from logs of single streams",
    "sync": "upload the W&B runs of a sweep and the workspace that compares them",
    "export": "an adapter merged into its model, for transformers and CTranslate2",
    "list": "methods, models, corpora and metrics there are",
    "get": "obtain weights and speech: tiny.en, base, prompts",
    "doctor": "what works on this machine",
}

MOVED = {
    "align_heads": "`python -m experiments.mini.align_heads` in a checkout of the project",
    "profile": "`python -m experiments.bench.profile` in a checkout of the project",
    "bench": "`python -m experiments.bench` in a checkout of the project",
}

HELP = """\
streaming-asr compares methods of streaming speech recognition on equal terms.

  streaming-asr transcribe talk.m4a
      your recording, as it would be heard live; --srt, --vtt, --json write files
  streaming-asr compare audio=talk.m4a method=whisperrt,ufal chunk=1s
      two methods on it, side by side in the player of the page
  streaming-asr method=whisperrt chunk=300ms limit=60
      run WhisperRT on 60 utterances of the embedded corpus
  streaming-asr -m method=offline,whisperrt chunk=100ms,300ms,1s
      a sweep of six cells; give the command again to go on after an interruption
  streaming-asr report outputs/default
      table and HTML page of what ran
  streaming-asr --cfg job
      the configuration; run --help lists methods, models, data and settings

commands (streaming-asr X ... is python -m streaming_asr.X ...; X --help says more)
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that the arguments name and return its exit status."""
    argv = list(sys.argv[1:] if argv is None else argv)
    if argv in ([], ["-h"], ["--help"], ["help"]):
        print(HELP + "\n".join(f"  {name:12} {text}" for name, text in COMMANDS.items()))
        return 0
    command = "run"
    if argv[0] in COMMANDS:
        command = argv.pop(0)
    elif argv[0] in MOVED:
        print(f"error: {argv[0]}: this is now {MOVED[argv[0]]}", file=sys.stderr)
        return 2
    elif "=" not in argv[0] and not argv[0].startswith(("-", "~")):
        print(
            f"error: {argv[0]}: no such command{did_you_mean(argv[0], COMMANDS)}; "
            f"there are {', '.join(COMMANDS)}, and bare key=value runs",
            file=sys.stderr,
        )
        return 2
    # These packages are below what their commands need, so that the commands lie beside them.
    name = f"{command}_command" if command in ("data", "score") else command
    module = importlib.import_module(f"streaming_asr.{name}")
    before = sys.argv
    sys.argv = [f"streaming-asr {command}", *argv]
    try:
        return exit_status(module.main)
    finally:
        sys.argv = before


if __name__ == "__main__":
    sys.exit(main())
