"""The report's page in a real browser: sorted, filtered, played and used without a mouse."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import CHROMIUM, DRIVER, Browser, browser
from report_cells import tone, write_grid

from streaming_asr.report import build

pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER),
    reason="no chromium or chromedriver here: apt install chromium-driver",
)
ROWS = "return [...document.querySelectorAll('#results tbody tr')].map((row) => row.dataset.cell)"
COLUMN = """const at = [...document.querySelectorAll('#results thead th')].findIndex(
  (th) => th.querySelector(`[data-sort="${arguments[0]}"]`));
return [...document.querySelectorAll('#results tbody tr')].map((row) => row.cells[at].innerText)"""
FOCUS = "return document.activeElement.dataset.sort || document.activeElement.id"
MARKS = """marks:
- {label: paper, x: 0.7, y: 5, source: Authors, split: mini clean}
"""


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as made:
        yield made


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("page")
    (root / "marks.yaml").write_text(MARKS)
    grid = write_grid(root / "grid", tone(root / "a.ogg"))
    return build(grid, root / "page.html", marks=root / "marks.yaml")


@pytest.fixture(autouse=True)
def no_complaints(window: Browser, page: Path) -> Iterator[None]:
    window.console()
    window.open(page)
    yield
    assert window.console() == []


def numbers(texts: list[str]) -> list[float]:
    return [float(text) for text in texts if text not in ("–", "failed")]


def test_a_click_sorts_and_a_second_one_turns_it_round(window: Browser) -> None:
    window.click('[data-sort="rtf_total"]')
    up = numbers(window.run(COLUMN, "rtf_total"))
    assert up == sorted(up) and up[0] < up[-1]
    window.click('[data-sort="rtf_total"]')
    down = window.run(COLUMN, "rtf_total")
    assert numbers(down) == sorted(up, reverse=True)
    assert down[-1] == "–"  # the failed run stays last
    heading = "return document.querySelector('th[aria-sort=descending]').innerText"
    assert "RTF" in window.run(heading)


def test_typing_filters_rows_and_figures(window: Browser) -> None:
    assert len(window.run(ROWS)) == 13
    window.click("#filter")
    window.keys(*"ufal 300")
    assert window.run(ROWS) == [
        f"method=ufal,chunk=300ms,data.split={s}" for s in ("clean", "other")
    ]
    assert window.run("return document.getElementById('count').innerText") == "2 of 13 runs"
    assert window.run("return document.querySelectorAll('.point').length") == 2 * 3
    assert "filter=ufal+300" in window.run("return location.hash")


def test_without_a_mouse_a_heading_a_point_and_the_time_can_be_reached(window: Browser) -> None:
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


def test_playing_follows_the_sound_and_stops_when_asked(window: Browser, page: Path) -> None:
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


def test_the_front_is_drawn_and_what_it_betters_is_grey(window: Browser) -> None:
    counts = """const [figure] = document.querySelectorAll('figure');
    return ['.front', '.box', '.point', '.beaten', '.paper'].map(
      (kind) => figure.querySelectorAll(kind).length)"""
    front, boxes, points, beaten, marks = window.run(counts)
    assert (front, boxes, points, marks) == (1, 6, 6, 1)
    assert 0 < beaten < points
    fills = """const [figure] = document.querySelectorAll('figure');
    return [...figure.querySelectorAll('.point')].map((point) =>
      [point.classList.contains('beaten'), getComputedStyle(point.lastChild).fill])"""
    grey = {fill for is_beaten, fill in window.run(fills) if is_beaten}
    coloured = {fill for is_beaten, fill in window.run(fills) if not is_beaten}
    assert len(grey) == 1 and not grey & coloured
    hollow = "return getComputedStyle(document.querySelector('.paper circle')).fill"
    assert window.run(hollow) == "none"
    captions = "return [...document.querySelectorAll('figcaption')].map((each) => each.innerText)"
    told = [text for text in window.run(captions) if "Hollow: published numbers, Authors." in text]
    assert len(told) == 1  # beside the data it is for, in its figure


def test_light_and_dark_differ_and_are_kept_in_the_address(window: Browser) -> None:
    ground = "return getComputedStyle(document.body).backgroundColor"
    window.click("#theme")
    light = window.run(ground)
    window.click("#theme")
    dark = window.run(ground)
    assert (light, dark) == ("rgb(255, 255, 255)", "rgb(20, 23, 28)")
    assert "theme=dark" in window.run("return location.hash")
