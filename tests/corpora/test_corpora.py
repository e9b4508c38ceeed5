import sys
from pathlib import Path

import corpora_layouts as layouts
import numpy as np
import pytest
from corpora_layouts import samples_of, sound, text_grid, write
from places import ROOT

from streaming_asr.config.build import build
from streaming_asr.config.compose import compose_raw
from streaming_asr.corpora import Folder, Manifest
from streaming_asr.corpora.kaldi import Kaldi
from streaming_asr.corpora.lhotse import LhotseCuts
from streaming_asr.corpora.manifest import read_manifest, write_manifest
from streaming_asr.corpora.published import LibriSpeech, LibriSpeechPC
from streaming_asr.corpora.tedlium import plain
from streaming_asr.data.check import check, lines
from streaming_asr.errors import UserError
from streaming_asr.files import CONF_DIR
from streaming_asr.utterance import TimedWord

MY_CORPUS = "streaming_asr.corpora.my_corpus"


def corpus(name, path, *settings):
    """The corpus of conf/data/<name>.yaml, as the command line builds it."""
    overrides = [f"data={name}", f"data.path={path}", *(f"data.{s}" for s in settings)]
    return build(compose_raw(overrides).data)


def only(found):
    (one,) = found
    return one


# -- each in its layout ---------------------------------------------------------------------


def test_librispeech(tmp_path):
    root = layouts.librispeech(tmp_path)
    for path in (root, tmp_path):  # LibriSpeech/, or the folder it was extracted in
        found = corpus("librispeech", path).utterances()
        assert [u.id for u in found] == ["1089-134686-0000", "1089-134686-0001", "121-121726-0000"]
    first, _, third = found
    assert (first.text, first.speaker, first.language) == ("HE HOPED NUMBER 0X", "1089", "en")
    assert first.duration_s == 0.5 and first.words is None
    assert first.load().shape == (8000,)
    assert third.words == (
        TimedWord("HE", 0.05, 0.10),
        TimedWord("HOPED", 0.10, 0.20),
        TimedWord("NUMBER", 0.25, 0.35),
        TimedWord("0X", 0.35, 0.45),
    )


def test_librispeech_alignments_in_a_folder_of_their_own(tmp_path):
    root = layouts.librispeech(tmp_path / "audio")
    grids = tmp_path / "aligned"
    folder = grids / "LibriSpeech/test-clean/1089/134686"
    words = [("he", 0.1, 0.2), ("hoped", 0.2, 0.3), ("number", 0.3, 0.4), ("<unk>", 0.4, 0.5)]
    text_grid(folder / "1089-134686-0000.TextGrid", words, 0.5)
    first, second, third = corpus("librispeech", root, f"alignments={grids}").utterances()
    assert first.words is not None
    assert [w.text for w in first.words] == ["HE", "HOPED", "NUMBER", "0X"]
    assert (first.words[1].start, first.words[1].end) == (0.2, 0.3)
    assert second.words is None and third.words is None  # what is given stands alone


def test_librispeech_pc_gives_the_same_recordings_written_text(tmp_path):
    layouts.librispeech(tmp_path)
    manifests = layouts.librispeech_pc(tmp_path)
    found = corpus("librispeech_pc", tmp_path, f"manifests={manifests}").utterances()
    assert [u.text for u in found] == ["He hoped, number 0x.", "He hoped, number 1x."]
    assert [u.speaker for u in found] == ["1089", "1089"]
    assert found[1].load().shape == (8000,)


def test_tedlium_by_segment_and_by_talk(tmp_path):
    root = layouts.tedlium(tmp_path)
    short = corpus("tedlium", root).utterances()
    assert [u.text for u in short] == ["i 'd like to share", "a discovery with you"]
    assert [u.duration_s for u in short] == [0.75, 0.75]
    talk = root / "legacy/test/sph/AimeeMullins_2009P.sph"
    np.testing.assert_allclose(short[1].load(), samples_of(talk, 2.0, 2.75), atol=1e-6)
    long = only(corpus("tedlium", root, "form=long").utterances())
    assert long.text == "i 'd like to share a discovery with you"
    np.testing.assert_allclose(long.load(), samples_of(talk, 0.5, 2.75), atol=1e-6)
    assert only(corpus("tedlium", tmp_path, "split=train").utterances()).text == "hello"
    with pytest.raises(UserError, match=r"data\.form='middle': one of short, long"):
        corpus("tedlium", root, "form=middle")


def test_tedliums_marks_are_no_words():
    assert plain("<unk> it 's a{NOISE} read(2) word") == "it 's a read word"


def test_mls_in_flac_and_opus(tmp_path):
    layouts.mls(tmp_path)
    for language in ("german", "de"):
        first, second = corpus("mls", tmp_path, f"language={language}").utterances()
    assert (first.id, first.text, first.speaker, first.language) == (
        "1054_1599_000000",
        "mein sechster sohn",
        "1054",
        "de",
    )
    inside = corpus("mls", tmp_path / "mls_german", "language=german", "split=dev")
    assert inside.name == "mls_german"
    assert inside.utterances()[0].load().size > 0
    assert second.duration_s == 0.5
    with pytest.raises(UserError, match=r"data\.language=klingon: MLS has dutch, english"):
        corpus("mls", tmp_path, "language=klingon")


def test_common_voice_reads_columns_by_name_and_quotes_as_they_are(tmp_path):
    root = layouts.common_voice(tmp_path)
    first, second = corpus("common_voice", root).utterances()
    assert (first.text, first.speaker, first.language) == ('Er sagte: "Nein.', "a1b2", "de")
    assert first.duration_s == 0.72  # as clip_durations.tsv states it
    assert second.duration_s == pytest.approx(0.72, abs=0.1)  # from the file's header
    release = corpus("common_voice", root.parent, "language=de").utterances()
    assert [u.id for u in release] == ["common_voice_de_1", "common_voice_de_2"]


def test_nemos_lines_are_cut_out_of_their_recording(tmp_path):
    manifest = layouts.nemo(tmp_path)
    first, second, third = corpus("nemo", manifest, "language=en").utterances()
    assert first.id == "call-00000500-001000" and third.id == "call"
    assert [u.language for u in (first, second, third)] == ["en", "en", "de"]
    file = tmp_path / "wavs/call.wav"
    np.testing.assert_allclose(first.load(), samples_of(file, 0.5, 1.5), atol=1e-6)
    assert len(third.load()) == 32_000


def test_kaldis_segments_speakers_and_ctm(tmp_path):
    folder = layouts.kaldi(tmp_path)
    a, b, c = corpus("kaldi", folder, "language=en").utterances()
    assert [(u.id, u.text, u.speaker) for u in (a, b, c)] == [
        ("spk1-a", "HELLO THERE", "spk1"),
        ("spk1-b", "BYE", "spk1"),
        ("spk2-a", "YES", "spk2"),
    ]
    np.testing.assert_allclose(
        b.load(), samples_of(tmp_path / "wav/rec1.wav", 1.25, 2.0), atol=1e-6
    )
    assert c.load().shape == (16_000,)
    # By recording: cut to the segment and counted from its start. By utterance: as they are.
    np.testing.assert_allclose([w[1:] for w in a.words], [(0.1, 0.3), (0.4, 0.7)], atol=1e-9)
    np.testing.assert_allclose([w[1:] for w in b.words], [(0.15, 0.65)], atol=1e-9)
    assert c.words == (TimedWord("YES", 0.2, 0.7),)


@pytest.mark.parametrize(
    "pipe", ["sox a.wav -t wav - speed 1.1 |", "sph2pipe -c 2 a.sph |", "rm -rf x.wav |", "|"]
)
def test_a_pipe_that_does_more_than_decode_is_not_run(tmp_path, pipe):
    write(tmp_path / "wav.scp", f"u1 {pipe}")
    write(tmp_path / "text", "u1 HELLO")
    with pytest.raises(UserError, match="pipes are not run"):
        Kaldi(path=tmp_path).utterances()


def test_lhotses_cuts(tmp_path):
    import lhotse
    from lhotse.supervision import AlignmentItem

    file = sound(tmp_path / "rec.wav", 2.0)
    recording = lhotse.Recording.from_file(file)
    supervision = lhotse.SupervisionSegment(
        id="s1",
        recording_id="rec",
        start=0.5,
        duration=1.0,
        text="hello there",
        speaker="ann",
        language="English",
    ).with_alignment("word", [AlignmentItem("hello", 0.6, 0.3), AlignmentItem("there", 1.0, 0.4)])
    cuts = lhotse.CutSet.from_manifests(
        recordings=lhotse.RecordingSet.from_recordings([recording]),
        supervisions=lhotse.SupervisionSet.from_segments([supervision]),
    ).trim_to_supervisions()
    cuts.to_file(tmp_path / "cuts.jsonl.gz")
    loader = corpus("lhotse", tmp_path / "cuts.jsonl.gz")
    assert (loader.name, loader.split) == (tmp_path.name, "cuts")
    cut = only(loader.utterances())
    assert (cut.text, cut.speaker, cut.language) == ("hello there", "ann", "en")
    assert [w.text for w in cut.words] == ["hello", "there"]
    np.testing.assert_allclose([w[1:] for w in cut.words], [(0.1, 0.4), (0.5, 0.9)], atol=1e-6)
    np.testing.assert_allclose(cut.load(), samples_of(file, 0.5, 1.5), atol=1e-6)
    # A cut that is more than a stretch of a file is Lhotse's to load.
    louder = lhotse.CutSet.from_cuts([c.perturb_volume(0.5) for c in cuts])
    louder.to_file(tmp_path / "half.jsonl.gz")
    half = only(corpus("lhotse", tmp_path / "half.jsonl.gz").utterances())
    np.testing.assert_allclose(half.load(), 0.5 * samples_of(file, 0.5, 1.5), atol=1e-6)


def test_without_lhotse_its_cuts_say_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "lhotse", None)
    with pytest.raises(UserError, match="pip install lhotse"):
        LhotseCuts(path=tmp_path / "cuts.jsonl.gz").utterances()


@pytest.mark.parametrize("saved", [True, False], ids=["save_to_disk", "parquet"])
def test_hugging_faces_data_sets_are_read_undecoded(tmp_path, monkeypatch, saved):
    import datasets

    files = [sound(tmp_path / f"set/test/{i}.flac", 0.5, seed=i) for i in range(2)]
    table = datasets.Dataset.from_dict(
        {
            "audio": [{"bytes": f.read_bytes(), "path": f.name} for f in files],
            "sentence": ["Guten Tag.", "Nein."],
            "client_id": ["a", "b"],
        }
    ).cast_column("audio", datasets.Audio(decode=False))
    path = tmp_path / "saved"
    if saved:
        datasets.DatasetDict({"test": table}).save_to_disk(path)
    else:
        monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
        table.to_parquet(path / "data" / "test-00000-of-00001.parquet")
    first, second = corpus("huggingface", path, "language=de").utterances()
    assert [(u.text, u.speaker, u.language) for u in (first, second)] == [
        ("Guten Tag.", "a", "de"),
        ("Nein.", "b", "de"),
    ]
    assert [u.id for u in (first, second)] == ["0", "1"]
    np.testing.assert_allclose(second.load(), samples_of(files[1], 0, 0.5), atol=1e-6)
    assert second.duration_s == 0.5
    with pytest.raises(UserError, match=r"data\.text_column=words: .* there are: audio"):
        corpus("huggingface", path, "text_column=words").utterances()
    with pytest.raises(UserError, match=r"data\.split=dev: .* has test"):
        corpus("huggingface", path, "split=dev").utterances()


def test_a_corpus_becomes_shards(tmp_path):
    from streaming_asr.corpora.shards import read_shards, write_shards

    layouts.kaldi(tmp_path)
    spoken = corpus("kaldi", tmp_path / "data/test").utterances()
    assert write_shards(spoken, tmp_path / "shards", max_s=0.9) == (2, 0, 1)
    first, second = read_shards(tmp_path / "shards")
    assert (first.text, first.speaker) == ("HELLO THERE", "spk1")
    np.testing.assert_allclose(second.samples(), spoken[1].load(), atol=1e-4)
    assert [word for word, _, _ in first.words] == ["HELLO", "THERE"]
    np.testing.assert_allclose([word[1:] for word in first.words], [(0.1, 0.3), (0.4, 0.7)])
    with pytest.raises(UserError, match="holds shards already"):
        write_shards(spoken, tmp_path / "shards", max_s=1)
    with pytest.raises(UserError, match=r"with word times has at most 0\.1 s"):
        write_shards(spoken, tmp_path / "none", max_s=0.1)


# -- words beside the audio -----------------------------------------------------------------


def test_a_textgrid_or_ctm_beside_a_recording_times_its_words(tmp_path):
    sound(tmp_path / "a.wav")
    write(tmp_path / "a.txt", "I don't know - really.")
    words = [("i", 0.0, 0.1), ("don", 0.1, 0.2), ("'t", 0.2, 0.25), ("know", 0.25, 0.35)]
    text_grid(tmp_path / "a.TextGrid", [*words, ("really", 0.35, 0.5)], 0.5, "ann - words")
    sound(tmp_path / "b.wav")
    write(tmp_path / "b.txt", "Yes.")
    write(tmp_path / "b.ctm", "b 1 0.10 0.20 yes")
    a, b = corpus("folder", tmp_path).utterances()
    assert a.words == (
        TimedWord("I", 0.0, 0.1),
        TimedWord("don't", 0.1, 0.25),
        TimedWord("know", 0.25, 0.35),
        TimedWord("really.", 0.35, 0.5),
    )
    assert only(list(b.words)).text == "Yes."
    assert only(list(b.words)).end == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("said", "same"),
    [
        (["quite", "another", "text"], False),
        (["he", "hoped", "number", "one", "x"], False),
        (["he", "hoped", "num", "ber", "1x"], True),
        (["he", "hoped", "<unk>", "1x"], True),
        (["he", "hoped", "number", "one"], True),  # by order: most are spelled alike
    ],
)
def test_an_alignment_of_another_text_is_refused(tmp_path, said, same):
    sound(tmp_path / "a.wav")
    write(tmp_path / "a.txt", "He hoped, number 1x.")
    grid = [(word, 0.1 * i, 0.1 * (i + 1)) for i, word in enumerate(said)]
    text_grid(tmp_path / "a.TextGrid", grid, 0.6)
    if same:
        words = only(Folder(tmp_path).utterances()).words
        assert [w.text for w in words] == ["He", "hoped,", "number", "1x."]
        return
    with pytest.raises(UserError, match=r"its alignment is of another text.*align it again"):
        Folder(tmp_path).utterances()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.TextGrid", "no TextGrid", "not readable as a TextGrid"),
        ("a.ctm", "a 1 0.1", "3 fields; a CTM line"),
        ("a.ctm", "a 1 * * <ALT_BEGIN>\na 1 0 1 yes", "line 1: begins alternatives .*choose one"),
        ("a.ctm", "a A 0 1 yes\na B 0 1 no", "line 2: channel B of a, .* keep the lines of one"),
        ("x.jsonl", '{"id": "a", "words": [["yes", 1]]}', "start_s, end_s"),
        ("x.md", "nothing", "no word times in it"),
    ],
)
def test_an_alignment_that_cannot_be_read_is_named(tmp_path, name, content, message):
    sound(tmp_path / "audio" / "a.wav")
    write(tmp_path / "audio" / "a.txt", "Yes.")
    write(tmp_path / "aligned" / name, content)
    with pytest.raises(UserError, match=message) as caught:
        Folder(tmp_path / "audio", alignments=tmp_path / "aligned").utterances()
    assert "aligned" in str(caught.value)


def test_a_textgrid_without_a_tier_of_words_is_refused(tmp_path):
    sound(tmp_path / "a.wav")
    write(tmp_path / "a.txt", "Yes.")
    text_grid(tmp_path / "a.TextGrid", [("yes", 0.1, 0.2)], 0.5, "utterances")
    with pytest.raises(UserError, match="has no tier `words`, but utterances"):
        Folder(tmp_path).utterances()


# -- what is missing or broken --------------------------------------------------------------


def test_a_folder_that_is_not_the_corpus_is_refused(tmp_path):
    with pytest.raises(UserError, match="no such folder, and LibriSpeech has one"):
        corpus("librispeech", tmp_path / "nowhere").utterances()
    with pytest.raises(UserError, match="is the archive extracted"):
        corpus("librispeech", tmp_path).utterances()
    layouts.librispeech(tmp_path)
    with pytest.raises(UserError, match=r"data\.split=test-other: .* there are: test-clean"):
        corpus("librispeech", tmp_path, "split=test-other").utterances()


def remove(path):
    path.unlink()


def empty(path):
    path.write_bytes(b"")


READER = "LibriSpeech/test-clean/1089/134686"
TED = "TEDLIUM_release-3/legacy/test"
DE = ("language=de",)
COMMON_VOICE = "cv-corpus-17.0/de/clips"
HALF = [
    ("librispeech", layouts.librispeech, remove, f"{READER}/1089-134686-0001.flac", ()),
    ("librispeech", layouts.librispeech, remove, f"{READER}/1089-134686.trans.txt", ()),
    ("tedlium", layouts.tedlium, empty, f"{TED}/sph/AimeeMullins_2009P.sph", ()),
    ("tedlium", layouts.tedlium, remove, f"{TED}/stm/AimeeMullins_2009P.stm", ()),
    ("mls", layouts.mls, empty, "mls_german/test/audio/252/3/252_3_000000.flac", DE),
    ("common_voice", layouts.common_voice, remove, f"{COMMON_VOICE}/common_voice_de_2.mp3", ()),
    ("nemo", layouts.nemo, remove, "wavs/call.wav", ()),
    ("kaldi", layouts.kaldi, remove, "sph/rec2.sph", ()),
]


@pytest.mark.parametrize(("name", "make", "spoil", "file", "settings"), HALF)
def test_a_half_extracted_corpus_is_refused_and_check_names_the_file(
    tmp_path, name, make, spoil, file, settings
):
    path = make(tmp_path)
    whole = check(corpus(name, path, *settings))
    assert whole.problems == [] and whole.n_whole == whole.n > 0
    spoil(tmp_path / file)
    stem = Path(file).name.partition(".")[0]  # of a.trans.txt: a
    with pytest.raises(UserError, match=stem):
        corpus(name, path, *settings).utterances()
    found = check(corpus(name, path, *settings))
    assert any(stem in problem for problem in found.problems)
    assert len(found.problems) >= 1


def test_an_utterance_without_text_is_named(tmp_path):
    root = layouts.librispeech(tmp_path)
    transcripts = root / "test-clean/1089/134686/1089-134686.trans.txt"
    write(transcripts, "1089-134686-0000", "1089-134686-0001 HE HOPED")
    with pytest.raises(UserError, match="1089-134686-0000 has no text"):
        LibriSpeech(path=root).utterances()
    write(transcripts, "1089-134686-0001 HE HOPED")
    with pytest.raises(UserError, match=r"0000\.flac: no \*\.trans\.txt has its text"):
        LibriSpeech(path=root).utterances()


@pytest.mark.parametrize(
    ("name", "language", "table", "line", "message"),
    [
        ("mls", "german", "mls_german/test/transcripts.txt", "1_2\tja", "`speaker_book_utterance"),
        ("mls", "german", "mls_german/test/transcripts.txt", "1_2_3\t ", "the text not empty"),
        ("common_voice", "de", "de/test.tsv", "ann\t\tJa.", "no path; extract"),
    ],
)
def test_a_line_of_another_form_is_named_and_the_others_are_read(
    tmp_path, name, language, table, line, message
):
    header = ["client_id\tpath\tsentence"] if name == "common_voice" else []
    path = write(tmp_path / table, *header, line)
    problem = only(check(corpus(name, tmp_path, f"language={language}")).problems)
    assert problem.startswith(f"{path}, line {len(header) + 1}: ") and message in problem


def test_a_manifest_takes_the_place_of_any_published_layout(tmp_path):
    sound(tmp_path / "a.wav")
    row = '{"id": "a", "audio_filepath": "a.wav", "text": "ja"}'
    manifest = write(tmp_path / "dev.jsonl", row)
    for name in ("librispeech", "mls", "common_voice"):
        language = () if name == "librispeech" else ("language=de",)
        for path in (tmp_path, manifest):
            one = only(corpus(name, path, "split=dev", *language).utterances())
            assert (one.id, one.language) == ("a", "de" if language else "en")


@pytest.mark.parametrize("decode", [True, False])
def test_check_counts_and_names_every_broken_file(tmp_path, decode):
    root = layouts.librispeech(tmp_path)
    folder = root / "test-clean/1089/134686"
    (folder / "1089-134686-0000.flac").write_bytes(b"no audio at all")
    manifests = layouts.librispeech_pc(tmp_path)
    found = check(LibriSpeechPC(path=root, manifests=manifests), decode=decode)
    if decode:
        assert only(found.problems).startswith("1089-134686-0000: ")
    found = check(LibriSpeech(path=root), decode=decode)
    assert "1089-134686-0000" in only(found.problems)
    assert (found.n, found.n_whole, found.seconds) == (3, 2, 1.0)
    assert (found.n_words, found.n_timed) == (12, 4)
    report = "\n".join(lines(LibriSpeech(path=root), found))
    assert "librispeech, split test-clean: 3 utterances" in report
    assert "33.3 % with times" in report and "broken     1" in report
    assert "speakers   2" in report


def test_check_hears_that_a_recording_is_cut_off_or_shorter_than_its_words(tmp_path):
    root = layouts.librispeech(tmp_path)
    manifests = layouts.librispeech_pc(tmp_path)
    sound(root / "test-clean/1089/134686/1089-134686-0001.flac", 0.2)
    found = check(LibriSpeechPC(path=root, manifests=manifests))
    assert "lasts 0.20 s, 0.50 s are stated" in only(found.problems)
    sound(root / "test-clean/121/121726/121-121726-0000.flac", 0.2)
    assert "'0X' ends at 0.45 s" in only(check(LibriSpeech(path=root)).problems)


def test_check_reads_manifests_line_by_line(tmp_path):
    sound(tmp_path / "a.wav")
    manifest = write(
        tmp_path / "m.jsonl",
        '{"audio_filepath": "a.wav", "text": "yes"}',
        '{"audio_filepath": "b.wav", "text": "no"}',
        "nonsense",
        '{"audio_filepath": "a.wav", "text": "again"}',
    )
    found = check(Manifest(manifest))
    assert [p.partition(": ")[0][-6:] for p in found.problems] == ["line 2", "line 3", "line 4"]
    assert (found.n, found.n_whole) == (4, 1)


def test_the_program_says_what_is_broken_by_its_exit_status(tmp_path, monkeypatch, capsys):
    from streaming_asr.data.command import main

    root = layouts.librispeech(tmp_path)

    def status(*arguments):
        monkeypatch.setattr(sys, "argv", ["data", *arguments])
        return main()

    monkeypatch.chdir(tmp_path)
    assert status("check", "data=librispeech", f"data.path={root}") == 0
    assert "3 utterances" in capsys.readouterr().out
    (root / "test-clean/1089/134686/1089-134686-0000.flac").unlink()
    assert status("check", "data=librispeech", f"data.path={root}") == 1
    assert "1089-134686-0000.flac is missing or empty" in capsys.readouterr().out
    assert status("check", "data=librispeech") == 2
    assert "data.path: has no default" in capsys.readouterr().err
    assert status("chekc") == 2
    assert "did you mean check?" in capsys.readouterr().err


def test_a_corpus_becomes_a_manifest(tmp_path, monkeypatch, capsys):
    from streaming_asr.data.command import main

    out = tmp_path / "made" / "dev.jsonl"
    monkeypatch.setattr(
        sys, "argv",
        ["data", "manifest", "data=librispeech", f"data.path={layouts.librispeech(tmp_path)}",
         f"out={out}"],
    )  # fmt: skip
    assert main() == 0
    assert "3 utterances written" in capsys.readouterr().out
    ours = corpus("librispeech", tmp_path).utterances()
    assert Manifest(out).utterances() == ours  # audio included: where it lies
    assert main() == 2
    assert "is there already" in capsys.readouterr().err

    layouts.tedlium(tmp_path)  # its segments are parts of a recording
    parts = corpus("tedlium", tmp_path).utterances()
    assert write_manifest(parts, tmp_path / "parts.jsonl") == len(parts)
    for one, other in zip(read_manifest(tmp_path / "parts.jsonl"), parts, strict=True):
        assert (one.id, one.text, one.speaker) == (other.id, other.text, other.speaker)
        assert np.allclose(one.load(), other.load(), atol=2**-15)
    with pytest.raises(UserError, match="no utterance to write"):
        write_manifest([], tmp_path / "none.jsonl")


# -- what all have ---------------------------------------------------------------------------


def test_a_limit_and_noise_are_the_same_for_every_loader(tmp_path):
    root = layouts.librispeech(tmp_path)
    all_of_it = corpus("librispeech", root).utterances()
    assert len(corpus("librispeech", root).utterances(limit=2)) == 2
    noisy = corpus("librispeech", root, "snr_db=5", "noise=pink").utterances()
    assert [u.id for u in noisy] == [u.id for u in all_of_it]
    assert not np.array_equal(noisy[0].load(), all_of_it[0].load())


def test_the_data_hash_follows_texts_audio_and_word_times(tmp_path):
    root = layouts.librispeech(tmp_path)
    first = LibriSpeech(path=root).data_hash()
    assert LibriSpeech(path=root).data_hash() == first
    aligned = write(tmp_path / "words.jsonl", '{"id": "x", "words": [["a", 0, 1]]}')
    with_words = LibriSpeech(path=root, alignments=aligned).data_hash()
    write(aligned, '{"id": "x", "words": [["ab", 0, 1]]}')
    hashes = {first, with_words, LibriSpeech(path=root, alignments=aligned).data_hash()}
    sound(root / "test-clean/121/121726/121-121726-0000.flac", 0.7)
    hashes.add(LibriSpeech(path=root).data_hash())
    assert len(hashes) == 4


def test_every_corpus_is_listed_with_a_sentence(capsys):
    from streaming_asr.commands.list import main

    assert main(["corpora"]) == 0
    out = capsys.readouterr().out
    for file in (CONF_DIR / "data").glob("*.yaml"):
        assert f"\n{file.stem} " in out
    assert "LibriSpeech as openslr.org/12 gives it" in " ".join(out.split())


def test_the_corpus_that_the_documentation_adds_works(tmp_path, monkeypatch):
    page = (ROOT / "docs" / "new_corpus.md").read_text(encoding="utf-8")
    code = page.partition("```python\n")[2].partition("```")[0]
    settings = page.partition("```yaml\n")[2].partition("```")[0]
    write(tmp_path / "my_corpus.py", code)
    write(tmp_path / "conf" / "data" / "my_corpus.yaml", settings.replace(MY_CORPUS, "my_corpus"))
    monkeypatch.syspath_prepend(tmp_path)
    write(tmp_path / "root/test/text.tsv", "ann_1\tHello there.", "bob_2\tYes.")
    for name in ("ann/ann_1.wav", "bob/bob_2.wav"):
        sound(tmp_path / "root/test" / name)
    overrides = ["data=my_corpus", f"data.path={tmp_path / 'root'}"]
    loader = build(compose_raw(overrides, config_dir=str(tmp_path / "conf")).data)
    first, second = loader.utterances()
    assert (first.id, first.text, first.speaker) == ("ann_1", "Hello there.", "ann")
    assert (second.duration_s, len(second.load())) == (0.5, 8000)
    (tmp_path / "root/test/bob/bob_2.wav").unlink()
    broken = build(compose_raw(overrides, config_dir=str(tmp_path / "conf")).data)
    assert "bob_2.wav" in only(check(broken).problems)


def test_where_the_hub_cannot_be_reached_only_its_cache_is_asked(monkeypatch, capfd):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr("streaming_asr.corpora.huggingface.no_way", lambda endpoint: "no network")
    with pytest.raises(UserError, match="owner/name: datasets cannot load it"):
        corpus("huggingface", Path("owner/name")).utterances()
    assert "Retrying" not in capfd.readouterr().err
