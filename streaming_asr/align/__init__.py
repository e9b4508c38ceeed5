"""Forced alignment: `python -m streaming_asr.align data=... aligner=mfa|ctc|whisper`."""

from __future__ import annotations


def main() -> None:
    """The command line; see `command.py`."""
    from streaming_asr.align.command import main as program

    program()
