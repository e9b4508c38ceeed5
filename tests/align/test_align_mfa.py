"""MFA is driven end to end against a program in its place and against what the real one printed.

mfa_recorded/ has text output of montreal-forced-aligner 3.4.3 over the project's synthetic clips,
folders taken off the paths: the standard error of calls that failed, and TextGrids.
"""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import soundfile
from omegaconf import DictConfig, open_dict
from places import HANG_S, SUPPORT, TESTS
from tiny import noise

from streaming_asr.align.command import align, settings_of
from streaming_asr.align.mfa import FIXED, MfaAligner, find_mfa
from streaming_asr.align.quality import Quality
from streaming_asr.align.result import is_timed
from streaming_asr.config.compose import compose_raw
from streaming_asr.corpora.alignments import Alignments, with_words
from streaming_asr.errors import UserError
from streaming_asr.utterance import TimedWord, Utterance

RECORDED = TESTS / "align" / "mfa_recorded"

# As `mfa align` 3.4.3: reads <corpus>/<speaker>/<name>.wav and .lab, writes <name>.TextGrid below
# the same speaker with tiers words and phones, silences as <eps> without its clean-up. Words are
# lower-cased without punctuation. One outside the dictionary keeps its name, its phone is spn, and
# its clitic stands apart. A stretch in brackets is one word. The clean-up joins a word to an
# apostrophe before or after it. It writes none for what it cannot align, and fails where that is
# all. MFA_REPLAY="NAME STATUS" makes it fail as recorded; MFA_GRIDS has the recorded TextGrid of a
# text.
STAND_IN = """\
#!{python}
import json, os, re, shutil, signal, sys, time
from pathlib import Path

sys.path.insert(0, {support!r})
arguments = sys.argv[1:]
recorded = Path({recorded!r})
Path({log!r}).write_text("\\n".join(arguments))
assert arguments[0] == "align"
if replay := os.environ.get("MFA_REPLAY"):
    name, status = replay.split()
    print((recorded / (name + ".stderr")).read_text(), file=sys.stderr)
    sys.exit(int(status))
corpus, dictionary, acoustic, output = arguments[-4:]
import soundfile
from corpora_layouts import text_grid

grids = json.loads(os.environ.get("MFA_GRIDS", "{{}}"))
n_aligned = 0
for wav in sorted(Path(corpus).rglob("*.wav")):
    written = wav.with_suffix(".lab").read_text().lower()
    if "killed" in written:
        os.kill(os.getpid(), signal.SIGKILL)
    if "waiting" in written:
        if os.fork() == 0:  # a worker, which holds the pipes open
            Path({log!r} + ".worker").write_text(str(os.getpid()))
        time.sleep(3600)
    if "unalignable" in written:
        continue
    n_aligned += 1
    place = Path(output) / wav.relative_to(corpus).with_suffix(".TextGrid")
    if grid := grids.get(wav.with_suffix(".lab").read_text().strip()):
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(recorded / (grid + ".TextGrid"), place)
        continue
    words, phones = [], []
    for word in re.findall(r"[(<{{\\[].*?[)>}}\\]]|\\S+", written):
        word = "[bracketed]" if word[0] in "([{{<" else word.strip(".,!?")
        parts = re.findall("zebra|.+", word) if "zebra" in word else [word]
        words += parts
        phones += ["spn" if part in ("zebra", "[bracketed]") else "AH0" for part in parts]
    if "swapped" in written:
        words = phones = ["something", "else"]
    length = soundfile.info(wav).duration
    step = (length - 0.2) / len(words)
    times = [(0.1 + i * step, 0.1 + (i + 1) * step) for i in range(len(words))]
    timed = [(word, *time) for word, time in zip(words, times)]
    spoken = [(phone, *time) for phone, time in zip(phones, times)]
    blank = "<eps>"
    if "--no_textgrid_cleanup" not in arguments:
        blank, i = "", 0
        while i + 1 < len(timed):
            (a, start, _), (b, _, end) = timed[i : i + 2]
            if a.endswith("'") or b.startswith("'"):
                timed[i : i + 2] = [(a + b, start, end)]
            else:
                i += 1
    text_grid(place, timed, length, phones=spoken, blank=blank)
if n_aligned == 0:
    print((recorded / "no_alignments2.stderr").read_text(), file=sys.stderr)
    sys.exit(1)
"""


def program(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def stand_in(folder):
    content = STAND_IN.format(
        python=sys.executable,
        support=str(SUPPORT),
        recorded=str(RECORDED),
        log=str(folder / "arguments"),
    )
    return program(folder / "mfa", content)


@pytest.fixture
def mfa(tmp_path, monkeypatch):
    path = stand_in(tmp_path / "bin")
    monkeypatch.setenv("PATH", str(path.parent))
    return path


def utterance(name, text, speaker="ann"):
    return Utterance(id=name, text=text, audio=lambda: noise(1.0), duration_s=1.0, speaker=speaker)


def recorded(name, text):
    """An utterance whose TextGrid the real MFA wrote."""
    return Utterance(id=name, text=text, audio=lambda: noise(3.5), duration_s=3.5, speaker="ann")


def times(words):
    return [(word.start, word.end) for word in words or ()]


def test_mfa_gets_its_corpus_and_its_textgrids_time_the_written_words(mfa):
    utterances = [
        utterance("1089-1", "Don't feed the lions, please."),
        utterance("b/2", "Hello - there.", speaker="A. B/c"),
        utterance("c", "Hello again.", speaker=None),
    ]
    first, second, third = MfaAligner(jobs=2).align(utterances)
    assert first.words is not None
    assert [w.text for w in first.words] == ["Don't", "feed", "the", "lions,", "please."]
    step = 0.8 / 5
    np.testing.assert_allclose(times(first.words)[0], (0.1, 0.1 + step), atol=1e-6)
    np.testing.assert_allclose(times(first.words)[3], (0.1 + 3 * step, 0.1 + 4 * step), atol=1e-6)
    assert [w.text for w in second.words or ()] == ["Hello", "there."]
    assert [w.text for w in third.words or ()] == ["Hello", "again."]
    arguments = (mfa.parent / "arguments").read_text().split("\n")
    assert arguments[0] == "align" and arguments[-3:-1] == ["english_mfa", "english_mfa"]
    assert arguments[arguments.index("-j") + 1] == "2"
    assert arguments[arguments.index("--output_format") + 1] == "long_textgrid"
    assert Path(arguments[arguments.index("-t") + 1]).is_absolute()
    assert "--no_use_postgres" in arguments and "--single_speaker" not in arguments
    list(MfaAligner(single_speaker=True).align([utterance("u", "yes", speaker=None)]))
    assert "--single_speaker" in (mfa.parent / "arguments").read_text().split("\n")


def test_what_mfa_leaves_out_or_aligns_as_other_words_is_reported(mfa):
    utterances = [
        utterance("good", "yes"),
        utterance("noisy", "unalignable"),
        utterance("other", "swapped words of three or more"),
        utterance("empty", ""),
    ]
    results = {result.utterance.id: result for result in MfaAligner().align(utterances)}
    assert results["good"].words is not None
    assert "could not align it (no TextGrid)" in results["noisy"].reason
    assert "of another text: 'something else' is aligned" in results["other"].reason
    assert "has no text to align" in results["empty"].reason


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("And dogs' tempting.", ["And", "dogs'", "tempting."]),
        ("And 'tis tempting.", ["And", "'tis", "tempting."]),
        ("It is (to believe that) so.", ["It", "is", "(to", "believe", "that)", "so."]),
        ("Is [to] <be> {or} (not).", ["Is", "[to]", "<be>", "{or}", "(not)."]),
    ],
)
def test_apostrophes_and_brackets_lose_no_utterance(mfa, text, written):
    (result,) = MfaAligner().align([utterance("u", text)])
    assert [w.text for w in result.words or ()] == written
    step = 0.8 / len(written)
    edges = [(0.1 + i * step, 0.1 + (i + 1) * step) for i in range(len(written))]
    np.testing.assert_allclose(times(result.words), edges, atol=1e-6)


def test_without_the_options_the_stand_in_joins_them_as_mfa_does(mfa, monkeypatch):
    """So the test above fails where the option or the brackets' removal is lost."""
    monkeypatch.setattr("streaming_asr.align.mfa.BRACKETS", {})
    (result,) = MfaAligner().align([utterance("u", "It is (to believe that) so.")])
    assert "'it is [bracketed] so' is aligned" in result.reason
    monkeypatch.setattr("streaming_asr.align.mfa.FIXED", FIXED.replace("no_textgrid", "textgrid"))
    (result,) = MfaAligner().align([utterance("u", "And dogs' tempting.")])
    assert result.words is None and "and dogs'tempting" in result.reason


PLAIN = [(0.25, 0.35), (0.35, 0.44), (0.44, 0.61), (0.61, 1.04), (1.04, 1.17), (1.17, 1.57)]
REAL = {
    "plain": ("And it is tempting (to believe that) the danger is behind us.", PLAIN[:3], []),
    "tis": ("And 'tis tempting to believe that the danger is behind us.", [PLAIN[0]], []),
    "possessive_s": (
        "And it is dogs' tempting to believe that the danger is behind us.",
        [(0.25, 0.35), (0.35, 0.44), (0.44, 0.65), (0.65, 0.87), (0.87, 1.13)],
        [],
    ),
    "oov1": (
        "And it is tempting to believe that the zorblaxian is behind us.",
        PLAIN,
        ["zorblaxian"],
    ),
    "oov_clitic": (
        "And it's tempting to believe zorblax's danger is behind us.",
        [],
        ["zorblax's"],
    ),
    "thousand": ("And it is 10,000 to believe that the danger is behind us.", [], ["10,000"]),
}


@pytest.mark.parametrize("name", REAL)
def test_what_the_real_mfa_wrote_is_laid_on_the_text(mfa, monkeypatch, name):
    text, first, untimed = REAL[name]
    lab = text.replace("(", "").replace(")", "")
    monkeypatch.setenv("MFA_GRIDS", json.dumps({lab: name}))
    (result,) = MfaAligner().align([utterance("u", text)])
    assert [w.text for w in result.words or ()] == text.split()
    assert times(result.words)[: len(first)] == first
    assert [w.text for w in result.words or () if not is_timed(w)] == untimed


def test_the_clean_up_of_the_real_mfa_would_lose_the_utterance(mfa, monkeypatch):
    text = "And it is dogs' tempting to believe that the danger is behind us."
    monkeypatch.setenv("MFA_GRIDS", json.dumps({text: "possessive_s_cleaned_up"}))
    (result,) = MfaAligner().align([utterance("u", text)])
    assert result.words is None and "dogs'tempting" in result.reason


def test_an_utterance_of_unknown_words_only_is_not_aligned(mfa, monkeypatch):
    text = "zorblax zorblaxian brillig slithy toves gyre gimble"
    monkeypatch.setenv("MFA_GRIDS", json.dumps({text: "alloov"}))
    (result,) = MfaAligner().align([utterance("u", text)])
    assert result.words is None
    assert "u: none of its words is in MFA's dictionary" in result.reason
    assert "aligner.g2p=" in result.reason


class Corpus:
    """A manifest of one second per text, and the `align` command on it."""

    def __init__(self, folder: Path, texts: Sequence[str], *settings: str) -> None:
        self.folder, self.settings = folder, settings
        self.lines = []
        self.write(texts)

    def write(self, texts: Sequence[str]) -> None:
        rows = []
        for i, text in enumerate(texts):
            soundfile.write(self.folder / f"a{i}.wav", noise(1.0, seed=i), 16_000)
            rows.append({"audio_filepath": f"a{i}.wav", "text": text})
        manifest = "".join(json.dumps(row) + "\n" for row in rows)
        (self.folder / "test.jsonl").write_text(manifest)

    def config(self) -> DictConfig:
        settings = ["data=manifest", f"data.path={self.folder}/test.jsonl", "aligner=mfa"]
        config = compose_raw([*settings, *self.settings], config_name="align")
        with open_dict(config):
            config.pop("hydra")
        return config

    def align(self) -> Quality:
        self.lines = []
        return align(self.config(), lambda line: self.lines.append(str(line)))

    def rows(self) -> list[dict[str, object]]:
        (part,) = self.folder.glob("alignments/mfa-english_mfa/*/part-*.jsonl")
        return [json.loads(line) for line in part.read_text().splitlines()]


def test_words_outside_the_dictionary_are_reported_and_have_no_times(mfa, tmp_path):
    corpus = Corpus(tmp_path, ["The zebra runs and zebra's run", "yes no"])
    quality = corpus.align()
    assert (quality.n_aligned, quality.n_words, quality.n_placed, quality.n_untimed) == (2, 8, 6, 2)
    assert any("2 words are not in the aligner's dictionary" in line for line in corpus.lines)
    rows = {row["id"]: row["words"] for row in corpus.rows()}
    assert [word for word, start, end in rows["a0"] if start is end is None] == ["zebra", "zebra's"]
    # What uses the file needs the times of all words of an utterance.
    (folder,) = tmp_path.glob("alignments/mfa-english_mfa/*")
    alignments = Alignments(folder)
    assert with_words(utterance("a0", "The zebra runs and zebra's run"), alignments).words is None
    words = with_words(utterance("a1", "yes no"), alignments).words
    assert words == (TimedWord("yes", 0.1, 0.5), TimedWord("no", 0.5, 0.9))
    # A second call aligns nothing again, and reports the same.
    (mfa.parent / "arguments").unlink()
    assert corpus.align() == quality
    assert not (mfa.parent / "arguments").exists()


def test_a_second_call_of_a_successful_command_succeeds(mfa, tmp_path):
    corpus = Corpus(tmp_path, ["yes", "unalignable"])
    first = corpus.align()
    assert (first.n_aligned, first.n_utterances) == (1, 2)
    second = corpus.align()
    assert (second.n_aligned, second.n_utterances) == (1, 2)
    assert second.reasons == (
        "a1: MFA could not align it (it aligned none of these utterances, NoAlignmentsError)",
    )


def test_a_changed_text_that_fails_is_reported(mfa, tmp_path):
    corpus = Corpus(tmp_path, ["yes", "no"])
    assert corpus.align().n_aligned == 2
    corpus.write(["yes", "unalignable"])
    for _ in range(2):
        quality = corpus.align()
        assert (quality.n_utterances, quality.n_aligned) == (2, 1)
    corpus.write(["yes", "maybe"])
    assert corpus.align().n_aligned == 2
    # The file has both texts of a1 now, and the last one counts.
    (folder,) = tmp_path.glob("alignments/mfa-english_mfa/*")
    words = with_words(utterance("a1", "maybe"), Alignments(folder)).words
    assert words == (TimedWord("maybe", 0.1, 0.9),)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_batch_that_mfa_cannot_align_does_not_block_the_rest(mfa, tmp_path, place):
    texts = ["yes", "no", "maybe"]
    texts[place] = "unalignable"
    quality = Corpus(tmp_path, texts, "aligner.batch=1").align()
    assert (quality.n_aligned, len(quality.reasons)) == (2, 1)


@pytest.mark.parametrize(
    ("name", "error"),
    [("no_alignments", "FeatureGenerationError"), ("no_alignments2", "NoAlignmentsError")],
)
def test_none_of_this_batch_is_known_by_the_recorded_errors(mfa, monkeypatch, name, error):
    monkeypatch.setenv("MFA_REPLAY", f"{name} 1")
    results = list(MfaAligner().align([utterance("u", "yes"), utterance("v", "no")]))
    assert [result.words for result in results] == [None, None]
    assert all(error in result.reason for result in results)


ADVICE = [
    ("missing_acoustic 2", "A model is missing: mfa model download acoustic english_mfa. "),
    ("missing_dictionary 2", "A model is missing: mfa model download dictionary english_mfa. "),
    ("without_fstcompile 1", "fstcompile is missing: MFA's conda environment has it."),
    ("without_sqlite3 1", "sqlite3 is missing: MFA's conda environment has it."),
    ("missing_acoustic_path 2", None),
    ("notzip_acoustic 1", None),
    ("export_error_one_speaker 1", None),
]


@pytest.mark.parametrize(("replay", "advice"), ADVICE)
def test_the_advice_fits_the_recorded_error(mfa, monkeypatch, replay, advice):
    monkeypatch.setenv("MFA_REPLAY", replay)
    with pytest.raises(UserError, match=f"ended with status {replay[-1]}") as caught:
        list(MfaAligner().align([utterance("u", "yes")]))
    message = str(caught.value)
    last = (RECORDED / f"{replay[:-2]}.stderr").read_text().strip().splitlines()[-1]
    assert last in message
    if advice is None:
        assert "missing" not in message and "download" not in message
    else:
        assert advice in message


def test_what_mfa_could_not_export_is_quoted(mfa, monkeypatch):
    content = mfa.read_text().replace(
        "if n_aligned == 0:",
        'Path(output, "output_errors.txt").write_text("OSError: No space left on device\\n\\n")\n'
        "if n_aligned == 0:",
    )
    mfa.write_text(content)
    good, bad = MfaAligner().align([utterance("a", "yes"), utterance("b", "unalignable")])
    assert good.words is not None
    assert bad.reason == "b: MFA could not align it (OSError: No space left on device)"


def test_mfa_that_waits_for_ever_ends_with_its_workers(mfa, monkeypatch):
    worker = mfa.parent / "arguments.worker"
    limits = []
    communicate = subprocess.Popen.communicate

    def until_limit(process, input=None, timeout=None):
        limits.append(timeout)
        if timeout != 1801:
            return communicate(process, input, timeout)
        # The limit passes once the worker is there.
        wait_until(lambda: worker.is_file() and worker.read_text() != "")
        raise subprocess.TimeoutExpired(process.args, timeout)

    monkeypatch.setattr(subprocess.Popen, "communicate", until_limit)
    aligner = MfaAligner()
    limits.clear()
    list(aligner.align([utterance("u", "yes"), utterance("v", "no")]))
    # Half an hour and the audio's length: of two clips of one second, below of one.
    assert limits == [1802]
    with pytest.raises(UserError, match="did not end within 1801 s, its time limit") as caught:
        list(aligner.align([utterance("u", "waiting")]))
    assert "the same command goes on" in str(caught.value)
    wait_until(lambda: not is_running(int(worker.read_text())))


def wait_until(condition):
    deadline_s = time.monotonic() + HANG_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


def is_running(pid):
    """Whether the process is there and not a corpse that nobody has collected yet."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_a_killed_mfa_says_what_to_do_and_earlier_batches_are_kept(mfa, tmp_path):
    corpus = Corpus(tmp_path, ["yes", "no", "killed", "later"], "aligner.batch=2")
    with pytest.raises(
        UserError, match=r"(?s)was killed \(signal 9.*the same command goes on"
    ) as e:
        corpus.align()
    assert "fewer aligner.jobs" in str(e.value)
    assert [row["id"] for row in corpus.rows()] == ["a0", "a1"]
    corpus.write(["yes", "no", "alive", "later"])
    assert corpus.align().n_aligned == 4


@pytest.mark.parametrize("key", ["dictionary", "acoustic", "g2p"])
def test_a_model_given_as_a_file_counts_by_its_content(mfa, tmp_path, key):
    model = tmp_path / "model.zip"
    corpus = Corpus(tmp_path, ["yes"], f"aligner.{key}={model}", f"out={tmp_path}/out")
    model.write_bytes(b"before")
    before = settings_of(corpus.config())
    assert settings_of(corpus.config()) == before
    assert str(before[key]).startswith("model.zip ")
    corpus.align()
    assert str(model) in (mfa.parent / "arguments").read_text().split("\n")
    model.write_bytes(b"after!")
    assert settings_of(corpus.config()) != before
    with pytest.raises(UserError, match=rf"was made with {key}='model\.zip "):
        corpus.align()


def test_settings_of_named_models_are_their_names(mfa, tmp_path):
    settings = settings_of(Corpus(tmp_path, ["yes"]).config())
    assert settings["dictionary"] == settings["acoustic"] == "english_mfa"
    assert settings["single_speaker"] is False


@pytest.mark.parametrize("key", ["dictionary", "acoustic", "g2p"])
@pytest.mark.parametrize("name", ["nowhere/model", "model.zip", "~/nowhere.dict"])
def test_a_path_to_no_model_is_refused_before_mfa_starts(mfa, key, name):
    with pytest.raises(UserError, match=rf"aligner\.{key}=\S+: no such file; correct the path"):
        MfaAligner(**{key: name})
    assert not (mfa.parent / "arguments").exists()


def test_without_mfa_it_says_how_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="neither mfa nor conda is on PATH") as caught:
        find_mfa("aligner")
    assert "conda create -n aligner -c conda-forge montreal-forced-aligner" in str(caught.value)


def test_mfa_is_taken_from_path_else_from_the_environment(mfa, tmp_path, monkeypatch):
    assert find_mfa("aligner") == [str(mfa)]
    inside = stand_in(tmp_path / "envs" / "aligner")
    conda = (
        "#!/bin/sh\n"
        f'[ "$1" = run ] && [ "$2" = -n ] && [ -d {tmp_path}/envs/"$3" ] || exit 1\n'
        f'program={tmp_path}/envs/"$3"/"$4"; shift 4; exec "$program" "$@"\n'
    )
    program(mfa.parent / "conda", conda)
    mfa.unlink()
    command = find_mfa("aligner")
    assert command == [str(mfa.parent / "conda"), "run", "-n", "aligner", "mfa"]
    (result,) = MfaAligner(environment="aligner").align([utterance("u", "yes no")])
    assert [w.text for w in result.words or ()] == ["yes", "no"]
    assert inside.is_file() and os.environ["PATH"] == str(mfa.parent)
    with pytest.raises(UserError, match="mfa align ended with status 1"):
        list(MfaAligner(environment="other").align([utterance("u", "yes")]))


@pytest.mark.parametrize("setting", ["jobs", "batch"])
def test_bad_settings_are_refused_before_mfa_is_looked_for(setting):
    with pytest.raises(UserError, match=rf"aligner\.{setting}=0: 1 or more"):
        MfaAligner(**{setting: 0})
