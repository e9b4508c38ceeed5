"""Every command of the pages on published weights and GPUs composes, those in tables too."""

from __future__ import annotations

import re
import shlex

import pytest
from places import ROOT

from streaming_asr.config.compose import compose_raw
from streaming_asr.run.obtain import table

PAGES = ("published.md", "gpu.md")
CONFIGS = {"run": "run", "train": "train", "align": "align", "data": "data_command"}
COMMAND = re.compile(r"(?:-m streaming_asr\.|streaming-asr )(\w+) ([^`\n]*)")
FOUND = [
    (page, *match)
    for page in PAGES
    for match in COMMAND.findall((ROOT / "docs" / page).read_text(encoding="utf-8"))
]


def test_the_table_has_ten_rows() -> None:
    text = (ROOT / "docs/gpu.md").read_text(encoding="utf-8")
    rows = text.partition("| to | type |")[2].partition("\n\n")[0].splitlines()[2:]
    assert len(rows) == 10
    assert len([words for page, _, words in FOUND if page == "gpu.md"]) >= 10


@pytest.mark.slow
@pytest.mark.parametrize(("page", "name", "words"), FOUND)
def test_a_command_composes(page: str, name: str, words: str) -> None:
    if name == "get":
        assert set(words.split()) <= set(table()), words
    elif name in CONFIGS:
        pairs = [word.split("=", 1) for word in shlex.split(words) if "=" in word]
        axes = {key: v if v.startswith("[") else v.split(",") for key, v in pairs}
        first = [f"{k}={v if isinstance(v, str) else v[0]}" for k, v in axes.items()]
        first = [word for word in first if not word.startswith(("hydra", "method="))]
        import streaming_asr.align.command
        import streaming_asr.data.command
        import streaming_asr.train  # noqa: F401 (they register their schemas)

        for method in axes.get("method", [None]):
            own = [] if method is None else [f"method={method}"]
            compose_raw([*own, *first], config_name=CONFIGS[name])
