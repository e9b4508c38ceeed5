"""MFA is driven end to end against a program that stands in for it."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import soundfile
from omegaconf import open_dict
from places import TESTS
from tiny import noise

from streaming_asr.align.command import align
from streaming_asr.align.mfa import MfaAligner, find_mfa
from streaming_asr.config.compose import compose_raw
from streaming_asr.errors import UserError
from streaming_asr.utterance import TimedWord, Utterance

# As `mfa align`: reads <corpus>/<speaker>/<name>.wav and .lab, writes <name>.TextGrid below the
# same speaker with tiers words and phones, blank intervals included; words lower-cased without
# punctuation, clitics apart, those outside the dictionary <unk>; none for what it cannot align.
STAND_IN = """\
#!{python}
import os, signal, sys
from pathlib import Path

sys.path.insert(0, {tests!r})
arguments = sys.argv[1:]
if arguments == ["version"]:
    print("3.4.3")
    sys.exit({version_status})
Path({log!r}).write_text("\\n".join(arguments))
assert arguments[0] == "align"
corpus, dictionary, acoustic, output = arguments[-4:]
if dictionary != "english_mfa":
    print(f"PretrainedModelNotFoundError: {{dictionary}}", file=sys.stderr)
    sys.exit(1)
import soundfile
from corpora_layouts import text_grid

for wav in sorted(Path(corpus).rglob("*.wav")):
    said = wav.with_suffix(".lab").read_text()
    if "killed" in said:
        os.kill(os.getpid(), signal.SIGKILL)
    if "unalignable" in said:
        continue
    words = []
    for word in said.lower().replace(",", "").replace(".", "").split():
        words += ["<unk>"] if "zebra" in word else word.replace("'", " '").split()
    if "swapped" in said:
        words = ["something", "else"]
    length = soundfile.info(wav).duration
    step = (length - 0.2) / len(words)
    timed = [(w, 0.1 + i * step, 0.1 + (i + 1) * step) for i, w in enumerate(words)]
    place = Path(output) / wav.relative_to(corpus).with_suffix(".TextGrid")
    text_grid(place, timed, length)
"""


def program(path: Path, content: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def stand_in(folder: Path, version_status: int = 0) -> Path:
    content = STAND_IN.format(
        python=sys.executable,
        tests=str(TESTS),
        log=str(folder / "arguments"),
        version_status=version_status,
    )
    return program(folder / "mfa", content)


@pytest.fixture
def mfa(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = stand_in(tmp_path / "bin")
    monkeypatch.setenv("PATH", str(path.parent))
    return path


def utterance(name: str, text: str, speaker: str | None = "ann") -> Utterance:
    return Utterance(id=name, text=text, audio=lambda: noise(1.0), duration_s=1.0, speaker=speaker)


def times(words: Sequence[TimedWord] | None) -> list[tuple[float, float]]:
    return [(word.start, word.end) for word in words or ()]


def test_mfa_gets_its_corpus_and_its_textgrids_time_the_written_words(mfa: Path) -> None:
    said = [
        utterance("1089-1", "Don't feed the zebra, please."),
        utterance("b/2", "Hello - there.", speaker="A. B/c"),
        utterance("c", "Hello again.", speaker=None),
    ]
    first, second, third = MfaAligner(jobs=2).align(said)
    assert first.words is not None
    assert [w.text for w in first.words] == ["Don't", "feed", "the", "zebra,", "please."]
    step = 0.8 / 6  # don 't feed the <unk> please
    np.testing.assert_allclose(times(first.words)[0], (0.1, 0.1 + 2 * step), atol=1e-6)
    np.testing.assert_allclose(times(first.words)[3], (0.1 + 4 * step, 0.1 + 5 * step), atol=1e-6)
    assert [w.text for w in second.words or ()] == ["Hello", "there."]
    assert [w.text for w in third.words or ()] == ["Hello", "again."]
    given = (mfa.parent / "arguments").read_text().split("\n")
    assert given[0] == "align" and given[-3:-1] == ["english_mfa", "english_mfa"]
    assert given[given.index("-j") + 1] == "2"
    assert given[given.index("--output_format") + 1] == "long_textgrid"


def test_what_mfa_leaves_out_or_aligns_as_other_words_is_reported(mfa: Path) -> None:
    said = [
        utterance("good", "yes"),
        utterance("noisy", "unalignable"),
        utterance("other", "swapped words of three or more"),
        utterance("empty", ""),
    ]
    found = {result.utterance.id: result for result in MfaAligner().align(said)}
    assert found["good"].words is not None
    assert "could not align it (no TextGrid)" in found["noisy"].reason
    assert "of another text: 'something else' is aligned" in found["other"].reason
    assert "has no text to align" in found["empty"].reason


def test_a_killed_mfa_says_what_to_do_and_earlier_batches_are_kept(
    mfa: Path, tmp_path: Path
) -> None:
    rows = []
    for i, text in enumerate(["yes", "no", "killed", "later"]):
        soundfile.write(tmp_path / f"a{i}.wav", noise(1.0, seed=i), 16_000)
        rows.append({"audio_filepath": f"a{i}.wav", "text": text})
    manifest = tmp_path / "test.jsonl"
    manifest.write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = ["data=manifest", f"data.path={manifest}", "aligner=mfa", "aligner.batch=2"]

    def run() -> object:
        config = compose_raw(settings, config_name="align")
        with open_dict(config):
            config.pop("hydra")
        return align(config, lambda _: None)

    with pytest.raises(
        UserError, match=r"(?s)was killed \(signal 9.*the same command goes on"
    ) as e:
        run()
    assert "fewer aligner.jobs" in str(e.value) and "same command goes on" in str(e.value)
    (part,) = tmp_path.glob("alignments/mfa-english_mfa/*/part-*.jsonl")
    assert [json.loads(line)["id"] for line in part.read_text().splitlines()] == ["a0", "a1"]
    rows[2]["text"] = "alive"
    manifest.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert run().n_aligned == 4  # type: ignore[attr-defined]


def test_mfas_own_error_is_shown_with_the_models_to_download(mfa: Path) -> None:
    with pytest.raises(UserError, match="ended with status 1") as caught:
        list(MfaAligner(dictionary="klingon").align([utterance("u", "yes")]))
    assert "PretrainedModelNotFoundError: klingon" in str(caught.value)
    assert "mfa model download dictionary klingon" in str(caught.value)


def test_without_mfa_it_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="neither mfa nor conda is on PATH") as caught:
        find_mfa("aligner")
    assert "conda create -n aligner -c conda-forge montreal-forced-aligner" in str(caught.value)


def test_a_broken_mfa_on_path_gives_way_to_one_in_an_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path / "bin", version_status=1)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(UserError, match="`mfa version` fails"):
        find_mfa("aligner")
    inside = stand_in(tmp_path / "envs" / "aligner")
    conda = (
        "#!/bin/sh\n"
        f'[ "$1" = run ] && [ "$2" = -n ] && [ -d {tmp_path}/envs/"$3" ] || exit 1\n'
        f'program={tmp_path}/envs/"$3"/"$4"; shift 4; exec "$program" "$@"\n'
    )
    program(tmp_path / "bin" / "conda", conda)
    command = find_mfa("aligner")
    assert command == [str(tmp_path / "bin/conda"), "run", "-n", "aligner", "mfa"]
    (result,) = MfaAligner(environment="aligner").align([utterance("u", "yes no")])
    assert [w.text for w in result.words or ()] == ["yes", "no"]
    assert inside.is_file() and os.environ["PATH"] == str(tmp_path / "bin")
    with pytest.raises(UserError, match="`conda run -n other mfa version` fails"):
        find_mfa("other")


@pytest.mark.parametrize("setting", ["jobs", "batch"])
def test_bad_settings_are_refused_before_mfa_is_looked_for(setting: str) -> None:
    with pytest.raises(UserError, match=rf"aligner\.{setting}=0: 1 or more"):
        MfaAligner(**{setting: 0})  # type: ignore[arg-type]
