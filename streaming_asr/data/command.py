"""`streaming-asr data check data=...`, `... shards data=... out=...`, `... manifest`."""

from __future__ import annotations

import random
import sys
from collections.abc import Set
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING, DictConfig, OmegaConf

from streaming_asr.align.auto import timed_utterances
from streaming_asr.cells.folder import EVENTS
from streaming_asr.config.build import build, program
from streaming_asr.config.schema import check_settings, setting
from streaming_asr.corpora.rows import text_lines
from streaming_asr.errors import UserError, did_you_mean
from streaming_asr.events.log import read_log
from streaming_asr.events.record import committed_words
from streaming_asr.text.style import in_style
from streaming_asr.utterance import TimedWord, Utterance

HELP = """\
streaming-asr data check data=librispeech data.path=/corpora/LibriSpeech
    is it whole? counts, durations, word times; names every broken file, exit status 1 for any
streaming-asr data shards data=librispeech data.path=... data.split=train-clean-100 \\
    data.alignments=... out=outputs/librispeech/train
    training shards of the utterances with word times, without what a test list holds;
    'data.split=[train-clean-100,train-clean-360]' fills them from several splits
streaming-asr data manifest data=librispeech data.path=... data.split=dev-other \\
    limit=200 out=outputs/librispeech/dev.jsonl
    a manifest of its utterances, as data=manifest and dev_manifest= take it

  style=FOLDER     manifest, shards: references in one case take case and punctuation from the
                   texts of a run over them: streaming-asr run method=offline model=... data=...
  biasing=FILE     manifest: each utterance gets its words that are in FILE, one a line, as its list
                   of B-WER, and names=10 a prompt of these and others from FILE, 10 together
  data=NAME        a corpus: streaming-asr list corpora; data.KEY=VALUE sets its options
  limit=N          so many utterances
  check: decode=false reads headers only; workers=4 reads so many files at once
  shards: out=FOLDER; max_s=30 leaves out what is longer
"""


MOST_NAMES = 200


@dataclass
class DataConfig:
    """The top level of conf/data_command.yaml. A key that is not here is refused."""

    data: Any = MISSING
    limit: int | None = setting(None, least=1)
    decode: bool = True
    workers: int = setting(4, least=1)
    out: str | None = None
    max_s: float = 30.0
    style: str | None = None
    biasing: str | None = None
    names: int | None = setting(None, least=1, most=MOST_NAMES)
    output: str = "outputs"


ConfigStore.instance().store(name="data_schema", node=DataConfig)


def run_check(config: DictConfig) -> int:
    """Print the report and return 1 where anything is broken."""
    from streaming_asr.data.check import check, lines

    corpus = build(config.data)
    totals = check(corpus, decode=config.decode, workers=config.workers, limit=config.limit)
    print("\n".join(lines(corpus, totals)))
    return 1 if totals.problems else 0


def run_shards(config: DictConfig) -> int:
    """Write training shards and print what went into them."""
    from streaming_asr.corpora.shards import write_shards

    utterances = _utterances(config)
    written, without, long = write_shards(utterances, Path(config.out), max_s=config.max_s)
    print(
        f"{written} utterances written to {config.out}; left out: {without} without word times, "
        f"{long} longer than {config.max_s:g} s"
    )
    return 0


def run_manifest(config: DictConfig) -> int:
    """Write a manifest of the corpus and print its number of utterances."""
    from streaming_asr.corpora.manifest import write_manifest

    if config.names is not None and config.biasing is None:
        raise UserError(f"names={config.names}: are of a file of words; give biasing=<the file>")
    utterances = _utterances(config)
    if config.biasing is not None:
        words = sorted({line.strip().lower() for line in text_lines(Path(config.biasing))} - {""})
        utterances = [_listed(each, words, set(words), config.names) for each in utterances]
    written = write_manifest(utterances, Path(config.out))
    print(f"{written} utterances written to {config.out}")
    return 0


def _listed(
    utterance: Utterance, words: list[str], vocabulary: Set[str], n_names: int | None
) -> Utterance:
    """Return the utterance with the list of those of `words` that it has, and with a prompt of
    these and others, drawn by its id, `n_names` together at least. vocabulary: `words` as a set."""
    spoken = [word.strip('.,;:?!"') for word in utterance.text.lower().split()]
    biasing = [word for word in dict.fromkeys(spoken) if word in vocabulary]
    rng = random.Random(utterance.id)
    others = [w for w in rng.sample(words, min(len(words), MOST_NAMES)) if w not in biasing]
    names = biasing + others[: max(0, (n_names or 0) - len(biasing))]
    rng.shuffle(names)
    prompt = None if n_names is None else ", ".join(names)
    return replace(utterance, biasing=tuple(biasing), prompt=prompt)


def _utterances(config: DictConfig) -> list[Utterance]:
    """Return the corpus's utterances, with times where they are asked for, and in the style of the
    run in the folder `style`. Raises UserError where that has the text of none of them.

    Word times stay where a text has as many words as before.
    """
    utterances = timed_utterances(config.data, config.limit)
    if config.style is None:
        return utterances
    log = read_log(Path(config.style) / EVENTS)
    texts = {
        each.utt: "".join(text for text, _ in committed_words(each.steps))
        for each in log.utterances
        if each.status == "ok"
    }
    if not any(utterance.id in texts for utterance in utterances):
        raise UserError(
            f"style={config.style}: has no text of these utterances; name the folder of a run over "
            "the same data, as outputs/<name>/<model>/<data>/offline/300ms"
        )
    return [_in_style(each, texts.get(each.id, "")) for each in utterances]


def _in_style(utterance: Utterance, output: str) -> Utterance:
    """Return the utterance with its text in the style of `output`; "" leaves it as it is."""
    text = in_style(utterance.text, output, utterance.language) if output else utterance.text
    words, written = utterance.words, text.split()
    if words is not None and len(words) == len(written):
        words = tuple(TimedWord(w, a, b) for w, (_, a, b) in zip(written, words, strict=True))
    elif text != utterance.text:
        words = None
    return replace(utterance, text=text, words=words)


COMMANDS = {"check": run_check, "shards": run_shards, "manifest": run_manifest}


def main() -> int:
    """Run the command line and return its exit status."""
    arguments = sys.argv[1:]
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(HELP)
        return 0
    command = arguments[0]
    if command not in COMMANDS:
        print(
            f"error: {command}: no such command{did_you_mean(command, COMMANDS)}; there are "
            f"{', '.join(COMMANDS)}, as in: streaming-asr data check data=mini",
            file=sys.stderr,
        )
        return 2
    before = sys.argv
    sys.argv = [f"{sys.argv[0]} {command}", *arguments[1:]]
    try:
        return program("data_command", partial(_run, command))
    finally:
        sys.argv = before


def _run(command: str, config: DictConfig) -> int:
    for key in sorted(OmegaConf.missing_keys(config)):
        raise UserError(f"{key}: has no default; give {key}=<value>")
    if command != "check" and config.out is None:
        raise UserError("out: has no default; give out=<the folder of shards, or the .jsonl file>")
    check_settings(config, DataConfig)
    OmegaConf.resolve(config)
    return COMMANDS[command](config)
