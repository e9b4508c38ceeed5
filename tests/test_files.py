"""Files that are never half there."""

from __future__ import annotations

from pathlib import Path

import pytest

from streaming_asr import report
from streaming_asr.errors import UserError
from streaming_asr.files import replacing, write_text


def test_a_writer_that_breaks_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = write_text(tmp_path / "new" / "page.html", "whole")
    with pytest.raises(RuntimeError, match="killed"), replacing(path) as scratch:
        scratch.write_text("ha")
        raise RuntimeError("killed")
    assert path.read_text() == "whole"
    assert [file.name for file in path.parent.iterdir()] == ["page.html"]


def test_a_folder_replaces_a_folder_with_all_its_files(tmp_path: Path) -> None:
    place = tmp_path / "best"
    for names in (("a", "b"), ("c",)):
        with replacing(place) as folder:
            folder.mkdir()
            for name in names:
                (folder / name).touch()
    assert [file.name for file in place.iterdir()] == ["c"]
    assert list(tmp_path.iterdir()) == [place]


def test_a_folder_whose_successor_breaks_stays(tmp_path: Path) -> None:
    place = tmp_path / "best"
    place.mkdir()
    (place / "weights").write_text("good")
    with pytest.raises(UserError, match="best: cannot be written"), replacing(place) as folder:
        folder.mkdir()
        raise OSError(28, "No space left on device")
    assert (place / "weights").read_text() == "good"
    assert list(tmp_path.iterdir()) == [place]


def test_a_place_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot be written"):
        write_text(tmp_path / "file" / "metrics.json", "{}")


def test_a_page_that_could_not_be_finished_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from report_cells import write_cell

    cell = write_cell(tmp_path / "cell", texts={"a": ("call a taxi", "call a taxi")})
    before = Path.write_text

    def torn(path: Path, text: str, **settings: str) -> int:
        before(path, text[: len(text) // 2], **settings)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", torn)
    with pytest.raises(UserError, match=r"report\.html: cannot be written"):
        report.build(cell)
    assert not (cell / "report.html").exists()
    monkeypatch.undo()
    assert report.build(cell).read_text().rstrip().endswith("</html>")
