"""Names are nouns, and docstrings, comments and messages are plain English."""

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PARTICIPLES = {"told", "found", "kept", "known", "own", "said"}
PARTICIPLES |= {"wanted", "made", "shown", "given", "there", "left"}
MOST_PARTICIPLES = {
    "streaming_asr/methods": 6,
    "streaming_asr/metrics": 1,
}
"""Uses of a participle as a name, by folder: ChunkFormer has six for its left context. A folder may
not have more; one that is not listed has none."""

BETTER = {
    r"(?:is|are|was|were|be|been|being)(?: not| never| also)? (?:said|told)": "name the actor",
    "beside": "next to, apart from, during, compared with",
    "alone": "only, by itself",
    "stand|stands|stood": "is",
    "but for": "except",
    "anew": "again",
    "likewise": "also",
    "mended": "fixed",
    "dear": "expensive",
    "hear|hears|heard|hearing": "a model encodes, processes, transcribes",
    "say|says|said": "a model outputs, a file has, a command reports",
}
NOT_PLAIN = re.compile(rf"(?<![`\w.])(?:{'|'.join(BETTER)})(?![`\w(:])", re.IGNORECASE)
EXCEPTIONS = (
    "The reference's words last as long as it takes to say them.",  # people say words
    "a an and are as at but for had",  # a list of words
    'A row with "p = 0.0020 alone" has that p',  # a quotation of the pages
    r"\bp = (0\.\d+) alone",  # finds what is quoted
)


def names(tree):
    """Yield the names that a module gives to variables, parameters, attributes and functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name


def prose(source):
    """Yield a module's docstrings, comments and texts of several words, with their lines."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, " ".join(node.value.split())


def not_plain(source):
    """Return the words of a module that are not plain, each with its line and its surroundings."""
    return [
        f"{line}: {match[0]!r} in {text[max(0, match.start() - 40) : match.end() + 30]!r}"
        for line, text in prose(source)
        if not any(each in text for each in EXCEPTIONS)
        for match in NOT_PLAIN.finditer(text)
    ]


def modules(folder):
    """Return a folder's modules, with those of folders inside it below streaming_asr/NAME and
    experiments/NAME only."""
    return sorted((ROOT / folder).glob("**/*.py" if "/" in folder else "*.py"))


FOLDERS = sorted(
    str(each.relative_to(ROOT))
    for top in ("streaming_asr", "experiments")
    for each in (ROOT / top).iterdir()
    if each.is_dir() and any(each.glob("**/*.py"))
)
FOLDERS += ["streaming_asr", "experiments"]


@pytest.mark.parametrize("folder", FOLDERS)
def test_participles_as_names_do_not_become_more(folder):
    uses = [
        f"{file.relative_to(ROOT)}: {name}"
        for file in modules(folder)
        for name in names(ast.parse(file.read_bytes()))
        if name in PARTICIPLES
    ]
    problem = "use nouns that name the thing, as warning, hypothesis or n_words"
    assert len(uses) <= MOST_PARTICIPLES.get(folder, 0), "\n".join([problem, *uses])


def test_participles_as_names_are_at_most_ten():
    assert sum(MOST_PARTICIPLES.values()) <= 10


def test_every_listed_folder_exists():
    assert set(MOST_PARTICIPLES) <= set(FOLDERS)


@pytest.mark.parametrize("folder", FOLDERS)
def test_texts_are_plain_english(folder):
    faults = [
        f"{file.relative_to(ROOT)}:{fault}"
        for file in modules(folder)
        for fault in not_plain(file.read_text(encoding="utf-8"))
    ]
    assert not faults, "\n".join([*faults, *(f"{k}: {v}" for k, v in BETTER.items())])


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("# it is said twice", ["is said"]),
        ("x = 1  # nothing stands here", ["stands"]),
        ('"""Keep it beside\nthe log but\nfor errors."""', ["beside", "but for"]),
        ('raise ValueError(f"{x}: heard alone")', ["heard", "alone"]),
        ('"""Give `said` or heard: a mask."""', []),
        ('x = ["alone"]  # a key of a file', []),
        ("alone = beside(heard)", []),
    ],
)
def test_a_word_that_is_not_plain_is_reported(source, words):
    assert [fault.split("'")[1] for fault in not_plain(source)] == words


def test_every_kind_of_name_counts():
    source = "def told(found, *, kept=1):\n    for known, own in []:\n        self.said = made"
    assert PARTICIPLES & set(names(ast.parse(source))) == {
        "told", "found", "kept", "known", "own", "said",
    }  # fmt: skip
