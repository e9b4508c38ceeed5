"""Which word times, which recording and which part of it a corpus's own keys mean."""

import json

import numpy as np
import pytest
import soundfile

from streaming_asr.corpora import Manifest
from streaming_asr.corpora.alignments import Alignments, match, read_textgrid
from streaming_asr.corpora.huggingface import HuggingFace
from streaming_asr.corpora.kaldi import Kaldi
from streaming_asr.corpora.lhotse import LhotseCuts
from streaming_asr.corpora.manifest import scan_manifest
from streaming_asr.corpora.shards import read_shards
from streaming_asr.errors import UserError
from streaming_asr.utterance import TimedWord, Utterance

SOUND = np.zeros(16_000, dtype=np.float32)


def utterance(name):
    return Utterance(id=name, text="hello world", audio=lambda: SOUND, duration_s=1.0)


def ctm(name, at_s):
    return f"{name} 1 {at_s} 0.25 hello\n{name} 1 {at_s + 0.25} 0.5 world\n"


def write(file, text):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def grid(at_s, label="hello"):
    head = 'File type = "ooTextFile"\nObject class = "TextGrid"\n\nxmin = 0\nxmax = 4\n'
    tier = 'item [1]:\nclass = "IntervalTier"\nname = "words"\nxmin = 0\nxmax = 4\n'
    return (
        f"{head}tiers? <exists>\nsize = 1\nitem []:\n{tier}intervals: size = 2\n"
        f'intervals [1]:\nxmin = {at_s}\nxmax = {at_s + 0.5}\ntext = "{label}"\n'
        f'intervals [2]:\nxmin = {at_s + 0.5}\nxmax = 3\ntext = "world"\n'
    )


# -- recordings whose files are called alike ------------------------------------------------


def forms(root, kind):
    """Word times of p225/001 at 0.25 s and of p226/001 at 1.25 s, in one of the forms."""
    times = {"p225": 0.25, "p226": 1.25}
    for speaker, at_s in times.items():
        if kind == "textgrid":
            write(root / speaker / "001.TextGrid", grid(at_s))
        elif kind == "ctm per recording":
            write(root / speaker / "001.ctm", ctm("001", at_s))
        elif kind == "ctm per speaker":
            write(root / speaker / "ctm", ctm("001.wav", at_s))
    if kind == "one ctm":
        write(root / "all.ctm", "".join(ctm(f"./{s}/001", at_s) for s, at_s in times.items()))
    elif kind == "jsonl":
        rows = [
            {"id": f"{s}/001", "words": [["hello", at, at + 0.1], ["world", at + 0.2, at + 0.3]]}
            for s, at in times.items()
        ]
        write(root / "all.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    return root


@pytest.mark.parametrize(
    "kind", ["textgrid", "ctm per recording", "ctm per speaker", "one ctm", "jsonl"]
)
def test_word_times_are_those_of_the_whole_id(tmp_path, kind):
    alignments = Alignments(forms(tmp_path, kind))
    for name, at_s in [("p225/001", 0.25), ("wav/p226/001", 1.25)]:
        words = alignments.of(utterance(name))
        assert words is not None and words[0].start == at_s
    assert alignments.of(utterance("p227/001")) is None
    assert alignments.of(utterance("p225/002")) is None
    with pytest.raises(UserError, match=r"p225/001 .* and p226/001 .* both fit 001; name them"):
        alignments.of(utterance("001"))


def test_times_of_a_name_that_fits_two_utterances_are_refused(tmp_path):
    alignments = Alignments(write(tmp_path / "a.ctm", ctm("001", 0.25)))
    assert alignments.of(utterance("p225/001")) is not None
    assert alignments.of(utterance("p225/001")) is not None  # again, for a second cell
    with pytest.raises(UserError, match="word times of 001 fit p225/001 and p226/001"):
        alignments.of(utterance("p226/001"))


def test_two_places_that_time_one_recording_are_both_named(tmp_path):
    write(tmp_path / "a.ctm", ctm("u1", 0.25))
    write(tmp_path / "b.ctm", ctm("u1", 0.5))
    with pytest.raises(UserError, match=r"b\.ctm: times u1, and so does .*a\.ctm; keep one"):
        Alignments(tmp_path)
    row = json.dumps({"id": "u1", "words": [["hello", 0.1, 0.2]]})
    file = write(tmp_path / "lines" / "a.jsonl", f"{row}\n{row}\n")
    with pytest.raises(UserError, match=r"line 2: u1 is in .*line 1 already; keep one"):
        Alignments(file)
    file = write(tmp_path / "ending" / "a.ctm", ctm("u1.wav", 0.1) + ctm("u1", 0.2))
    with pytest.raises(UserError, match="times u1 with an ending and without"):
        Alignments(file)


@pytest.mark.parametrize("label", ["[sil]", "<cutoff>", "[noise]", "<eps>", "{SL}", "(laughs)", ""])
def test_labels_of_events_are_no_words(label):
    spoken = [TimedWord("hello", 0.0, 0.2), TimedWord(label, 0.2, 0.3), TimedWord("world", 0.3, 1)]
    assert match("Hello, world!", spoken) == (("Hello,", 0.0, 0.2), ("world!", 0.3, 1))
    written = [TimedWord("<unk>", 0.0, 0.2), TimedWord("world", 0.3, 1.0)]
    assert match("Hello, world!", written) == (("Hello,", 0.0, 0.2), ("world!", 0.3, 1.0))


def test_a_label_that_is_written_has_its_time():
    spoken = [TimedWord("[laughter]", 0.0, 0.2), TimedWord("world", 0.3, 1.0)]
    assert match("[laughter] world", spoken) == (("[laughter]", 0.0, 0.2), ("world", 0.3, 1.0))


def test_a_tier_of_points_is_a_users_error(tmp_path):
    text = (
        'File type = "ooTextFile"\nObject class = "TextGrid"\n\nxmin = 0\nxmax = 1.5\n'
        'tiers? <exists>\nsize = 1\nitem []:\nitem [1]:\nclass = "TextTier"\nname = "words"\n'
        'xmin = 0\nxmax = 1.5\npoints: size = 1\npoints [1]:\nnumber = 0.3\nmark = "hello"\n'
    )
    with pytest.raises(UserError, match="tier 'words' holds points, and a word has a begin"):
        read_textgrid(write(tmp_path / "a.TextGrid", text))


def test_a_damaged_textgrid_is_a_users_error(tmp_path):
    whole = grid(0.25)
    for size in range(0, len(whole) - 120, 7):
        with pytest.raises(UserError, match=r"a\.TextGrid: (not readable as a|has no tier)"):
            read_textgrid(write(tmp_path / "a.TextGrid", whole[:size]))


# -- Kaldi ----------------------------------------------------------------------------------


def kaldi(folder, **files):
    soundfile.write(folder / "sound.wav", np.tile(SOUND, 2), 16_000)
    content = {"wav.scp": "call-A sound.wav\n", "text": "u1 hello world\n", **files}
    for name, text in content.items():
        write(folder / name, text)
    return Kaldi(path=folder, root=folder)


def test_kaldis_ctm_by_recording_is_cut_by_the_segments(tmp_path):
    segments = "u1 call-A 0.2 1.1\n"
    loader = kaldi(tmp_path, segments=segments, ctm=ctm("call-A", 0.25))
    words = loader.utterances()[0].words
    assert words is not None
    assert [(w.text, round(w.start, 3), round(w.end, 3)) for w in words] == [
        ("hello", 0.05, 0.3),
        ("world", 0.3, 0.8),
    ]


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("wav.scp", "call-A other.wav\n"),
        ("text", "u1 good bye\n"),
        ("segments", "u1 call-A 0.5 0.9\n"),
        ("utt2spk", "u1 b\n"),
        ("utt2lang", "u1 de\n"),
    ],
)
def test_a_name_that_stands_twice_in_a_file_of_kaldi_is_refused(tmp_path, name, line):
    files = {"segments": "u1 call-A 0.2 1.1\n", "utt2spk": "u1 a\n", "utt2lang": "u1 en\n"}
    kaldi(tmp_path, **files)
    file = tmp_path / name
    file.write_text(f"{file.read_text()}\n{line}")
    with pytest.raises(UserError, match=rf"{name}, line 3: \S+ is in line 1 already"):
        Kaldi(path=tmp_path, root=tmp_path).utterances()


def test_a_segment_of_kaldi_may_last_to_the_end_of_its_recording(tmp_path):
    loader = kaldi(tmp_path, segments="u1 call-A 0.5 -1\n")
    (utterance,) = loader.utterances()
    length_s = 2 * len(SOUND) / 16_000
    assert utterance.duration_s == length_s - 0.5
    assert len(utterance.load()) == 2 * len(SOUND) - 8000
    with pytest.raises(UserError, match="segments: u1 begins at 99 s of a recording of"):
        kaldi(tmp_path, segments="u1 call-A 99 -1\n").utterances()


@pytest.mark.parametrize("times", ["0 inf", "0 1e99", "nan 1", "0 nan", "-1 1", "1 1", "1", "a b"])
def test_times_of_kaldis_segments_are_finite_and_in_order(tmp_path, times):
    with pytest.raises(UserError, match=r"segments: u1 .*; a line is `utterance recording begin"):
        kaldi(tmp_path, segments=f"u1 call-A {times}\n").utterances()


# -- Lhotse ---------------------------------------------------------------------------------


def lhotse_cuts(folder, items, **changes):
    import lhotse
    from lhotse.supervision import AlignmentItem

    soundfile.write(folder / "sound.wav", np.tile(SOUND, 4), 16_000)
    recording = lhotse.Recording.from_file(folder / "sound.wav")
    supervision = lhotse.SupervisionSegment(
        **{
            "id": "s",
            "recording_id": recording.id,
            "start": 0.0,
            "duration": 4.0,
            "text": "Don't go, world!",
            **changes,
        },
        alignment=None
        if items is None
        else {"word": [AlignmentItem(word, at, round(end - at, 6)) for word, at, end in items]},
    )
    return lhotse.CutSet.from_manifests(
        recordings=lhotse.RecordingSet.from_recordings([recording]),
        supervisions=lhotse.SupervisionSet.from_segments([supervision]),
    )


def of_cuts(cuts, folder):
    cuts.to_file(folder / "cuts.jsonl.gz")
    return list(LhotseCuts(path=folder / "cuts.jsonl.gz").scan())


ITEMS = [
    ("", 0.0, 0.4),
    ("don", 0.5, 0.8),
    ("'t", 0.8, 1.0),
    ("<eps>", 1.0, 1.4),
    ("go", 1.5, 1.9),
    ("world", 2.5, 3.0),
]


def timed(each):
    assert isinstance(each, Utterance), each
    return [(word, round(start, 3), round(end, 3)) for word, start, end in each.words or ()]


def test_a_window_of_a_cut_has_the_words_that_are_in_it(tmp_path):
    first, second = of_cuts(lhotse_cuts(tmp_path, ITEMS).cut_into_windows(2.0), tmp_path)
    assert timed(first) == [("Don't", 0.5, 1.0), ("go,", 1.5, 1.9)]
    assert timed(second) == [("world!", 0.5, 1.0)]
    assert [each.text for each in (first, second) if isinstance(each, Utterance)] == [
        "Don't go,",
        "world!",
    ]


def test_a_window_without_word_times_is_refused(tmp_path):
    first, second = of_cuts(lhotse_cuts(tmp_path, None).cut_into_windows(2.0), tmp_path)
    assert "supervision s: lasts from 0 to 4 s of a cut of 2 s" in str(first)
    assert "supervision s: lasts from -2 to 2 s of a cut of 2 s" in str(second)


@pytest.mark.parametrize(("direction", "shift_s"), [("right", 0.0), ("left", 2.0), ("both", 1.0)])
def test_a_padded_cut_keeps_its_word_times(tmp_path, direction, shift_s):
    cuts = lhotse_cuts(tmp_path, ITEMS, start=0.5, duration=3.0).trim_to_supervisions()
    (padded,) = of_cuts(cuts.pad(duration=5.0, direction=direction), tmp_path)
    expected = [("Don't", 0.0, 0.5), ("go,", 1.0, 1.4), ("world!", 2.0, 2.5)]
    assert timed(padded) == [
        (w, round(a + shift_s, 3), round(b + shift_s, 3)) for w, a, b in expected
    ]


def test_an_alignment_of_another_text_is_refused(tmp_path):
    (each,) = of_cuts(lhotse_cuts(tmp_path, [("good", 0.1, 0.5), ("bye", 0.5, 1.0)]), tmp_path)
    assert "its alignment `word` is of another text" in str(each)


def cut_row(folder):
    (cut,) = lhotse_cuts(folder, ITEMS)
    return json.loads(json.dumps(cut.to_dict()))


def of_rows(folder, *rows):
    write(folder / "cuts.jsonl", "".join(f"{json.dumps(row)}\n" for row in rows))
    return list(LhotseCuts(path=folder / "cuts.jsonl").scan())


def in_a_second_source(row, source):
    row["recording"]["sources"].append(source)
    return row


def in_a_track(row, source):
    inner = json.loads(json.dumps(row))
    inner["recording"]["sources"] = [source]
    tracks = [{"cut": each, "type": "MonoCut", "offset": 0.0} for each in (row, inner)]
    return {"id": "mixed", "tracks": tracks, "type": "MixedCut"}


def in_the_room(row, source):
    room = row["recording"] | {"sources": [source]}
    transform = {"name": "ReverbWithImpulseResponse", "kwargs": {"rir": room}}
    row["recording"] = row["recording"] | {"transforms": [transform]}
    return row


def in_the_room_of_a_mix(row, source):
    transforms = in_the_room(json.loads(json.dumps(row)), source)["recording"]["transforms"]
    track = {"cut": row, "type": "MonoCut", "offset": 0.0}
    return {"id": "m", "tracks": [track, track], "transforms": transforms, "type": "MixedCut"}


@pytest.mark.parametrize(
    "place", [in_a_second_source, in_a_track, in_the_room, in_the_room_of_a_mix]
)
@pytest.mark.parametrize(
    ("kind", "source", "problem"),
    [
        ("command", "touch {}", "its audio is of type command, 'touch "),
        ("url", "http://127.0.0.1:9/{}", "is of type url"),
        ("shar", "", "is of type shar"),
        (None, "touch {}", "is of type None"),
        ("file", ["touch {}"], "is of type file, \"['touch "),
        ("file", "pipe:touch {}", "is missing or empty"),
        ("file", "x.sph; touch {}; echo .sph", "is missing or empty"),
        ("file", "call.sph;echo .sph", "Lhotse reads .sph by a shell"),
        ("file", "it's.opus", "Lhotse reads .opus by a shell"),
    ],
)
def test_only_files_of_a_cut_are_read(tmp_path, monkeypatch, place, kind, source, problem):
    monkeypatch.chdir(tmp_path)
    row = cut_row(tmp_path)
    for name in ("call.sph;echo .sph", "it's.opus"):
        (tmp_path / name).write_bytes((tmp_path / "sound.wav").read_bytes())
    before = {*tmp_path.iterdir(), tmp_path / "cuts.jsonl"}
    source = json.loads(json.dumps(source).replace("{}", str(tmp_path / "WRITTEN")))
    hostile = place(row, {"type": kind, "channels": [0], "source": source})
    wrong, right = of_rows(tmp_path, hostile, cut_row(tmp_path))
    assert isinstance(wrong, UserError) and "cuts.jsonl: cut 1: " in str(wrong)
    assert problem in str(wrong)
    assert isinstance(right, Utterance) and len(right.load()) == 64_000
    assert {*tmp_path.iterdir()} == before


def test_files_in_the_tracks_and_rooms_of_a_cut_are_read(tmp_path):
    for place in (in_a_track, in_the_room):
        row = cut_row(tmp_path)
        (cut,) = of_rows(tmp_path, place(row, row["recording"]["sources"][0]))
        assert isinstance(cut, Utterance) and len(cut.load()) == 64_000


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("text", 5, "5 is no text"),
        ("speaker", 1272, '1272 is no text; write "1272"'),
        ("language", 1, "1 is no text"),
        ("alignment", {"word": [[0.5, 0.1, 0.2, 1.0]]}, "0.5 is no text"),
        ("alignment", {"word": [["a", "b"]]}, "is no cut that Lhotse reads"),
        ("no_such_key", 1, "is no cut that Lhotse reads"),
    ],
)
def test_a_label_of_another_type_is_refused_for_its_cut(tmp_path, key, value, problem):
    row = cut_row(tmp_path)
    row["supervisions"][0][key] = value
    wrong, right = of_rows(tmp_path, row, cut_row(tmp_path))
    assert isinstance(wrong, UserError) and problem in str(wrong)
    assert isinstance(right, Utterance)


@pytest.mark.parametrize("row", [5, "a", [], {}, {"type": "MonoCut"}, {"type": "Shar"}, {"id": 1}])
def test_a_row_that_is_no_cut_is_refused(tmp_path, row):
    (wrong,) = of_rows(tmp_path, row)
    assert isinstance(wrong, UserError) and "is no cut that Lhotse reads" in str(wrong)


@pytest.mark.parametrize("value", [-1.0, 0.0, 1e9])
def test_a_cut_lasts_a_day_at_most(tmp_path, value):
    row = cut_row(tmp_path)
    pad = {"id": "p", "duration": 4.0 + value, "sampling_rate": 16_000, "feat_value": -23.0,
           "num_samples": 16_000, "type": "PaddingCut"}  # fmt: skip
    tracks = [{"cut": each, "type": each.pop("type"), "offset": 0.0} for each in (row, pad)]
    mixed = {"id": "mixed", "tracks": tracks, "type": "MixedCut"}
    (cut,) = of_rows(tmp_path, mixed)
    assert isinstance(cut, UserError) == (value > 0), cut


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("cut.jsonl.gz", lambda packed: packed[: len(packed) // 2]),
        ("damaged.jsonl.gz", lambda packed: packed[:40] + b"\xff" * 9 + packed[49:]),
        ("none.jsonl.gz", lambda packed: b"no gzip at all"),
        ("latin.jsonl", lambda packed: b'{"id": "\xe9"}\n'),
        ("deep.jsonl", lambda packed: b"[" * 100_000),
        ("cuts.yaml", lambda packed: b"a: b"),
    ],
)
def test_a_damaged_manifest_of_cuts_is_one_sentence(tmp_path, name, content):
    lhotse_cuts(tmp_path, ITEMS).to_file(tmp_path / "cuts.jsonl.gz")
    file = tmp_path / name
    file.write_bytes(content((tmp_path / "cuts.jsonl.gz").read_bytes()))
    with pytest.raises(
        UserError,
        match=r"no manifest of cuts that Lhotse reads|lhotse copy cuts\.yaml cuts\.jsonl\.gz",
    ) as caught:
        list(LhotseCuts(path=file).scan())
    assert "\n" not in str(caught.value)


# -- NeMo, manifests, shards, Hugging Face --------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("offset", "-1", "`offset` is -1"),
        ("offset", '"x"', "`offset` is 'x'"),
        ("duration", "9" * 400, "`duration` is 9"),
        ("duration", "[1]", "`duration` is "),
        ("duration", "null", "no `duration`; it has `audio_filepath`, `text`, `offset`; write"),
        ("duration", "1e999", "`duration` is inf"),
        ("lang", '["en"]', "`language` is .'en'.; write a text"),
        ("audio_filepath", "5", "`audio_filepath` is 5"),
        ("audio_filepath", '"a\\u0000b"', "points nowhere"),
        ("audio_filepath", '"' + "a" * 300 + '.wav"', "points nowhere"),
        ("audio_filepath", "null", "`audio_filepath` is None"),
        ("channel_selector", "1", "`channel_selector` is 1; all channels are read as their mean"),
        ("channel_selector", "[0, 1]", "`channel_selector` is "),
        ("text", "5", "`text` is 5"),
        ("x", "[" * 100_000, "not JSON"),
    ],
    ids=lambda each: str(each)[:20],
)
def test_a_wrong_value_in_a_line_of_nemo_is_one_problem(tmp_path, key, value, problem):
    soundfile.write(tmp_path / "sound.wav", SOUND, 16_000)
    good = '{"audio_filepath": "sound.wav", "text": "hello", "offset": 0.5, "duration": 0.5}'
    bad = good[:-1] + f', "{key}": {value}' + "}"
    file = write(tmp_path / "m.json", f"{bad}\n{good}\n")
    first, second = scan_manifest(file)
    assert isinstance(first, UserError) and isinstance(second, Utterance)
    assert (second.id, len(second.load())) == ("sound-00000500-000500", 8000)
    with pytest.raises(UserError, match=f"line 1.*{problem}"):
        raise first


def test_an_id_that_is_zero_is_an_id_and_a_text_may_have_another_key(tmp_path):
    soundfile.write(tmp_path / "sound.wav", SOUND, 16_000)
    row = {"audio_filepath": "sound.wav", "orig_text": "A", "text": "a", "duration": 1}
    file = write(tmp_path / "m.json", "".join(json.dumps(row | {"id": i}) + "\n" for i in (0, 1)))
    found = Manifest(path=file, text_key="orig_text").utterances(limit=1)
    assert [(each.id, each.text) for each in found] in ([("0", "A")], [("1", "A")])
    with pytest.raises(UserError, match=r"line 1: no `text_pc`; name another with data\.text_key="):
        Manifest(path=file, text_key="text_pc").utterances()


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ('"words": [["a", 0, NaN]]', "NaN is no number"),
        ('"words": [["a", 0, -1]]', "Expected `float` >= 0"),
        ('"offset": -1', "Expected `int` >= 0"),
        ('"n": 0', "Expected `int` >= 1"),
        ('"n": 99999', "ends at sample 99999 of 16000"),
        ('"text": 5', "Expected `str`"),
        ('"speaker": null', "Expected `str`"),
    ],
)
def test_a_wrong_value_in_a_line_of_a_shard_is_one_error(tmp_path, change, problem):
    np.save(tmp_path / "shard-000.npy", np.zeros(16_000, dtype=np.int16))
    good = '{"offset": 0, "n": 16000, "text": "a", "speaker": "s", "words": [["a", 0, 1]]'
    write(tmp_path / "shard-000.jsonl", good + "}\n")
    assert len(read_shards(tmp_path)) == 1
    write(tmp_path / "shard-000.jsonl", f"{good}, {change}}}\n")
    with pytest.raises(UserError, match=f"line 1: .*{problem}"):
        read_shards(tmp_path)


def test_a_row_without_a_recording_and_a_damaged_one_are_problems(tmp_path):
    datasets = pytest.importorskip("datasets")
    rows = [{"bytes": None, "path": None}, {"bytes": bytes(50), "path": None}]
    table = datasets.Dataset.from_dict({"audio": rows, "text": ["a", "b"], "id": [0, 1]})
    datasets.DatasetDict({"test": table}).save_to_disk(tmp_path / "set")
    missing, damaged = HuggingFace(path=tmp_path / "set").scan()
    assert isinstance(missing, UserError) and "row 0: 0 has no recording in column" in str(missing)
    assert isinstance(damaged, Utterance) and damaged.duration_s == 0.0
    with pytest.raises(UserError, match=r"^1: not readable as audio"):
        damaged.load()
