"""Forced alignment: `streaming-asr align data=... aligner=mfa|ctc|whisper`."""


def main() -> int:
    """Run the command line and return its exit status; see `command.py`."""
    from streaming_asr.align.command import main as program

    return program()
