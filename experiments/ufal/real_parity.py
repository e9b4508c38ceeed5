"""ufal/whisper_streaming and this project's `compat` mode, with tiny.en on Debian's prompts.

    git clone https://github.com/ufal/whisper_streaming outputs/ufal/reference
    git -C outputs/ufal/reference checkout 1f25a1a
    python -m experiments.ufal.real_parity outputs/ufal/reference --write

The reference's classes run on faster-whisper's own WhisperModel: only its loading is ours, since
theirs asks for a GPU. Both sides search at temperature 0, with `--fall-back` at faster-whisper's
default, which is the reference's: it draws at random where a text looks wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from faster_whisper import WhisperModel

from experiments import parity
from experiments.ufal.parity import Run, load_reference, reference_asr, run_ours, run_reference
from streaming_asr.config.build import new_method
from streaming_asr.models.find import find

CHUNK_S = 1.0
TRIM_S = 15.0
FALL_BACK = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


def our_method(temperatures: Sequence[float] = (0.0,), *, compat: bool = True) -> Any:
    return new_method(
        "ufal",
        parity.MODEL,
        chunk_s=CHUNK_S,
        first_chunk_s=CHUNK_S,
        temperatures=list(temperatures),
        compat=compat,
    )


def text_row(steps: Sequence[Sequence[Sequence[Any]]]) -> dict[str, Any]:
    """Of the words [text, start, end] that each chunk committed: how many, and two hashes."""
    words = parity.summary([[text for text, _, _ in step] for step in steps])
    times = parity.digest(f"{a:.2f} {b:.2f}" for step in steps for _, a, b in step)
    return words | {"times": times}


def main() -> None:
    parser = parity.parser(__doc__.splitlines()[0], "ufal/whisper_streaming")
    parser.add_argument("--fall-back", action="store_true", help="several temperatures")
    options = parser.parse_args()
    temperatures = FALL_BACK if options.fall_back else (0.0,)
    module = load_reference(options.reference)
    model = WhisperModel(str(find(parity.MODEL).folder), device="cpu", compute_type="float32")
    asr, method = reference_asr(module, model, list(temperatures)), our_method(temperatures)
    with parity.Rows(
        "ufal",
        f"ufal/whisper_streaming@{parity.commit_of(options.reference)}",
        ("faster-whisper", "ctranslate2"),
        {"chunk_s": CHUNK_S, "trim_s": TRIM_S, "temperatures": temperatures},
        write=options.write,
    ) as rows:
        for clip in parity.prompts(options.limit):
            audio = clip.load()
            run = Run(clip.id, CHUNK_S, TRIM_S)
            run_reference(module, asr, audio, run)
            theirs = [each["committed"] for each in run.rounds]
            theirs[-1] = theirs[-1] + run.finished
            ours = run_ours(method, audio, run)
            rows.add(parity.compared(clip, text_row(theirs), text_row(ours)))
            if theirs != ours:
                print(f"  theirs {theirs}\n  ours   {ours}")


if __name__ == "__main__":
    main()
