"""Word times for a corpus without them, computed when it is read: `data.align=auto`.

One aligner model per corpus, whatever model and method run on it, so that latencies of all methods
refer to the same times: the package's CTC model for English (`data.align=ctc`), base's
cross-attention for anything else and for a corpus in several languages. Results are stored in
<cache>/align/<aligner>-<hash of its settings>/<corpus>-<split>-<hash of the data>.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

from omegaconf import DictConfig, OmegaConf, open_dict

from streaming_asr.align import english
from streaming_asr.align.cache import AlignmentCache
from streaming_asr.align.command import fill, label, safe, settings_of
from streaming_asr.config.build import build
from streaming_asr.config.compose import compose_raw
from streaming_asr.config.defaults import aligner_of
from streaming_asr.corpora.noise import Noisy
from streaming_asr.errors import UserError
from streaming_asr.files import CONF_DIR, cache_root
from streaming_asr.models.find import find
from streaming_asr.text.normalise import light_key
from streaming_asr.utterance import Utterance


@dataclass(frozen=True)
class AutoAligner:
    """An aligner of the `align` command, and what its results depend on."""

    config: DictConfig
    settings: dict[str, Any]

    @classmethod
    def choose(cls, choice: str, languages: Iterable[str]) -> Self:
        """Return the aligner that `data.align=choice` names for a corpus in these languages.

        choice: auto, ctc, a model's name, or its path. Raises UserError where the model or the
        package's files are not there, and for ctc where one of the languages is not English.
        """
        kind, model = "whisper", choice
        if choice == "auto":
            kind, model = aligner_of(languages)
        elif choice == "ctc":
            kind, model = "ctc", english.NAME
            others = sorted(set(languages) - {english.LANGUAGE})
            if others:
                raise UserError(
                    f"data.align=ctc: the package's CTC model knows {english.LANGUAGE} only, and "
                    f"the corpus has {', '.join(others)}; take data.align=auto"
                )
        has_config = (CONF_DIR / "model" / f"{model}.yaml").is_file()
        overrides = [f"model={model}"] if has_config else ["model=whisper", f"model.path={model}"]
        config = compose_raw([*overrides, f"aligner={kind}"], config_name="align")
        with open_dict(config):
            del config["hydra"], config["data"]
        OmegaConf.resolve(config)
        try:
            if kind == "ctc":  # its `path`, the CTC model, is the package's
                config.aligner.model_path = str(find(config.aligner.model_path).folder)
                english.branch_folder(config.aligner.model_path)
            else:
                config.aligner.path = str(find(config.aligner.path).folder)
        except UserError as error:
            raise UserError(f"data.align={choice}: {error}") from error
        return cls(config, settings_of(config))

    @property
    def name(self) -> str:
        """Return the name that results have for it: the aligner, its model, its weights' hash."""
        return f"{label(self.config)} {self.settings['model']}"

    def time(
        self, corpus: Any, clips: Sequence[Utterance], language: str | None = None
    ) -> list[Utterance]:
        """Return the clips in their order, with word times where they had none.

        A clip that cannot be aligned stays as it is; standard error names the first three. corpus:
        names the folder of the stored times. language: of all clips; None: of each its own.
        """
        clips = [replace(clip, language=language or clip.language) for clip in clips]
        untimed = [_clean(c) for c in clips if c.words is None and light_key(c.text)]
        if not untimed:
            return list(clips)
        data_name = safe(f"{corpus.name}-{corpus.split}-{corpus.data_hash()[:12]}")
        folder = cache_root() / "align" / safe(self.name) / data_name
        with AlignmentCache(folder, self.settings) as cache:
            fill(cache, untimed, self.config.aligner, label(self.config))
            results = {result.utterance.id: result for result in cache.results(untimed)}
        failures = [
            result.reason if clip_id in str(result.reason) else f"{clip_id}: {result.reason}"
            for clip_id, result in results.items()
            if result.words is None
        ]
        more = [f"{len(failures) - 3} more"] if len(failures) > 3 else []
        for reason in failures[:3] + more:
            print(f"no word times: {reason}", file=sys.stderr)
        words = {clip_id: result.words for clip_id, result in results.items() if result.words}
        return [replace(c, words=words[c.id]) if c.id in words else c for c in clips]


def give_times(corpus: Any, language: str | None = None) -> AutoAligner | None:
    """Let the corpus time its words with the aligner of its setting `align`; return that aligner,
    None for `none`. Raises UserError.

    language: of all utterances; None: of each its own, else English; detect: of each its own, else
    unknown."""
    choice = getattr(corpus, "align", None)
    if choice in (None, "none"):
        return None
    common = None if language == "detect" else language
    languages = {common} if common else corpus.languages()
    if language == "detect" and not languages:
        languages = {language}  # "detect" is no language, so `choose` takes no English aligner
    aligner = AutoAligner.choose(str(choice), languages)
    corpus.time = partial(aligner.time, corpus, language=common)
    return aligner


def timed_utterances(data: DictConfig, limit: int | None) -> list[Utterance]:
    """Return the utterances of the corpus that `data` describes, with the times it asks for."""
    corpus = build(data)
    give_times(corpus)
    return list(corpus.utterances(limit))


def _clean(clip: Utterance) -> Utterance:
    """Return the clip without added noise: times must not depend on the signal-to-noise ratio."""
    return replace(clip, audio=clip.audio.clean) if isinstance(clip.audio, Noisy) else clip
