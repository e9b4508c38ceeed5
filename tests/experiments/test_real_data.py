"""Natural speech to train on: packages, sentences, words' times, voices, resuming."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
from corpora_layouts import text_grid
from safetensors import safe_open

import streaming_asr
from experiments.real.labels import labelled
from experiments.real.packages import Package, obtain
from experiments.real.sentences import (
    addresses,
    examples,
    for_training,
    reserved,
    said_as_written,
    split,
    words_of,
)
from experiments.real.spoken_text import spoken, spoken_text
from experiments.real.training_set import program
from experiments.real.voices_set import ENGLISH, SOURCES, write
from experiments.real.voices_set import program as make_voices_set
from streaming_asr.corpora.lists import speaker_hash
from streaming_asr.corpora.manifest import read_manifest
from streaming_asr.corpora.obtain import HOST
from streaming_asr.corpora.shards import read_shards
from streaming_asr.corpora.speechocean762 import frozen_speakers
from streaming_asr.errors import UserError
from streaming_asr.utterance import TimedWord, Utterance


def package(content, registry="PyPI", name="spoken"):
    return Package(registry, name, "1.0", hashlib.sha256(content).hexdigest(), "free")


def wheel(**files):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, text in files.items():
            archive.writestr(f"spoken/{name}", text)
    return made.getvalue()


class Registry:
    """Gives the same bytes for every package and counts how often."""

    def __init__(self, content: bytes, name: str) -> None:
        self.content, self.name, self.asked = content, name, 0

    def __call__(self, package: Package, folder: Path) -> Path:
        self.asked += 1
        file = folder / self.name
        file.write_bytes(self.content)
        return file


def test_a_package_is_unpacked_into_the_cache_and_downloaded_once(tmp_path):
    content = wheel(word="hello")
    registry = Registry(content, "spoken-1.0-py3-none-any.whl")
    for _ in range(2):
        folder = obtain(package(content), tmp_path, registry)
        assert (folder / "spoken/word").read_text() == "hello"
    assert registry.asked == 1
    assert [file.name for file in tmp_path.iterdir()] == ["spoken-1.0"]


def test_an_archive_of_npm_is_unpacked_too(tmp_path):
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        entry = tarfile.TarInfo("package/word")
        entry.size = 5
        archive.addfile(entry, io.BytesIO(b"hello"))
    content = made.getvalue()
    wanted = package(content, "npm", "@scope/spoken")
    folder = obtain(wanted, tmp_path, Registry(content, "scope-spoken-1.0.tgz"))
    assert folder == tmp_path / "scope-spoken-1.0"
    assert (folder / "package/word").read_text() == "hello"
    assert wanted.command == ["npm", "pack", "--silent", "@scope/spoken@1.0"]


def test_a_package_with_another_hash_is_refused_and_nothing_is_left(tmp_path):
    registry = Registry(wheel(word="other"), "spoken-1.0-py3-none-any.whl")
    with pytest.raises(UserError, match="the registry gave another file"):
        obtain(package(wheel(word="hello")), tmp_path, registry)
    assert list(tmp_path.iterdir()) == []


def test_running_text_is_split_into_sentences_with_dashes_as_commas():
    assert split("Mr. Hill spoke. It’s late -- he left — now.  Why? He was ill.") == [
        "Mr. Hill spoke.",
        "It's late, he left, now.",
        "Why?",
        "He was ill.",
    ]


def test_a_sentence_that_may_be_read_otherwise_is_left_out():
    plain = ["Mr. Hill, I can't stay until noon.", "A mother's work is never done; is it?"]
    otherwise = [
        "We spent 12 dollars on it.",
        "They met with NATO last year.",
        "It was Title IX of it.",
        "He lives in the U.S. of America.",
        "It was led by Gen.",
        'He said "go" to all of us.',
        "This is well-known to all of us.",
        "Go away now.",
        "and this goes on without a start.",
        "It ends without a stop",
    ]
    assert [each for each in (*plain, *otherwise) if said_as_written(each)] == plain


def test_training_has_each_sentence_once_and_none_that_is_kept_for_tests():
    sentences = [f"Take {n} of them now." for n in ("one", "two", "three", "four", "five", "six")]
    sentences += [f"Give {n} of them now." for n in "abcdefghijklmnopqrstuvwxyz"]
    chosen = for_training([*sentences, *(s.replace(" of", ", of") for s in sentences)])
    assert {words_of(s) for s in chosen} == {words_of(s) for s in sentences if not reserved(s)}
    assert len(chosen) == len({words_of(s) for s in chosen}) < len(sentences)


def test_the_packages_sentences_are_read_as_they_lie_there(tmp_path):
    spoken = tmp_path / "package/data/1962_john_f_kennedy_d.txt"
    spoken.parent.mkdir(parents=True)
    spoken.write_text("We meet again this week. In 1961 we did so. Peace is our only aim.")
    data = tmp_path / "package/dict/data.noun"
    data.parent.mkdir()
    lines = ('a pet; "the cat sat on the mat"; "a cat - Poe"', 'it; "did he go home at last?"')
    data.write_text("".join(f"1 n 02 cat 0 | {line}\n" for line in lines))
    assert addresses(tmp_path) == {1962: ["We meet again this week.", "Peace is our only aim."]}
    assert examples(tmp_path) == ["The cat sat on the mat.", "Did he go home at last?"]


# -- What WhisperRT on real Whisper is trained and chosen on --


def utterance(text, words=None, speaker=None):
    return Utterance("a", text, lambda: np.zeros(0, np.float32), 1.0, words=words, speaker=speaker)


def clips(folder, name, speakers):
    """A manifest of clips of noise of 6 s that say "so it is"."""
    folder.mkdir()
    rows = []
    for i, speaker in enumerate(speakers):
        audio = np.random.default_rng(i).normal(0, 0.1, 6 * 16_000)
        soundfile.write(folder / f"{i}.wav", audio, 16_000)
        row = {"audio_filepath": f"{i}.wav", "text": "so it is", "speaker": speaker}
        words = [["so", 0.5, 1.0], ["it", 1.0, 1.5], ["is", 1.5, 2.0]]
        rows.append({**row, "duration": 6.0, "words": words})
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_held_out_voices_and_dev_speakers_are_not_trained_on(tmp_path):
    voices = ["am_adam", "af_sky*0.5+am_adam", "af_river", "hibari_heart", "af_sky*1+af_river"]
    speech = clips(tmp_path / "speech", "manifest.jsonl", voices) / "manifest.jsonl"
    dev_speaker = min(frozen_speakers()["dev"])
    human = clips(tmp_path / "human", "train.jsonl", ["so0001", dev_speaker, dev_speaker])
    given = ["--speech", str(speech), "--speechocean762", str(human)]
    program([*given, "--out", str(tmp_path / "out")])
    items = read_shards(tmp_path / "out" / "shards")
    assert [item.speaker for item in items] == ["am_adam", "hibari_heart", "so0001"]
    assert items[-1].text == "So it is."


def test_sound_has_what_has_no_times_or_no_text_too(tmp_path, capsys):
    speech = clips(tmp_path / "speech", "manifest.jsonl", ["a", "b"]) / "manifest.jsonl"
    rows = [json.loads(line) for line in speech.read_text().splitlines()]
    rows[1]["words"] = None
    speech.write_text("".join(json.dumps(row) + "\n" for row in rows))
    sound = clips(tmp_path / "sound", "train.jsonl", ["174", "c"]) / "train.jsonl"
    rows = [json.loads(line) for line in sound.read_text().splitlines()]
    rows = [{**row, "text": "", "words": None} for row in rows]
    rows[0]["id"] = "174-50561-0000"  # of a test reader
    sound.write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = ["--speech", str(speech), "--sound", str(sound), "--out", str(tmp_path / "out")]
    program(given)
    assert [item.speaker for item in read_shards(tmp_path / "out" / "shards")] == ["a"]
    heard = read_shards(tmp_path / "out" / "sound")
    assert [(item.speaker, len(item.words)) for item in heard] == [("a", 3), ("b", 0), ("c", 0)]
    assert "3 utterances in the shards of sound" in capsys.readouterr().out


def test_a_reading_that_two_sources_hold_is_taken_once_and_none_of_a_test_reader(tmp_path, capsys):
    manifests = []
    for name in ("first", "second"):
        folder = clips(tmp_path / name, "train.jsonl", ["19", "174", "x"])
        manifests.append(folder / "train.jsonl")
        rows = [json.loads(line) for line in manifests[-1].read_text().splitlines()]
        # 174 is a test reader; an id of another form may name another recording
        for row, key in zip(rows, ("19-198-0000", "174-50561-0000", "sample-000000"), strict=True):
            words = [[name, 0.5, 1.0], ["it", 1.0, 1.5], ["is", 1.5, 2.0]]
            row |= {"id": key, "text": f"{name} it is", "words": words}
        manifests[-1].write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = ["--speech", *map(str, manifests), "--out", str(tmp_path / "out")]
    program(given)
    items = read_shards(tmp_path / "out" / "shards")
    assert [(item.id, item.words[0][0]) for item in items] == [
        ("19-198-0000", "First"),
        ("sample-000000", "First"),
        ("sample-000000", "Second"),
    ]
    printed = capsys.readouterr()
    assert "1 that an earlier source holds" in printed.out
    assert "left out: 1 utterances that the test list" in printed.err and "174" in printed.err


def test_texts_are_cleaned_and_what_no_model_can_have_said_is_left_out(tmp_path, capsys):
    folder = clips(tmp_path / "speech", "manifest.jsonl", ["a", "b", "c", "d"])
    manifest = folder / "manifest.jsonl"
    rows = [json.loads(line) for line in manifest.read_text().splitlines()]
    rows[0] |= {"text": "SO IT - IS", "words": [["SO", 0.5, 1], ["IT", 1, 1.5], ["IS", 1.5, 2]]}
    rows[1] |= {"text": 'So "it" is.', "words": None}  # timed in a file of its own
    rows[2] |= {"words": [["so", 0.5, 3], ["it", 3, 3.5], ["is", 3.5, 4]]}  # "so" lasts 2.5 s
    rows[3] |= {"words": None}
    manifest.write_text("".join(json.dumps(row) + "\n" for row in rows))
    times = tmp_path / "times.jsonl"
    words = [["So", 0.5, 1.0], ["it", 1.0, 1.5], ["is", 1.5, 2.0]]
    times.write_text(json.dumps({"id": "1", "words": words}) + "\n")
    given = ["--speech", str(manifest), "--alignments", str(times)]
    program([*given, "--out", str(tmp_path / "out")])
    items = read_shards(tmp_path / "out" / "shards")
    assert [item.text for item in items] == ["So it is.", "So it is."]
    assert items[0].words == (("So", 0.5, 1.0), ("it", 1.0, 1.5), ("is.", 1.5, 2.0))
    told = capsys.readouterr().out
    assert "2 utterances with word times, 0.00 h of sound, 2 speakers; left out: 1 with" in told
    assert "2 utterances in shards; left out: 1 without word times, 0 of more than 30 s" in told


def committed():
    folder = Path(streaming_asr.__file__).parent / "data/weights"
    return sorted(folder.rglob("adapter_model.safetensors"))


@pytest.mark.parametrize("file", committed(), ids=lambda file: "-".join(file.parts[-4:-1]))
def test_committed_weights_are_low_rank_updates_alone_in_float16(file):
    with safe_open(file, "np") as tensors:
        names = list(tensors.keys())
        assert all(".lora_A." in name or ".lora_B." in name for name in names)
        assert {tensors.get_slice(name).get_dtype() for name in names} == {"F16"}
    assert 100_000 < file.stat().st_size < 16e6
    card = json.loads(file.with_name("training.json").read_text())
    assert len(card["base"]) == 16 and card["reached"]["dev/wer"]


# -- The speech of many voices: manifests of what repositories hold, or of a folder --


CLIENT = "ab" * 64


def sound(file):
    file.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(file, np.zeros(8000, np.float32), 16_000)


def git(folder, *command):
    name = ["-c", "user.name=me", "-c", "user.email=me@example.com"]
    done = subprocess.run(["git", *name, *command], cwd=folder, check=True, capture_output=True)
    return done.stdout.decode().strip()


@pytest.fixture
def hosted(tmp_path, monkeypatch):
    """Makes each source a small repository of the right form, which git takes for its own."""
    host = tmp_path / "host"
    for name, path in (
        ("common_voice", "en"), ("common_voice_v1", "asr/data"), ("librispeech_train_251", "audio"),
        ("librispeech_train_4", "audio"), ("clean_speech", "clean"),
        ("librispeech_train_clean_5", "LibriSpeech/train-clean-5"), ("cathy", "data"),
        ("ljspeech_part", "LJSpeech-1.1"), ("alphanumeric", "*data*"),
    ):  # fmt: skip
        held_at = path if "*" not in path else "audio_data"
        root = host / "owner" / f"{name}.git" / held_at
        root.mkdir(parents=True)
        if name == "common_voice":
            sound(root / "clips" / "common_voice_en_1.mp3")
            clips = [("common_voice_en_1.mp3", "So it is."), ("common_voice_en_2.mp3", "No.")]
            lines = [f"{CLIENT}\t{clip}\t{text}\tUS\n" for clip, text in clips]
            head = "client_id\tpath\tsentence\taccents\n"
            (root / "validated.tsv").write_text(head + "".join(lines))
        elif name == "common_voice_v1":
            clip = root / "cv-valid-dev" / "cv-valid-dev" / "sample-000000.mp3"
            sound(clip)
            content = clip.read_bytes()  # as most clips there, it states no length:
            clip.write_bytes(content[content.index(content[:2], 40) :])  # its first frame does
            line = "cv-valid-dev/sample-000000.mp3,be careful,1,0,,,us,"
            head = "filename,text,up_votes,down_votes,age,gender,accent,duration"
            (root / "cv-valid-dev.csv").write_text(f"{head}\n{line}\n")
        elif name == "clean_speech":
            sound(root / "clnsp1.wav")
        elif name == "librispeech_train_clean_5":
            chapter = root / "1088" / "134315"
            for i in range(2):  # the first with a text
                sound(chapter / f"1088-134315-000{i}.flac")
            (chapter / "1088-134315.trans.txt").write_text("1088-134315-0000 AS YOU KNOW\n")
        elif name == "cathy":
            for take in ("arctic_a0001_1", "arctic_a0002_2"):  # the first with a text
                soundfile.write(root / f"{take}.wav", np.zeros((24_000, 2)), 48_000)
            (root / "arctic_a0001_1.txt").write_text("Author of the danger trail.\n")
        elif name == "ljspeech_part":
            sound(root / "wavs" / "LJ001-0001.wav")
            lines = ["LJ001-0001|in 1455,|in fourteen fifty-five,", "LJ001-0002|so|so"]
            (root / "metadata.csv").write_text("\n".join(lines) + "\n")
        elif name == "alphanumeric":
            for kind in ("Names", "Numbers", "Addresses"):
                sound(root / kind / "R_1.wav")
            (root / "Addresses" / "R_1.wav").write_text("no audio")
            head = "Response_ID,file_name,Native Language,Name,Number,Address"
            lines = [
                f"R_1,audio_data/{kind}/R_1.wav,Marathi,Saffron Robles,8885112931,48 Ridge Road 407"
                for kind in ("Names", "Numbers", "Addresses")
            ]
            (root.parent / "metadata.csv").write_text("\n".join([head, *lines]) + "\n")
            (root.parent / "code").mkdir()
            (root.parent / "code" / "x.py").write_text("")  # not fetched
        else:
            sound(root / "103-1240-0000.flac")
            if name == "librispeech_train_4":
                sound(root / "103-1240-0001.flac")
                for i, second in enumerate(("upon", "<unk>")):
                    words = [("once", 0.0, 0.2), (second, 0.2, 0.5)]
                    text_grid(root / f"103-1240-000{i}.TextGrid", words, 0.5)
        work = host / "owner" / f"{name}.git"
        git(work, "init", "--quiet")
        git(work, "add", ".")
        git(work, "commit", "--quiet", "-m", "speech")
        source = f"owner/{name}@{git(work, 'rev-parse', 'HEAD')}:{path}"
        n = 2 if name == "ljspeech_part" else 1  # two repositories hold the same recording
        monkeypatch.setitem(SOURCES, name, replace(SOURCES[name], repositories=(source,) * n))
    config = tmp_path / "gitconfig"
    config.write_text(f'[url "file://{host}/"]\n    insteadOf = {HOST}\n')
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))


def test_git_fetches_each_source_and_each_form_is_read(hosted, tmp_path, capsys):
    out = tmp_path / "out"
    make_voices_set(["--out", str(out)])
    printed = capsys.readouterr()
    assert "CC BY 4.0" in printed.out and "1 written, 1 have no recording there" in printed.out
    assert "left out: " in printed.err and "Addresses/R_1.wav" in printed.err
    found = {name: read_manifest(out / name / "train.jsonl") for name in ENGLISH}
    assert found["common_voice_v1"][0].duration_s == pytest.approx(0.5, abs=0.15)
    assert {name: [(u.id, u.text, u.speaker) for u in each] for name, each in found.items()} == {
        "common_voice": [("common_voice_en_1", "So it is.", speaker_hash(CLIENT))],
        "common_voice_v1": [("sample-000000", "be careful", None)],
        "librispeech_train_251": [("103-1240-0000", "", "103")],
        "librispeech_train_4": [
            ("103-1240-0000", "once upon", "103"),
            ("103-1240-0001", "", "103"),
        ],
        "clean_speech": [("clnsp1", "", None)],
        "librispeech_train_clean_5": [
            ("1088-134315-0000", "AS YOU KNOW", "1088"),
            ("1088-134315-0001", "", "1088"),
        ],
        "cathy": [("arctic_a0001_1", "Author of the danger trail.", "cathy")],
        "ljspeech_part": [("LJ001-0001", "in fourteen fifty-five,", "LJ")],
        "alphanumeric": [("Names_R_1", "", "R_1"), ("Numbers_R_1", "", "R_1")],
    }
    (cathy,) = found["cathy"]  # two channels at 48 kHz
    assert cathy.duration_s == 0.5 and cathy.load().shape == (8000,)
    rows = (out / "alphanumeric" / "train.jsonl").read_text().splitlines()
    assert [json.loads(row)["said"] for row in rows] == ["Saffron Robles", "8885112931"]
    assert not list(out.glob("alphanumeric/source/0/code"))
    assert found["librispeech_train_251"][0].duration_s == 0.5
    assert found["librispeech_train_4"][0].words == (("once", 0.0, 0.2), ("upon", 0.2, 0.5))
    make_voices_set(["--out", str(out)])  # again: nothing is written
    assert "written" not in capsys.readouterr().out


def test_german_is_read_as_german(tmp_path):
    sound(tmp_path / "de" / "clips" / "x.wav")
    line = f"client_id\tpath\tsentence\taccent\n{CLIENT}\tx.wav\tJa.\t\n"
    (tmp_path / "de" / "validated.tsv").write_text(line)
    sound(tmp_path / "verified" / "a.flac")
    (tmp_path / "verified" / "metadata.csv").write_text("a|Für immer.\nb|Nie.\n")
    found = {}
    for name in ("kerstin", "common_voice_de"):
        manifest = tmp_path / name / "train.jsonl"
        write(SOURCES[name].rows(tmp_path), manifest, SOURCES[name].language)
        found[name] = [(u.id, u.text, u.speaker, u.language) for u in read_manifest(manifest)]
    assert found == {
        "kerstin": [("a", "Für immer.", "kerstin", "de")],
        "common_voice_de": [("x", "Ja.", speaker_hash(CLIENT), "de")],
    }


def test_where_git_cannot_fetch_one_message_says_what_to_do(tmp_path, monkeypatch):
    config = tmp_path / "gitconfig"
    config.write_text(f'[url "file://{tmp_path}/nowhere/"]\n    insteadOf = {HOST}\n')
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    with pytest.raises(UserError, match=r"git cannot fetch[\s\S]*--from FOLDER"):
        make_voices_set(["--out", str(tmp_path / "out"), "--only", "common_voice_v1"])
    assert not (tmp_path / "out" / "common_voice_v1" / "source" / "0").exists()


def test_a_folder_gives_the_same_and_speech_without_texts_gets_empty_ones(tmp_path):
    folder = tmp_path / "speech" / "librispeech_train_251"
    sound(folder / "audio" / "19-198-0000.flac")
    row = {"id": "19-198-0000", "audio_filepath": "audio/19-198-0000.flac", "speaker": "19"}
    (folder / "manifest.jsonl").write_text(json.dumps(row) + "\n")
    given = ["--only", "librispeech_train_251", "--from", str(tmp_path / "speech")]
    make_voices_set(["--out", str(tmp_path / "out"), *given])
    (found,) = read_manifest(tmp_path / "out" / "librispeech_train_251" / "train.jsonl")
    assert (found.id, found.text, found.speaker, found.language) == ("19-198-0000", "", "19", "en")


@pytest.mark.parametrize(
    ("content", "wrong"),
    [(None, "correct the folder"), ("[]\n", "line 1"), ('{"text": "so"}\n', "audio_filepath")],
)
def test_a_folder_without_a_good_manifest_is_refused(tmp_path, content, wrong):
    folder = tmp_path / "common_voice"
    folder.mkdir()
    if content is not None:
        (folder / "train.jsonl").write_text(content)
    given = ["--only", "common_voice", "--from", str(tmp_path)]
    with pytest.raises(UserError, match=wrong):
        make_voices_set(["--out", str(tmp_path / "out"), *given])


# -- Texts cleaned of what is not spoken, and texts that two models agree on --


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("of aggression-in Korea", "of aggression in Korea"),
        ("the Nation-Finland-has paid", "the Nation Finland has paid"),
        ("just-a moment, sleep--my love", "just a moment, sleep my love"),
        ("state-of-the-art, twenty-one", "state-of-the-art, twenty-one"),
        ("today, To-day and to-morrow.", "today, Today and tomorrow."),
        ("Valley – Rathdrum - far-reaching", "Valley Rathdrum far-reaching"),
        ("one—two… three...four", "one two three four"),
        ('the "right-wing", “far-right” one', "the right-wing, far-right one"),
        ("he said 'no way' and 'yes'.", "he said no way and yes."),
        ("the dogs' bowl and ’tis o'clock", "the dogs' bowl and 'tis o'clock"),
        ("``so'' it `is'", "so it is"),
        ("well [door slams] then <unk> go", "well then go"),
        ("* what * ever _", "what ever"),
        ("Don't stop; it's 3.5!", "Don't stop; it's 3.5!"),
        ("- - ...", ""),
    ],
)
def test_what_is_not_spoken_goes(written, said):
    assert spoken_text(written) == said


def an_utterance(text="", words=None, duration_s=4.0):
    return Utterance("a", text, lambda: np.zeros(64_000, np.float32), duration_s, words=words)


def test_words_told_apart_share_the_time_by_their_letters():
    timed = (
        TimedWord("-", 0.0, 0.1),
        TimedWord("quarter-of", 1.0, 1.9),
        TimedWord("it.", 2.0, 2.2),
    )
    found = spoken(an_utterance("- quarter-of it.", timed))
    assert found.text == "quarter of it."
    assert [word.text for word in found.words] == ["quarter", "of", "it."]
    times = [time for word in found.words for time in (word.start, word.end)]
    assert times == pytest.approx([1.0, 1.7, 1.7, 1.9, 2.0, 2.2])


HEARD = [
    [" So", 0.2, 0.5, 0.9],
    [" it", 0.5, 0.8, 0.9],
    [" goes", 0.8, 1.3, 0.8],
    [" on.", 1.3, 2, 0.9],
]


@pytest.mark.parametrize(
    ("changes", "kept"),
    [
        ({}, True),
        ({"other": "So it was"}, False),
        ({"compression": 2.5}, False),
        ({"words": []}, False),
        ({"words": [[w, a, b, 0.5] for w, a, b, _ in HEARD]}, False),
        ({"words": HEARD[:1], "other": "So"}, False),  # too few for four seconds
        ({"words": [*HEARD[:3], [" on.", 1.3, 3.9, 0.9]]}, False),  # no word lasts so long
    ],
)
def test_a_text_is_kept_where_both_models_hear_it_and_base_is_sure(changes, kept):
    row = {"words": HEARD, "compression": 1.2, "other": "so it goes on"} | changes
    found = labelled(an_utterance(), row)
    assert (found is not None) == kept
    if found is not None:
        assert found.text == "So it goes on."
        assert found.words[2] == TimedWord("goes", 0.8, 1.3)
