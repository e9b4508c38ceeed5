"""The n-gram model of U2's first pass (method.lm), from texts that no test and no dev set holds.

    python -m experiments.real.language_model --speechocean762 mispeech/speechocean762 \\
        --speech outputs/real/voices/common_voice{,_v1}/train.jsonl \\
        --dev outputs/real/dev.jsonl outputs/real/readers.jsonl --out outputs/real/lm

OUT is a folder that method.lm takes: lm.arpa.xz and lm.json, which names the sources. The texts are
addresses on the State of the Union since 1900, example sentences of WordNet, eleven books of before
1914 and those of the speech that the trainings use, in the classes of --weights, a folder with a
CTC head or branch; a branch's are of plain letters, so that sentences with digits are no lines of
its model. git fetches the books; where it cannot, --books names a folder with them. Left out are
sentences that are kept for tests, speakers and texts of the frozen lists, and the texts of
--dev. Kaldingram counts, smooths (Kneser-Ney) and prunes: pip install -e '.[lm]'.
"""

from __future__ import annotations

import argparse
import json
import lzma
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

from experiments.real.packages import ADDRESSES, WORDNET, cache_root, obtain
from experiments.real.sentences import addresses, examples, for_training, words_of
from experiments.real.training_set import TrainingSet
from experiments.real.voices_set import SOURCES
from streaming_asr.corpora.lists import held_by
from streaming_asr.corpora.manifest import read_manifest
from streaming_asr.corpora.obtain import clone_once
from streaming_asr.errors import UserError, check_range
from streaming_asr.files import HERE, replacing, write_text
from streaming_asr.methods.u2.branch import STRIDE
from streaming_asr.methods.u2.branch_files import is_branch
from streaming_asr.methods.u2.head import load_head
from streaming_asr.methods.u2.pieces import PieceTokenizer, has_digits, load_pieces
from streaming_asr.methods.u2.tokenizer import CtcTokenizer
from streaming_asr.run.obtain import table
from streaming_asr.terminal import exit_status
from streaming_asr.whisper.load import Whisper, load_whisper
from streaming_asr.whisper.ngram import CARD_FILE, MODEL_FILE, vocabulary_hash

FIRST_YEAR = 1900  # older addresses are written as nobody speaks
WEIGHTS = HERE / "data/weights/tiny.en/u2/any_chunk"
SPEECHOCEAN762 = "speechocean762"
LICENCES = {
    **{name: source.licence for name, source in SOURCES.items()},
    SPEECHOCEAN762: "free, also commercially (OpenSLR 101)",
}
BOOKS = "teropa/nlp@f89bc5a15b516208de1cfe2abe9692b7ed9a43e2:resources/corpora/gutenberg"
"""Novels and stories of NLTK's selection of Project Gutenberg, as text."""
PROSE = (
    *("austen-emma", "austen-persuasion", "austen-sense", "bryant-stories", "burgess-busterbrown"),
    *("carroll-alice", "chesterton-ball", "chesterton-brown", "chesterton-thursday"),
    *("edgeworth-parents", "melville-moby_dick"),
)
KALDINGRAM = "kaldingram.cli"
NUMBER = re.compile(r"-?\d+\.\d+")
TITLE = re.compile(r"\b(Mr|Mrs|Dr|St)\.")
END = re.compile(r"(?<=[.!?])\s+")


@dataclass
class Texts:
    """The sentences of several sources, each once; `rows` has what was taken of each.

    apart: texts that may not be in the model, whole or as one of their sentences, next to those of
    the frozen lists.
    """

    apart: Iterable[str]
    rows: list[dict[str, str | int]] = field(default_factory=list)
    _seen: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._apart = {words_of(one) for text in self.apart for one in (text, *END.split(text))}

    def of(self, name: str, licence: str, sentences: Iterable[str]) -> Iterator[str]:
        """Yield what is new among `sentences` and may be learned."""
        taken = n_omitted = 0
        for sentence in sentences:
            words = words_of(sentence)
            utterance = SimpleNamespace(id="", speaker=None, text=sentence, language="en")
            parts = (sentence, *END.split(sentence))
            if any(words_of(one) in self._apart for one in parts) or held_by(utterance):
                n_omitted += 1
            elif words and words not in self._seen:
                self._seen.add(words)
                taken += 1
                yield sentence
        self.rows.append(
            {"name": name, "licence": licence, "sentences": taken, "left_out": n_omitted}
        )


def written(root: Path, texts: Texts) -> Iterator[str]:
    """Yield the sentences of the registries' packages, obtained below `root`."""
    years = addresses(obtain(ADDRESSES, root))
    late = [one for year, those in years.items() if year >= FIRST_YEAR for one in those]
    name = f"addresses on the State of the Union since {FIRST_YEAR} ({ADDRESSES})"
    yield from texts.of(name, ADDRESSES.licence, for_training(late))
    of_wordnet = for_training(examples(obtain(WORDNET, root)))
    yield from texts.of(f"examples of WordNet ({WORDNET})", WORDNET.licence, of_wordnet)


def obtain_books(root: Path) -> Path:
    """Return the folder of the books, cloned below `root`. Raises UserError where git cannot."""
    place = root / "books"
    path = BOOKS.rpartition(":")[2]
    patterns = [f"/{path}/{name}.txt" for name in PROSE]
    clone_once(BOOKS, patterns, place, "books", "name a folder with them with --books")
    return place / path


def of_books(folder: Path) -> Iterator[str]:
    """Yield the sentences of the books, without headings. Raises UserError where one is missing."""
    for name in PROSE:
        file = folder / f"{name}.txt"
        if not file.is_file():
            raise UserError(f"{file}: no such file; give the folder of the books with --books")
        text = file.read_text("utf-8", errors="replace").replace("--", " ")
        text = TITLE.sub(r"\1", text)  # their full stops end no sentence
        for paragraph in re.split(r"\n\s*\n", text):
            for sentence in END.split(" ".join(paragraph.split())):
                if sentence[-1:] in tuple(".!?\"'") and not sentence.isupper():
                    yield sentence


def spoken(manifests: Sequence[Path], human: str | None, texts: Texts) -> Iterator[str]:
    """Yield the texts of the trainings' speech; `human`: speechocean762's folder or hub name."""
    for manifest in manifests:
        name = manifest.parent.name
        heard = (utterance.text for utterance in TrainingSet([manifest], None, []))
        yield from texts.of(name, LICENCES.get(name, "as its corpus has it"), heard)
    if human is not None:
        heard = (utterance.text for utterance in TrainingSet([], human, []))
        yield from texts.of(SPEECHOCEAN762, LICENCES[SPEECHOCEAN762], heard)


def in_classes(tokenizer: CtcTokenizer | PieceTokenizer, sentences: Iterable[str]) -> Iterator[str]:
    """Yield the numbers of the classes that spell each sentence; pieces spell no digits."""
    for sentence in sentences:
        if not (isinstance(tokenizer, PieceTokenizer) and has_digits(sentence)):
            yield " ".join(map(str, tokenizer.encode(f" {sentence}")))


def ngrams(lines: Iterable[str], n_classes: int, order: int, threshold: float, arpa: Path) -> None:
    """Write the model of `lines`, each the numbers of its classes, to `arpa`.

    Every class counts once by itself, so that none is impossible. threshold: n-grams are left out
    whose loss raises the perplexity by less than this part; 0 keeps all. Raises UserError where
    Kaldingram is not installed or fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        text, whole = Path(folder) / "text", Path(folder) / "whole.arpa"
        alone = [*map(str, range(n_classes)), "<unk>"]  # KenLM warns of a model without <unk>
        text.write_text("".join(f"{line}\n" for line in (*lines, *alone)), encoding="ascii")
        _kaldingram("train", f"--ngram-order={order}", f"--text={text}", f"--lm={whole}")
        if threshold:
            _kaldingram("prune", f"--threshold={threshold}", f"--lm={whole}", f"--write-lm={arpa}")
        else:
            whole.replace(arpa)


def _kaldingram(*arguments: str) -> None:
    command = [sys.executable, "-m", KALDINGRAM, *arguments]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        message = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise UserError(
            f"kaldingram {arguments[0]}: {message}; install it with pip install -e '.[lm]'"
        )


def tokenizer_of(folder: str | Path, whisper: Whisper) -> CtcTokenizer | PieceTokenizer:
    """Return the tokenizer of the head or branch in `folder`, without loading a branch's weights.

    Raises UserError where there is neither.
    """
    if is_branch(folder):
        return PieceTokenizer(whisper, load_pieces(folder), STRIDE)
    return CtcTokenizer(whisper, load_head(folder, whisper).out_features - 1)


def program(argv: Sequence[str] | None = None) -> None:
    """Run the command line. Raises UserError."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--weights", type=Path, default=WEIGHTS, help="a folder with a head or branch"
    )
    parser.add_argument("--model", default="tiny.en", choices=("tiny.en", "base"))
    parser.add_argument("--speech", type=Path, nargs="+", default=[], help="manifests")
    parser.add_argument("--speechocean762", help="folder, or name on the hub")
    parser.add_argument("--books", type=Path, help="a folder with the books")
    parser.add_argument("--dev", type=Path, nargs="+", required=True, help="manifests")
    parser.add_argument("--order", type=int, default=5)
    parser.add_argument("--threshold", type=float, default=3e-7, help="of pruning; 0: all is kept")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(argv)
    check_range(2, 5, order=options.order)
    check_range(0, threshold=options.threshold)
    apart = [utterance.text for manifest in options.dev for utterance in read_manifest(manifest)]
    whisper = load_whisper(table()[options.model]().folder)
    tokenizer = tokenizer_of(options.weights, whisper)
    n_classes = tokenizer.n_tokens
    texts = Texts(apart)
    books = options.books or obtain_books(cache_root())
    sentences = [
        *written(cache_root(), texts),
        *texts.of(f"books of Project Gutenberg ({BOOKS})", "public domain", of_books(books)),
        *spoken(options.speech, options.speechocean762, texts),
    ]
    for row in texts.rows:
        print(
            "{name}: {sentences} sentences, {left_out} of tests or dev left out; {licence}".format(
                **row
            )
        )
    lines = in_classes(tokenizer, sentences)
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        arpa = Path(folder) / "lm.arpa"
        ngrams(lines, n_classes, options.order, options.threshold, arpa)
        # A thousandth is less than any score notices, and halves the file.
        content = NUMBER.sub(lambda match: f"{float(match[0]):.3f}", arpa.read_text("ascii"))
    with replacing(options.out / MODEL_FILE) as scratch:
        scratch.write_bytes(lzma.compress(content.encode()))
    card = {
        "vocabulary": vocabulary_hash(tokenizer.spellings()),
        "classes": n_classes,
        "model": options.model,
        "order": options.order,
        "threshold": options.threshold,
        "sources": texts.rows,
    }
    write_text(options.out / CARD_FILE, json.dumps(card, indent=2) + "\n")
    counts = re.findall(r"^ngram \d=(\d+)", content, flags=re.MULTILINE)
    n_bytes = (options.out / MODEL_FILE).stat().st_size
    print(f"{options.out}: {sum(map(int, counts))} n-grams, {n_bytes / 1e6:.2f} MB")


if __name__ == "__main__":
    sys.exit(exit_status(program))
