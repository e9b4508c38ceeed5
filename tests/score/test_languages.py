"""Numbers in languages without spaces, and language tags in every spelling, from file to score."""

import json
import shutil
from pathlib import Path

import pytest

from streaming_asr.config.settle import compose
from streaming_asr.corpora.manifest import read_manifest
from streaming_asr.events.log import EventWriter, Step, UtteranceLog, read_log
from streaming_asr.metrics import compute, trace, traces
from streaming_asr.metrics.longform import Sentence, resegment, sentence_laal_ms
from streaming_asr.score import command
from streaming_asr.score.folder import score_folder
from streaming_asr.text.units import units
from streaming_asr.utterance import TimedWord

GROWING = Path(__file__).parents[1] / "fixtures/languages/zh_growing.jsonl"
TEXTS = {
    "zh": "我们去花园散步吧",
    "yue": "我哋去花園散步啦",
    "ja": "私たちは庭に行きます",
    "th": "เราไปเดินเล่น",
    "lo": "ພວກເຮົາໄປ",
    "my": "ကျွန်တော်တို့",
}


def growing(language, text, *, commits=True):
    """A right text that grows by a unit every quarter of a second, in steps of half a second."""
    parts = units(text, "character")
    steps = []
    n_steps = -(-len(parts) // 2)
    for k in range(n_steps):
        last = k == n_steps - 1
        new = parts[2 * k : 2 * k + 2]
        shown = [] if commits or last else parts[: 2 * k + 2]
        committed = new if commits else parts if last else []
        kind = "flush" if last else "audio"
        steps.append(Step(kind, (k + 1) * 8000, {"wall": 0}, committed=committed, partial=shown))
    words = [TimedWord(part, i * 0.25, (i + 1) * 0.25) for i, part in enumerate(parts)]
    return UtteranceLog("u", text, n_steps * 8000, words, language=language, steps=steps)


def test_a_chinese_text_that_only_grows_is_perfect(tmp_path):
    shutil.copy(GROWING, tmp_path / "events.jsonl")
    result = score_folder(tmp_path)
    figures = result["metrics"]
    assert (figures["wer"], figures["cer"], figures["wer_formatted"]) == (0.0, 0.0, 0.0)
    assert figures["word_latency_coverage"] == 100.0
    erasure = ("normalised_erasure", "light_erasure", "unstable_words_per_word")
    assert [figures[name] for name in erasure] == [0.0, 0.0, 0.0]
    assert result["unit"] == ["character"] and result["warnings"] == []


@pytest.mark.parametrize("language", TEXTS)
@pytest.mark.parametrize("commits", [True, False])
def test_a_right_text_that_only_grows_is_perfect_in_every_language(language, commits):
    figures = compute([trace(growing(language, TEXTS[language], commits=commits))])
    assert figures["wer"] == figures["cer"] == figures["normalised_erasure"] == 0.0
    assert figures["word_latency_coverage"] == 100.0


def test_average_lagging_counts_characters_as_simuleval_does():
    # Eight characters in 2 s, two every half second; SimulEval's ALScorer and LAALScorer with
    # --eval-latency-unit char, worked by hand: (500+250+500+250+500+250+500) / 7.
    figures = compute([trace(growing("zh-CN", TEXTS["zh"]))])
    assert figures["al_cu_ms"] == pytest.approx(2750 / 7)
    assert figures["laal_cu_ms"] == pytest.approx(2750 / 7)
    assert figures["ap_cu"] == pytest.approx(10_000 / (8 * 2000))


def test_characters_of_chinese_are_the_characters_of_cer():
    log = growing("zh", "今天很好")
    log.steps[-1].committed[-1] = "坏"
    figures = compute([trace(log)])
    assert figures["wer"] == figures["cer"] == figures["wer_formatted"] == 25.0


def test_stream_laal_of_characters_is_that_of_simulstream():
    pytest.importorskip("mweralign")
    # The texts, delays and values of simulstream's own test of the latency unit char, whose
    # delays are of code points; a word of Latin letters has that of its first.
    parts = [
        Sentence("今天她看起很好，", 12.61, 15.68),
        Sentence("我们一起去公园散步吧。", 16.9, 20.04),
        Sentence("Amy", 21.0, 21.5),
        Sentence("今天心情很好", 21.5, 23.5),
    ]
    text = "今天她很漂亮，我们一起去花园跑步吧。Amy 今天心情很好"
    counts = {14.0: 3, 15.0: 2, 16.0: 1, 17.0: 3, 18.0: 2, 19.0: 2, 20.0: 2, 21.0: 3}
    delays = [time for time, n in counts.items() for _ in range(n)] + [22.0] * 4 + [24.0] * 6
    tokens = units(text, "character")
    places, at = [], 0
    for token in tokens:
        at = text.index(token, at)
        places.append(at)
        at += len(token)
    cuts = resegment(tokens, [" ".join(units(part.text, "character")) for part in parts])
    assert cuts == [7, 11, 1, 6]
    times = iter([delays[place] for place in places])
    lags = []
    for part, n in zip(parts, cuts, strict=True):
        own = [1000 * (next(times) - part.start_s) for _ in range(n)]
        lags.append(sentence_laal_ms(part, own, 23.5, "character"))
    assert sum(lags) / 4 == pytest.approx(1333.312, abs=0.01)


# -- other tools' files ---------------------------------------------------------------------------


@pytest.mark.parametrize("text", [*TEXTS.values(), "Amy Lee去New York吧"])
def test_what_is_imported_in_characters_has_our_figures(text, tmp_path):
    language = next((name for name, each in TEXTS.items() if each == text), "zh")
    log = growing(language, text)
    for step in log.steps:  # blanks stand where the text has them
        step.committed = [f" {u}" if f" {u}" in text else u for u in step.committed]
    cell = tmp_path / "cell"
    with EventWriter(cell / "events.jsonl", {"config": {}}) as writer:
        writer.write_utterance(log)
    ours = score_folder(cell)["metrics"]
    into = tmp_path / "again"
    chunks = [(step.audio_s, step.committed) for step in log.steps]
    arguments = ["import", "simulstream", str(a_log(tmp_path / "u.log", chunks))]
    arguments += ["--into", str(into), "--manifest", str(cell)]
    assert command.main(arguments) == 0
    theirs = score_folder(into)
    assert theirs["unit"] == ["character"]
    for name in ("wer", "cer", "wer_formatted", "word_latency_shown_p50_cu_s"):
        assert theirs["metrics"][name] == pytest.approx(ours[name]), name
    assert traces(read_log(into / "events.jsonl"))[0].hypothesis == text


def a_log(path, chunks):
    """simulstream's log of one recording; chunks: seconds and new tokens."""
    rows = [{"id": 0, "metadata": {"wav_name": path.with_suffix(".wav").name}}]
    for audio_s, new in chunks:
        row = {"id": 0, "total_audio_processed": audio_s, "deleted_tokens": []}
        rows.append(row | {"generated_tokens": new})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def an_import(place, text, manifest, *options):
    (place / "a.wav").touch()
    row = {"id": "a", "audio_filepath": "a.wav", "duration": 2.0, **manifest}
    (place / "m.jsonl").write_text(json.dumps(row))
    log = a_log(place / "a.log", [(2.0, text.split())])
    arguments = ["import", "simulstream", str(log), "--into", str(place / "cell")]
    return command.main([*arguments, "--manifest", str(place / "m.jsonl"), *options])


@pytest.mark.parametrize("tag", ["en", "en-US", "EN", "eng", "English", "en_GB"])
def test_every_spelling_of_english_has_the_english_normaliser(tag, tmp_path):
    manifest = {"text": "We don't colour two things", "language": tag}
    assert an_import(tmp_path, "we do not color 2 things", manifest) == 0
    assert json.loads((tmp_path / "cell/metrics.json").read_text())["metrics"]["wer"] == 0.0
    assert read_manifest(tmp_path / "m.jsonl")[0].language == "en"


def test_an_imported_log_without_a_language_takes_that_of_the_option(tmp_path, capsys):
    assert an_import(tmp_path, "今天", {"text": "今天"}) == 0
    assert "warning: no language is named, which counts as English" in capsys.readouterr().out
    shutil.rmtree(tmp_path / "cell")
    assert an_import(tmp_path, "今天", {"text": "今天"}, "--language", "zh-TW") == 0
    result = json.loads((tmp_path / "cell/metrics.json").read_text())
    assert result["unit"] == ["character"] and result["warnings"] == []
    shutil.rmtree(tmp_path / "cell")
    assert an_import(tmp_path, "we", {"text": "we"}, "--language", "English") == 0
    shutil.rmtree(tmp_path / "cell")
    assert an_import(tmp_path, "we", {"text": "we"}, "--language", "Enlish") == 2
    assert "--language Enlish: no language that is known" in capsys.readouterr().err


def test_an_option_that_contradicts_the_references_is_refused(tmp_path, capsys):
    manifest = {"text": "We don't", "language": "en-US"}
    assert an_import(tmp_path, "we don't", manifest, "--language", "zh") == 2
    assert "by the references a is in en" in capsys.readouterr().err


def test_a_log_in_hindi_without_a_normaliser_keeps_the_vowel_signs(tmp_path):
    assert an_import(tmp_path, "का", {"text": "की", "language": "hi-IN"}) == 0
    result = json.loads((tmp_path / "cell/metrics.json").read_text())
    assert result["metrics"]["wer"] == 100.0 and result["warnings"] == []
    assert result["config"]["normaliser"] == "whisper_marks"
    published = score_folder(tmp_path / "cell", normaliser="whisper")
    assert published["metrics"]["wer"] == 0.0
    assert "drops the vowel signs of hi" in published["warnings"][0]


def test_the_settings_take_every_spelling():
    for tag in ("en-US", "EN", "eng", "English"):
        assert (
            compose(["method=offline", "model=mini", "data=mini", f"language={tag}"]).language
            == "en"
        )
