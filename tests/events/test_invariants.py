"""The invariants of a log: valid logs are drawn, one rule is broken at a time, each is found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from drawn_logs import BREAKS, FEEDS, header_of, logs, ok_with_an_error
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from places import ROOT

from streaming_asr.events.check import InvalidLog
from streaming_asr.events.invariants import INVARIANTS, broken
from streaming_asr.events.log import EventWriter, Step, UtteranceLog, read_log
from streaming_asr.utterance import TimedWord

drawn = settings(
    max_examples=20,
    derandomize=True,
    database=None,
    # A machine may be slow, and busy.
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


def read_back(log: UtteranceLog, folder: Path) -> UtteranceLog:
    path = folder / "events.jsonl"
    path.unlink(missing_ok=True)
    with EventWriter(path, header_of(log)) as writer:
        writer.write_utterance(log)
    (found,) = read_log(path).utterances
    return found


@drawn
@given(log=logs((*FEEDS, "realtime")))
def test_a_valid_log_breaks_nothing_and_is_read_back(
    log: UtteranceLog, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert not list(broken(log))
    assert read_back(log, tmp_path_factory.mktemp("log")) == log


@pytest.mark.parametrize("spoil", BREAKS, ids=lambda spoil: spoil.__name__)
@drawn
@given(log=logs(FEEDS), data=st.data())
def test_each_rule_that_is_broken_is_found(
    spoil: Callable[[UtteranceLog, int], None],
    log: UtteranceLog,
    data: st.DataObject,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    spoil(log, data.draw(st.integers(0, len(log.steps) - 1)))
    found = [rule for rule, breaks in INVARIANTS.items() if list(breaks(log))]
    assert any(BREAKS[spoil] in rule for rule in found), found
    if spoil is ok_with_an_error:  # the writer closes it as failed
        return
    with pytest.raises(InvalidLog):
        read_back(log, tmp_path_factory.mktemp("log"))


def test_every_rule_is_broken_here_and_stands_in_the_documentation() -> None:
    page = (ROOT / "docs" / "events.md").read_text(encoding="utf-8")
    for rule in INVARIANTS:
        assert any(said in rule for said in BREAKS.values()), rule
        assert f"- {rule}\n" in page


def test_a_recording_that_failed_needs_no_end_and_one_that_is_unread_no_length() -> None:
    words = [TimedWord("Hello.", 0.1, 0.5)]
    failed = UtteranceLog("u", "Hello.", 0, words, status="failed", error="no such file")
    assert not list(broken(failed))
    heard = replace(failed, duration_samples=32_000, steps=[Step("audio", 16_000, {"wall": 1})])
    assert not list(broken(heard))
