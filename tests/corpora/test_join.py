"""Joined clips, the corpus speechocean762, and word times made on the way."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from align_fake import FakeAligner
from corpora_layouts import sound, write
from tiny import tiny_folder

from streaming_asr.align import auto
from streaming_asr.config.build import build
from streaming_asr.config.compose import compose_raw
from streaming_asr.corpora import Manifest
from streaming_asr.corpora.speechocean762 import Speechocean762, frozen_speakers
from streaming_asr.errors import UserError
from streaming_asr.utterance import TimedWord, Utterance

TEST, OTHER_TEST = "so0003", "so0044"  # frozen for test
DEV, TRAIN = "so0006", "so0001"


def clips(folder: Path, n: int = 6, **fields: Any) -> Path:
    """A manifest of clips of half a second, of two speakers in turn, with word times."""
    rows = []
    for i in range(n):
        sound(folder / f"c{i}.wav", 0.5, seed=i)
        row = {"audio_filepath": f"c{i}.wav", "duration": 0.5, "text": f"word{i} yes"}
        row |= {"speaker": "ab"[i % 2], "words": [[f"word{i}", 0.1, 0.2], ["yes", 0.3, 0.4]]}
        rows.append({key: value for key, value in (row | fields).items() if value is not None})
    return write(folder / "clips.jsonl", *map(json.dumps, rows))


# -- joining --------------------------------------------------------------------------------


def test_a_speakers_clips_are_joined_with_pauses_and_their_word_times(tmp_path: Path) -> None:
    path = clips(tmp_path)
    apart = {u.text: u for u in Manifest(path).utterances()}
    joined = Manifest(path, join_s=2.5).utterances()
    assert sorted({u.id.rpartition("-")[0] for u in joined}) == ["a-2.5s", "b-2.5s"]
    assert sum(len(u.text.split()) for u in joined) == 12
    for utterance in joined:
        assert utterance.words is not None and utterance.duration_s <= 2.5
        samples = utterance.load()
        assert len(samples) == round(utterance.duration_s * 16_000)
        ends = 0.0
        for word, answer in zip(utterance.words[::2], utterance.words[1::2], strict=True):
            clip = apart[f"{word.text} yes"]
            assert clip.speaker == utterance.speaker
            begin_s = word.start - 0.1
            assert answer.end == pytest.approx(begin_s + 0.4)
            assert begin_s == 0.0 or 0.3 <= begin_s - ends <= 0.8
            begin, ends = round(begin_s * 16_000), begin_s + 0.5
            np.testing.assert_array_equal(samples[begin : begin + 8000], clip.load())
            assert not samples[begin + 8000 : begin + 8000 + 4000].any()


def test_joined_recordings_are_the_same_whatever_the_order_and_the_limit(tmp_path: Path) -> None:
    path = clips(tmp_path, 12)
    whole = {u.id: (u.text, u.words) for u in Manifest(path, join_s=1.9).utterances()}
    write(path, *reversed(path.read_text().splitlines()))
    assert {u.id: (u.text, u.words) for u in Manifest(path, join_s=1.9).utterances()} == whole
    (one,) = Manifest(path, join_s=1.9).utterances(limit=1)
    assert whole[one.id] == (one.text, one.words)


def test_a_clip_without_times_leaves_the_joined_recording_without(tmp_path: Path) -> None:
    path = clips(tmp_path, words=None)
    assert all(u.words is None for u in Manifest(path, join_s=20).utterances())


@pytest.mark.parametrize(
    ("fields", "join_s", "message"),
    [
        ({"speaker": None}, 20.0, "c0 names no speaker"),
        ({}, -1.0, r"data.join_s=-1.0: a length in seconds"),
        ({}, float("nan"), r"data.join_s=nan: a length in seconds"),
        ({"noise": {"kind": "pink", "snr_db": 5, "seed": 1}}, 20.0, "c0 has noise of its own"),
    ],
)
def test_what_cannot_be_joined_is_refused(
    tmp_path: Path, fields: dict[str, Any], join_s: float, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        Manifest(clips(tmp_path, **fields), join_s=join_s).utterances()


# -- speechocean762 -------------------------------------------------------------------------


def rows() -> Iterator[tuple[str, str, str, str]]:
    """(part, id, speaker, text) of a tiny speechocean762."""
    yield "train", "000010011", TRAIN, "we call it bear"
    yield "train", "000060011", DEV, "the sun is up"
    yield "test", "000030012", TEST, "mark is going"
    yield "test", "000030024", TEST, "we call it bear"  # stands in train
    yield "test", "000440003", OTHER_TEST, "zero three"
    yield "test", "000020003", "so0002", "nobody looks at it"  # not frozen for test


def as_manifests(root: Path) -> Path:
    found: dict[str, list[str]] = {"train": [], "test": []}
    for part, name, speaker, text in rows():
        file = sound(root / part / f"{name}.ogg")
        row = {"audio_filepath": f"{part}/{file.name}", "text": text, "speaker": speaker}
        found[part].append(json.dumps(row))
    for part, lines in found.items():
        write(root / f"{part}.jsonl", *lines)
    return root


def as_kaldi(root: Path) -> Path:
    files: dict[tuple[str, str], list[str]] = {}
    for part, name, speaker, text in rows():
        number = speaker.removeprefix("so")
        place = f"WAVE/SPEAKER{number}/{name}.WAV"
        (root / place).parent.mkdir(parents=True, exist_ok=True)
        sound(root / "x.wav").rename(root / place)
        for file, line in (
            ("wav.scp", f"{name}\t{place}"),
            ("text", f"{name}\t{text.upper()}"),
            ("utt2spk", f"{name}\t{number}"),
        ):
            files.setdefault((part, file), []).append(line)
    for (part, file), lines in files.items():
        write(root / part / file, *lines)
    return root


def as_datasets(root: Path) -> Path:
    from datasets import Audio, Dataset, DatasetDict

    parts: dict[str, dict[str, list[Any]]] = {}
    for part, name, speaker, text in rows():
        content = sound(root / f"{name}.wav").read_bytes()
        row = {
            "text": text.upper(),
            "speaker": speaker.removeprefix("so"),
            "audio": {"bytes": content, "path": f"{name}.WAV"},
        }
        for key, value in row.items():
            parts.setdefault(part, {}).setdefault(key, []).append(value)
    tables = {
        part: Dataset.from_dict(columns).cast_column("audio", Audio(decode=False))
        for part, columns in parts.items()
    }
    DatasetDict(tables).save_to_disk(str(root / "saved"))
    return root / "saved"


@pytest.mark.parametrize("form", [as_manifests, as_kaldi, as_datasets])
def test_speechocean762_is_the_same_in_its_three_forms(tmp_path: Path, form: Any) -> None:
    root = form(tmp_path)

    def split(name: str) -> list[tuple[Any, ...]]:
        overrides = ["data=speechocean762", f"data.path={root}", f"data.split={name}"]
        corpus = build(compose_raw([*overrides, "data.align=none"]).data)
        found = corpus.utterances()
        assert all(u.load().shape == (8000,) and u.language == "en" for u in found)
        return [(u.id, u.speaker, u.text) for u in found]

    assert split("train") == [("000010011", TRAIN, "we call it bear")]
    assert split("dev") == [("000060011", DEV, "the sun is up")]
    assert split("test") == [
        ("000030012", TEST, "mark is going"),
        ("000440003", OTHER_TEST, "zero three"),
    ]


def test_per_speaker_takes_the_first_recording_of_each_and_limit_some_of_these(
    tmp_path: Path,
) -> None:
    speakers = sorted(frozen_speakers()["test"])[:5]
    lines = []
    for i in range(20):
        file = sound(tmp_path / f"test/{i:02d}.ogg")
        row = {"audio_filepath": f"test/{file.name}", "text": f"a {i}", "speaker": speakers[i % 5]}
        lines.append(json.dumps(row))
    write(tmp_path / "test.jsonl", *lines)
    write(tmp_path / "train.jsonl", lines[0].replace("a 0", "train").replace(speakers[0], DEV))

    def ids(limit: int | None = None, **settings: Any) -> list[str]:
        corpus = Speechocean762(path=tmp_path, per_speaker=1, **settings)
        return [utterance.id for utterance in corpus.utterances(limit)]

    assert ids() == ["00", "01", "02", "03", "04"]
    joined = [f"{speaker}-2s-00" for speaker in speakers]  # clips of half a second, pauses
    assert ids(join_s=2.0) == joined
    assert len(ids(3, join_s=2.0)) == 3 and set(ids(3, join_s=2.0)) < set(joined)
    with pytest.raises(UserError, match=r"data\.per_speaker=0: 1 or more"):
        Speechocean762(path=tmp_path, per_speaker=0)


def test_the_speakers_of_dev_and_test_are_frozen() -> None:
    speakers = frozen_speakers()
    assert (len(speakers["dev"]), len(speakers["test"])) == (20, 63)
    assert not speakers["dev"] & speakers["test"]


# -- word times made on the way -------------------------------------------------------------


@pytest.fixture
def aligner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A model's folder for data.align, with the fake in the place of Whisper's aligner."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(auto, "fill", filled)
    FakeAligner.asked.clear()
    return str(tiny_folder())


def filled(cache: Any, utterances: Any, node: Any, *rest: Any) -> None:
    from streaming_asr.align.command import fill

    fill(cache, utterances, {"_target_": "align_fake.FakeAligner"}, *rest)  # type: ignore[arg-type]


def timed(
    path: Path, limit: int | None = None, language: str | None = None, **settings: Any
) -> list[Utterance]:
    corpus = Manifest(path, **settings)
    auto.give_times(corpus, language)
    return corpus.utterances(limit)


def test_the_language_of_a_run_tells_what_is_timed(tmp_path: Path, aligner: str) -> None:
    path = clips(tmp_path, n=1, text="今天 好", words=None)
    (few,) = timed(path, language="zh", align=aligner)
    assert [w.text for w in few.words or ()] == ["今", "天", "好"] and few.language == "zh"


def test_words_without_times_are_timed_once(tmp_path: Path, aligner: str) -> None:
    path = clips(tmp_path, words=None)
    (few,) = timed(path, limit=1, align=aligner)
    assert few.words is not None and [w.text for w in few.words] == few.text.split()
    assert few.words[1] == TimedWord("yes", 0.25, 0.5)
    assert FakeAligner.asked == [few.id]
    assert all(u.words for u in timed(path, align=aligner))
    assert sorted(FakeAligner.asked) == [f"c{i}" for i in range(6)]  # each once
    assert Manifest(path).utterances()[0].words is None  # only where it is asked for


def test_the_times_of_joined_clips_are_those_of_the_clips(tmp_path: Path, aligner: str) -> None:
    path = clips(tmp_path, words=None)
    for utterance in timed(path, align=aligner, join_s=20, snr_db=10):
        assert utterance.words is not None and len(utterance.words) == 6
        assert utterance.words[-1].end == pytest.approx(utterance.duration_s)


def test_a_clip_that_cannot_be_aligned_is_named_and_stays(
    tmp_path: Path, aligner: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = clips(tmp_path, 2, text="bad word", words=None)
    assert [u.words for u in timed(path, align=aligner)] == [None, None]
    assert "no word times: c0: bad" in capsys.readouterr().err


def test_times_that_a_corpus_brings_stay(tmp_path: Path, aligner: str) -> None:
    found = timed(clips(tmp_path), align=aligner)
    assert found[0].words == (TimedWord("word0", 0.1, 0.2), TimedWord("yes", 0.3, 0.4))
    assert FakeAligner.asked == []


@pytest.mark.parametrize(
    ("languages", "run", "aligner"),
    [
        (["en", "en"], None, "ctc-tiny.en"),
        ([None, None], None, "ctc-tiny.en"),  # what names no language is English
        (["en", None], "detect", "ctc-tiny.en"),
        ([None, None], "detect", "whisper-base"),  # nobody knows what it is
        (["fr", "fr"], None, "whisper-base"),
        (["fr", None], "detect", "whisper-base"),
        (["en", "fr"], None, "whisper-base"),  # one aligner per corpus
        ([None, None], "fr", "whisper-base"),
        (["fr", "fr"], "en", "ctc-tiny.en"),  # what the run decodes is English
    ],
)
def test_the_aligner_follows_the_languages_of_the_corpus_and_the_run(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    languages: list[str | None],
    run: str | None,
    aligner: str,
) -> None:
    monkeypatch.setattr(auto, "locate", lambda path: str(tiny_folder()))
    monkeypatch.setattr(auto.english, "branch_folder", lambda path: None)
    sound(tmp_path / "a.wav", 2.0)
    rows = [
        json.dumps({"id": f"c{i}", "audio_filepath": "a.wav", "text": "one", "language": language})
        for i, language in enumerate(languages)
    ]
    corpus = Manifest(write(tmp_path / "m.jsonl", *rows), align="auto")
    chosen = auto.give_times(corpus, run)
    assert chosen is not None and chosen.name.startswith(f"{aligner} ")


@pytest.mark.parametrize(
    ("is_there", "remedy"),
    [(True, "install the package again"), (False, "streaming-asr get tiny.en")],
)
def test_an_aligner_that_is_not_there_is_no_reason_to_take_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_there: bool, remedy: str
) -> None:
    if not is_there:  # neither the hub nor a package has tiny.en
        for place in ("_cached", "find_packaged"):
            monkeypatch.setattr(f"streaming_asr.models.find.{place}", lambda *_: None)
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    else:
        monkeypatch.setattr(auto, "locate", lambda path: str(tiny_folder()))
        monkeypatch.setattr(auto.english, "weights_hash", lambda path: None)
        monkeypatch.setattr(auto.english, "HOME", tmp_path / "aligner")
    with pytest.raises(UserError, match=f"(?s)^data.align=auto: .*{remedy}"):
        auto.AutoAligner.choose("auto", {"en"})


def test_a_model_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"data.align=/nowhere/model: "):
        timed(clips(tmp_path, words=None), align="/nowhere/model")
