"""What every method outputs on three clips, compared with what it output when it was last changed.

A change inside a module that should change no answer leaves these files as they are. A change that
should change one writes them again, and its commit shows which words moved:

    PYTHONPATH=tests/support python tests/run/test_run_golden.py
"""

import json
from pathlib import Path

import pytest
from places import TESTS

from streaming_asr.events.check import STEP_KINDS
from streaming_asr.models.find import find_here
from streaming_asr.run.command import main as run

FOLDER = TESTS / "fixtures" / "golden"
METHODS = "offline,reencode,whisperrt,u2,hush_word,ufal,simul_whisper,star"
SETS = {  # name of the data: model, chunks, methods
    "mini": ("mini", "300ms,1s", f"{METHODS},chunkformer"),
    "voices": ("tiny.en", "1s,2s", METHODS),
}
TIME_TOLERANCE_S = 0.001


def outputs(name, folder):
    """Run the cells of a set; return the steps of each "method chunk clip".

    A step: [kind, samples of audio, words retracted, words committed, their (start, end), the rest
    of the text].
    """
    model, chunks, methods = SETS[name]
    given = ["-m", f"method={methods}", f"chunk={chunks}", f"data={name}", f"model={model}"]
    given += ["limit=3", "tracker=none", "threads=1", f"hydra.sweep.dir={folder}"]
    assert not run(given)
    return {
        f"{cell['method']['name']} {cell['chunk']} {utterance}": steps
        for file in sorted(folder.rglob("events.jsonl"))
        for cell, utterance, steps in _utterances(file)
    }


def _utterances(file):
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    (header,) = (line for line in lines if line["kind"] == "header")
    for name in dict.fromkeys(line["utt"] for line in lines if "utt" in line):
        steps = [
            [
                line["kind"],
                line["audio_samples"],
                line["retracted"],
                line["committed"],
                line["words"] and [times[:2] for times in line["words"]],
                "".join(line["partial"]),
            ]
            for line in lines
            if line.get("utt") == name and line["kind"] in STEP_KINDS
        ]
        yield header["config"], name, steps


@pytest.mark.slow
@pytest.mark.parametrize("name", SETS)
def test_no_method_s_output_changes(name, tmp_path):
    if name == "voices" and find_here("openai/whisper-tiny.en") is None:
        pytest.skip("tiny.en is not here: streaming-asr get tiny.en")
    expected = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    found = outputs(name, tmp_path)
    assert sorted(found) == sorted(expected)
    for clip, steps in expected.items():
        assert len(found[clip]) == len(steps), clip
        for step, now in zip(steps, found[clip], strict=True):
            assert now[:4] + now[5:] == step[:4] + step[5:], clip
            assert (now[4] is None) == (step[4] is None), clip
            for times, times_now in zip(step[4] or [], now[4] or [], strict=True):
                assert times_now == pytest.approx(times, abs=TIME_TOLERANCE_S), clip


if __name__ == "__main__":
    from tempfile import TemporaryDirectory

    FOLDER.mkdir(exist_ok=True)
    for each in SETS:
        with TemporaryDirectory() as place:
            rows = outputs(each, Path(place))
        lines = [f"{json.dumps(clip)}: {json.dumps(steps)}" for clip, steps in rows.items()]
        (FOLDER / f"{each}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
