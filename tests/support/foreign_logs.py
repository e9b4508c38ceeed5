"""Talks as hypothesis draws them, in the format of simulstream, and every way to break a rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

WORDS = ("harbour", "opens", "at", "nine", "on", "friday")
Rows = list[Any]  # of a file: JSON objects, or lines of text


@dataclass
class Talk:
    """A recording of which a word is heard every second, and all words are right.

    computed_s: compute of each second.
    """

    name: str
    said: list[str]
    duration_s: float
    computed_s: list[float]

    @property
    def text(self) -> str:
        return " ".join(self.said)

    @property
    def heard_s(self) -> list[float]:
        """The audio received at each step; the last one ends the recording."""
        n = len(self.computed_s)
        return [min(k + 1.0, self.duration_s) for k in range(n)]


@st.composite
def talks(draw: st.DrawFn, *, n: int | None = None) -> list[Talk]:
    """One to three recordings, all of other names."""
    made = []
    for i in range(n or draw(st.integers(1, 3))):
        said = draw(st.lists(st.sampled_from(WORDS), min_size=2, max_size=6))
        n_steps = draw(st.integers(len(said), 8))
        last_s = draw(st.integers(600, 1000)) / 1000  # so that a step that lacks is seen
        spent = st.integers(10, 3000).map(lambda ms: ms / 1000)
        times = draw(st.lists(spent, min_size=n_steps, max_size=n_steps))
        made.append(Talk(f"talk-{i}", said, n_steps - 1 + last_s, times))
    return made


# -- the formats ----------------------------------------------------------------------------------


def simulstream(talks: list[Talk]) -> Rows:
    rows: Rows = []
    for number, talk in enumerate(talks):
        rows.append({"id": number, "metadata": {"wav_name": f"{talk.name}.wav"}})
        n = len(talk.computed_s)
        for k, (heard_s, compute_s) in enumerate(zip(talk.heard_s, talk.computed_s, strict=True)):
            guess = ["perhaps"] if k < n - 1 else []
            rows.append(
                {
                    "id": number,
                    "total_audio_processed": heard_s,
                    "computation_time": compute_s,
                    "generated_tokens": talk.said[k : k + 1] + guess,
                    "deleted_tokens": ["perhaps"] if k else [],
                }
            )
    return rows


def manifest(talks: list[Talk]) -> Rows:
    return [
        {
            "id": talk.name,
            "audio_filepath": "a.wav",
            "duration": talk.duration_s,
            "text": talk.text,
            "speaker": "s1",
            "language": "en",
            "words": [[word, k + 0.1, k + 0.4] for k, word in enumerate(talk.said)],
        }
        for talk in talks
    ]


def stm(talks: list[Talk]) -> Rows:
    return [f"{each.name} 1 s1 0.00 {each.duration_s:.3f} <o> {each.text}" for each in talks]


# -- what breaks them -----------------------------------------------------------------------------

TOKENS = {"type": "array", "items": {"type": "string"}}
TIME = {"type": "number", "minimum": 0, "maximum": 1e9}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["id"],
    "properties": {
        "id": {"type": ["integer", "string"]},
        "metadata": {
            "type": ["object", "null"],
            "required": ["wav_name"],
            "properties": {"wav_name": {"type": "string"}},
        },
        "total_audio_processed": TIME,
        "computation_time": TIME,
        "generated_tokens": TOKENS,
        "deleted_tokens": TOKENS,
    },
}


def _scaled(row: dict[str, Any], keys: tuple[str, ...], by: float) -> None:
    for key in keys:
        if isinstance(row.get(key), list):
            row[key] = [by * value for value in row[key]]
        elif key in row:
            row[key] *= by


def _chunk(rows: Rows, at: int) -> dict[str, Any]:
    """The chunk that comes after `at` others."""
    chunks: Rows = [row for row in rows if "metadata" not in row]
    row: dict[str, Any] = chunks[at % len(chunks)]
    return row


def _ends_early(rows: Rows, at: int) -> None:
    rows.pop()


def _goes_back(rows: Rows, at: int) -> None:
    rows[-1]["total_audio_processed"] = rows[-2]["total_audio_processed"] - 0.1


SIMULSTREAM: dict[str, Callable[[Rows, int], Any]] = {
    "audio goes back": _goes_back,
    "after the recording": lambda rows, at: rows[-1].update(
        total_audio_processed=rows[-1]["total_audio_processed"] + 0.6
    ),
    "not to its end": _ends_early,
    "audio in milliseconds": lambda rows, at: _scaled(
        _chunk(rows, at), ("total_audio_processed",), 1e3
    ),
    "first audio in kiloseconds": lambda rows, at: _scaled(
        rows[1], ("total_audio_processed",), 1e-3
    ),
    "takes back what was not shown": lambda rows, at: _chunk(rows, at)["deleted_tokens"].append(
        "never"
    ),
    "of no recording": lambda rows, at: _chunk(rows, at).update(id=99),
    "of another name": lambda rows, at: rows[0]["metadata"].update(wav_name="another.wav"),
    "twice": lambda rows, at: rows.extend([{**row, "id": "again"} for row in rows]),
    "no audio": lambda rows, at: _chunk(rows, at).pop("total_audio_processed"),
    "no tokens": lambda rows, at: _chunk(rows, at).pop("generated_tokens"),
    "no deleted tokens": lambda rows, at: _chunk(rows, at).pop("deleted_tokens"),
    "a chunk twice": lambda rows, at: rows.insert(-1, _chunk(rows[:-1], at)),
    "compute of some": lambda rows, at: _chunk(rows, at).pop("computation_time"),
    "WordPiece": lambda rows, at: _chunk(rows, at)["generated_tokens"].insert(0, "##ing"),
    "subwords of BPE": lambda rows, at: _chunk(rows, at)["generated_tokens"].insert(0, "go@@"),
    "byte-level BPE": lambda rows, at: _chunk(rows, at)["generated_tokens"].insert(0, "Ġa"),
}


def _field(at: int, text: str) -> Callable[[Rows, int], Any]:
    def changed(rows: Rows, row: int) -> None:
        fields = rows[row].rsplit(" 1 s1 ", 1)
        parts = ["1", "s1", *fields[1].split(" ")]
        parts[at] = text
        rows[row] = " ".join([fields[0], *parts])

    return changed


STM: dict[str, Callable[[Rows, int], Any]] = {
    "ends first": _field(2, "99"),
    "no number": _field(3, "soon"),
    "not a time": _field(3, "nan"),
    "below 0": _field(2, "-1"),
    "too few": lambda rows, at: rows.insert(at, "talk-1"),
    "alternatives": _field(5, "{ a / b }"),
    "two channels": lambda rows, at: rows.append(rows[at].replace(" 1 s1 ", " 2 s2 ")),
    "of no recording": lambda rows, at: rows.clear(),
}
MANIFEST: dict[str, Callable[[Rows, int], Any]] = {
    "a word ends first": lambda rows, at: rows[at]["words"][0].__setitem__(2, 0.0),
    "a word after the end": lambda rows, at: rows[at]["words"][-1].__setitem__(
        2, rows[at]["duration"] + 0.6
    ),
    "words in milliseconds": lambda rows, at: rows[at].update(
        words=[[w, 1e3 * a, 1e3 * b] for w, a, b in rows[at]["words"]]
    ),
    "words out of order": lambda rows, at: rows[at]["words"].reverse(),
    "words of another text": lambda rows, at: rows[at].update(text="They cancelled all flights"),
    "the duration in milliseconds": lambda rows, at: _scaled(rows[at], ("duration",), 1e3),
    "the duration in kiloseconds": lambda rows, at: _scaled(rows[at], ("duration",), 1e-3),
    "twice": lambda rows, at: rows.append(rows[at]),
    "no sound there": lambda rows, at: rows[at].update(audio_filepath="b.wav"),
}
