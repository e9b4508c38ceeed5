"""Natural speech with exact word times to train on, made from packages of PyPI and npm.

    python -m experiments.real.speech --hours 1 --out outputs/real/speech
        [--kokoro 0.5] [--voices af_heart,am_adam] [--blended 0.5] [--speed 0.85 1.2]
        [--seed 0] [--processes N]
    streaming-asr data shards data=manifest out=outputs/real/speech/shards \\
        data.path=outputs/real/speech/manifest.jsonl            the shards that train_data= takes

OUT/manifest.jsonl is what data=manifest reads, OUT/audio holds Ogg Opus of 24 kbit/s at 16 kHz,
OUT/skipped.jsonl the clips whose words could not be matched with the phonemes' durations. A clip
depends only on the settings, the seed and its index. A command that was stopped goes on when it
is given again, and --hours may be raised; the result is the same as without the stop.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import contextlib
import json
import multiprocessing
import os
import random
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from experiments.real.packages import ADDRESSES, WORDNET, cache_root, obtain_all
from experiments.real.sentences import addresses, examples, for_training
from experiments.real.synthesis import (
    HIBARI_VOICE,
    Clip,
    Speaker,
    Unmatched,
    draw_voice,
    english_voices,
    parse_voice,
    write,
)
from streaming_asr.errors import UserError
from streaming_asr.terminal import exit_status

HELD_OUT = Path(__file__).parent / "held_out.json"
JOINED_SHARE = 0.25  # of the clips: two sentences, with a pause
PAUSE_S = (0.2, 1.2)

Rows = Callable[[int], Iterator[dict[str, Any]]]
"""The results of `make` for an index and all that follow it, in order."""
Made = tuple[list[dict[str, Any]], list[dict[str, Any]]]


@dataclass(frozen=True)
class SpeechSettings:
    """What a clip depends on apart from its index and the sentences."""

    seed: int
    kokoro: float  # the share of its clips; the others are hibari's
    voices: tuple[str, ...]
    blended: float  # the share of Kokoro's clips
    speed: tuple[float, float]


def held_out() -> set[str]:
    """The voices of Kokoro that nothing is trained on: those of data=voices and those of dev."""
    return {name for names in json.loads(HELD_OUT.read_text("utf-8")).values() for name in names}


def allowed(choice: str | None, choices: Sequence[str]) -> tuple[str, ...]:
    """The voices and blends of the list `wanted`; all but the held-out ones for None.

    Raises UserError for one that is held out, also as a part of a blend, or is not there.
    """
    out = held_out()
    if choice is None:
        return tuple(name for name in choices if name not in out)
    voices = tuple(choice.split(","))
    for voice in voices:
        for name in parse_voice(voice):
            if name in out:
                raise UserError(f"--voices: {name} is held out ({HELD_OUT.name}); leave it out")
            if name not in choices:
                raise UserError(f"--voices: no voice {name!r}; there are {', '.join(choices)}")
    return voices


def clip(index: int, settings: SpeechSettings, texts: Sequence[str]) -> Clip:
    """The clip of this index. The first sentences are `texts` in turn, the second ones come from
    their far end, so that none comes twice before most have come."""
    rng = random.Random(f"{settings.seed}/{index}")
    sentences = [texts[index % len(texts)]]
    pauses_s: tuple[float, ...] = ()
    if rng.random() < JOINED_SHARE:
        sentences.append(texts[-1 - index % len(texts)])
        pauses_s = (round(rng.uniform(*PAUSE_S), 2),)
    engine = "kokoro" if rng.random() < settings.kokoro else "hibari"
    voice = (
        draw_voice(rng, settings.voices, settings.blended) if engine == "kokoro" else HIBARI_VOICE
    )
    speed = round(rng.uniform(*settings.speed), 3)
    return Clip(engine, voice, speed, tuple(sentences), pauses_s, seed=index)


_speaker: Speaker | None = None


def _start(root: Path) -> None:
    global _speaker
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent stops the processes
    _speaker = Speaker(root)


def make(index: int, planned: Clip, folder: Path) -> dict[str, Any]:
    """The clip's line of the manifest, its audio written; or that it is skipped, and why."""
    assert _speaker is not None
    row: dict[str, Any] = {"index": index, "text": planned.text, "speaker": planned.voice}
    try:
        samples, words = _speaker.say(planned)
    except Unmatched as error:
        return {**row, "skipped": str(error)}
    name = f"audio/{planned.seed:06d}.ogg"
    row |= {"id": f"{folder.name}-{index:06d}", "audio_filepath": name, "language": "en"}
    duration_s, words = write(samples, words, folder / name)
    row |= {"duration": round(duration_s, 4), "words": words}
    return row


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The rows of a file of JSON lines; a last line that was cut off is removed from it."""
    if not path.is_file():
        return []
    text = path.read_text("utf-8")
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        path.write_text(whole, encoding="utf-8")
    return [json.loads(line) for line in whole.splitlines()]


def keep_settings(settings: SpeechSettings, folder: Path) -> None:
    """Raises UserError where the folder was begun with other settings."""
    path = folder / "settings.json"
    text = json.dumps(asdict(settings), indent=1) + "\n"
    if path.is_file() and path.read_text("utf-8") != text:
        raise UserError(
            f"{folder}: begun with other settings ({path.name}); give the same, or another --out"
        )
    path.write_text(text, encoding="utf-8")


@contextlib.contextmanager
def processes(n: int, settings: SpeechSettings, texts: Sequence[str], out: Path) -> Iterator[Rows]:
    """Makes clips in `n` processes, a few ahead of the one that is asked for."""
    context = multiprocessing.get_context("spawn")
    waiting: collections.deque[concurrent.futures.Future[dict[str, Any]]] = collections.deque()

    def rows(index: int) -> Iterator[dict[str, Any]]:
        while True:
            while len(waiting) < 2 * n:
                planned = clip(index, settings, texts)
                waiting.append(pool.submit(make, index, planned, out))
                index += 1
            yield waiting.popleft().result()

    with concurrent.futures.ProcessPoolExecutor(n, context, _start, (cache_root(),)) as pool:
        try:
            yield rows
        finally:
            for future in waiting:
                future.cancel()


def speak(rows: Rows, settings: SpeechSettings, hours: float, out: Path) -> Made:
    """Takes clips, in the order of their indices, until they last `hours`; goes on in `out`.

    Returns the lines of the manifest and those of what was skipped.
    """
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    (out / "audio").mkdir(parents=True, exist_ok=True)
    keep_settings(settings, out)
    manifest, skips = out / "manifest.jsonl", out / "skipped.jsonl"
    rows_before, skipped = read_lines(manifest), read_lines(skips)
    total_s = sum(row["duration"] for row in rows_before)
    following = rows(1 + max((row["index"] for row in (*rows_before, *skipped)), default=-1))
    columns = (
        *(TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[state]}")),
        TimeRemainingColumn(),
    )
    with (
        Progress(*columns) as progress,
        manifest.open("a", encoding="utf-8", buffering=1) as to_manifest,
        skips.open("a", encoding="utf-8", buffering=1) as to_skips,
    ):
        task = progress.add_task("speech", total=hours * 3600, completed=total_s, state="")
        while total_s < hours * 3600:
            row = next(following)
            line = json.dumps(row, ensure_ascii=False) + "\n"
            if "skipped" in row:
                skipped.append(row)
                to_skips.write(line)
            else:
                rows_before.append(row)
                total_s += row["duration"]
                to_manifest.write(line)
            state = f"{total_s / 60:.1f} min, {len(rows_before)} clips, {len(skipped)} skipped"
            progress.update(task, completed=total_s, state=state)
    return rows_before, skipped


def remove_surplus(rows: Sequence[dict[str, Any]], out: Path) -> None:
    """Removes the audio of clips that were begun but are in no manifest."""
    listed = {row["audio_filepath"] for row in rows}
    for file in (out / "audio").iterdir():
        if f"audio/{file.name}" not in listed:
            file.unlink()


def arguments_of(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--hours", type=float, required=True, help="of audio")
    parser.add_argument("--out", type=Path, required=True, help="the folder of the speech")
    parser.add_argument("--kokoro", type=float, default=0.5, help="share of its clips (0.5)")
    parser.add_argument("--voices", help="of Kokoro, and blends a*0.65+b (all not held out)")
    parser.add_argument("--blended", type=float, default=0.5, help="share of blends of two (0.5)")
    parser.add_argument("--speed", type=float, nargs=2, default=(0.85, 1.2), metavar=("LOW", "UP"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args(argv)
    for name in ("kokoro", "blended"):
        if not 0.0 <= getattr(arguments, name) <= 1.0:
            raise UserError(f"--{name} {getattr(arguments, name)}: a share lies between 0 and 1")
    for name in ("hours", "processes"):
        if getattr(arguments, name) <= 0:
            raise UserError(f"--{name} {getattr(arguments, name)}: must be above 0")
    return arguments


def program(argv: Sequence[str] | None = None) -> None:
    """Run the command line. Raises UserError."""
    options = arguments_of(argv)
    root = cache_root()
    obtain_all(root)
    voices = allowed(options.voices, english_voices(root))
    settings = SpeechSettings(
        options.seed, options.kokoro, voices, options.blended, tuple(options.speed)
    )
    years = addresses(root / ADDRESSES.folder).values()
    texts = for_training([*(s for y in years for s in y), *examples(root / WORDNET.folder)])
    random.Random(settings.seed).shuffle(texts)
    with processes(options.processes, settings, texts, options.out) as rows:
        done, skipped = speak(rows, settings, options.hours, options.out)
    remove_surplus(done, options.out)
    print(
        f"{len(done)} clips, {sum(row['duration'] for row in done) / 60:.1f} min; skipped: "
        f"{len(skipped)}, see {options.out / 'skipped.jsonl'}"
    )


if __name__ == "__main__":
    sys.exit(exit_status(program))
