"""The frozen lists: what they hold, data.ids=, data.split=[...], what no training hears, get."""

import hashlib
import itertools
import json
import shutil
import subprocess
from collections import Counter
from dataclasses import replace
from pathlib import Path

import corpora_layouts as layouts
import numpy as np
import pytest
import soundfile
from corpora_layouts import sound, write

from streaming_asr.commands import get
from streaming_asr.config.build import build
from streaming_asr.config.compose import compose_raw
from streaming_asr.corpora import Manifest, lists, obtain
from streaming_asr.corpora.alignments import match
from streaming_asr.corpora.audio import File
from streaming_asr.corpora.lists import held_by, speaker_hash, speech_list, text_hash
from streaming_asr.corpora.manifest import read_manifest
from streaming_asr.corpora.shards import read_shards, write_shards
from streaming_asr.corpora.trials import (
    MANIFEST,
    NUMBERS,
    SPEECH,
    make,
    recordings,
    voices_of,
)
from streaming_asr.data.check import check
from streaming_asr.errors import UserError
from streaming_asr.method import SAMPLE_RATE
from streaming_asr.references import problems
from streaming_asr.utterance import TimedWord, Utterance

IDS = ("1089-134686-0001", "121-121726-0000")
CLIENT = "02205b57e427c6ec" * 8


def corpus(name, path, *settings):
    """The corpus of conf/data/<name>.yaml, as the command line builds it."""
    overrides = [f"data={name}", f"data.path={path}", *(f"data.{s}" for s in settings)]
    return build(compose_raw(overrides).data)


def sha256(file):
    return hashlib.sha256(file.read_bytes()).hexdigest()


@pytest.fixture
def speech(tmp_path, monkeypatch):
    """LibriSpeech of three utterances, two in the list `toy`; `toy-cv` has one of Common Voice."""
    root = layouts.librispeech(tmp_path)
    rows = [
        (name, name.partition("-")[0], "0.50", text_hash(f"He hoped number {number}."))
        for name, number in zip(IDS, ("1x", "0x"), strict=True)
    ]
    files = [next(root.rglob(f"{name}.flac")) for name in IDS]
    head = ("# use\ttest", "# corpus\tlibrispeech", "# split\ttest-clean", "# language\ten")
    source = ("# licence\tCC BY 4.0", f"# source\towner/speech@{'0' * 40}:data")
    columns = "id\tspeaker\tseconds\ttext\tflac"
    listed = ("\t".join((*row, sha256(file))) for row, file in zip(rows, files, strict=True))
    write(tmp_path / "lists" / "toy.tsv", *head, *source, columns, *listed)
    short = f"common_voice_en_1\t{speaker_hash(CLIENT)}\t1.00\t{text_hash('Well, well.')}\t"
    write(tmp_path / "lists" / "toy-cv.tsv", *head, *source, columns, short)
    _use(tmp_path / "lists", monkeypatch)
    yield root
    lists.speech_list.cache_clear()
    lists._index.cache_clear()


def _use(folder, monkeypatch):
    monkeypatch.setattr(lists, "FOLDER", folder)
    lists.speech_list.cache_clear()
    lists._index.cache_clear()


def ids_of(tmp_path, *ids):
    return write(tmp_path / "ids.txt", "# mine", *ids)


# -- what is committed ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "use", "n", "speakers", "minutes"),
    [
        ("other-100", "test", 100, 10, 12.8),
        ("clean-10", "test", 665, 10, 81.9),
        ("clean-10-150", "test", 150, 10, 21.6),
        ("cv-native", "test", 433, 81, 40.3),
        ("cv-native-2", "test", 124, 81, 11.8),
        ("clean-dev", "dev", 648, 10, 82.0),
        ("cv-dev", "dev", 433, 60, 40.5),
    ],
)
def test_a_list_holds_what_its_head_says(name, use, n, speakers, minutes):
    found = speech_list(name)
    assert (found.use, len(found.rows)) == (use, n)
    assert len({row.speaker for row in found.rows.values()}) == speakers
    assert round(sum(row.seconds for row in found.rows.values()) / 60, 1) == minutes
    assert all(len(digest) == 64 for row in found.rows.values() for digest in row.files.values())


def test_the_lists_share_no_speaker_no_utterance_and_no_text():
    whole = [speech_list(file.stem).rows.values() for file in sorted(lists.FOLDER.glob("*.tsv"))]
    for key in ("id", "speaker", "text"):
        found = Counter(each for rows in whole for each in {getattr(row, key) for row in rows})
        assert found.most_common(1)[0][1] == 1


def test_a_part_is_the_smallest_hashes_of_each_speaker():
    whole, part = speech_list("clean-10").rows, speech_list("clean-10-150").rows
    per_speaker = Counter(row.speaker for row in part.values())
    assert set(per_speaker.values()) == {15}
    of_one = sorted(
        (hashlib.sha256(name.encode()).hexdigest(), name)
        for name, row in whole.items()
        if row.speaker == "174"
    )
    assert {name for _, name in of_one[:15]} == {n for n, r in part.items() if r.speaker == "174"}


def test_a_text_is_known_in_capitals_and_as_it_is_written():
    listed = speech_list("clean-dev").rows["1272-128104-0001"].text
    assert text_hash("NOR IS MISTER QUILTER'S MANNER LESS INTERESTING THAN HIS MATTER") == listed
    assert text_hash("Nor is Mr. Quilter's manner less interesting than his matter.") == listed
    assert text_hash("Nor was Mr. Quilter's manner less interesting than his matter.") != listed


# -- data.ids= ------------------------------------------------------------------------------


def test_a_list_chooses_from_the_published_layout(speech):
    found = corpus("librispeech", speech, "ids=toy").utterances()
    assert [(u.id, u.speaker) for u in found] == [(IDS[0], "1089"), (IDS[1], "121")]
    (speech / "test-clean/1089/134686/1089-134686-0000.flac").unlink()  # not of the list
    assert len(corpus("librispeech", speech, "ids=toy").utterances()) == 2


def test_a_file_chooses_and_a_missing_clip_is_named(speech, tmp_path):
    chosen = ids_of(tmp_path, IDS[1])
    (only,) = corpus("librispeech", speech, f"ids={chosen}").utterances()
    assert only.id == IDS[1]
    ids_of(tmp_path, IDS[1], "1089-134686-0007")
    with pytest.raises(UserError, match="1 of its utterances are not there: 1089-134686-0007;"):
        corpus("librispeech", speech, f"ids={chosen}").utterances()
    (speech / "test-clean/121/121726/121-121726-0000.flac").unlink()
    ids_of(tmp_path, IDS[1])
    with pytest.raises(UserError, match=r"121-121726-0000\.flac is missing or empty"):
        corpus("librispeech", speech, f"ids={chosen}").utterances()


def test_ids_given_twice_and_unknown_lists_are_refused(speech, tmp_path):
    chosen = ids_of(tmp_path, IDS[1], IDS[0], IDS[1])
    with pytest.raises(UserError, match="line 4: id '121-121726-0000' is in line 2 already"):
        corpus("librispeech", speech, f"ids={chosen}").utterances()
    with pytest.raises(UserError, match=r"data\.ids=toi: no list of this name .*did you mean toy"):
        corpus("librispeech", speech, "ids=toi").utterances()


@pytest.fixture
def clips(speech, tmp_path):
    """The list's LibriSpeech clips as a folder with a manifest."""
    folder = tmp_path / "clips"
    folder.mkdir()
    rows = []
    for name, number in zip(IDS, ("1x", "0x"), strict=True):
        shutil.copy(next(speech.rglob(f"{name}.flac")), folder)
        rows.append(
            {"id": name, "audio_filepath": f"{name}.flac", "text": f"he hoped number {number}"}
        )
    write(folder / "all.jsonl", *map(json.dumps, rows))
    return folder


def test_a_folder_with_a_manifest_stands_for_the_corpus(clips):
    found = corpus("librispeech", clips, "split=test-clean", "ids=toy").utterances()
    assert [(u.id, u.speaker, u.language) for u in found] == [
        (IDS[0], "1089", "en"),
        (IDS[1], "121", "en"),
    ]


def test_a_folder_that_lacks_clips_of_a_list_names_them(clips):
    manifest = clips / "all.jsonl"
    (clips / f"{IDS[0]}.flac").unlink()
    with pytest.raises(UserError, match=rf"{IDS[0]}\.flac"):
        corpus("librispeech", clips, "ids=toy").utterances()
    manifest.write_text(manifest.read_text().splitlines()[1] + "\n")
    with pytest.raises(UserError, match=f"ids=toy: 1 of its utterances .* not there: {IDS[0]};"):
        corpus("librispeech", clips, "ids=toy").utterances()


def test_a_folder_of_manifests_says_which_splits_it_has(clips):
    with pytest.raises(UserError, match=r"data\.split=dev-clean: .* there are: all"):
        corpus("librispeech", clips, "split=dev-clean").utterances()


def test_other_audio_and_other_text_under_a_listed_id_are_refused(clips):
    manifest = clips / "all.jsonl"
    sound(clips / f"{IDS[0]}.flac", seed=9)
    with pytest.raises(UserError, match=f"{IDS[0]}.flac: other .*`streaming-asr get toy`"):
        corpus("librispeech", clips, "ids=toy").utterances()
    manifest.write_text(manifest.read_text().replace("number 1x", "number nine"))
    with pytest.raises(UserError, match=f"{IDS[0]}: its text 'he hoped number nine' is not"):
        corpus("librispeech", clips, "ids=toy").utterances()


def test_a_listed_id_that_a_corpus_has_twice_is_refused(clips):
    manifest = clips / "all.jsonl"
    manifest.write_text(manifest.read_text() * 2)
    with pytest.raises(UserError, match=f"id '{IDS[0]}' is in line 1 already"):
        corpus("librispeech", clips, "ids=toy").utterances()


def test_an_unknown_form_is_told_and_its_length_compared(clips, capsys):
    manifest = clips / "all.jsonl"
    manifest.write_text(manifest.read_text().replace(f"{IDS[0]}.flac", "first.wav"))
    sound(clips / "first.wav")
    assert len(corpus("librispeech", clips, "ids=toy").utterances()) == 2
    assert "toy: 1 recordings are wav, which is not one of the known" in capsys.readouterr().err
    sound(clips / "first.wav", seconds=1.5)
    with pytest.raises(UserError, match=r"first\.wav: lasts 1\.50 s, and .* 0\.50 s"):
        corpus("librispeech", clips, "ids=toy").utterances()


# -- several splits -------------------------------------------------------------------------


def test_a_list_of_splits_is_read_one_after_the_other(tmp_path):
    root = layouts.librispeech(tmp_path)
    shutil.copytree(root / "test-clean/121", root / "dev-clean/777")
    (root / "dev-clean/777/121726").rename(root / "dev-clean/777/1")
    for file in sorted((root / "dev-clean/777/1").iterdir()):
        name = file.name.replace("121-121726", "777-1")
        file.write_bytes(file.read_bytes().replace(b"121-121726", b"777-1"))
        file.rename(file.with_name(name))
    both = corpus("librispeech", root, "split=[test-clean,dev-clean]")
    assert both.split == "test-clean+dev-clean"
    assert [u.speaker for u in both.utterances()] == ["1089", "1089", "121", "777"]
    with pytest.raises(UserError, match=r"\[dev-clean, dev-clean\]: dev-clean is there twice"):
        corpus("librispeech", root, "split=[dev-clean,dev-clean]")
    with pytest.raises(UserError, match=r"data\.split=dev-other: .* has no such split"):
        corpus("librispeech", root, "split=[dev-clean,dev-other]").utterances()


def test_splits_that_overlap_are_refused(tmp_path):
    root = layouts.common_voice(tmp_path)
    shutil.copy(root / "test.tsv", root / "validated.tsv")
    with pytest.raises(UserError, match="test and validated both hold common_voice_de_1; give"):
        corpus("common_voice", root, "split=[test,validated]").utterances()


# -- what no training hears -----------------------------------------------------------------


def spoken(name, speaker="", text="", language=None):
    return Utterance(name, text, File(Path()), 1.0, speaker=speaker, language=language)


@pytest.mark.parametrize(
    ("each", "held"),
    [
        (spoken("1089-134686-0001"), "utterance 1089-134686-0001"),
        (spoken("1089-134686-0044", "1089"), "speaker 1089"),  # another sentence of a reader
        (spoken("121-1-0001"), "speaker 121"),  # no speaker is named
        (spoken("sp0.9-121-1-0001", "sp0.9-121"), "speaker 121"),
        (spoken("121_1599_000000", "121"), "speaker 121"),  # MLS counts the same readers
        (spoken("", "121"), "speaker 121"),  # shards of old have no ids
        (spoken("call-7", "121"), None),  # another corpus that numbers its speakers
        (spoken("1211-1-0001", "1211"), None),
        (spoken("x", CLIENT), f"speaker {speaker_hash(CLIENT)}"),
        (spoken("x", speaker_hash(CLIENT)), f"speaker {speaker_hash(CLIENT)}"),
        (spoken("x", "me", "He hoped: number 1x!"), "text 'He hoped: number 1x!'"),
        (spoken("x", "me", "He hoped: number 1x!", "de"), None),
        (spoken("x", "me", "Well, well."), None),  # too short to tell
        (spoken("x", "me", "He hoped for number 1x"), None),
    ],
)
def test_what_a_list_holds(speech, each, held):
    found = held_by(each)
    name = "toy-cv" if held == f"speaker {speaker_hash(CLIENT)}" else "toy"
    assert found == (None if held is None else (name, held))
    assert held_by(each, uses=("dev",)) is None


def test_shards_leave_out_what_a_list_holds_and_say_so(speech, tmp_path, capsys):
    words = (TimedWord("HE", 0.1, 0.2),)
    found = [replace(u, words=words) for u in corpus("librispeech", speech).utterances()]
    mine = replace(found[0], id="mine", speaker="me", text="NOTHING OF THE LIST")
    assert write_shards([*found, mine], tmp_path / "shards", max_s=30) == (1, 0, 0)
    assert [(item.id, item.speaker) for item in read_shards(tmp_path / "shards")] == [
        ("mine", "me")
    ]
    told = capsys.readouterr().err
    assert (
        "left out: 3 utterances that the test list toy holds: 1089-134686-0000 (speaker 1089)"
        in told
    )


def test_a_training_refuses_speech_of_a_list(speech, tmp_path, monkeypatch):
    from streaming_asr.training.recipe import CorpusRecipe

    words = (TimedWord("HE", 0.1, 0.2),)
    found = [replace(u, words=words) for u in corpus("librispeech", speech).utterances()]
    _use(tmp_path / "none", monkeypatch)  # as if the shards were made before the list
    write_shards(found, tmp_path / "shards", max_s=30)
    row = {"audio_filepath": found[0].audio_path, "text": "say what he hoped for"}
    dev = write(tmp_path / "dev.jsonl", json.dumps({"id": "mine", "speaker": "me", **row}))
    told = {"train_data": str(tmp_path / "shards"), "dev_manifest": str(dev)}
    told |= {"n_dev": None, "seed": 0, "augment": None}
    assert len(CorpusRecipe(**told).items) == 3
    _use(tmp_path / "lists", monkeypatch)
    with pytest.raises(UserError, match=r"train_data=.*speaker 1089 is in .* test list toy.*3 of"):
        CorpusRecipe(**told)
    write(dev, json.dumps({"id": IDS[0], **row}))
    write_shards(
        [replace(found[0], id="mine", speaker="me", text="Yes.")], tmp_path / "mine", max_s=30
    )
    with pytest.raises(UserError, match=rf"dev_manifest=.*utterance {IDS[0]} is in .* toy"):
        CorpusRecipe(**told | {"train_data": str(tmp_path / "mine")})


# -- get ------------------------------------------------------------------------------------


def git(folder, *command):
    name = ["-c", "user.name=me", "-c", "user.email=me@example.com"]
    done = subprocess.run(
        ["git", *name, *command], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def remote(speech, tmp_path, monkeypatch):
    """A repository with the speech of `toy`, which git takes for github.com/owner/speech."""
    work = tmp_path / "host" / "owner" / "speech.git"
    shutil.copytree(speech / "test-clean", work / "data")
    git(work, "init", "--quiet")
    git(work, "add", ".")
    git(work, "commit", "--quiet", "-m", "speech")
    listed = tmp_path / "lists" / "toy.tsv"
    listed.write_text(listed.read_text().replace("0" * 40, git(work, "rev-parse", "HEAD")))
    settings = write(
        tmp_path / "gitconfig", f'[url "file://{tmp_path}/host/"]', f"insteadOf = {obtain.HOST}"
    )
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    _use(tmp_path / "lists", monkeypatch)
    return work


def test_get_clones_checks_and_the_corpus_finds_it(remote, capsys):
    with pytest.raises(UserError, match=r"data\.path: has no default.*`streaming-asr get"):
        build(compose_raw(["data=librispeech", "data.ids=toy"]).data)
    assert get.main(["toy"]) == 0
    assert "licence: CC BY 4.0" in capsys.readouterr().out
    found = build(compose_raw(["data=librispeech", "data.ids=toy"]).data).utterances()
    assert [(u.id, u.text) for u in found] == [
        (IDS[0], "HE HOPED NUMBER 1X"),
        (IDS[1], "HE HOPED NUMBER 0X"),
    ]


def test_get_refuses_another_commit_and_other_audio_and_leaves_nothing(remote, tmp_path, capsys):
    listed = tmp_path / "lists" / "toy.tsv"
    right = listed.read_text()
    digest = speech_list("toy").rows[IDS[0]].files["flac"]
    listed.write_text(right.replace(digest, "0" * 64))
    lists.speech_list.cache_clear()
    assert get.main(["toy"]) == 2
    assert f"{IDS[0]}.flac or its text is not the one that is listed" in capsys.readouterr().err
    listed.write_text(right.replace("@", "@f"))
    lists.speech_list.cache_clear()
    assert get.main(["toy"]) == 2
    told = capsys.readouterr().err
    assert "git cannot fetch https://github.com/owner/speech" in told and "data.path=" in told
    assert not (tmp_path / "cache" / "streaming_asr" / "speech" / "toy").exists()


# -- The trials: made by a seed, each kind as its name says --


@pytest.fixture(scope="module")
def dev(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trials") / "dev"
    make("dev", folder)
    return folder


@pytest.fixture(scope="module")
def trials(dev):
    return {each.id: each for each in read_manifest(dev / MANIFEST)}


def decibels(samples):
    return 10 * np.log10(np.mean(np.square(samples, dtype=np.float64)))


def test_what_is_said_and_when_is_the_same_everywhere(dev):
    digest = hashlib.sha256((dev / MANIFEST).read_bytes()).hexdigest()
    assert digest.startswith("de0c0fc046ebeebe")


def test_the_same_seed_gives_the_same_sounds(trials):
    again = itertools.takewhile(lambda each: each.kind != "pauses", recordings("dev"))
    for made, heard in zip(again, trials.values(), strict=False):
        assert heard.id.startswith(made.kind)
        assert np.allclose(heard.load(), made.samples, atol=2**-15)  # of 16 bits


def test_nothing_is_said_in_a_third_and_silence_is_silent(trials):
    quiet = {name.partition("-")[0] for name, each in trials.items() if not each.text}
    assert quiet == {"silence", "room", "noise", "hum", "tones", "breath"}
    assert all(each.words == () for each in trials.values() if not each.text)
    assert not np.any(trials["silence-dev-0"].load())
    assert decibels(trials["room-dev-0"].load()) == pytest.approx(-60, abs=0.1)


@pytest.mark.parametrize(("name", "mains_hz"), [("hum-dev-0", 50), ("hum-dev-1", 60)])
def test_hum_has_its_frequency(trials, name, mains_hz):
    spectrum = np.abs(np.fft.rfft(trials[name].load()[: 2 * SAMPLE_RATE]))  # by 0.5 Hz
    assert np.argmax(spectrum[:150]) == 2 * mains_hz


def test_words_lie_where_the_sound_is(trials):
    for name in ("pauses-dev-0", "ends-dev-0"):
        samples = trials[name].load()
        loud = np.zeros(len(samples), dtype=bool)
        for word in trials[name].words or ():
            loud[int((word.start - 0.3) * SAMPLE_RATE) : int((word.end + 0.3) * SAMPLE_RATE)] = True
        assert decibels(samples[loud]) > -40 > -60 > decibels(samples[~loud] + 1e-9)


def test_levels_and_bands(trials):
    assert decibels(trials["low-dev-0"].load()) == pytest.approx(-52, abs=0.1)
    loud = np.abs(trials["clipped-dev-0"].load())
    assert 0.02 < np.mean(loud > 0.999) < 0.2
    power = np.abs(np.fft.rfft(trials["8khz-dev-0"].load())) ** 2
    above = np.linspace(0, SAMPLE_RATE / 2, len(power)) > 4200
    assert power[above].sum() < 1e-5 * power.sum()


def test_test_says_nothing_that_dev_says():
    texts = {
        half: {
            clip.text
            for file in (SPEECH[half], NUMBERS[half])
            for clips in voices_of(file).values()
            for clip in clips
        }
        for half in ("dev", "test")
    }
    assert len(texts["dev"]) > 50 and not texts["dev"] & texts["test"]


def test_a_half_is_made_once_and_another_one_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made = []

    def fake(half, target):
        made.append(half)
        target.mkdir()
        (target / MANIFEST).write_text('{"text": "", "id": "a", "audio_filepath": "a.flac"}\n')
        (target / "a.flac").write_bytes(b"x")

    monkeypatch.setattr("streaming_asr.corpora.trials.make", fake)
    corpus = build(compose_raw(["data=trials", "data.split=test"]).data)
    assert (corpus.name, corpus.split) == ("trials", "test")
    assert corpus.data_hash() == corpus.data_hash() and made == ["test"]
    with pytest.raises(UserError, match="split='train': one of dev, test"):
        build(compose_raw(["data=trials", "data.split=train"]).data)


# -- References that break a rule are refused before any audio is processed, with file and line --


TEXT = "And it is tempting, to believe."
WORDS = [
    ["And", 0.25, 0.35],
    ["it", 0.375, 0.425],
    ["is", 0.475, 0.575],
    ["tempting,", 0.65, 1.025],
    ["to", 1.075, 1.125],
    ["believe.", 1.15, 1.55],
]


def said(text, words, language="en", length_s=2.0):
    def nothing():
        raise AssertionError("read")

    timed = tuple(TimedWord(*word) for word in words)
    return Utterance("u", text, nothing, length_s, language=language, words=timed)


def scaled(by):
    return [[word, by * start, by * end] for word, start, end in WORDS]


BROKEN = {
    "unsorted": ([WORDS[1], WORDS[0], *WORDS[2:]], "comes after that at"),
    "of another text": ([["They", 0.1, 0.5], ["cancelled", 0.6, 1.5]], "of another text"),
    "in milliseconds": (scaled(1000), "ends at 350.0 s of 2 s"),
    "in kiloseconds": (scaled(0.001), "which nobody can speak"),
    "at zero": (scaled(0.0), "which nobody can speak"),
    "without length": ([[w, a, a] for w, a, _ in WORDS], "which nobody can speak"),
    "half without length": (
        [[w, a, a + 0.3 * (a > 1)] for w, a, _ in WORDS],
        "4 of 6 `words` last",
    ),
    "beyond the end": ([*WORDS[:5], ["believe.", 1.15, 2.6]], "ends at 2.6 s of 2 s"),
    "one lacks": (WORDS[:5], "5 words have times, the text has 6"),
    "one too many": ([*WORDS, ["it", 1.6, 1.7]], "7 words have times, the text has 6"),
    "two swapped": (
        [*WORDS[:4], ["believe.", 1.075, 1.125], ["to", 1.15, 1.55]],
        "not in the order of the text",
    ),
    "ends first": ([*WORDS[:5], ["believe.", 1.55, 1.15]], "ends before it starts"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_manifest_whose_words_break_a_rule_is_refused_with_its_line(what, tmp_path):
    words, message = BROKEN[what]
    soundfile.write(tmp_path / "a.wav", np.zeros(32_000), 16_000)
    good = {"audio_filepath": "a.wav", "text": TEXT, "words": WORDS, "language": "en"}
    rows = [{**good, "id": "whole"}, {**good, "id": "broken", "words": words}]
    path = tmp_path / "m.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(UserError, match=message) as refused:
        read_manifest(path)
    assert "m.jsonl, line 2: broken: " in str(refused.value)
    corpus = Manifest(path=path)
    with pytest.raises(UserError, match="line 2"):
        corpus.utterances()
    totals = check(corpus, decode=False)
    assert totals.n_whole == 1 and "line 2: broken: " in totals.problems[0]


@pytest.mark.parametrize(
    ("text", "words", "language"),
    [
        (TEXT, WORDS, "en"),
        # Spelled otherwise, without its punctuation, and with more of it.
        ("four - 4 cats", [["Four", 0.1, 0.3], ["four", 0.4, 0.6], ["cats!", 0.7, 1.0]], "en"),
        ("我们去。", [["我", 0.1, 0.2], ["们", 0.2, 0.4], ["去", 0.4, 0.6]], "zh-CN"),
        ("我们去。", [["我们", 0.1, 0.4], ["去。", 0.4, 0.6]], "zh"),  # words of several characters
        ("ที่นี่", [["ที่นี่", 0.1, 0.6]], "th"),
        ("", [], "en"),
        ("Yes.", [["Yes.", 0.1, 0.15]], "en"),
    ],
)
def test_references_that_are_right_break_nothing(text, words, language):
    assert not list(problems(said(text, words, language)))


def test_a_duration_that_is_unknown_bounds_nothing():
    assert not list(problems(said(TEXT, WORDS, length_s=0.0)))
    assert "in other units" in next(problems(said(TEXT * 8, [], length_s=0.01)))


def test_characters_get_the_times_of_an_alignment_by_words():
    aligned = [TimedWord("今天", 0.0, 0.4), TimedWord("好", 0.5, 0.7)]
    assert match("今天，好！", aligned, "character") == (
        TimedWord("今", 0.0, 0.2),
        TimedWord("天，", 0.2, 0.4),
        TimedWord("好！", 0.5, 0.7),
    )
    assert match("他走了", aligned, "character") is None
