"""One utterance as it is logged: its reference, its steps, how it ended."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from streaming_asr.method import COUNTS, PARTS, SAMPLE_RATE, revise
from streaming_asr.utterance import MAX_TEXT, TimedWord, Utterance

MOST = 10**18  # of counts and bytes
# What `compute_ns` may hold: the step's time, its lag, its CPU time, and the parts measured in it.
TIMES = ("wall", "lag", "cpu", *PARTS)

_WEEK = 7 * 24 * 3600 * SAMPLE_RATE
Samples = Annotated[int, Meta(ge=0, le=_WEEK, description="at 16 kHz; a week at most")]
Second = Annotated[float, Meta(ge=0, le=1e6)]
Bytes = Annotated[int, Meta(ge=0, le=MOST)] | None
Id = Annotated[str, Meta(min_length=1)]
Time = Annotated[float, Meta(ge=-1e6, le=1e6)] | None
WordTimes = Annotated[list[Time], Meta(min_length=3, max_length=3)]
_Count = Annotated[int, Meta(ge=0, le=MOST)] | Annotated[float, Meta(ge=0, le=float(MOST))]


class Header(Struct, kw_only=True):
    """The first line of a log; it may have further fields."""

    kind: Literal["header"]
    schema: Literal[1]
    config: Annotated[dict[str, Any], Meta(description="the resolved configuration")] = {}
    versions: Annotated[dict[str, Any], Meta(description="versions of the packages")] = {}
    machine: Annotated[dict[str, Any], Meta(description="where it ran")] = {}
    weights: Annotated[
        dict[str, Any],
        Meta(description="where the Whisper was found, and the hash of its tensors at float16"),
    ] = {}
    metrics_version: int = 0
    n_utterances: Annotated[
        int, Meta(description="how many recordings the log will have when it is whole")
    ] = 0
    warnings: Annotated[
        list[str], Meta(description="of an imported log: what is doubtful in its source")
    ] = []
    piece: Annotated[
        list[int], Meta(description="of a piece of a cell: which, of how many, its utterances")
    ] = []
    pieces: Annotated[int, Meta(description="how many pieces this log was joined from")] = 1
    longform: Annotated[bool, Meta(description="whether recordings were transcribed")] = False
    knows: Annotated[list[str], Meta(description="of an imported log: what its source has")] = []
    unmeasured: Annotated[
        dict[str, str] | list[str],
        Meta(description="of an imported log: metrics that its source cannot give, and why"),
    ] = {}


class Opening(Struct, kw_only=True, forbid_unknown_fields=True):
    """The line that opens an utterance."""

    kind: Literal["utterance"]
    utt: Id
    text: Annotated[str, Meta(max_length=MAX_TEXT, description="the reference as written")]
    words: Annotated[
        list[tuple[str, Second, Second]] | None,
        Meta(description="[word, start, end] of each reference word, in seconds"),
    ] = None
    speaker: str | None = None
    language: str | None = None
    duration_samples: Samples
    audio_hash: Annotated[str | None, Meta(description="SHA-256 of the float32 samples")] = None
    feed: Literal["fixed", "best_effort", "realtime", "realtime_queue"] = "fixed"
    batch: Annotated[
        int,
        Meta(
            ge=1,
            le=10**6,
            description="streams advanced together; above 1 the times give no latency",
        ),
    ] = 1
    lookahead_samples: Annotated[
        int,
        Meta(ge=0, le=_WEEK, description="audio past a chunk's end that the method waits for"),
    ] = 0
    audio_path: str | UnsetType = UNSET
    prompt: (
        Annotated[str, Meta(description="of this stream, in place of the setting")] | UnsetType
    ) = UNSET
    biasing: (
        Annotated[list[str], Meta(description="the words that B-WER counts, by the manifest")]
        | UnsetType
    ) = UNSET


class Ending(Struct, kw_only=True, forbid_unknown_fields=True):
    """The line that closes an utterance."""

    kind: Literal["end"]
    utt: Id
    status: Literal["ok", "failed"]
    error: str | None = None
    memory_peak_bytes: Bytes = None
    commit_violations: Annotated[int, Meta(ge=0, le=10**9)] = 0
    pacing_slip_s: (
        Annotated[
            Second, Meta(description="of the feed realtime: how late the latest chunk was fed")
        ]
        | UnsetType
    ) = UNSET


if TYPE_CHECKING:
    _Counts = Struct
else:  # the counts of a step are fields of its line, as method.COUNTS names them; 0 where absent
    _Counts = msgspec.defstruct(
        "_Counts",
        [
            (name, Annotated[_Count, Meta(description=count.meaning)] | UnsetType, UNSET)
            for name, count in COUNTS.items()
        ],
        kw_only=True,
    )


class Step(_Counts):
    """One step: `committed` are the words that it added, `partial` all words that are shown after
    the committed ones."""

    kind: Annotated[
        Literal["audio", "endpoint", "flush"],
        Meta(description="`endpoint` where the method closed a segment, `flush` for the last"),
    ]
    audio_samples: Annotated[
        Samples, Meta(description="received so far, this step's included; at 16 kHz")
    ]
    compute_ns: Annotated[  # "wall" and the parts that were measured within it
        dict[Literal[TIMES], Annotated[int, Meta(ge=0, le=10**15)]],  # type: ignore[valid-type]
        Meta(
            description="wall: the step's time; cpu: CPU time of the process and its threads; "
            "lag, in the feed realtime_queue: from the audio's arrival to the step's end",
            extra_json_schema={"required": ["wall"], "propertyNames": {"enum": list(TIMES)}},
        ),
    ]
    committed: list[str] = msgspec.field(default_factory=list)
    partial: list[str] = msgspec.field(default_factory=list)
    words: Annotated[
        list[WordTimes] | None,
        Meta(description="[start, end, probability] of each committed word, null if unknown"),
    ] = None
    retracted: Annotated[
        int,
        Meta(ge=0, le=10**6, description="words taken back before `committed` was added"),
    ] = 0
    memory_bytes: Annotated[
        Bytes,
        Meta(description="after the step, above the loaded model; of a stream of its own"),
    ] = None
    language: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(description="that the method detected in this step"),
    ] = None

    def count(self, name: str) -> float:
        """Return a count of method.COUNTS, 0 where the step reported none."""
        value: float | UnsetType = getattr(self, name)
        return 0 if value is UNSET else value

    @property
    def counts(self) -> dict[str, float]:
        """The counts that the step has, by the names of method.COUNTS."""
        counts = {name: getattr(self, name) for name in COUNTS}
        return {name: value for name, value in counts.items() if value is not UNSET}

    @property
    def audio_s(self) -> float:
        """The audio received so far, a_k, in seconds."""
        return self.audio_samples / SAMPLE_RATE

    @property
    def compute_s(self) -> float:
        """The time that this step took, c_k, in seconds."""
        return self.compute_ns["wall"] / 1e9


class StepLine(Step, kw_only=True, forbid_unknown_fields=True):
    """The line of a step: the utterance's id, and the step with all texts."""

    utt: str
    committed: list[str]
    partial: list[str]


@dataclass(slots=True)
class UtteranceLog:
    """Everything logged about one utterance."""

    utt: str
    text: str  # the reference
    duration_samples: int
    words: list[TimedWord] | None = None
    speaker: str | None = None
    language: str | None = None
    audio_hash: str | None = None
    audio_path: str | None = None
    prompt: str | None = None  # of this stream, in place of the setting
    biasing: Sequence[str] | None = None  # the words that B-WER counts
    feed: str = "fixed"
    batch: int = 1  # streams advanced together; above 1 the times are no latencies
    lookahead_samples: int = 0  # audio past a chunk's end that the method waits for
    steps: list[Step] = field(default_factory=list)
    status: str = "ok"  # or "failed"
    error: str | None = None
    memory_peak_bytes: int | None = None
    commit_violations: int = 0  # steps that took committed words back
    pacing_slip_s: float | None = None  # feed realtime: how late the latest chunk was fed
    # The schedule of its steps, by the log's header; None where that has none.
    chunk_samples: int | None = None
    first_chunk_samples: int | None = None
    planned_feed: str | None = None  # of the run, by the log's header; None for a live session
    is_imported: bool = False  # another tool's, by the log's header

    @classmethod
    def of(cls, utterance: Utterance, **fields: Any) -> UtteranceLog:
        """Return the log of an utterance before its first step; fields: others of the class."""
        return cls(
            utt=utterance.id,
            text=utterance.text,
            duration_samples=round(utterance.duration_s * SAMPLE_RATE),
            words=None if utterance.words is None else list(utterance.words),
            speaker=utterance.speaker,
            language=utterance.language,
            audio_path=utterance.audio_path,
            biasing=utterance.biasing,
            prompt=utterance.prompt,
            **fields,
        )

    @property
    def duration_s(self) -> float:
        return self.duration_samples / SAMPLE_RATE

    @property
    def detected(self) -> str | None:
        """Return the language that the method detected last; None where it detected none."""
        return next((step.language for step in reversed(self.steps) if step.language), None)


def committed_words(steps: Iterable[Step]) -> list[tuple[str, list[float | None]]]:
    """Return the final committed words, each with its [start, end, probability]."""
    words: list[tuple[str, list[float | None]]] = []
    for step in steps:
        times = step.words or [[None, None, None]] * len(step.committed)
        revise(words, step.retracted, zip(step.committed, times, strict=True))
    return words
