"""Every text file of every corpus, damaged: an error that names it, never another exception."""

import pickle
import random

import corpora_layouts as layouts
import numpy as np
import pytest
from corpora_layouts import write

from streaming_asr.config.build import build
from streaming_asr.config.compose import compose_raw
from streaming_asr.corpora.shards import read_shards
from streaming_asr.errors import UserError
from streaming_asr.utterance import Utterance

TEXTS = {".tsv", ".csv", ".txt", ".stm", ".json", ".jsonl", ".TextGrid", ""}
CORPORA = {
    "librispeech": (layouts.librispeech, []),
    "tedlium": (layouts.tedlium, []),
    "mls": (layouts.mls, ["language=german"]),
    "common_voice": (layouts.common_voice, []),
    "nemo": (layouts.nemo, []),
    "kaldi": (layouts.kaldi, []),
}
DAMAGE = {
    "UTF-16": lambda content: content.decode().encode("utf-16"),
    "Latin-1": lambda content: content + b"\xe9t\xe9\n",
    "cut": lambda content: content[: len(content) // 2],
    "empty": lambda content: b"",
    "other columns": lambda content: b"a\tb\tc\n1\t2\t3\n",
    "zeros": lambda content: bytes(len(content)),
}


def found_in(name, root, settings):
    """The utterances of a corpus, and its errors in their places."""
    overrides = [f"data={name}", f"data.path={root}", *(f"data.{each}" for each in settings)]
    try:
        return list(build(compose_raw(overrides).data).scan())
    except UserError as error:
        return [error]


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("name", CORPORA)
def test_a_damaged_table_is_an_error_that_names_it(name, damage, tmp_path):
    layout, settings = CORPORA[name]
    root = layout(tmp_path)
    texts = [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix in TEXTS]
    assert texts
    for path in texts:
        whole = path.read_bytes()
        path.write_bytes(DAMAGE[damage](whole))
        found = found_in(name, root, settings)
        path.write_bytes(whole)
        errors = [str(each) for each in found if isinstance(each, UserError)]
        assert all("\n" not in error for error in errors)
        if damage == "UTF-16" and errors:
            assert any(str(path) in error and "convert it to UTF-8" in error for error in errors)
    assert not any(isinstance(each, UserError) for each in found_in(name, root, settings))


def test_a_length_of_common_voice_that_is_none_is_unknown(tmp_path):
    root = layouts.common_voice(tmp_path)
    durations = root / "clip_durations.tsv"
    for length in ("", "nan", "-1", "soon", "1e999"):
        write(durations, "clip\tduration[ms]", f"common_voice_de_1.mp3\t{length}")
        (first, *_) = found_in("common_voice", root, [])
        assert isinstance(first, Utterance) and first.duration_s == 0.0


# -- shards ---------------------------------------------------------------------------------------


def shard(folder, content):
    write(
        folder / "shard-000.jsonl",
        '{"id": "a", "offset": 0, "n": 8000, "text": "Hi", "speaker": "s", "words": []}',
    )
    (folder / "shard-000.npy").write_bytes(content)
    return folder


def npy(folder, array):
    np.save(folder / "x.npy", array, allow_pickle=True)
    return (folder / "x.npy").read_bytes()


@pytest.mark.parametrize(
    "array",
    [
        np.zeros(8000, np.float32),
        np.zeros((8000, 1), np.int16),
        np.zeros(8000, np.int64),
        np.array([object()] * 3),
    ],
    ids=["float", "two dimensions", "int64", "objects"],
)
def test_a_shard_of_other_numbers_is_refused(array, tmp_path):
    (tmp_path / "shards").mkdir()
    shards = shard(tmp_path / "shards", npy(tmp_path, array) if array.dtype != object else b"")
    if array.dtype == object:
        content = pickle.dumps([1, 2])  # what numpy would have to unpickle
        (tmp_path / "shards" / "shard-000.npy").write_bytes(content)
    with pytest.raises(UserError, match=r"shard-000\.npy: .*write the shards again"):
        read_shards(shards)


@pytest.mark.filterwarnings("ignore:Reading `.npy`")
def test_a_shard_with_any_damage_to_its_header_is_read_or_refused(tmp_path):
    (tmp_path / "shards").mkdir()
    whole = npy(tmp_path, np.arange(8000, dtype=np.int16))
    shards = shard(tmp_path / "shards", whole)
    chance = random.Random(0)
    for _ in range(300):
        content = bytearray(whole)
        at = chance.randrange(128)
        if chance.random() < 0.3:
            content = content[: chance.randrange(len(content))]
        else:
            content[at : at + chance.randrange(4)] = chance.randbytes(chance.randrange(4))
        (tmp_path / "shards" / "shard-000.npy").write_bytes(content)
        try:
            (item,) = read_shards(shards)
        except UserError as error:
            assert "shard-000" in str(error)
        else:
            assert item.samples().shape == (8000,)
    (tmp_path / "shards" / "shard-000.npy").unlink()
    with pytest.raises(UserError, match="write the shards again"):
        read_shards(shards)


# -- what is given in place of recordings ---------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("all.tsv", "a table, not a recording; a corpus of your own is a .jsonl"),
        ("all.CSV", "a table, not a recording"),
        ("corpus/wav.scp", "no audio in it, but wav.scp; give data=kaldi"),
        ("corpus/test.jsonl", "but test.jsonl; give data=manifest data.path=FILE"),
        ("corpus/notes.txt", "no audio in it; endings read"),
    ],
)
def test_a_corpus_of_another_kind_is_named_and_no_damaged_sound(name, remedy, tmp_path):
    file = write(tmp_path / name, "u1 a.wav")
    (error,) = found_in("folder", file if file.parent == tmp_path else file.parent, [])
    assert remedy in str(error)


def test_a_manifest_with_other_names_is_answered_with_both(tmp_path):
    file = write(tmp_path / "m.jsonl", '{"path": "a.wav", "sentence": "hello"}')
    (error,) = found_in("manifest", file, [])
    assert "no `text`; it has `path`, `sentence`; write the reference" in str(error)
