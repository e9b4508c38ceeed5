"""The rows of real Whisper: which cell is which row, and its paired difference from offline."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from places import ROOT
from report_cells import write_cell
from table_cells import by_labels

from experiments.real import tables
from experiments.real.tables import (
    COMPARED_MS,
    DIFFER,
    FINAL,
    HOLM,
    OVER,
    ROWS,
    UNCORRECTED,
    WER,
    cells_of,
    choosing,
    rows,
    short,
    with_holm,
    within,
)
from experiments.tables import DATA, Row, read_rows
from streaming_asr.config.compose import compose_raw

SAID = "cats eat fresh fish now"


def add(folder: Path, method: str, chunk: str, said: str, **settings: Any) -> None:
    """A cell of six utterances, in which `method` says `said` for the first of them."""
    texts = {f"u{n}": (SAID, said if n == 0 else SAID) for n in range(6)}
    name = "".join(f",method.{key}={value}" for key, value in settings.items())
    made = write_cell(folder / f"method={method},chunk={chunk}{name}", chunk=chunk, texts=texts)
    document = json.loads((made / "metrics.json").read_text())
    document["config"]["method"] |= {"name": method, **settings}
    (made / "metrics.json").write_text(json.dumps(document))


def results(root: Path) -> Path:
    add(root / "real", "offline", "1000ms", SAID, beam=5)
    add(root / "real", "offline", "1000ms", "no", beam=0)
    add(
        root / "real",
        "whisperrt",
        "300ms",
        "cats eat flesh fish now",
        beam=0,
        weights="x/any_chunk",
    )
    add(root / "real", "whisperrt", "1000ms", "cats eat flesh fish", beam=3, weights="x/any_chunk")
    add(root / "real", "simul_whisper", "1000ms", SAID, truncation=None, weights=None)
    add(root / "real_variants", "simul_whisper", "1000ms", "no", truncation="always", weights=None)
    add(root / "real_detector", "simul_whisper", "300ms", SAID, truncation="never", weights=None)
    add(root / "real_detector", "simul_whisper", "300ms", "no", weights="models/base.pt")
    add(root / "real_voices", "offline", "1000ms", SAID, beam=5)
    shutil.copytree(root / "real", root / "real_other")
    return root


def test_a_row_has_its_cell_and_its_paired_difference_from_offline(tmp_path: Path) -> None:
    found = rows(results(tmp_path))
    main = by_labels(found, "real")
    assert main["offline, beam 5", "whole"][WER] == 0.0
    greedy = main["offline, greedy", "whole"]
    assert greedy[WER][0] == pytest.approx(100 * 5 / 30)
    assert greedy["coverage %"][0] == pytest.approx(100 * 25 / 30)
    assert OVER not in greedy  # `greedy` does not select it
    assert {labels: figures[OVER] for labels, figures in main.items() if OVER in figures} == {
        ("WhisperRT, greedy", "300 ms"): pytest.approx(100 / 30),
        ("WhisperRT, beam 3", "1000 ms"): pytest.approx(200 / 30),
        ("Simul-Whisper, no detector", "1000 ms"): 0.0,
    }
    assert main["WhisperRT, greedy", "300 ms"][DIFFER] == 1
    variants = by_labels(found, "real_variants")
    always = variants["Simul-Whisper, last word always dropped", "1000 ms"]
    assert always[WER][0] == pytest.approx(always[OVER])
    detectors = by_labels(found, "real_detector")
    assert detectors["Simul-Whisper, detector", "300 ms"][WER][0] == pytest.approx(100 * 5 / 30)
    assert detectors["Simul-Whisper, no detector", "300 ms"][WER] == 0.0
    assert list(by_labels(found, "real_voices")) == [("offline, beam 5", "whole")]
    assert by_labels(found, "real_speechocean762") == {}
    assert len(set(ROWS)) == len(ROWS) == 26


def test_the_short_table_has_each_method_once_by_its_errors(tmp_path: Path) -> None:
    lines = short(rows(results(tmp_path)))["real"].splitlines()[2:]
    assert [line.split(" | ")[0].strip("| ") for line in lines] == [
        "`method=offline method.beam=5`",
        "`method=simul_whisper method.truncation=never chunk=1s`",  # 0 of 30 words
        "`method=whisperrt method.beam=3 chunk=1s`",  # 2
    ]
    assert lines[2].split(" | ")[1] == "6.7 (+6.7)"  # so few errors have no interval


def test_the_best_within_a_limit_is_the_soonest_or_the_one_with_the_fewest_errors(
    tmp_path: Path,
) -> None:
    lines = [line.strip("| ").split(" | ") for line in within(rows(results(tmp_path))).splitlines()]
    best = {line[0]: line[1] for line in lines[2:]}
    # WhisperRT with beam 3 errs in 2 words of 30, Simul-Whisper in none and is as soon.
    assert best["15 % of the words wrong"] == "Simul-Whisper, no detector"
    assert best["final after 2 s"] == "Simul-Whisper, no detector"
    assert within([]) == "Not run yet."


def test_other_readers_and_base_have_rows_of_their_own(tmp_path: Path) -> None:
    assert len(tables.OTHER_VOICES) == len(tables.MANY_VOICES) - 2  # without U2's first pass
    results(tmp_path)
    for name in ("real_clean", "real_native", "real_other_base"):
        shutil.copytree(tmp_path / "real_other", tmp_path / name)
    found = rows(tmp_path)
    for name in ("real_clean", "real_native", "real_other_base"):
        own = by_labels(found, name)
        assert own["WhisperRT, beam 3", "1000 ms"][OVER] == pytest.approx(200 / 30)
        assert ("UFAL", "300 ms") not in own


def test_base_has_a_row_for_each_language_and_the_whole_sets_one_for_each_corpus(
    tmp_path: Path,
) -> None:
    for folder, key, value in (("real_base", "language", "fr"), ("real_all", "name", "prompts")):
        add(tmp_path / folder, "offline", "300ms", "cats eat flesh fish now", beam=0)
        path = tmp_path / folder / "method=offline,chunk=300ms,method.beam=0" / "metrics.json"
        document = json.loads(path.read_text())
        document["config"]["data"][key] = value
        path.write_text(json.dumps(document))
    base, whole = rows(tmp_path)
    assert base.key == ("real_base", "fr", "offline, greedy")
    assert whole.key == ("real_all", "prompts", "offline, greedy")
    assert base.figures[WER][0] == whole.figures[WER][0] == pytest.approx(100 / 30)


def test_a_missing_baseline_leaves_the_differences_out(tmp_path: Path) -> None:
    root = results(tmp_path)
    shutil.rmtree(root / "real" / "method=offline,chunk=1000ms,method.beam=5")
    found = by_labels(rows(root), "real")["WhisperRT, greedy", "300 ms"]
    assert OVER not in found and found[WER][0] == pytest.approx(100 / 30)


def test_p_is_corrected_over_all_rows_of_a_table_measured_together_or_not() -> None:
    p_values = {"a": 0.01, "b": 0.04, "c": 0.03, "d": None}
    made = [
        Row("t", {"system": name}, {OVER: 1.0} | ({UNCORRECTED: p} if p else {}))
        for name, p in p_values.items()
    ]
    made += [Row("t", {"system": "offline"}, {}), Row("u", {"system": "a"}, {OVER: 1.0})]
    shown = [row.value(HOLM) for row in with_holm(made)]
    # four were tested, one of them without a p: 4 x 0.01, 3 x 0.03, and never falling
    assert shown == [
        pytest.approx(0.04),
        pytest.approx(0.09),
        pytest.approx(0.09),
        None,
        None,
        None,
    ]
    assert 1000 in COMPARED_MS


def test_the_picture_is_made_of_the_rows() -> None:
    lines = [
        ("offline, beam 5", "whole", {WER: [12.5, 8.4, 18.4], FINAL: [4.93, 4.54, 5.56]}),
        ("WhisperRT, beam 3", "300 ms", {WER: [22.9, 17.0, 32.7], FINAL: -1.24}),
        ("UFAL", "300 ms", {WER: 1.0}),
    ]
    made = [
        Row("real_other", {"system": system, "chunk": chunk}, figures)
        for system, chunk, figures in lines
    ]
    offline, beam = cells_of(made)
    assert (offline.label, offline.chunk) == ("offline beam 5", "whole")
    assert offline.intervals["wer"] == (8.4, 18.4)
    assert (beam.label, beam.chunk) == ("whisperrt beam 3", "300 ms")
    assert beam.metrics == {"wer": 22.9, "word_latency_committed_p50_ca_s": -1.24}
    assert "word_latency_committed_p50_ca_s" not in beam.intervals


@pytest.mark.parametrize(
    ("page", "blocks", "n_rows"), [("README.md", short, 6), ("docs/choosing.md", choosing, 11)]
)
def test_a_page_has_the_figures_of_the_rows(page: str, blocks: Any, n_rows: int) -> None:
    text = (ROOT / page).read_text("utf-8")
    made = blocks(read_rows(tables.PAGE.with_name(DATA)))
    assert len(next(iter(made.values())).splitlines()) == 2 + n_rows
    for name, block in made.items():
        assert f"<!-- {name}:begin -->\n{block}\n<!-- {name}:end -->" in text


def test_the_settings_of_a_row_are_those_of_its_cell() -> None:
    for system, words in tables.TYPED.items():
        method = compose_raw([*words.split(), "model=tiny.en"])["method"]
        found = [
            all(
                method.get(key) == value
                for key, value in settings.items()
                if key not in ("weights", "method")
            )
            for settings in tables.SYSTEMS[system]
        ]
        assert any(found), (system, dict(method))
