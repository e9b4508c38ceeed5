"""Logs shown in other ways: a draft before a final text, guesses held back, a reading speed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from drawn_logs import logs
from hypothesis import given
from hypothesis import strategies as st

from streaming_asr.errors import UserError
from streaming_asr.events.invariants import broken
from streaming_asr.events.log import EventWriter, Log, Step, UtteranceLog, committed_words, read_log
from streaming_asr.metrics import compute, traces
from streaming_asr.score.command import main
from streaming_asr.score.folder import score_folder
from streaming_asr.score.replay import Policy, join, nearest_beginning, show
from streaming_asr.utterance import TimedWord

TEXT = "the cat sat down"
WORDS = [TimedWord(word, k + 0.2, k + 0.8) for k, word in enumerate(TEXT.split())]
SHOWN = "word_latency_shown_{}_ca_s"


def a_log(*steps: tuple[float, float, list[str], list[str]], duration_s: int = 4) -> UtteranceLog:
    """Steps: (audio in s, compute in s, committed, partial); the last is the flush."""
    made = [
        Step(
            "flush" if k == len(steps) - 1 else "audio",
            round(audio_s * 16_000),
            {"wall": round(compute_s * 1e9)},
            committed=committed,
            partial=partial,
        )
        for k, (audio_s, compute_s, committed, partial) in enumerate(steps)
    ]
    return UtteranceLog("u", TEXT, duration_s * 16_000, WORDS, audio_hash="a", steps=made)


def draft() -> UtteranceLog:
    said = [[" the"], [" bat"], [" sat"], [" down"]]
    return a_log(*((k + 1, 0.1, words, []) for k, words in enumerate(said)))


def final() -> UtteranceLog:
    return a_log((2, 0.5, [" the", " cat"], []), (4, 0.5, [" sat", " down"], []))


def a_cell(folder: Path, *utterances: UtteranceLog) -> Path:
    with EventWriter(folder / "events.jsonl", {"config": {}}) as writer:
        for each in utterances:
            writer.write_utterance(each)
    return folder


def figures(log: UtteranceLog) -> dict[str, float | None]:
    return compute(traces(Log({}, [log])))


def screens(log: UtteranceLog) -> list[str]:
    return [step.displayed for step in traces(Log({}, [log]))[0].steps]


def test_a_joined_log_is_what_is_computed_by_hand() -> None:
    joined = join(draft(), final())
    assert list(broken(joined)) == []
    assert screens(joined) == ["the", "the bat", "the cat", "the cat sat", TEXT, TEXT]
    found = figures(joined)
    # The steps end at 1.1, 2.1, 2.6, 3.1, 4.1 and 4.6 s.
    assert found["first_token_start_ca_s"] == pytest.approx(1.1)
    assert found[SHOWN.format("mean")] == pytest.approx((0.3 + 0.8 + 0.3 + 0.3) / 4)
    committed = found["word_latency_committed_mean_ca_s"]
    assert committed == pytest.approx((1.8 + 0.8 + 1.8 + 0.8) / 4)
    assert (found["wer"], found["light_erasure"], found["unstable_words_per_word"]) == (
        0,
        1 / 4,
        1 / 4,
    )
    assert found["rtf_total"] == pytest.approx((4 * 0.1 + 2 * 0.5) / 4)


def test_the_command_writes_an_ordinary_cell_and_counts_failed_recordings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lost = replace(final(), utt="v", steps=[], status="failed", error="no sound")
    cells = [
        a_cell(tmp_path / "method=a", draft(), replace(draft(), utt="v")),
        a_cell(tmp_path / "method=b", final(), lost),
    ]
    into = tmp_path / "joined"
    assert main(["join", *map(str, cells), "--into", str(into)]) == 0
    assert "1 of 2 recordings failed" in capsys.readouterr().out
    one, failed = read_log(into / "events.jsonl").utterances
    assert "".join(text for text, _ in committed_words(one.steps)) == f" {TEXT}"
    assert (failed.status, failed.error) == ("failed", "final: no sound")
    scored = score_folder(into)
    assert scored["n_failed"] == 1 and scored["metrics"]["wer"] == 50
    assert main(["compare", str(cells[0]), str(into)]) == 0  # of the same task
    assert main(["join", *map(str, cells), "--into", str(into)]) == 2  # never overwritten


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"utt": "w"}, "different utterances"),
        ({"audio_hash": "b"}, "another audio"),
        ({"text": "the cat sat", "words": None}, "another reference"),
        ({"feed": "best_effort"}, "feed=fixed"),
        ({"batch": 2}, "batch=1"),
    ],
)
def test_logs_of_different_tasks_are_refused(
    changes: dict[str, object], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cells = [a_cell(tmp_path / "a", draft()), a_cell(tmp_path / "b", replace(final(), **changes))]
    assert main(["join", *map(str, cells), "--into", str(tmp_path / "c")]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "c").exists()


def test_logs_of_different_lengths_are_refused() -> None:
    longer = a_log((2, 0.5, [" the"], []), (5, 0.5, [" cat"], []), duration_s=5)
    with pytest.raises(UserError, match="lasts 4 s in the draft and 5 s"):
        join(draft(), longer)


@given(logs(), logs())
def test_drawn_logs_joined_hold_every_invariant_and_end_with_the_final_text(
    a: UtteranceLog, b: UtteranceLog
) -> None:
    for each in (a, b):
        each.text, each.words, each.duration_samples = b.text, b.words, 8 * 16_000
        each.steps[-1].audio_samples = each.duration_samples
    joined = join(a, b)
    assert list(broken(joined)) == []
    assert committed_words(joined.steps) == committed_words(b.steps)
    total = sum(step.compute_s for step in (*a.steps, *b.steps))
    assert sum(step.compute_s for step in joined.steps) == pytest.approx(total)


@given(
    logs(),
    st.builds(
        Policy,
        st.integers(0, 3),
        st.sampled_from((0, 16_000, 40_000)),
        st.sampled_from((None, 0.3, 1.0, 4.0)),
    ),
)
def test_drawn_logs_held_back_hold_every_invariant_and_keep_their_text(
    log: UtteranceLog, policy: Policy
) -> None:
    held = show(log, policy)
    assert list(broken(held)) == []
    assert committed_words(held.steps) == committed_words(log.steps)
    if policy == Policy():
        assert [s.partial for s in held.steps] == [s.partial for s in log.steps]


@pytest.mark.parametrize("text", ["", TEXT])
def test_logs_without_a_word_are_joined_and_shown(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    silent = replace(a_log((2, 0.1, [], []), (4, 0.1, [], [])), text=text, words=None)
    cells = [str(a_cell(tmp_path / name, silent)) for name in ("method=a", "method=b")]
    assert main(["join", *cells, "--into", str(tmp_path / "c")]) == 0
    assert main(["show", str(tmp_path / "c"), "--hold", "1"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    wer = "100.00" if text else "–"
    for name in (["draft", "a"], ["final", "b"], ["joined"], ["1"]):
        (row,) = [row[len(name) :] for row in rows if row[: len(name)] == name]
        assert row[:-1] == [wer, "–", "–", "–", "–", "–", "–"]


GUESSES = ([" the"], [" the", " bat"], [" the", " cat", " sat"], [" the", " cat", " sat", " on"])


@pytest.mark.parametrize(
    ("policy", "shown", "erased"),
    [
        (Policy(), ["the", "the bat", "the cat sat", "the cat sat on"], 2 / 4),
        (Policy(words=1), ["", "the", "the cat", "the cat sat"], 0),
        (Policy(words=2), ["", "", "the", "the cat"], 0),
        (Policy(samples=16_000), ["", "the", "the", "the cat sat"], 0),
        (Policy(reading=0.5), ["", "the", "the", "the cat"], 0),
        (Policy(reading=1), ["the", "the bat", "the cat sat", "the cat sat on"], 2 / 4),
    ],
)
def test_what_is_held_back_is_what_is_computed_by_hand(
    policy: Policy, shown: list[str], erased: float
) -> None:
    log = a_log(
        *((k + 1, 0.1, [], guess) for k, guess in enumerate(GUESSES)),
        (5, 0.1, [" the", " cat", " sat", " down"], []),
        duration_s=5,
    )
    held = show(log, policy)
    assert screens(held) == [*shown, TEXT]
    assert figures(held)["light_erasure"] == erased


def test_show_prints_a_row_for_each_policy_and_writes_cells(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")  # no label is wrapped
    cell = a_cell(
        tmp_path / "method=a",
        draft(),
        replace(draft(), utt="v", steps=[], status="failed", error="no sound"),
    )
    into = tmp_path / "held"
    command = ["show", str(cell), "--hold", "0,500ms", "--reading", "3", "--into", str(into)]
    assert main(command) == 0
    assert "500ms, 3 words/s" in capsys.readouterr().out
    names = ["hold=0,reading=3,method=a", "hold=500ms,reading=3,method=a"]
    assert sorted(each.name for each in into.iterdir()) == names
    assert score_folder(into / names[0])["n_failed"] == 1


@pytest.mark.parametrize("hold", ["x", "ms", "1 word", ""])
def test_what_is_held_is_words_or_a_time(
    hold: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", str(a_cell(tmp_path / "a", draft())), f"--hold={hold}"]) == 2
    expected = f"--hold {hold}: a whole number of words, or a time as in 500ms"
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize(
    "option", ["--hold=-1", "--hold=1.5", "--hold=5 apples", "--reading=fast", "--reading=0"]
)
def test_a_policy_that_makes_no_sense_is_refused(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cell = a_cell(tmp_path / "a", draft())
    assert main(["show", str(cell), option]) == 2
    assert option.partition("=")[0] in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "text", "n"),
    [
        ("", "a b", 0),
        ("a b", "", 0),
        ("a b", "a b b", 2),
        ("a b", "x y z w", 2),
        ("a", "b a c", 2),
        ("a b c", "b c d", 2),
    ],
)
def test_the_nearest_beginning_is_the_longest_of_the_nearest(words: str, text: str, n: int) -> None:
    assert nearest_beginning(words.split(), text.split()) == n


def test_the_place_in_a_long_draft_is_that_of_the_whole_search() -> None:
    """Word for word the same text, the draft with errors: guesses continue it exactly."""
    said = [f" w{k}" for k in range(400)]
    wrong = [f" x{k}" if k % 7 == 3 else word for k, word in enumerate(said)]
    fast = a_log(*((1, 0.0, wrong, []), (4, 0.0, [], [])))
    slow = a_log(*((2 + k / 400, 0.0, [word], []) for k, word in enumerate(said)), (4, 0.0, [], []))
    joined = join(replace(fast, text="", words=None), replace(slow, text="", words=None))
    for k, step in enumerate(joined.steps[2:-2], start=2):
        assert step.partial == wrong[k:]
