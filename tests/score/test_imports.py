"""What importers require, what they cap, and what they warn of (fuzz draws more of each kind)."""

import json
import tempfile
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming_asr.events.log import EventWriter, Step, UtteranceLog, read_log
from streaming_asr.score import command
from streaming_asr.score.folder import score_folder
from streaming_asr.score.simulstream import BYTE_LETTERS, read

TEXT = "the cat sat on the mat"
WORDS = [[word, 0.5 * i + 0.1, 0.5 * i + 0.4] for i, word in enumerate(TEXT.split())]
LENGTH_S = 3.3


def a_manifest(place):
    (place / "a.wav").touch()
    row = {"audio_filepath": "a.wav", "duration": LENGTH_S, "text": TEXT, "words": WORDS}
    (place / "m.jsonl").write_text(json.dumps(row))
    return place / "m.jsonl"


def an_import(place, content, references=None):
    (place / "a.txt").write_text(content)
    arguments = ["import", "simulstream", str(place / "a.txt"), "--into", str(place / "cell")]
    if references is not None:
        arguments += ["--manifest", str(references)]
    return command.main(arguments)


def result(place):
    found = json.loads((place / "cell/metrics.json").read_text())
    return found


def simulstream(chunks, **fields):
    rows = [{"id": 0, "metadata": {"wav_name": "a.wav"}}]
    said = TEXT.split()
    for k, audio_s in enumerate(chunks):
        last = k == len(chunks) - 1
        new = said[2 * k :] if last else said[2 * k : 2 * k + 2]
        row = {"id": 0, "total_audio_processed": audio_s, "computation_time": 0.1}
        row |= {"generated_tokens": new, "deleted_tokens": [], **fields}
        rows.append({key: value for key, value in row.items() if value is not None})
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.mark.parametrize(
    ("chunks_s", "is_taken"),
    [
        ([1.0, 2.0, 3.0, 4.0], True),  # whole chunks of 1 s: the last is cut at 3.3 s
        ([1.0, 2.0, 4.0], True),
        ([0.96, 1.92, 2.88, 3.84], True),
        ([1.0, 2.0, 3.0, 5.0], False),  # a chunk more than the recording has
        ([1.0, 2.0, 3.0, 3.9], False),  # no whole chunk
        ([1.0, 2.0, 3.0, 3.5], True),  # rounded, as before
    ],
)
def test_audio_counted_in_whole_chunks_is_cut_at_the_end(chunks_s, is_taken, tmp_path, capsys):
    status = an_import(tmp_path, simulstream(chunks_s), a_manifest(tmp_path))
    assert status == (0 if is_taken else 2)
    if is_taken and chunks_s[-1] > LENGTH_S + 0.5:
        told = f"a: {chunks_s[-1]:g} s of audio are counted, in whole chunks, of 3.3 s"
        assert told in capsys.readouterr().out
        assert any(told in warning for warning in result(tmp_path)["warnings"])
    if is_taken:
        assert result(tmp_path)["metrics"]["wer"] == 0.0


@pytest.mark.parametrize(
    ("heard_s", "status"), [(4.0, 0), (30.0, 0), (2.6, 0), (1.5, 2), (4000.0, 2)]
)
def test_an_stm_does_not_tell_how_long_a_recording_is(heard_s, status, tmp_path):
    stm = tmp_path / "r.stm"
    stm.write_text(f"a 1 s 0.5 3.0 {TEXT}\n")
    content = simulstream([heard_s / 4, heard_s / 2, heard_s])
    assert an_import(tmp_path, content, stm) == status


def test_a_log_without_compute_has_no_compute_clock(tmp_path):
    content = simulstream([1.0, 2.0, LENGTH_S], computation_time=None)
    assert an_import(tmp_path, content, a_manifest(tmp_path)) == 0
    metrics = result(tmp_path)["metrics"]
    assert metrics["rtf_total"] is None and metrics["arwer_grid_ca"] is None
    assert metrics["arwer_grid_cu"] is not None


SEEN = "".join(chr(i) for i in (*range(33, 127), *range(161, 173), *range(174, 256)))


def byte_letters(text):
    """What GPT-2 writes for the bytes of a text: those that can be seen as they are in Latin-1, the
    others from U+0100 on."""
    hidden = [byte for byte in range(256) if chr(byte) not in SEEN]
    letters = {byte: chr(256 + i) for i, byte in enumerate(hidden)}
    return "".join(letters.get(byte, chr(byte)) for byte in text.encode())


def test_the_letters_of_byte_level_bpe_are_those_of_its_tokenizers():
    from tokenizers.pre_tokenizers import ByteLevel

    assert {*byte_letters("".join(map(chr, range(0x500))) + "語😀")} <= {*ByteLevel.alphabet()}
    assert len(ByteLevel.alphabet()) == len({*BYTE_LETTERS}) == len({*BYTE_LETTERS.values()}) == 256
    assert {chr(letter) for letter in BYTE_LETTERS} == {*ByteLevel.alphabet()}
    ((pieces, _),) = ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(" é語")
    assert pieces.translate(BYTE_LETTERS).encode("latin-1").decode() == " é語"


@pytest.mark.parametrize(
    "text",
    [
        " The cat sat on the mat.",
        " Où est l'été? Très loin.",
        " Hän näki pöllön, eikö?",
        "你好,世界。",
        " naïve 😀 well-known",
        " Привет, мир!",
    ],
)
@settings(max_examples=20, deadline=None, derandomize=True, database=None)
@given(data=st.data())
def test_pieces_of_bytes_are_joined_to_the_text_however_they_are_cut(text, data):
    letters = byte_letters(text)
    cuts = sorted(data.draw(st.sets(st.integers(1, len(letters) - 1), min_size=3, max_size=9)))
    # A word is cut at its blank, as tokenizers do, and anywhere else.
    cuts = sorted({*cuts, *(i for i, letter in enumerate(letters) if letter == "Ġ" and i)})
    tokens = [letters[a:b] for a, b in pairwise([0, *cuts, len(letters)])]
    chunk = {"id": 0, "computation_time": 0.1, "deleted_tokens": []}
    rows = [{"id": 0, "metadata": {"wav_name": "a.wav"}}]
    n = data.draw(st.integers(1, len(tokens)))  # also in the middle of a letter
    rows.append(chunk | {"total_audio_processed": 1.0, "generated_tokens": tokens[:n]})
    rows.append(chunk | {"total_audio_processed": 2.0, "generated_tokens": tokens[n:]})
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "log.jsonl")
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        ((recording,), _) = read(path)
    assert "".join(recording.displays[-1]) == text


# Written by simulstream 1.0.0 itself (HFSlidingWindowRetranslator, tiny.en, chunks of 1 s) on a
# voice of the package.
REAL = [
    (1.0, ["ĠAnd", "ĠI", "Ġmet", "ĠPreston", "."], []),
    (2.0, ["Ġa", "Ġlittle", "Ġwhile", "Ġago", "."], ["."]),
    (3.0, [",", "Ġand", "Ġhe", "Ġis", "Ġsomething", "Ġvery", "Ġsmart", "."], ["."]),
    (4.0, ["Ġspecial", "Ġthat", "ĠI", "Ġcan", "Ġtell", "Ġyou", "."], ["Ġsmart", "."]),
    (4.775, [], []),
]


def test_a_log_that_simulstream_wrote_with_a_whisper_is_imported(tmp_path):
    said = (
        "And I met Preston a little while ago, and he is something very special that I can tell you"
    )
    rows = [{"model_loading_time": 35.4}]
    rows.append({"id": 0, "metadata": {"wav_name": "/data/a.wav"}})
    for audio_s, new, gone in REAL:
        row = {"id": 0, "total_audio_processed": audio_s, "computation_time": 4.486623048782349}
        rows.append(row | {"generated_tokens": new, "deleted_tokens": gone})
    stm = tmp_path / "r.stm"
    stm.write_text(f"a 1 s 0.0 4.775 {said}\n")
    content = "".join(json.dumps(row) + "\n" for row in rows)
    assert an_import(tmp_path, content, stm) == 0
    metrics = result(tmp_path)["metrics"]
    assert metrics["wer"] == 0.0
    # "Preston." and "ago." lose their full stops, "smart." is replaced by "special".
    assert metrics["light_erasure"] == pytest.approx(1 / 19)
    (log,) = read_log(tmp_path / "cell" / "events.jsonl").utterances
    assert log.steps[1].partial[-2:] == [" while", " ago."]
    assert "".join(log.steps[-1].committed) == f" {said}."


@pytest.mark.parametrize("text", ["été où ça", "Ærø fjord blå", "naïve"])
def test_words_with_accents_stay_words(text, tmp_path):
    content = simulstream([1.0, LENGTH_S], generated_tokens=None)
    rows = [json.loads(line) for line in content.splitlines()]
    rows[1]["generated_tokens"], rows[2]["generated_tokens"] = text.split(), []
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    ((recording,), _) = read(path)
    assert recording.is_bare and recording.displays[-1] == text.split()


# -- damage whose effect is known ------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1e6, 1e3, 1e-3, 1e-6])
def test_compute_in_other_units_is_remarked_and_kept(scale, tmp_path, capsys):
    content = simulstream([1.0, 2.0, 3.0, LENGTH_S], computation_time=0.1 * scale)
    assert an_import(tmp_path, content, a_manifest(tmp_path)) == 0
    assert "in the units of the format?" in capsys.readouterr().out
    score_folder(tmp_path / "cell")
    assert any("in the units of the format?" in each for each in result(tmp_path)["warnings"])


@pytest.mark.parametrize("lost", range(6))
def test_a_chunk_that_is_lost_is_remarked_or_refused(lost, tmp_path):
    rows = simulstream([0.5 * (i + 1) for i in range(6)] + [LENGTH_S]).splitlines(keepends=True)
    whole = [row.replace('"id": 0', '"id": 1').replace("a.wav", "b.wav") for row in rows]
    del rows[1 + lost]
    stm = tmp_path / "r.stm"
    stm.write_text(f"a 1 s 0 {LENGTH_S} {TEXT}\nb 1 s 0 {LENGTH_S} {TEXT}\n")
    status = an_import(tmp_path, "".join([*rows, *whole]), stm)
    assert status == 2 or result(tmp_path)["warnings"] == [
        f"a: chunks are 0.5 s long, but longer after {0.5 * lost:g} s: lines may be missing there"
    ]


def test_a_log_cut_short_says_how_many_recordings_were_promised(tmp_path):
    step = Step("flush", 16_000, {"wall": 0}, committed=["yes"])
    with EventWriter(tmp_path / "events.jsonl", {"n_utterances": 3}) as writer:
        writer.write_utterance(UtteranceLog("u", "yes", 16_000, steps=[step]))
    (warning,) = score_folder(tmp_path)["warnings"]
    assert warning == "the log has 1 of the 3 recordings that its header promises"


# -- what is refused ------------------------------------------------------------------------------

WHOLE = simulstream([1.0, 2.0, 3.0, LENGTH_S])
NAMED = json.dumps({"id": 0, "metadata": {"wav_name": "a.wav"}}) + "\n"


def row(**fields):
    return json.dumps(fields) + "\n"


def chunk(**fields):
    times = {"total_audio_processed": 1.0, "computation_time": 0.1}
    return row(**{"id": 0, **times, "generated_tokens": ["a"], "deleted_tokens": []} | fields)


def twice(content, at):
    rows = content.splitlines(keepends=True)
    return "".join([*rows[: at + 1], *rows[at:]])


# By what is behind it: `m` has a manifest, `s` an STM.
REFUSED = [
    ("m", chunk(), "line 1: id 0 has no `metadata` line before it"),
    ("m", chunk(id=None), "line 1: no `id`"),
    ("m", row(id=[], metadata={"wav_name": "a.wav"}), "line 1: "),
    ("m", NAMED + chunk(deleted_tokens=["b"]), "are not the last ones shown"),
    ("s", NAMED + chunk(total_audio_processed=1e308), "line 2: "),
    ("s", simulstream([2.0, 1e9]), "a: 1e+09 s are received, and its reference ends"),
    ("m", simulstream([1.0, 0.5]), "goes back"),
    ("m", simulstream([0.8]), "is ok after 0.8 of 3.3 s"),
    ("m", WHOLE.replace('"on"', '"Ġon"'), "of byte-level BPE ('Ġon')"),
    *(("m", twice(WHOLE, at), "is in it twice") for at in (1, 2, 3, 4)),
    *(
        ("m", simulstream([1.0, 2.0, LENGTH_S], **{name: None}), f"`{name}`")
        for name in ("total_audio_processed", "generated_tokens", "deleted_tokens")
    ),
    # Subwords, which only their tokenizer joins; pieces that all are of byte-level BPE are joined.
    *(
        ("m", simulstream([1.0, 3.3], generated_tokens=[token]), repr(token))
        for token in ("##at", "ca@@", "cat</w>")
    ),
    ("m", '{"id": 0', "line 1: not JSON"),
    ("m", '{"id": 0, "total_audio_processed": NaN}', "line 1: not JSON (NaN is"),
    ("m", "[1]", "not an object"),
    ("m", NAMED + chunk(total_audio_processed=-1), "line 2: Expected `float` >= 0.0 - at `$.total"),
    ("m", NAMED + chunk(total_audio_processed=True), "got `bool`"),
    ("m", NAMED + chunk(total_audio_processed="0.4"), "got `str`"),
    ("m", simulstream([0.001, 2.0, LENGTH_S]), "text after 16 samples"),
    ("", WHOLE, "holds no reference texts; give --manifest"),
]


@pytest.mark.parametrize(("kind", "content", "said"), REFUSED)
def test_what_cannot_be_scored_is_refused_and_nothing_is_left(
    kind, content, said, tmp_path, capsys
):
    stm = tmp_path / "r.stm"
    stm.write_text(f"a 1 s 0.0 3.3 {TEXT}\n")
    references = {"m": a_manifest(tmp_path), "s": stm}.get(kind)
    assert an_import(tmp_path, content, references) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and said in error
    assert not (tmp_path / "cell").exists()


def test_only_these_counts_only_the_recordings_of_the_file(tmp_path, capsys):
    """A manifest of three recordings, and the log of one, with every word right."""
    references = a_manifest(tmp_path)
    row = json.loads(references.read_text())
    rows = [row | {"audio_filepath": f"{name}.wav"} for name in "abc"]
    for each in rows:
        (tmp_path / each["audio_filepath"]).touch()
    references.write_text("".join(json.dumps(each) + "\n" for each in rows))
    content = simulstream([1.0, 2.0, 3.3])
    assert an_import(tmp_path, content, references) == 0
    printed = capsys.readouterr().out
    assert "3 utterances, 2 of them absent from the file (--only-these leaves them out)" in printed
    assert "WER 66.67 %" in printed
    arguments = ["import", "simulstream", str(tmp_path / "a.txt"), "--only-these", "--into"]
    manifest = ["--manifest", str(references)]
    assert command.main([*arguments, str(tmp_path / "only"), *manifest]) == 0
    printed = capsys.readouterr().out
    assert "1 utterances; knows" in printed and "WER 0.00 %" in printed
    row["audio_filepath"] = "z.wav"
    (tmp_path / "z.wav").touch()
    references.write_text(json.dumps(row))
    assert command.main([*arguments, str(tmp_path / "other"), *manifest]) == 2
    assert "is in none of the 1 references (such as 'z')" in capsys.readouterr().err
