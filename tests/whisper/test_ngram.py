"""The language model of the first pass: what KenLM reads, and the folders that are refused."""

from __future__ import annotations

import json
import lzma
import math
import sys
from pathlib import Path

import pytest

from streaming_asr.errors import UserError
from streaming_asr.whisper.ngram import Ngram, fusion_of, load_ngram, vocabulary_hash

SPELLINGS = [b"a", b"b", b" a"]
# p(0) = 1/2, p(1) = 1/4, p(2) is that of what is not there, 1/10; p(0 | <s>) = 4/5 and
# p(1 | 0) = 2/5 are learned, what else follows <s> or 0 backs off with 1/2.
ARPA = """\\data\\
ngram 1=5
ngram 2=2

\\1-grams:
-1.0\t<unk>
-99\t<s>\t-0.30103
-0.60206\t</s>
-0.30103\t0\t-0.30103
-0.60206\t1

\\2-grams:
-0.09691\t<s> 0
-0.39794\t0 1

\\end\\
"""


def write(folder: Path, arpa: str = ARPA, card: str | None = None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    told = json.dumps({"vocabulary": vocabulary_hash(SPELLINGS)})
    (folder / "lm.json").write_text(told if card is None else card)
    (folder / "lm.arpa.xz").write_bytes(lzma.compress(arpa.encode()))
    return folder


def test_probabilities_are_those_of_the_table_and_of_what_it_backs_off_to(tmp_path: Path) -> None:
    model = load_ngram(str(write(tmp_path)), None)
    assert model is not None
    start = model.start()
    behind_0 = model.after(start, 0)
    found = [
        [math.exp(model.score(state, token)) for token in range(3)]
        for state in (start, behind_0, model.after(behind_0, 1))
    ]
    assert found[0] == pytest.approx([0.8, 0.5 * 0.25, 0.5 * 0.1], rel=1e-4)
    assert found[1] == pytest.approx([0.5 * 0.5, 0.4, 0.5 * 0.1], rel=1e-4)
    assert found[2] == pytest.approx([0.5, 0.25, 0.1], rel=1e-4)


def test_auto_is_the_model_beside_the_weights_and_none_is_none(tmp_path: Path) -> None:
    write(tmp_path / "weights" / "lm")
    model = load_ngram("auto", tmp_path / "weights")
    assert isinstance(model, Ngram) and model.folder == tmp_path / "weights" / "lm"
    assert load_ngram("none", tmp_path) is load_ngram(None, None) is None
    assert fusion_of(None, SPELLINGS, 0.7, 3.0) is None
    with pytest.raises(UserError, match="there are none; name a folder"):
        load_ngram("auto", None)


def test_the_vocabulary_is_bytes_and_order() -> None:
    one = vocabulary_hash(SPELLINGS)
    assert one == vocabulary_hash(list(SPELLINGS))
    others = [SPELLINGS[:2], [*SPELLINGS, b"c"], [b"b", b"a", b" a"], [b"a", b"b ", b"a"]]
    assert len({one, *map(vocabulary_hash, others)}) == 5


def test_a_model_of_another_vocabulary_is_refused(tmp_path: Path) -> None:
    model = load_ngram(str(write(tmp_path)), None)
    assert fusion_of(model, SPELLINGS, 0.7, 3.0) is not None
    with pytest.raises(UserError, match=r"another vocabulary than the 2 classes.*language_model"):
        fusion_of(model, SPELLINGS[:2], 0.7, 3.0)
    with pytest.raises(UserError, match="lm_weight=-1: 0 or more"):
        fusion_of(model, SPELLINGS, -1, 3.0)


@pytest.mark.parametrize(
    ("name", "content", "answer"),
    [
        ("lm.json", None, "there is no .*lm.json; build one with"),
        ("lm.arpa.xz", None, "there is no .*lm.arpa.xz; build one with"),
        ("lm.json", b"{", "names no vocabulary"),
        ("lm.json", b"[1]", "names no vocabulary"),
        ("lm.json", b"{}", "names no vocabulary"),
        ("lm.arpa.xz", b"", "lm.arpa.xz: damaged"),
        ("lm.arpa.xz", ARPA.encode(), "lm.arpa.xz: damaged"),
        ("lm.arpa.xz", lzma.compress(ARPA.encode())[:-30], "lm.arpa.xz: damaged"),
        ("lm.arpa.xz", lzma.compress(ARPA[:150].encode()), "lm.arpa.xz: damaged"),
        ("lm.arpa.xz", lzma.compress(b"hello"), "lm.arpa.xz: damaged"),
    ],
)
def test_a_folder_without_a_whole_model_is_refused(
    tmp_path: Path, name: str, content: bytes | None, answer: str
) -> None:
    file = write(tmp_path) / name
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UserError, match=answer) as refusal:
        load_ngram(str(tmp_path), None)
    assert "method.lm=none" in str(refusal.value)


def test_without_kenlm_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kenlm", None)
    with pytest.raises(UserError, match=r"pip install -e '\.\[lm\]'"):
        load_ngram(str(write(tmp_path)), None)
