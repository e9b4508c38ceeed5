"""The papers' claims counted by verdict, and the differences that they rest on."""

from dataclasses import replace

import numpy as np
import pytest
from places import ROOT
from traces import a_trace

from experiments.claims import (
    CLAIMS,
    DIFFERENCES,
    MIXED,
    block,
    column,
    corrected,
    counts,
    p_value,
    pages,
    read_table,
    unsupported,
    with_p,
)
from experiments.tables import with_tables
from streaming_asr.errors import UserError
from streaming_asr.events.log import Step, UtteranceLog
from streaming_asr.metrics import compute, trace, utterance_line
from streaming_asr.metrics.decomposition import Parts, decompose, word_parts
from streaming_asr.metrics.latency import WordLatency
from streaming_asr.utterance import TimedWord

CLAIMED = """\
no.	claim	where	theirs	verdict	ours
1	A	table 1	1 %	holds	1 %
2	B	table 1	1 %	holds at 1 s	2 %
3	C		–	not measured	needs a GPU
4	D		–	STAR ahead holds	
"""
HEAD = "of claim	difference	by	unit	low	high	p uncorrected	p Holm\n"
DIFFER = (
    HEAD
    + """\
1	a less b	2.0	points	0.0	9.0		
2	a less c	-1.0	s	-9.0	-0.5		
2	a less d	0.5	points				
	a less e	9.0	points				
"""
)


def rows(folder, text):
    path = folder / "rows.tsv"
    path.write_text(text)
    return read_table(path)


def test_a_row_that_names_its_uncorrected_p_has_that_and_not_the_intervals(tmp_path):
    named = DIFFER.replace("0.0	9.0		", "0.0	9.0	0.0020	")
    first = [corrected(rows(tmp_path, text))[0] for text in (named, DIFFER)]
    assert first == [pytest.approx(0.004), pytest.approx(0.1)]  # the second of three


def test_claims_are_counted_by_the_verdict_they_begin_with(tmp_path):
    (tmp_path / CLAIMS).write_text(CLAIMED)
    header, _, one, total = (
        line.strip("| ").split(" | ") for line in counts([tmp_path]).split("\n")
    )
    assert one[1:] == total[1:]
    assert dict(zip(header[1:], total[1:], strict=True)) == {
        "claims": "4", "holds": "1", "holds with a limit": "1", "reversed": "0",
        "reversed with a limit": "0", "undecided": "0", "not shown at this size": "0",
        "not measured": "1", "mixed": "1",
    }  # fmt: skip


def test_a_page_shows_what_was_measured_and_lists_the_other_claims(tmp_path):
    text = block(rows(tmp_path, CLAIMED))
    assert text.splitlines()[2] == "| 1 | A: 1 % | holds | 1 % |"
    assert "| 3 |" not in text and text.endswith("\n\nNot measured: 3. C: needs a GPU.")


@pytest.mark.parametrize(
    ("difference", "low", "high", "p"),
    [
        (2.0, 0.0, 9.0, 0.05),  # the end nearer to 0 counts, and it is 0
        (-2.0, -3.0, 0.0, 0.05),
        (1.0, 0.5, 9.0, 8.9e-5),  # twice 1.96 deviations from 0
        (0.0, -1.0, 2.0, 1.0),
    ],
)
def test_an_interval_is_read_as_a_p_value(difference, low, high, p):
    assert p_value(difference, low, high) == pytest.approx(p, rel=0.01)


def test_an_interval_without_its_difference_is_refused():
    with pytest.raises(UserError, match=r"3.0 \[0.0, 1.0\]: give an interval"):
        p_value(3.0, 0.0, 1.0)


def test_a_row_with_a_cell_too_few_is_refused(tmp_path):
    with pytest.raises(UserError, match="line 6: 7 cells; give 8 cells"):
        rows(tmp_path, DIFFER + "1	a less f	1.0	points	0	2	\n")


def test_p_is_corrected_over_all_that_the_claims_rest_on(tmp_path):
    # three of four rows rest on a claim: the smallest p is taken three times, the next twice
    differences = rows(tmp_path, DIFFER)
    assert [p and round(p, 4) for p in corrected(differences)] == [0.1, 0.0003, None, None]
    again = with_p(differences)
    assert [row["p Holm"] for row in again] == ["0.100", "< 0.001", "", ""]
    assert with_p(again) == again


def test_a_claim_that_holds_rests_on_a_significant_difference(tmp_path):
    claims, differences = rows(tmp_path, CLAIMED), rows(tmp_path, DIFFER)
    assert unsupported(claims, differences) == ["1"]  # p 0.1; of 2, one of two is significant


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_the_pages_keep_the_rule(page):
    claims, differences = read_table(page / CLAIMS), read_table(page / DIFFERENCES)
    assert MIXED not in {column(row["verdict"]) for row in claims}
    assert [int(row["no."]) for row in claims] == [*range(1, len(claims) + 1)]
    assert {row["of claim"] for row in differences} - {""} <= {row["no."] for row in claims}
    assert with_p(differences) == differences
    assert unsupported(claims, differences) == []
    text = with_tables((page / "README.md").read_text(encoding="utf-8"), page)
    assert block(claims) in text


def test_the_docs_show_the_count_of_the_pages():
    assert len(pages()) == 7
    page = ROOT / "docs" / "statistics.md"
    assert counts() in with_tables(page.read_text(encoding="utf-8"), page.parent)


# -- A word's latency taken apart: known answers, and parts that always sum to the whole --


def one_word(end_s, committed_at, *, lookahead_s=0.1):
    """Deliveries at 0.6, 1.1, 1.6 and 2.0 s, 0.7 s of compute each: the queue grows by 0.2 s."""
    steps = [
        (audio_s, 0.7, "hello" if k >= committed_at else "", "")
        for k, audio_s in enumerate((0.6, 1.1, 1.6, 2.0))
    ]
    return a_trace("hello", steps, ends=[end_s], lookahead_s=lookahead_s)


@pytest.mark.parametrize(
    ("end_s", "committed_at", "expected"),
    [
        # The look-ahead of a word that ends just before a chunk does costs a whole chunk.
        (0.55, 2, Parts(fill=0.05, lookahead=0.5, policy=0.5, queue=0.4, compute=0.7)),
        (0.45, 2, Parts(fill=0.15, lookahead=0.0, policy=1.0, queue=0.4, compute=0.7)),
        (0.5, 0, Parts(fill=0.1, lookahead=0.0, policy=0.0, queue=0.0, compute=0.7)),
        # Committed before its look-ahead was there: nothing was held back.
        (0.55, 0, Parts(fill=0.05, lookahead=0.0, policy=0.0, queue=0.0, compute=0.7)),
        # Before it ended at all: the fill is negative.
        (0.8, 0, Parts(fill=-0.2, lookahead=0.0, policy=0.0, queue=0.0, compute=0.7)),
        # The look-ahead past the last words never comes: the last step stands for it.
        (1.95, 3, Parts(fill=0.05, lookahead=0.0, policy=0.0, queue=0.7, compute=0.7)),
        (1.55, 3, Parts(fill=0.05, lookahead=0.4, policy=0.0, queue=0.7, compute=0.7)),
        # A word whose end lies after the audio.
        (2.1, 3, Parts(fill=-0.1, lookahead=0.0, policy=0.0, queue=0.7, compute=0.7)),
    ],
)
def test_the_parts_of_a_word_are_these(end_s, committed_at, expected):
    made = one_word(end_s, committed_at)
    assert decompose(made, end_s, committed_at) == pytest.approx(expected)
    figures = compute([made])
    for name, value in expected._asdict().items():
        assert figures[f"word_latency_{name}_mean_ca_s"] == pytest.approx(value), name
    assert figures["word_latency_committed_mean_ca_s"] == pytest.approx(sum(expected))
    assert utterance_line(made)["latency_parts"] == pytest.approx(expected._asdict())


def test_the_end_of_a_word_plus_look_ahead_at_the_end_of_a_chunk_needs_no_further_chunk():
    # 0.34 + 0.0125 > 0.3525 in binary floating point, which would add a chunk of 500 ms.
    steps = [(0.3525, 0.0, "hello", ""), (0.8525, 0.0, "hello", "")]
    made = a_trace("hello", steps, ends=[0.34], lookahead_s=0.0125)
    assert decompose(made, 0.34, 1) == pytest.approx(Parts(0.0125, 0.0, 0.5, 0.0, 0.0))


def test_the_look_ahead_is_read_from_the_log():
    steps = [
        Step("audio", 9_800, {"wall": 0}, committed=[], partial=[]),
        Step("flush", 16_000, {"wall": 0}, committed=["hi"]),
    ]
    log = UtteranceLog(
        "u", "hi", 16_000, [TimedWord("hi", 0.1, 0.605)], lookahead_samples=200, steps=steps
    )
    # 0.605 + 0.0125 s is past the first delivery, 0.6125 s.
    (parts,) = word_parts(trace(log), WordLatency(trace(log)))
    assert parts == pytest.approx(Parts(0.0075, 0.3875, 0.0, 0.0, 0.0))


def random_log(rng):
    """A stream of random chunks, compute, words and commits; some steps receive no audio."""
    n = int(rng.integers(1, 15))
    ends = sorted(rng.uniform(0.05, 6.0, size=n).tolist())
    words = [TimedWord(f"w{i}", max(end - 0.05, 0.0), end) for i, end in enumerate(ends)]
    samples, steps, said = 0, [], 0
    n_steps = int(rng.integers(2, 30))
    for k in range(n_steps):
        samples += int(rng.choice([0, 320, 4_800, 9_600]))
        last = k == n_steps - 1
        now = n if last else min(said + int(rng.integers(0, 3)), n)
        steps.append(
            Step(
                "flush" if last else "audio",
                samples,
                {"wall": int(rng.exponential(2e8))},
                committed=[f" w{i}" for i in range(said, now)],
            )
        )
        said = now
    return UtteranceLog(
        "u",
        " ".join(word.text for word in words),
        samples,
        words,
        lookahead_samples=int(rng.choice([0, 200, 6_400])),
        steps=steps,
    )


def test_in_random_logs_the_parts_sum_to_the_latency_of_every_word():
    rng = np.random.default_rng(7)
    n_words = 0
    for _ in range(300):
        made = trace(random_log(rng))
        words = WordLatency(made)
        latencies = words.latencies("committed", "ca")
        for parts, latency_s in zip(word_parts(made, words), latencies, strict=True):
            assert sum(parts) == pytest.approx(latency_s, abs=1e-9)
            assert min(parts[1:]) >= 0.0
            n_words += 1
        figures = compute([made])
        total = sum(figures[f"word_latency_{name}_mean_ca_s"] or 0.0 for name in Parts._fields)
        assert total == pytest.approx(figures["word_latency_committed_mean_ca_s"], abs=1e-9)
    assert n_words > 1000


def test_a_batched_run_has_no_parts():
    batched = replace(one_word(0.55, 2), batch=4)
    assert compute([batched])["word_latency_policy_mean_ca_s"] is None
    assert utterance_line(batched)["latency_parts"] == {}
