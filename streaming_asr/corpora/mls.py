"""Multilingual LibriSpeech (Pratap et al. 2020; openslr.org/94).

    mls_<language>/<split>/transcripts.txt                  "id<TAB>text"
    mls_<language>/<split>/audio/<speaker>/<book>/<speaker>_<book>_<utterance>.flac   (or .opus)

Splits are train, dev and test; the text is lower case without punctuation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from streaming_asr.corpora.loader import Loader, Split, is_there, need_folder, need_split, recorded
from streaming_asr.corpora.rows import text_rows
from streaming_asr.errors import UserError
from streaming_asr.utterance import Utterance

CODES = {
    "english": "en",
    "german": "de",
    "dutch": "nl",
    "french": "fr",
    "spanish": "es",
    "italian": "it",
    "portuguese": "pt",
    "polish": "pl",
}


@dataclass(kw_only=True, eq=False)
class Mls(Loader):
    """Read books in eight languages; `language` is an English name (german) or a code (de)."""

    language: str
    split: Split = "test"

    def __post_init__(self) -> None:
        names = {code: name for name, code in CODES.items()}
        self.language = names.get(self.language, self.language)
        if self.language not in CODES:
            raise UserError(f"data.language={self.language}: MLS has {', '.join(sorted(CODES))}")
        super().__post_init__()

    def called(self) -> str:
        return f"mls_{self.language}"

    def scan(self) -> Iterator[Utterance | UserError]:
        root = need_folder(self.path, "MLS", self.called())
        splits = [file.parent.name for file in root.glob("*/transcripts.txt")]
        need_split(root, self.split, splits, self.name)
        folder = root / self.split
        transcripts = folder / "transcripts.txt"
        for where, line in text_rows(transcripts):
            name, _, text = line.partition("\t")
            if not text.strip() or name.count("_") != 2:
                yield UserError(
                    f"{where}: {line[:60]!r}; a line is "
                    "`speaker_book_utterance<TAB>text`, the text not empty"
                )
                continue
            speaker, book, _ = name.split("_")
            stem = folder / "audio" / speaker / book / name
            flac, opus = stem.with_suffix(".flac"), stem.with_suffix(".opus")
            yield recorded(
                opus if is_there(opus) and not is_there(flac) else flac,
                text,
                where,
                speaker=speaker,
                language=CODES[self.language],
            )
