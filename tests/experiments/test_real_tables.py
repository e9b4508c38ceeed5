"""The tables of real Whisper: which cell stands where, and its paired difference from offline."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from places import ROOT
from report_cells import write_cell
from table_cells import empty_page, figures, row

from experiments.real import tables
from experiments.real.tables import (
    ROWS,
    blocks,
    by_holm,
    cells_of,
    measured_only,
    short,
    within,
)
from experiments.tables import read

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
    text = blocks(results(tmp_path))
    main = text["real"]
    assert figures(main, "offline, beam 5", "whole")[0] == 0.0
    greedy = row(main, "offline, greedy", "whole")
    assert (greedy["WER %"][0], greedy["coverage %"]) == (16.7, 83)  # 5 of 30 words
    assert greedy["over offline, beam 5, points"] is None
    assert row(main, "WhisperRT, greedy", "300 ms")["WER %"][0] == 3.3  # 1 of 30 words
    assert row(main, "WhisperRT, greedy", "300 ms")["over offline, beam 5, points"] == 3.3
    assert row(main, "WhisperRT, beam 3", "1000 ms")["over offline, beam 5, points"] == 6.7
    assert row(main, "Simul-Whisper, no detector", "1000 ms")["over offline, beam 5, points"] == 0.0
    assert row(main, "Simul-Whisper, detector", "1000 ms")["WER %"] == "not run"
    assert row(main, "WhisperRT, greedy", "100 ms")["over offline, beam 5, points"] == "not run"
    variants = text["real_variants"]
    always = row(variants, "Simul-Whisper, last word always dropped", "1000 ms")
    assert always["WER %"][0] == always["over offline, beam 5, points"] == 16.7
    detectors = text["real_detector"]
    assert row(detectors, "Simul-Whisper, detector", "300 ms")["WER %"][0] == 16.7
    assert row(detectors, "Simul-Whisper, no detector", "300 ms")["WER %"] == 0.0
    assert "over offline" not in detectors
    voices = text["real_voices"]
    assert figures(voices, "offline, beam 5", "whole")[0] == 0.0
    assert row(voices, "UFAL", "1000 ms")["WER %"] == "not run"
    assert text["real_speechocean762"].startswith("Not run yet.")


def test_the_short_table_has_each_method_once_by_its_errors(tmp_path: Path) -> None:
    root = results(tmp_path)
    text = short(root)
    assert [line.split(" | ")[0].strip("| ") for line in text.splitlines()[4:]] == [
        "offline, beam 5",
        "Simul-Whisper, no detector",  # 0 of 30 words
        "WhisperRT, beam 3",  # 2
        "hush word",
        "UFAL",
        "WhisperRT, greedy",
    ]
    heading = "WER % [95 % interval]"
    assert row(text, "offline, beam 5")[heading] == 0.0
    assert "| WhisperRT, beam 3 | 1.7 | 6.7 [0.0, 33.3] | " in text
    ufal = row(text, "UFAL")
    assert ufal[heading] == ufal["CPU s per s of audio"] == "not run"
    shutil.rmtree(root / "real_other" / "method=offline,chunk=1000ms,method.beam=5")
    assert row(short(root), "offline, greedy")[heading][0] == 16.7
    assert len(set(ROWS)) == len(ROWS) == 26


def test_the_best_within_a_limit_is_the_soonest_or_the_one_with_the_fewest_errors(
    tmp_path: Path,
) -> None:
    text = within(blocks(results(tmp_path))["real_other"])
    # WhisperRT with beam 3 errs in 2 words of 30, Simul-Whisper in none and is as soon.
    assert row(text, "15 % of the words wrong")["best"] == "Simul-Whisper, no detector"
    assert row(text, "final after 2 s")["best"] == "Simul-Whisper, no detector"


def test_the_best_is_found_among_the_rows_that_the_page_has(tmp_path: Path) -> None:
    page = empty_page(tables.PAGE, tmp_path)
    given = ["--output", str(results(tmp_path)), "--here", str(page)]
    assert tables.main(given) == 0
    soon = "final after 2 s"
    assert row(page.read_text(), soon)["best"] == "Simul-Whisper, no detector"
    # Another machine has run one row more; the others are on the page only.
    for cell in (tmp_path / "real_other").iterdir():
        shutil.rmtree(cell)
    add(tmp_path / "real_other", "ufal", "300ms", "no")
    assert tables.main(given) == 0
    assert row(page.read_text(), soon)["best"] == "Simul-Whisper, no detector"
    assert row(page.read_text(), "15 % of the words wrong")["WER %"] == 0.0


def test_other_readers_and_base_have_tables_of_their_own(tmp_path: Path) -> None:
    assert len(tables.OTHER_VOICES) == len(tables.MANY_VOICES) - 2  # without U2's first pass
    results(tmp_path)
    for name in ("real_clean", "real_native", "real_other_base"):
        shutil.copytree(tmp_path / "real_other", tmp_path / name)
    text = blocks(tmp_path)
    for name in ("real_clean", "real_native"):
        beam = row(text[name], "WhisperRT, beam 3", "1000 ms")
        assert beam["over offline, beam 5, points"] == 6.7
        assert row(text[name], "UFAL", "300 ms")["WER %"] == "not run"
    base = text["real_other_base"]
    assert row(base, "Simul-Whisper, no detector", "1000 ms")["over offline, beam 5, points"] == 0.0
    assert row(base, "WhisperRT, beam 3", "1000 ms")["over offline, beam 5, points"] == 6.7
    assert "U2" not in base and "STAR" not in base


def test_the_readme_has_the_figures_of_the_page() -> None:
    page, readme = tables.PAGE.read_text(), (ROOT / "README.md").read_text()
    block = readme.partition("<!-- real:begin -->")[2].partition("<!-- real:end -->")[0]
    measured = page.partition("<!-- real_other:begin -->")[2].partition("<!-- real_other:end -->")[
        0
    ]
    lines = [line for line in block.splitlines() if line.startswith("| ")][2:]
    assert len(lines) == 6
    for line in lines:
        system, _, errors, final, cpu = (part.strip() for part in line.strip("|").split("|"))
        chunk = "whole" if system.startswith("offline") else "1000 ms"
        start = f"| {system} | {chunk} | {errors} |"
        (there,) = [each for each in measured.splitlines() if each.startswith(start)]
        assert f" {final} " in there and f" {cpu} " in there


def test_base_has_a_row_for_each_language_and_the_whole_sets_one_for_each_corpus(
    tmp_path: Path,
) -> None:
    for folder, key, value in (("real_base", "language", "fr"), ("real_all", "name", "prompts")):
        add(tmp_path / folder, "offline", "300ms", "cats eat flesh fish now", beam=0)
        path = tmp_path / folder / "method=offline,chunk=300ms,method.beam=0" / "metrics.json"
        document = json.loads(path.read_text())
        document["config"]["data"][key] = value
        path.write_text(json.dumps(document))
    text = blocks(tmp_path)
    assert row(text["real_base"], "fr", "offline, greedy")["WER %"][0] == 3.3
    assert row(text["real_base"], "en", "offline, greedy")["WER %"] == "not run"
    assert row(text["real_all"], "prompts", "offline, greedy")["WER %"][0] == 3.3
    assert row(text["real_all"], "speechocean762", "WhisperRT, greedy")["WER %"] == "not run"


def test_a_missing_baseline_leaves_the_differences_out(tmp_path: Path) -> None:
    root = results(tmp_path)
    shutil.rmtree(root / "real" / "method=offline,chunk=1000ms,method.beam=5")
    cells = read(root / "real")
    found = row(tables.table(cells, ROWS), "WhisperRT, greedy", "300 ms")
    assert found["over offline, beam 5, points"] is None and found["WER %"][0] == 3.3


def test_the_page_has_a_place_for_each_table(tmp_path: Path) -> None:
    page = empty_page(tables.PAGE, tmp_path)
    given = ["--output", str(tmp_path / "none"), "--here", str(page)]
    assert tables.main(given) == 0
    assert page.read_text().count("Not run yet.") == 12


def test_rows_that_were_not_run_are_left_out_and_missing_figures_are_dashes() -> None:
    header = "| system | chunk | WER % | CPU RTF |\n| --- | --- | ---: | ---: |"
    rows = ("| a | 1 s | 4.0 | not run |", "| b | 1 s | not run | not run |")
    block = "\n".join(["Measured.", "", header, *rows])
    assert measured_only(block) == f"Measured.\n\n{header}\n| a | 1 s | 4.0 | – |"


def test_where_nothing_has_run_the_page_stays_as_it_is(tmp_path: Path) -> None:
    page = Path(shutil.copy(tables.PAGE, tmp_path))
    assert tables.main(["--output", str(tmp_path / "none"), "--here", str(page)]) == 0
    assert page.read_text() == tables.PAGE.read_text()


def test_p_is_corrected_over_all_rows_of_the_page_measured_together_or_not() -> None:
    over, heading = "over offline, beam 5, points", ["system", "chunk"]
    uncorrected = {"a": "0.01000", "b": "0.04000", "c": "0.03000", "d": "–", "e": "not run"}
    rows = [
        f"| {name} | 1 s | {'not run' if p == 'not run' else '+1.0'} | {p} | 0.5 |"
        for name, p in uncorrected.items()
    ]
    header = "| " + " | ".join([*heading, over, "p uncorrected", "p"]) + " |"
    offline = "| offline, beam 5 | whole | – | – | – |"
    rule = "| --- | --- | ---: | ---: | ---: |"
    block = "\n".join(["Measured.", "", header, rule, offline, *rows])
    shown = [line.rpartition("| ")[2].strip(" |") for line in by_holm(block).splitlines()[4:]]
    # four were tested, one of them without a p: 4 x 0.01, 3 x 0.03, and never falling
    assert shown == ["–", "0.0400", "0.0900", "0.0900", "–", "0.5"]


def test_the_picture_is_made_of_the_rows_that_the_page_has() -> None:
    lines = (
        "Measured.",
        "",
        "| system | chunk | WER % | committed p50 s |",
        "| --- | --- | ---: | ---: |",
        "| offline, beam 5 | whole | 12.5 [8.4, 18.4] | 4.93 [4.54, 5.56] |",
        "| WhisperRT, beam 3 | 300 ms | 22.9 [17.0, 32.7] | -1.24 |",
        "| UFAL | 300 ms | not run | not run |",
    )
    offline, beam = cells_of("\n".join(lines))
    assert (offline.label, offline.chunk) == ("offline beam 5", "whole")
    assert offline.intervals["wer"] == (8.4, 18.4)
    assert (beam.label, beam.chunk) == ("whisperrt beam 3", "300 ms")
    assert beam.metrics == {"wer": 22.9, "word_latency_committed_p50_ca_s": -1.24}
    assert "word_latency_committed_p50_ca_s" not in beam.intervals
