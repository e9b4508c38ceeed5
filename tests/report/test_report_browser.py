"""The report's page in a real browser: sorted, filtered, played and used without a mouse."""

import json
import re

import pytest
from browser import CHROMIUM, DRIVER, browser
from report_cells import (
    embedded,
    tone,
    write_cell,
    write_grid,
    write_unjudged,
    write_without_times,
)

from streaming_asr.report import build

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (CHROMIUM and DRIVER),
        reason="no chromium or chromedriver here: apt install chromium-driver",
    ),
]
ROWS = "return [...document.querySelectorAll('#results tbody tr')].map((row) => row.dataset.cell)"
COLUMN = """const at = [...document.querySelectorAll('#results thead th')].findIndex(
  (th) => th.querySelector(`[data-sort="${arguments[0]}"]`));
return [...document.querySelectorAll('#results tbody tr')].map((row) => row.cells[at].innerText)"""
FOCUS = "return document.activeElement.dataset.sort || document.activeElement.id"


@pytest.fixture(scope="module")
def window(tmp_path_factory):
    with browser(tmp_path_factory.mktemp("profile")) as made:
        yield made


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    root = tmp_path_factory.mktemp("page")
    grid = write_grid(root / "grid", tone(root / "a.ogg"))
    return build(grid, root / "page.html", [root])


@pytest.fixture(autouse=True)
def no_complaints(window, page):
    window.console()
    window.open(page)
    yield
    assert window.console() == []


def drawn(window, page, fragment="", *, script=""):
    """The page as its scripts draw it; `script` runs last."""
    window.open(page, fragment)
    if script:
        window.run(script)
    return str(window.run("return document.documentElement.outerHTML"))


def rows_of(dom):
    return re.findall(r'<tr data-cell="([^"]+)"', dom)


def numbers(texts):
    return [float(text) for text in texts if text not in ("–", "failed")]


def test_a_click_sorts_and_a_second_one_turns_it_round(window):
    window.click('[data-sort="rtf_total"]')
    up = numbers(window.run(COLUMN, "rtf_total"))
    assert up == sorted(up) and up[0] < up[-1]
    window.click('[data-sort="rtf_total"]')
    down = window.run(COLUMN, "rtf_total")
    assert numbers(down) == sorted(up, reverse=True)
    assert down[-1] == "–"  # the failed run stays last
    heading = "return document.querySelector('th[aria-sort=descending]').innerText"
    assert "RTF" in window.run(heading)


def test_typing_filters_rows_and_figures(window):
    assert len(window.run(ROWS)) == 13
    window.click("#filter")
    window.keys(*"ufal 300")
    assert window.run(ROWS) == [
        f"method=ufal,chunk=300ms,data.split={s}" for s in ("clean", "other")
    ]
    assert window.run("return document.getElementById('count').innerText") == "2 of 13 runs"
    assert (
        window.run("return document.querySelectorAll('.point').length") == 2
    )  # of one chunk there is no curve
    assert "filter=ufal+300" in window.run("return location.hash")


def test_without_a_mouse_a_heading_a_point_and_the_time_can_be_reached(window):
    window.run("document.getElementById('all').focus()")
    window.keys("Tab")  # the first heading
    while window.run(FOCUS) != "wer":
        window.keys("Tab")
    window.keys("Enter")
    assert window.run(FOCUS) == "wer"
    wers = numbers(window.run(COLUMN, "wer"))
    assert wers == sorted(wers)

    window.run("document.querySelectorAll('.point')[2].focus()")
    label = window.run("return document.activeElement.getAttribute('aria-label')")
    window.keys("Enter")
    shown = window.run("return document.querySelector('#timelines h3').innerText")
    method, chunk = label.split(":")[0].split(maxsplit=1)
    assert method in shown and chunk in shown

    window.run("document.getElementById('time').focus()")
    window.run("document.getElementById('time').value = 0.5")
    window.keys("Shift+Tab", "Tab", "Right", "Right")
    time_s = float(window.run("return document.getElementById('time').value"))
    assert time_s == pytest.approx(0.52, abs=0.005)
    assert "0.52 s" in window.run("return document.querySelector('.bar output').innerText")


def test_playing_follows_the_sound_and_stops_when_asked(window, page):
    window.open(page, "utt=u4&t=0.1")
    window.run("document.querySelector('audio').loop = true")  # it plays however late one looks
    window.click("#play")
    window.wait("""const heard = document.querySelector('audio').currentTime;
      return heard > 0.4 && Math.abs(heard - document.getElementById('time').value) < 0.3""")
    assert window.run("return document.getElementById('play').innerText") == "Pause"
    window.click("#play")
    assert window.run("return document.querySelector('audio').paused")
    stopped = window.run("return document.getElementById('time').value")
    assert window.run("return document.getElementById('play').innerText") == "Play"
    assert window.run("return document.getElementById('time').value") == stopped


def test_playing_goes_to_the_end_and_stops(window, page):
    window.open(page, "utt=u3&t=0.1")
    window.click("#play")
    window.wait("return document.getElementById('play').innerText === 'Play'")
    left = "const time = document.getElementById('time'); return time.max - time.value"
    assert window.run(left) == pytest.approx(0, abs=0.02)


def test_the_front_is_drawn_and_what_it_betters_is_grey(window):
    counts = """const [figure] = document.querySelectorAll('figure');
    return ['.front', '.box', '.point', '.beaten'].map(
      (kind) => figure.querySelectorAll(kind).length)"""
    front, boxes, points, beaten = window.run(counts)
    assert (front, boxes, points) == (1, 6, 6)
    assert 0 < beaten < points
    fills = """const [figure] = document.querySelectorAll('figure');
    return [...figure.querySelectorAll('.point')].map((point) =>
      [point.classList.contains('beaten'), getComputedStyle(point.lastChild).fill])"""
    grey = {fill for is_beaten, fill in window.run(fills) if is_beaten}
    coloured = {fill for is_beaten, fill in window.run(fills) if not is_beaten}
    assert len(grey) == 1 and not grey & coloured


def test_p90_is_drawn_by_a_switch_that_the_address_keeps(window, page):
    assert window.run("return document.querySelectorAll('svg .late').length") == 0
    window.click("#late")
    n = window.run("return document.querySelectorAll('svg .late circle').length")
    assert n == window.run("return document.querySelectorAll('figure:first-child .point').length")
    window.open(page, "late=1")
    assert window.run("return document.querySelectorAll('svg .late circle').length") == n > 0


def test_the_area_that_keeps_up_ends_at_real_time(window):
    top, line = window.run(
        "return [+document.querySelector('.keeps-up').getAttribute('y'),"
        " +document.querySelector('.real-time').getAttribute('y1')]"
    )
    assert top == line


def test_light_and_dark_differ_and_are_kept_in_the_address(window):
    ground = "return getComputedStyle(document.body).backgroundColor"
    window.click("#theme")
    light = window.run(ground)
    window.click("#theme")
    dark = window.run(ground)
    assert (light, dark) == ("rgb(255, 255, 255)", "rgb(20, 23, 28)")
    assert "theme=dark" in window.run("return location.hash")


def test_the_page_draws_a_row_a_cell_five_figures_a_split_and_a_timeline(window, page):
    dom = drawn(window, page)
    assert len(rows_of(dom)) == 13
    assert dom.count("<figure") == 8
    assert dom.count('class="stack"') == 12
    assert len(re.findall(r'class="point( beaten)?"', dom)) == 36
    assert dom.count('class="front"') == 2
    assert 'class="failed"' in dom
    assert "no such weights" in dom
    assert len(re.findall(r"<audio [^>]*src=\"data:audio/ogg", dom)) == 1
    assert '<dd id="spoken">' in dom


def test_the_bars_of_a_run_sum_to_its_word_latency_and_points_carry_intervals(window, page):
    dom = drawn(window, page, "filter=whisperrt+300+clean")
    (bar,) = re.findall(r'<g class="stack">(.*?)</g>', dom, re.S)
    name = "method=whisperrt,chunk=300ms,data.split=clean"
    (cell,) = [each for each in embedded(page)["cells"] if each["name"] == name]
    parts = [
        float(text) for text in re.findall(r"([-\d.]+) s$", bar.partition("</title>")[0], re.M)
    ]
    assert len(parts) == 5
    mean_s = cell["metrics"]["word_latency_committed_mean_ca_s"]
    assert sum(parts) == pytest.approx(mean_s, abs=0.005)
    assert f">{mean_s:.2f} s</text>" in bar
    widths = [float(text) for text in re.findall(r'<rect [^>]*width="([\d.]+)"', bar)]
    held = [part for part in parts if part > 0]
    assert [w / sum(widths) for w in widths if w] == pytest.approx(
        [part / sum(held) for part in held], abs=0.01
    )
    assert dom.count('class="box"') == 1
    low, high = cell["intervals"]["wer"]
    assert f'title="95 % interval {low:.1f} to {high:.1f}, over 6 utterances ' in dom


def test_the_address_sorts_and_filters_with_unmeasured_rows_last(window, page):
    up = rows_of(drawn(window, page, "sort=rtf_total:asc&filter=clean"))
    down = rows_of(drawn(window, page, "sort=rtf_total:desc&filter=clean"))
    assert len(up) == 7
    assert all("clean" in name for name in up)
    assert up[0].startswith("method=whisperrt,chunk=1000ms")
    assert down[0].startswith("method=ufal,chunk=100ms")
    assert up[-1] == down[-1] == "method=star,chunk=300ms,data.split=clean"
    assert up[:-1] == down[-2::-1]


def test_moving_in_time_moves_the_screen_of_both_runs(window, page):
    cells = [cell["name"] for cell in embedded(page)["cells"]]
    ufal, whisperrt = (
        cells.index(f"method={m},chunk=300ms,data.split=clean") for m in ("ufal", "whisperrt")
    )
    dom = drawn(window, page, f"cell={ufal}&with={whisperrt}&utt=u1&t=1.6")
    seen = re.findall(r'<dd class="seen">(.*?)</dd>', dom)
    # At 1.6 s the step of 1.5 s of audio is done: three words heard; ufal keeps three back.
    assert seen == [
        '<span class="partial">the harbour opensz</span>',
        'the harbour<span class="partial"> opens</span>',
    ]
    assert '<dd id="spoken">the harbour opens at <span class="later">nine on friday</span>' in dom
    assert dom.count('class="cursor"') == 2


def test_a_long_recording_scrolls_with_its_words_at_their_times(window, tmp_path):
    text = " ".join(["gulls circle the boats"] * 20)
    write_cell(tmp_path / "method=whisperrt,chunk=300ms", texts={"long": (text, text)})
    dom = drawn(window, build(tmp_path, tmp_path / "page.html"), "t=20")
    lane = re.search(r'<svg viewBox="0 0 ([\d.]+) (\d+)" role="img" width="([\d.]+)"', dom)
    assert lane
    assert lane[1] == lane[3]
    assert float(lane[1]) > 60 * 32
    assert int(lane[2]) == 24 + 80 * 21 + 6


def test_without_computing_times_the_figure_and_the_player_are_on_the_audio_clock(window, tmp_path):
    dom = drawn(window, build(write_without_times(tmp_path), tmp_path / "page.html"))
    figure = dom.partition("<figure")[2].partition("</figure>")[0]
    assert figure.count('class="point') == 2 and "latency 0.20" in figure
    assert "median (s, audio only)" in figure
    assert 'id="clock"' not in dom and 'id="with"' in dom


def test_lanes_are_folded_until_they_are_opened_and_stay_so(window, page):
    is_open = "return document.getElementById('lanes').open"
    assert not window.run(is_open)
    window.click("#lanes summary")
    assert window.wait("return location.hash.includes('lanes=1')")
    window.click("#next")
    assert window.run(is_open)


def test_where_most_runs_have_no_error_they_are_drawn(window, tmp_path):
    right, wrong = ("cats eat fish", "cats eat fish"), ("cats eat fish", "cats eat dish")
    for k, chunk in enumerate(("100ms", "300ms", "600ms", "1000ms")):
        texts = {"u": right if k else wrong}
        write_cell(tmp_path / f"method=ufal,chunk={chunk}", chunk=chunk, texts=texts)
    dom = drawn(window, build(tmp_path, tmp_path / "page.html"))
    figure = dom.partition("<figure")[2].partition("</figure>")[0]
    assert "NaN" not in dom and figure.count('class="point') == 4


def test_the_table_fits_a_small_screen_and_has_no_empty_column(window, tmp_path):
    settings = "method.last_frame_threshold=4,method.truncation=never"
    for name in (f"method=simul_whisper,chunk=300ms,{settings}", "method=ufal,chunk=300ms"):
        path = write_cell(tmp_path / name) / "metrics.json"
        path.write_text(path.read_text().replace('"n_failed": 0', '"n_failed": 2'))
    window.open(build(tmp_path, tmp_path / "page.html"))
    heads = window.run("return [...document.querySelectorAll('th')].map((th) => th.innerText)")
    assert not [head for head in heads if head.startswith(("Notes", "Data"))]
    below = window.run("return document.getElementById('notes').innerText")
    assert below == "All runs: 2 of 2 utterances failed."
    hidden = """const box = document.querySelector('.scroll');
      return box.scrollWidth - box.clientWidth"""
    assert window.run(hidden) <= 0


def test_text_from_a_log_never_becomes_markup(window, tmp_path):
    nasty = "</script><script>document.title='owned'</script> <img src=x> &amp; <!--"
    folder = tmp_path / "method=whisperrt,chunk=300ms"
    write_cell(folder, texts={nasty: (nasty, nasty)})
    failed = tmp_path / "method=star,chunk=300ms"
    failed.mkdir()
    (failed / "failed.json").write_text(json.dumps({"error": nasty}))
    page = build(tmp_path, tmp_path / "page.html")
    assert [line["reference"] for line in embedded(page)["timelines"]] == [nasty]
    dom = drawn(window, page, "t=99")
    title, *_ = re.findall(r"<title>(.*?)</title>", dom)  # pictures have titles, too
    assert title == "whisperrt, star on mini clean · streaming_asr"
    assert "<img" not in dom.partition('id="results"')[2].partition('id="data"')[0]
    assert "&lt;img src=x&gt;" in dom


def test_the_player_is_first_and_has_text_of_the_two_best_methods_beside_each_other(window, page):
    dom = drawn(window, page)
    assert dom.index('id="timelines"') < dom.index('id="results"') < dom.index('id="figures"')
    player = dom.partition('id="timelines"')[2]
    assert not re.search(r"[^\d]0.00 s</output>", player)
    assert re.findall(r"<dt>(\w+) ([\d]+ ms)</dt>", player) == [
        ("whisperrt", "300 ms"), ("ufal", "1000 ms"),
    ]  # fmt: skip


def test_utterances_are_found_by_their_words_and_a_word_nobody_said_is_told(window, page):
    listed = r'<option value="(u\d)"'
    assert sorted(re.findall(listed, drawn(window, page))) == [f"u{k}" for k in range(1, 7)]
    assert re.findall(listed, drawn(window, page, "find=good+morning")) == ["u3"]
    dom = drawn(window, page, "find=zebra")
    assert re.findall(listed, dom) == [] and "No utterance holds “zebra”" in dom


def test_wrong_words_are_marked_by_elements_and_not_by_colour_alone(window, tmp_path):
    write_cell(
        tmp_path / "method=ufal,chunk=300ms",
        texts={"u": ("cats eat fresh fish", "cats eat flesh fish now")},
    )
    text = drawn(window, build(tmp_path, tmp_path / "page.html"))
    assert re.findall(r"<(del|ins)[^>]*>(\w+)<", text) == [
        ("del", "fresh"), ("ins", "flesh"), ("ins", "now"),
    ]  # fmt: skip


def test_a_filter_that_leaves_nothing_says_so_and_leads_back(window, page):
    dom = drawn(window, page, "filter=zebra")
    assert rows_of(dom) == [] and dom.count("No run matches “zebra”") == 2
    script = "document.querySelector('.nothing button').click()"
    assert len(rows_of(drawn(window, page, "filter=zebra", script=script))) == 13


def test_metrics_are_shown_by_group_with_their_names_in_words(window, page):
    dom = drawn(window, page, "all=Lagging")
    headings = re.findall(r'<button type="button" data-sort="(\w+)">([^<]*)', dom)
    assert ("al_ca_ms", "AL, ms, with compute") in headings
    assert all(name.startswith(("label", "chunk", "split", "al_", "laal", "yaal", "dal", "ap"))
               for name, _ in headings)  # fmt: skip


def test_recordings_without_a_reference_are_drawn_without_errors(window, tmp_path):
    write_unjudged(tmp_path)
    dom = drawn(window, build(tmp_path, tmp_path / "page.html"))
    page = dom.partition("<main>")[2].partition('<script type="application')[0]
    assert "no reference" in page and "worst" not in page and "tspan>+ " not in page
    assert "Word error rate" not in page and "insertion" not in page
    assert re.findall(r"<ins[^>]*>(\w+)<", page) == ["night", "nine"]


def test_all_metrics_are_rows_and_each_says_its_unit(window, page):
    window.open(page, "all=1")
    names = window.run(
        "return [...document.querySelectorAll('#results td.label')].map((each) => each.innerText)"
    )
    assert len(names) > 40 and {"WER %", "CER, %", "RWER, %"} <= set(names)
    assert window.run("return document.querySelectorAll('#results thead th').length") == 14


def test_the_slider_ends_with_the_recording_or_the_last_word(window, page):
    ends = {}
    for clock in ("cu", "ca"):
        window.open(page, f"utt=u1&clock={clock}")
        ends[clock] = float(window.run("return document.getElementById('time').max"))
    line = next(each for each in embedded(page)["timelines"] if each["utt"] == "u1")
    assert ends["cu"] == line["duration_s"] < ends["ca"]
    window.run("const t = document.getElementById('time'); t.value = t.max;"
               "t.dispatchEvent(new Event('input'))")  # fmt: skip
    assert "after the recording" in window.run("return document.querySelector('.bar output').value")


def test_paper_has_all_of_the_table_and_no_controls(window, page):
    media = {"cmd": "Emulation.setEmulatedMedia", "params": {"media": "print"}}
    window.call("POST", "/goog/cdp/execute", media)
    try:
        hidden = window.run(
            "return ['.controls', '#theme', '.player', 'details', 'input'].every((name) =>"
            "[...document.querySelectorAll(name)].every((e) => !e.getClientRects().length))"
        )
        assert hidden
        style = "return getComputedStyle(document.querySelector(arguments[0]))[arguments[1]]"
        assert window.run(style, ".scroll", "overflowX") == "visible"
        assert window.run(style, "figure", "breakInside") == "avoid"
        assert window.run(style, ".legend", "breakAfter") == "avoid"  # it stays at its figures
        fits = (
            "const note = document.querySelector('tbody tr').insertCell();"
            "note.className = 'notes'; note.textContent = 'x'.repeat(2000);"
            "return document.documentElement.scrollWidth <= innerWidth"
        )
        assert window.run(fits)  # a folder's name has no blank to break at
    finally:
        media["params"] = {"media": ""}
        window.call("POST", "/goog/cdp/execute", media)


def test_a_run_far_behind_the_others_does_not_stretch_the_axis(window, tmp_path):
    grid = write_grid(tmp_path / "grid")
    write_cell(grid / "method=star,chunk=100ms,data.split=clean", compute_s=9.0)
    made = build(grid, tmp_path / "page.html")
    assert embedded(made)["farthest"]["mini clean"] < 5
    window.open(made)
    assert "stand at the right edge" in window.run("return document.body.innerText")
    ticks = (
        "return [...document.querySelectorAll('figure.wide svg text.faint')]"
        ".map((each) => each.textContent)"
    )
    assert max(map(float, window.run(ticks))) <= 60  # of errors in percent; no latency of 60 s


def test_a_text_without_a_reference_stands_there_once(window, tmp_path):
    write_unjudged(tmp_path)
    window.open(build(tmp_path))
    text = window.run("return document.getElementById('timelines').innerText")
    assert text.count("the harbour opens at nine") == 1
