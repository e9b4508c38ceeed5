"""Joined clips, the corpus speechocean762, and word times made on the way."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import soundfile
from align_fake import FakeAligner
from corpora_layouts import sound, write
from tiny import tiny_folder

from streaming_asr.align import auto
from streaming_asr.config.build import build
from streaming_asr.config.command_line import CommandLine
from streaming_asr.config.compose import compose_raw
from streaming_asr.config.settle import compose
from streaming_asr.corpora import Folder, Manifest
from streaming_asr.corpora.noise import in_room, telephone_band
from streaming_asr.corpora.speechocean762 import Speechocean762, frozen_speakers
from streaming_asr.errors import UserError
from streaming_asr.run.plan import plan
from streaming_asr.utterance import TimedWord

TEST, OTHER_TEST = "so0003", "so0044"  # frozen for test
DEV, TRAIN = "so0006", "so0001"


def clips(folder, n=6, **fields):
    """A manifest of clips of half a second, of two speakers in turn, with word times."""
    rows = []
    for i in range(n):
        sound(folder / f"c{i}.wav", 0.5, seed=i)
        row = {"audio_filepath": f"c{i}.wav", "duration": 0.5, "text": f"word{i} yes"}
        row |= {"speaker": "ab"[i % 2], "words": [[f"word{i}", 0.1, 0.2], ["yes", 0.3, 0.4]]}
        rows.append({key: value for key, value in (row | fields).items() if value is not None})
    return write(folder / "clips.jsonl", *map(json.dumps, rows))


# -- joining --------------------------------------------------------------------------------


def test_a_speakers_clips_are_joined_with_pauses_and_their_word_times(tmp_path):
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


def test_joined_recordings_are_the_same_whatever_the_order_and_the_limit(tmp_path):
    path = clips(tmp_path, 12)
    whole = {u.id: (u.text, u.words) for u in Manifest(path, join_s=1.9).utterances()}
    write(path, *reversed(path.read_text().splitlines()))
    assert {u.id: (u.text, u.words) for u in Manifest(path, join_s=1.9).utterances()} == whole
    (one,) = Manifest(path, join_s=1.9).utterances(limit=1)
    assert whole[one.id] == (one.text, one.words)


def test_a_clip_without_times_leaves_the_joined_recording_without(tmp_path):
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
def test_what_cannot_be_joined_is_refused(tmp_path, fields, join_s, message):
    with pytest.raises(UserError, match=message):
        Manifest(clips(tmp_path, **fields), join_s=join_s).utterances()


# -- speechocean762 -------------------------------------------------------------------------


def rows():
    """(part, id, speaker, text) of a tiny speechocean762."""
    yield "train", "000010011", TRAIN, "we call it bear"
    yield "train", "000060011", DEV, "the sun is up"
    yield "test", "000030012", TEST, "mark is going"
    yield "test", "000030024", TEST, "we call it bear"  # stands in train
    yield "test", "000440003", OTHER_TEST, "zero three"
    yield "test", "000020003", "so0002", "nobody looks at it"  # not frozen for test


def as_manifests(root):
    found = {"train": [], "test": []}
    for part, name, speaker, text in rows():
        file = sound(root / part / f"{name}.ogg")
        row = {"audio_filepath": f"{part}/{file.name}", "text": text, "speaker": speaker}
        found[part].append(json.dumps(row))
    for part, lines in found.items():
        write(root / f"{part}.jsonl", *lines)
    return root


def as_kaldi(root):
    files = {}
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


def as_datasets(root):
    from datasets import Audio, Dataset, DatasetDict

    parts = {}
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
def test_speechocean762_is_the_same_in_its_three_forms(tmp_path, form):
    root = form(tmp_path)

    def split(name):
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


def test_per_speaker_takes_the_first_recording_of_each_and_limit_some_of_these(tmp_path):
    speakers = sorted(frozen_speakers()["test"])[:5]
    lines = []
    for i in range(20):
        file = sound(tmp_path / f"test/{i:02d}.ogg")
        row = {"audio_filepath": f"test/{file.name}", "text": f"a {i}", "speaker": speakers[i % 5]}
        lines.append(json.dumps(row))
    write(tmp_path / "test.jsonl", *lines)
    write(tmp_path / "train.jsonl", lines[0].replace("a 0", "train").replace(speakers[0], DEV))

    def ids(limit=None, **settings):
        corpus = Speechocean762(path=tmp_path, per_speaker=1, **settings)
        return [utterance.id for utterance in corpus.utterances(limit)]

    assert ids() == ["00", "01", "02", "03", "04"]
    joined = [f"{speaker}-2s-00" for speaker in speakers]  # clips of half a second, pauses
    assert ids(join_s=2.0) == joined
    assert len(ids(3, join_s=2.0)) == 3 and set(ids(3, join_s=2.0)) < set(joined)
    with pytest.raises(UserError, match=r"data\.per_speaker=0: 1 or more"):
        Speechocean762(path=tmp_path, per_speaker=0)


def test_the_speakers_of_dev_and_test_are_frozen():
    speakers = frozen_speakers()
    assert (len(speakers["dev"]), len(speakers["test"])) == (20, 63)
    assert not speakers["dev"] & speakers["test"]


# -- word times made on the way -------------------------------------------------------------


@pytest.fixture
def aligner(tmp_path, monkeypatch):
    """A model's folder for data.align, with the fake in the place of Whisper's aligner."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(auto, "fill", filled)
    FakeAligner.asked.clear()
    return str(tiny_folder())


def filled(cache, utterances, node, *rest):
    from streaming_asr.align.command import fill

    fill(cache, utterances, {"_target_": "align_fake.FakeAligner"}, *rest)


def timed(path, limit=None, language=None, **settings):
    corpus = Manifest(path, **settings)
    auto.give_times(corpus, language)
    return corpus.utterances(limit)


def test_the_language_of_a_run_tells_what_is_timed(tmp_path, aligner):
    path = clips(tmp_path, n=1, text="今天 好", words=None)
    (few,) = timed(path, language="zh", align=aligner)
    assert [w.text for w in few.words or ()] == ["今", "天", "好"] and few.language == "zh"


def test_words_without_times_are_timed_once(tmp_path, aligner):
    path = clips(tmp_path, words=None)
    (few,) = timed(path, limit=1, align=aligner)
    assert few.words is not None and [w.text for w in few.words] == few.text.split()
    assert few.words[1] == TimedWord("yes", 0.25, 0.5)
    assert FakeAligner.asked == [few.id]
    assert all(u.words for u in timed(path, align=aligner))
    assert sorted(FakeAligner.asked) == [f"c{i}" for i in range(6)]  # each once
    assert Manifest(path).utterances()[0].words is None  # only where it is asked for


def test_the_times_of_joined_clips_are_those_of_the_clips(tmp_path, aligner):
    path = clips(tmp_path, words=None)
    for utterance in timed(path, align=aligner, join_s=20, snr_db=10):
        assert utterance.words is not None and len(utterance.words) == 6
        assert utterance.words[-1].end == pytest.approx(utterance.duration_s)


def test_a_clip_that_cannot_be_aligned_is_named_and_stays(tmp_path, aligner, capsys):
    path = clips(tmp_path, 2, text="bad word", words=None)
    assert [u.words for u in timed(path, align=aligner)] == [None, None]
    assert "no word times: c0: bad" in capsys.readouterr().err


def test_times_that_a_corpus_brings_stay(tmp_path, aligner):
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
    tmp_path, monkeypatch, languages, run, aligner
):
    monkeypatch.setattr(auto, "find", lambda path: SimpleNamespace(folder=tiny_folder()))
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
    tmp_path, monkeypatch, is_there, remedy
):
    if not is_there:  # neither the hub nor a package has tiny.en
        for place in ("cached", "find_packaged"):
            monkeypatch.setattr(f"streaming_asr.models.find.{place}", lambda *_: None)
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    else:
        monkeypatch.setattr(auto, "find", lambda path: SimpleNamespace(folder=tiny_folder()))
        monkeypatch.setattr(auto.english, "weights_hash", lambda path: None)
        monkeypatch.setattr(auto.english, "HOME", tmp_path / "aligner")
    with pytest.raises(UserError, match=f"(?s)^data.align=auto: .*{remedy}"):
        auto.AutoAligner.choose("auto", {"en"})


def test_a_model_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"data.align=/nowhere/model: "):
        timed(clips(tmp_path, words=None), align="/nowhere/model")


# -- The noise axis: noise at a ratio, the same in every run --


def write_samples(path, samples):
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, np.asarray(samples), 16_000, subtype="FLOAT")
    return path


@pytest.fixture
def corpus(tmp_path):
    """Two utterances of a second, a tone each."""
    times = np.arange(16_000) / 16_000
    for name, hz in (("a", 300), ("b", 500)):
        write_samples(tmp_path / "corpus" / f"{name}.wav", 0.1 * np.sin(2 * np.pi * hz * times))
        (tmp_path / "corpus" / f"{name}.txt").write_text("x")
    return tmp_path / "corpus"


def ratio_db(clean, noisy):
    clean = clean.astype(np.float64)
    return float(10 * np.log10(np.mean(clean**2) / np.mean((noisy - clean) ** 2)))


def test_a_clean_corpus_gets_noise_at_each_ratio_of_a_sweep(corpus):
    command = ["method=offline", "data=folder", f"data.path={corpus}", "data.snr_db=20,10,5,0"]
    planned = plan(CommandLine(["-m", *command, "output=none"])).cells
    assert [cell.config.data.snr_db for cell in planned] == [20, 10, 5, 0]
    assert [cell.folder.name.rpartition("=")[2] for cell in planned] == ["20", "10", "5", "0"]
    clean = [utterance.load() for utterance in Folder(corpus).utterances()]
    first = [u.load() for u in build(planned[0].config.data).utterances()]
    for cell in planned:
        noisy = [u.load() for u in build(cell.config.data).utterances()]
        for dry, wet in zip(clean, noisy, strict=True):
            assert ratio_db(dry, wet) == pytest.approx(cell.config.data.snr_db, abs=0.05)
        again = [u.load() for u in build(cell.config.data).utterances()]
        assert all(np.array_equal(one, other) for one, other in zip(noisy, again, strict=True))
        # The noise is the same at every ratio, and another for every utterance.
        noise = [wet - dry for dry, wet in zip(clean, noisy, strict=True)]
        for dry, wet, here in zip(clean, first, noise, strict=True):
            assert np.corrcoef(wet - dry, here)[0, 1] > 0.999
        assert abs(np.corrcoef(noise[0], noise[1])[0, 1]) < 0.2


def test_mini_takes_a_ratio_on_clean_and_keeps_its_own_kinds_on_other():
    for split, kinds in (("clean", {"pink"}), ("other", {"pink"})):
        data = compose(["model=mini", f"data.split={split}", "data.snr_db=5", "data.noise=pink",
                        "method=offline"]).data  # fmt: skip
        audio = [utterance.audio for utterance in build(data).utterances()]
        assert {each.kind for each in audio} == kinds
        assert {each.snr_db for each in audio} == {5}
    data = compose(["model=mini", "data.split=other", "data.snr_db=5", "method=offline"]).data
    assert len({utterance.audio.kind for utterance in build(data).utterances()}) > 1


def test_wrong_noise_is_refused_before_anything_is_loaded(corpus):
    with pytest.raises(UserError, match=r"data\.noise='rain': one of babble, hum, pink, white"):
        Folder(corpus, snr_db=5, noise="rain").utterances()
    with pytest.raises(UserError, match=r"noise=pink: a has no ratio .* data.snr_db=10"):
        Folder(corpus, noise="pink").utterances()
    with pytest.raises(UserError, match=r"snr_db=nan: not a ratio"):
        Folder(corpus, snr_db=float("nan")).utterances()


# -- rooms and telephones -----------------------------------------------------------------------


@pytest.mark.parametrize("n", [997, 16_001, 48_017])  # lengths with large prime factors
def test_a_room_is_the_sum_of_its_echoes_at_any_length(n):
    rng = np.random.default_rng(n)
    samples = (0.1 * rng.standard_normal(n)).astype(np.float32)
    reverberation_s, seed = 0.2, 3
    rng = np.random.default_rng(seed)
    t = np.arange(int(reverberation_s * 16_000)) / 16_000
    tail = rng.standard_normal(len(t)) * 10 ** (-3 * t / reverberation_s) * (t > 0.006)
    tail *= 10 ** (-rng.uniform(0, 12) / 20) / np.sqrt(np.sum(tail**2))
    tail[0] = 1.0
    expected = np.convolve(samples.astype(np.float64), tail)[:n]
    expected *= np.sqrt(np.mean(samples.astype(np.float64) ** 2) / np.mean(expected**2))
    heard = in_room(samples, reverberation_s, seed)
    assert np.abs(heard - expected).max() < 1e-6 * np.abs(expected).max()


@pytest.mark.parametrize("n", [1, 997, 16_001, 48_017])
def test_a_fast_telephone_is_the_other_within_rounding(n):
    noise = (0.1 * np.random.default_rng(n).standard_normal(n)).astype(np.float32)
    plain, fast = telephone_band(noise), telephone_band(noise, fast=True)
    assert fast.shape == (n,) and fast.dtype == np.float32
    assert np.abs(plain - fast).max() < 5e-5 * np.abs(noise).max()


def test_the_telephone_of_frozen_recordings_keeps_its_samples():
    # data=trials and the dev set are made with it; here it is the sum over all frequencies
    n = 401  # prime
    noise = np.random.default_rng(0).standard_normal(n).astype(np.float32)
    k = np.arange(n // 2 + 1)
    gain = np.interp(k * 16_000 / n, [200, 300, 3400, 3600], [0.01, 1.0, 1.0, 0.01])
    waves = np.exp(2j * np.pi * np.outer(np.arange(n), k) / n)
    parts = (noise.astype(np.float64) @ waves.conj()) * gain * np.where(k == 0, 1, 2)
    assert np.abs(telephone_band(noise) - (waves @ parts).real / n).max() < 1e-6
