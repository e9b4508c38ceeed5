"""Whisper's alignment, its cache, its report and the program."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import soundfile
from align_fake import FakeAligner
from corpora_layouts import sound, write
from omegaconf import open_dict
from tiny import noise, tiny_folder

from streaming_asr.align import heard
from streaming_asr.align.cache import AlignmentCache
from streaming_asr.align.command import align, choose
from streaming_asr.align.quality import lines, measure
from streaming_asr.align.result import Aligned, loud_frames, words_of
from streaming_asr.align.whisper import TOKEN_FRAMES, WhisperAligner, cut, trim_pauses
from streaming_asr.config.compose import compose_raw
from streaming_asr.corpora import MINI, Manifest
from streaming_asr.errors import UserError
from streaming_asr.events.log import EventWriter, Step, UtteranceLog, read_log
from streaming_asr.references import problems
from streaming_asr.score.folder import score_folder
from streaming_asr.score.results import read_results
from streaming_asr.score.table import remarks_of
from streaming_asr.utterance import TimedWord, Utterance


def utterance(name, text, words=(), seconds=1.0, language=None):
    return Utterance(
        id=name,
        text=text,
        audio=lambda: noise(seconds, seed=len(name)),
        duration_s=seconds,
        words=tuple(TimedWord(*word) for word in words) or None,
        language=language,
    )


# -- the cut of the attention ---------------------------------------------------------------


@pytest.mark.parametrize(("n_rows", "n_frames"), [(1, 4), (2, 4), (3, 6), (3, 8), (4, 9), (4, 5)])
def test_the_cut_is_the_best_of_all_there_are(n_rows, n_frames):
    weights = np.random.default_rng(n_rows * n_frames).standard_normal((n_rows, n_frames))
    least = TOKEN_FRAMES if n_frames >= TOKEN_FRAMES * n_rows else 1

    def value(starts):
        ends = [*starts[1:], n_frames]
        lengths = [end - start for start, end in zip(starts, ends, strict=True)]
        if min(lengths) < 1 or min(lengths[:-1], default=least) < least:
            return -np.inf
        return sum(
            float(weights[i, start:end].sum())
            for i, (start, end) in enumerate(zip(starts, ends, strict=True))
        )

    every = [(0, *rest) for rest in itertools.combinations(range(1, n_frames), n_rows - 1)]
    best = max(every, key=value)
    if n_rows == 1:
        best = (0,)
    assert tuple(cut(weights)) == best


def test_a_word_ends_where_its_sound_does():
    samples = np.zeros(16_000, np.float32)
    samples[3200:6400] = 0.5  # 0.2 .. 0.4 s
    samples[9600:12_800] = -0.5  # 0.6 .. 0.8 s
    words = [TimedWord("one", 0.0, 0.56), TimedWord("two", 0.56, 1.0)]
    trimmed = trim_pauses(words, samples)
    np.testing.assert_allclose([w[1:] for w in trimmed], [(0.2, 0.4), (0.6, 0.8)])
    still = [TimedWord("nothing", 0.44, 0.52)]
    assert trim_pauses(still, samples) == tuple(still)
    assert loud_frames(samples).sum() == 20


def test_words_are_what_stands_between_spaces_but_for_punctuation():
    assert words_of(utterance("u", "Yes - no, 3%!")) == ["Yes", "no,", "3%!"]
    with pytest.raises(UserError, match="u: has no text to align"):
        words_of(utterance("u", " - "))


UNSPACED = {
    "zh": ("Amy，今天好。", ["Amy，", "今", "天", "好。"]),
    "yue": ("佢哋 嚟咗", ["佢", "哋", "嚟", "咗"]),
    "ja": ("「はい」です。", ["「は", "い」", "で", "す。"]),
    "th": ("ที่นี่ 9", ["ที่", "นี่", "9"]),
    "lo": ("ນີ້ດີ", ["ນີ້", "ດີ"]),
    "my": ("မြန်မာ", ["မြ", "န်", "မ", "ာ"]),
}


@pytest.mark.parametrize(("language", "text", "characters"), [(k, *v) for k, v in UNSPACED.items()])
def test_the_words_of_a_language_without_spaces_are_its_characters(language, text, characters):
    assert words_of(utterance("u", text, language=language)) == characters


def test_a_language_without_spaces_is_aligned_by_its_characters():
    text, characters = UNSPACED["zh"]
    said = utterance("u", text, seconds=3.0, language="zh")
    (result,) = WhisperAligner(str(tiny_folder(multilingual=True))).align([said])
    assert result.words is not None, result.reason
    assert [word.text for word in result.words] == characters
    assert not list(problems(replace(said, words=result.words)))
    quality = measure([result], 0.1)
    assert (quality.n_words, quality.n_placed) == (len(characters), len(characters))


def test_times_of_words_and_of_characters_are_compared_by_characters():
    said = utterance("u", "今天 好", [("今天", 0.0, 0.4), ("好", 0.5, 0.7)], language="zh")
    spans = [("今", 0.0, 0.2), ("天", 0.2, 0.45), ("好", 0.5, 0.7)]
    quality = measure([Aligned(said, tuple(TimedWord(*span) for span in spans))], 0.1)
    assert (quality.n_compared, quality.n_words) == (3, 3)
    assert quality.mean_ms == pytest.approx(50 / 6)


# -- with a model ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whisper():
    return WhisperAligner(str(tiny_folder()), trim_pauses=False)


def test_every_word_gets_a_stretch_of_its_own_in_order(whisper):
    said = utterance("u", "The quick brown fox - runs away.", seconds=3.0)
    (result,) = whisper.align([said])
    assert result.words is not None and result.reason == ""
    assert [w.text for w in result.words] == ["The", "quick", "brown", "fox", "runs", "away."]
    edges = [edge for word in result.words for edge in word[1:]]
    assert edges == sorted(edges) and edges[0] == 0.0 and edges[-1] <= 3.0
    assert all(word.end - word.start >= 0.04 - 1e-9 for word in result.words)
    # Of one utterance nothing is left for the next.
    other = utterance("other", "the lazy dog", seconds=2.0)
    again = list(whisper.align([other, said]))[1]
    assert again.words == result.words


@pytest.mark.parametrize(
    ("text", "seconds", "reason"),
    [
        ("", 1.0, "has no text to align"),
        ("the dog", 4.5, "4.5 s of audio, the model takes 4 s"),
        ("the dog runs away and she had your dark suit", 0.2, "does not belong to its audio"),
        ("the dog runs " * 12, 4.0, "the model has room for"),
    ],
)
def test_what_cannot_be_aligned_is_named_and_the_rest_goes_on(whisper, text, seconds, reason):
    bad, good = whisper.align([utterance("bad", text, seconds=seconds), utterance("g", "the dog")])
    assert bad.words is None and bad.reason.startswith("bad: ") and reason in bad.reason
    assert good.words is not None


# -- quality --------------------------------------------------------------------------------


def test_the_report_gives_the_share_placed_and_the_boundaries_errors():
    true = [("a", 0.0, 0.2), ("b", 0.2, 0.5), ("c", 0.5, 0.9)]
    first = Aligned(
        utterance("u1", "a b - c", true),
        (TimedWord("a", 0.01, 0.2), TimedWord("b", 0.2, 0.62), TimedWord("c", 0.62, 0.62)),
    )
    failed = Aligned(utterance("u2", "d"), None, "u2: no TextGrid")
    unknown = Aligned(utterance("u3", "e f"), (TimedWord("e", 0.0, 3.0), TimedWord("f", 2.0, 4.0)))
    quality = measure([first, failed, unknown], tolerance_s=0.1)
    assert (quality.n_utterances, quality.n_aligned) == (3, 2)
    assert (quality.n_words, quality.n_placed, quality.n_compared) == (6, 3, 3)
    # starts off by 10, 0, 120 ms; ends by 0, 120, 280: in order 0 0 10 120 120 280
    assert quality.start_median_ms == pytest.approx(10)
    assert quality.end_median_ms == pytest.approx(120)
    assert quality.median_ms == pytest.approx(65)
    assert quality.mean_ms == pytest.approx(530 / 6)
    assert quality.within == pytest.approx(50)
    assert (quality.n_long, quality.placed) == (1, 50.0)
    report = "\n".join(lines(quality))
    assert "3 of 6 words placed (50.0 %)".replace("words ", "") in report
    assert "median 65 ms (starts 10, ends 120)" in report
    assert "u2: no TextGrid" in report
    alone = measure([unknown], tolerance_s=0.1)
    assert alone.median_ms is None
    assert "no word times of its own" in "\n".join(lines(alone))


# -- the program ----------------------------------------------------------------------------


@pytest.fixture
def manifest(tmp_path):
    rows = []
    for i in range(6):
        sound(tmp_path / f"a{i}.wav", 0.5, seed=i)
        rows.append({"audio_filepath": f"a{i}.wav", "duration": 0.5, "text": f"one two {i}"})
    return write(tmp_path / "test.jsonl", *map(json.dumps, rows))


def config(manifest, *overrides):
    import streaming_asr.align.command  # registers the schema

    assert streaming_asr.align.command
    given = ["model=mini", "data=manifest", f"data.path={manifest}", *overrides]
    made = compose_raw(given, config_name="align")
    with open_dict(made):
        made.pop("hydra")
    if not any(o.startswith("aligner=") for o in overrides):
        made.aligner = {"_target_": "align_fake.FakeAligner"}
    return made


def quiet(_):
    pass


@pytest.fixture(autouse=True)
def fresh():
    FakeAligner.asked.clear()


def rewrite(manifest, i, text):
    rows = [json.loads(line) for line in manifest.read_text().splitlines()]
    rows[i]["text"] = text
    write(manifest, *map(json.dumps, rows))


def test_what_is_aligned_lies_beside_the_manifest_and_times_its_words(manifest):
    said = []
    quality = align(config(manifest), said.append)
    assert (quality.n_aligned, quality.placed) == (6, 100.0)
    (folder,) = (manifest.parent / "alignments").glob("*/*")
    assert f"data.alignments={folder}" in said[-1]
    timed = Manifest(manifest, alignments=folder).utterances()
    assert timed[2].words == (
        TimedWord("one", 0.0, 0.1667),
        TimedWord("two", 0.1667, 0.3333),
        TimedWord("2", 0.3333, 0.5),
    )
    rewrite(manifest, 2, "quite another thing")
    with pytest.raises(UserError, match="its alignment is of another text"):
        Manifest(manifest, alignments=folder).utterances()


def test_a_second_call_aligns_only_what_is_new_changed_or_failed(manifest):
    rewrite(manifest, 0, "bad")
    assert align(config(manifest), quiet).n_aligned == 5
    FakeAligner.asked.clear()
    align(config(manifest), quiet)
    assert FakeAligner.asked == ["a0"]
    FakeAligner.asked.clear()
    rewrite(manifest, 0, "good")
    rewrite(manifest, 3, "other words")
    assert align(config(manifest), quiet).n_aligned == 6
    assert FakeAligner.asked == ["a0", "a3"]


def test_a_killed_call_goes_on_where_it_was(manifest):
    rewrite(manifest, 4, "kill")
    with pytest.raises(KeyboardInterrupt):
        align(config(manifest), quiet)
    (part,) = manifest.parent.glob("alignments/*/*/part-*.jsonl")
    with part.open("a") as file:
        file.write('{"id": "a4", "text": "')  # what was being written when it died
    rewrite(manifest, 4, "alive")
    FakeAligner.asked.clear()
    assert align(config(manifest), quiet).n_aligned == 6
    assert FakeAligner.asked == ["a4", "a5"]


def test_the_last_word_on_an_utterance_is_that_it_was_aligned(tmp_path):
    said = utterance("u", "yes")
    words = (TimedWord("yes", 0.1, 0.5),)
    for first, second in ((None, words), (words, None)):
        folder = tmp_path / str(first is None)
        with AlignmentCache(folder, {}) as cache:
            cache.write(Aligned(said, first, "no"))
            cache.write(Aligned(said, second, "no"))
            assert cache.results([said]) == [Aligned(said, words, "")]


def test_other_settings_do_not_mix_with_what_is_there(manifest):
    align(config(manifest), quiet)
    changed = config(manifest)
    with open_dict(changed):
        changed.aligner.trim = True
    with pytest.raises(UserError, match=r"was made with trim=None, this call has True; give out="):
        align(changed, quiet)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("tolerance=100", "tolerance=100: a duration needs a unit"),
        ("dtype=float", "dtype='float': one of"),
        ("out=/proc/nowhere", "/proc/nowhere.*cannot be written.*give out="),
    ],
)
def test_bad_settings_are_answered_with_a_remedy(manifest, override, message):
    with pytest.raises(UserError, match=message):
        align(config(manifest, override), quiet)


def test_whisper_aligns_a_manifest_end_to_end(manifest):
    folder = tiny_folder()
    chosen = config(manifest, "aligner=whisper", f"model.path={folder}", "limit=2")
    quality = align(chosen, quiet)
    assert (quality.n_aligned, quality.placed) == (2, 100.0)
    settings = next(manifest.parent.glob("alignments/whisper-*/*/settings.json"))
    kept = json.loads(settings.read_text())
    assert set(kept) == {"_target_", "language", "trim_pauses", "model"}


U2_ON_MINI = MINI / "weights" / "u2" / "any_chunk"


@pytest.mark.parametrize("split", ["clean", "other"])
@pytest.mark.parametrize("aligner", ["whisper", "ctc"])
def test_on_mini_nearly_every_word_is_placed_within_60_ms(tmp_path, aligner, split):
    settings = ["model=mini", f"aligner={aligner}", f"data.split={split}", f"out={tmp_path}"]
    if aligner == "whisper":
        settings += ["limit=6"]
    else:  # less sharp, so that more words are wanted
        settings += ["limit=20", f"aligner.path={U2_ON_MINI}", "aligner.delay_s=0.04"]
    chosen = compose_raw(settings, config_name="align")
    with open_dict(chosen):
        chosen.pop("hydra")
    quality = align(chosen, quiet)
    assert quality.n_compared > 40
    assert quality.placed >= 98
    assert quality.median_ms is not None and quality.median_ms <= 60


@pytest.mark.parametrize(
    ("settings", "languages", "kind", "model"),
    [
        ([], {"en"}, "ctc", "tiny.en"),
        ([], set(), "ctc", "tiny.en"),
        ([], {"de"}, "whisper", "base"),
        ([], {"de", "en"}, "whisper", "base"),
        (["model=turbo"], {"en"}, "whisper", "turbo"),  # which somebody named
        (["model=mini"], {"en"}, "whisper", "mini"),
    ],
)
def test_without_an_aligner_the_language_and_the_model_choose_it(settings, languages, kind, model):
    composed = compose_raw([*settings, "device=cuda"], config_name="align")
    with open_dict(composed):
        composed.pop("hydra")
    assert composed.aligner._target_ is None
    choose(composed, languages)
    assert composed.aligner._target_.split(".")[-2] == kind
    assert (composed.model.name, composed.aligner.device) == (model, "cuda")
    path = composed.aligner.model_path if kind == "ctc" else composed.aligner.path
    assert path == composed.model.path


@pytest.mark.parametrize("question", [["--help"], ["--cfg", "job"]])
def test_a_question_to_align_or_data_imports_no_model_code(question):
    import subprocess
    import sys

    for module in ("align", "data"):
        asks = module == "data" and question == ["--cfg", "job"]
        first, corpus = (["check"], ["data=mini"]) if asks else ([], [])
        code = (
            "import sys\n"
            f"sys.argv = ['{module}', *{first + question + corpus!r}]\n"
            f"from streaming_asr.{'data.command' if module == 'data' else module} import main\n"
            "try:\n    main()\n"
            "finally:\n    assert not {'torch', 'transformers'} & set(sys.modules)\n"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert len(done.stdout) > 150


# -- Times of what was heard --


TEXTS = {"a_method": "the cat", "b_method": "the hat sat", "c_method": ""}


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Three methods' logs of a recording; an aligner that gives each word a second."""
    sound = tmp_path / "talk.wav"
    soundfile.write(sound, np.zeros(64_000), 16_000)
    for name, text in TEXTS.items():
        header = {"config": {"method": {"name": name}, "data": {"name": "talk"}, "chunk": "1s"}}
        step = Step(
            "flush", 64_000, {"wall": 10**9}, committed=[f" {word}" for word in text.split()]
        )
        log = UtteranceLog("talk", "", 64_000, steps=[step], audio_path=str(sound))
        with EventWriter(tmp_path / "out" / f"method={name}" / "events.jsonl", header) as writer:
            writer.write_utterance(log)
        score_folder(tmp_path / "out" / f"method={name}")

    class Aligner:
        def align(self, utterances: list) -> list[SimpleNamespace]:
            words = utterances[0].text.split()
            return [SimpleNamespace(words=[(w, i + 0.1, i + 0.9) for i, w in enumerate(words)])]

    chosen = SimpleNamespace(name="ctc-toy", config=SimpleNamespace(aligner=None))
    monkeypatch.setattr(heard.AutoAligner, "choose", lambda *_: chosen)
    monkeypatch.setattr(heard, "build", lambda _: Aligner())
    return tmp_path / "out"


@pytest.mark.parametrize(
    ("order", "first"),
    [
        ([], "a_method"),
        (["a_method", "b_method"], "a_method"),
        (["b_method", "a_method"], "b_method"),
        (["c_method", "b_method", "a_method"], "b_method"),  # c has no words
        (["c_method"], "a_method"),
    ],
)
def test_the_words_are_those_of_the_first_method_of_the_command_line(order, first, place):
    results = heard.time_results(place, [place / f"method={name}" for name in order])
    for name in TEXTS:
        (log,) = read_log(place / f"method={name}" / "events.jsonl").utterances
        assert [word.text for word in log.words or ()] == TEXTS[first].split()
    assert {result.words_from for result in results} == {f"method={first}"}
    remark = remarks_of(read_results(place))[0]
    assert f"of the words of {first}, which favours it: all of its words count" in remark
    assert "streaming-asr compare" not in remark  # this is it


def test_a_recording_whose_audio_is_missing_is_reported(place, capsys):
    (place.parent / "talk.wav").unlink()
    heard.time_results(place)
    assert "talk: its audio is missing, so its words get no times" in capsys.readouterr().out
