"""Other people's streaming programs as methods: their code, this simulator and its clocks.

Nothing of theirs is part of this project: README.md has the commands that install each program.
`method=NAME -cd experiments/others` takes a file of method/ next to this one.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np

from streaming_asr.errors import UserError
from streaming_asr.method import NULL, SAMPLE_RATE, Recorder, Samples, Update, Word
from streaming_asr.methods.remote.wire import grown
from streaming_asr.text.tokens import pieces


def needs(module: str, remedy: str) -> Any:
    """Import a program's module. Raises UserError with the remedy where it does not load."""
    try:
        return import_module(module)
    except (ImportError, OSError) as error:  # OSError: a library that does not fit torch
        raise UserError(f"method: cannot import {module} ({error}); {remedy}") from error


def words_of(texts: Iterable[str]) -> tuple[Word, ...]:
    """Return texts as words."""
    return tuple(map(Word, texts))


@dataclass
class Stream:
    """One stream: the program's own object, and the last word of its text."""

    online: Any
    last_word: str = ""  # final for the program, but its next text may add letters or a mark


class Online:
    """Any program with `insert_audio_chunk`, `process_iter` and `finish`.

    Three programs share this interface: whisper_streaming, SimulStreaming and WhisperLiveKit. A
    word of theirs is final here as soon as the next one begins, since their texts may end within
    a word.
    """

    lookahead_samples = 0

    def __init__(self, *, make: str, **settings: Any) -> None:
        """make: `module:function`, which takes the settings and returns a function without
        arguments that makes the object of a stream."""
        module, _, name = make.partition(":")
        self._online: Callable[[], Any] = getattr(import_module(module), name)(**settings)

    def start(self, *, language: str | None = None, recorder: Recorder = NULL) -> Stream:
        """Return a stream with an object of the program."""
        return Stream(self._online())

    def step(self, state: Stream, audio: Samples, *, last: bool) -> Update:
        """Feed the program; see `Method`."""
        texts: list[str] = []
        if len(audio):
            state.online.insert_audio_chunk(audio)
            texts.append(text_of(state.online.process_iter()))
        if last:
            texts.append(text_of(state.online.finish()))
        final: list[str] = []
        for text in texts:
            words, state.last_word = grown(state.last_word, text)
            final += words
        if last:
            return Update(words_of((*final, *pieces(state.last_word))))
        buffer = getattr(state.online, "transcript_buffer", None)  # local agreement's guess
        guess = () if buffer is None else [word for _, _, word in buffer.complete()]
        return Update(words_of(final), words_of((*pieces(state.last_word), *guess)))


def text_of(answer: Any) -> str:
    """Return the text of an answer: an object, a tuple (start, end, text), or tokens with texts."""
    if isinstance(answer, dict):
        return str(answer.get("text", ""))
    if isinstance(answer, tuple) and isinstance(answer[0], list):
        return "".join(token.text for token in answer[0])
    return str(answer[2])


def is_computed(model: Any, precision: str) -> None:
    """Raises UserError where a model of CTranslate2 computes in another precision."""
    actual = getattr(getattr(model, "model", None), "compute_type", "float32").partition("_")[0]
    if actual != precision:
        raise UserError(
            f"method.precision={precision}: the program computes in {actual} here, which is no "
            f"equal comparison; give method.precision={actual}, which the table shows"
        )


def whisper_streaming(*, path: str, language: str, precision: str) -> Callable[[], Any]:
    """ufal/whisper_streaming with faster-whisper on a CPU; theirs asks for a GPU."""
    them = needs("whisper_online", "put a clone of ufal/whisper_streaming on PYTHONPATH")
    from faster_whisper import WhisperModel

    class OnCpu(them.FasterWhisperASR):  # type: ignore[name-defined, misc]
        def load_model(self, modelsize: Any = None, cache_dir: Any = None, model_dir: Any = None):  # type: ignore[no-untyped-def]
            return WhisperModel(path, device="cpu", compute_type=precision, cpu_threads=1)

    asr = OnCpu(language, model_dir=path)
    return lambda: them.OnlineASRProcessor(asr)


def simulstreaming(
    *, path: str, language: str, chunk_s: float, frame_threshold: int, beams: int, cut: bool
) -> Callable[[], Any]:
    """ufal/SimulStreaming; its object has one stream at a time, so `batch` must be 1.

    cut: whether the last word of a step is held back, its default.
    """
    remedy = "put a clone of ufal/SimulStreaming on PYTHONPATH"
    them = needs("simulstreaming_whisper", remedy)
    policy = needs("simulstreaming.whisper.simul_whisper.simul_whisper", remedy)
    whisper = needs("simulstreaming.whisper.simul_whisper.whisper", remedy)
    import torch

    def load_model(**_: Any) -> Any:  # theirs downloads a known name whose sha256 differs
        file = torch.load(path, weights_only=True)
        network = whisper.model.Whisper(whisper.model.ModelDimensions(**file["dims"]))
        network.load_state_dict(file["model_state_dict"])
        network.set_alignment_heads(whisper._ALIGNMENT_HEADS["tiny.en"])
        return network.eval()

    policy.load_model = load_model
    parser = argparse.ArgumentParser()
    them.simulwhisper_args(parser)
    settings = parser.parse_args([])
    vars(settings).update(model_path=path, frame_threshold=frame_threshold, beams=beams)
    vars(settings).update(never_fire=not cut, lan=language, task="transcribe")
    vars(settings).update(min_chunk_size=chunk_s, logdir=None, log_level="WARNING")
    asr, _ = them.simul_asr_factory(settings)
    return lambda: them.SimulWhisperOnline(asr)


class LiveKit:
    """WhisperLiveKit's processor with the calls of `Online`."""

    def __init__(self, online: Any, policy: str) -> None:
        self._online, self._policy, self._seconds = online, policy, 0.0
        self.transcript_buffer = self

    def insert_audio_chunk(self, audio: Samples) -> None:
        self._seconds += len(audio) / SAMPLE_RATE
        self._online.insert_audio_chunk(audio, self._seconds)

    def process_iter(self) -> Any:
        return self._online.process_iter()

    def finish(self) -> Any:
        if self._policy == "simulstreaming":
            return self._online.process_iter(is_last=True)
        return self._online.finish()

    def complete(self) -> list[tuple[float, float, str]]:
        """Return the guess that its page shows, in the form of whisper_streaming."""
        return [(0.0, 0.0, word) for word in pieces(self._online.get_buffer().text or "")]


def whisperlivekit(
    *, path: str, language: str, policy: str, backend: str, heads: str | None, precision: str
) -> Callable[[], Any]:
    """WhisperLiveKit's policies without its server and its detector of speech.

    policy: localagreement or simulstreaming. heads: alignment heads, as its
    --custom-alignment-heads. precision: what it computes in, which it chooses itself.
    """
    core = needs("whisperlivekit.core", "pip install whisperlivekit==0.2.26")
    chosen = {} if heads is None else {"custom_alignment_heads": heads}
    engine = core.TranscriptionEngine(
        backend_policy=policy,
        backend=backend,
        model_path=path,
        lan=language,
        vac=False,
        warmup_file="",
        **chosen,
    )
    is_computed(getattr(engine.asr, "model", None), precision)
    return lambda: LiveKit(core.online_factory(engine.args, engine.asr), policy)


class Pieces:
    """faster-whisper on each chunk by itself: what people write first."""

    lookahead_samples = 0

    def __init__(self, *, path: str, language: str, precision: str) -> None:
        from faster_whisper import WhisperModel

        self._language = language
        self._model = WhisperModel(path, device="cpu", compute_type=precision, cpu_threads=1)

    def start(self, *, language: str | None = None, recorder: Recorder = NULL) -> None:
        """Nothing is kept between chunks."""

    def step(self, state: None, audio: Samples, *, last: bool) -> Update:
        """Transcribe the chunk; see `Method`."""
        if not len(audio):
            return Update()
        segments, _ = self._model.transcribe(audio, language=self._language)
        return Update(words_of(word for segment in segments for word in pieces(segment.text)))


@dataclass
class Line:
    """What the stream example of whisper.cpp keeps."""

    audio: Samples = field(default_factory=lambda: np.zeros(0, np.float32))
    n: int = 0
    guess: tuple[Word, ...] = ()


class WhisperCpp:
    """examples/stream of whisper.cpp without its detector, on the library of pywhispercpp.

    Each step transcribes the last seconds again; the text of the line is a guess until a new
    line begins.
    """

    lookahead_samples = 0

    def __init__(
        self, *, path: str, language: str, step_s: float, length_s: float, keep_s: float
    ) -> None:
        """step_s, length_s, keep_s: --step, --length and --keep of the example, in seconds."""
        model = needs("pywhispercpp.model", "pip install pywhispercpp==1.5.1")
        quiet = {"print_progress": False, "print_realtime": False}
        self._model = model.Model(path, n_threads=1, redirect_whispercpp_logs_to=None, **quiet)
        self._language = language
        self._length, self._keep = int(length_s * SAMPLE_RATE), int(keep_s * SAMPLE_RATE)
        self._n_line = max(1, int(length_s / step_s) - 1)

    def start(self, *, language: str | None = None, recorder: Recorder = NULL) -> Line:
        """Return an empty line."""
        return Line()

    def step(self, state: Line, audio: Samples, *, last: bool) -> Update:
        """Transcribe the window; see `Method`."""
        if len(audio):
            n_old = min(len(state.audio), max(0, self._keep + self._length - len(audio)))
            window = np.concatenate([state.audio[len(state.audio) - n_old :], audio])
            segments = self._model.transcribe(
                window,
                language=self._language,
                single_segment=True,
                max_tokens=32,
                no_context=True,
            )
            text = "".join(f" {segment.text.strip()}" for segment in segments)
            state.audio, state.n, state.guess = window, state.n + 1, words_of(pieces(text))
        if last or (len(audio) and state.n % self._n_line == 0):
            final, state.guess = state.guess, ()
            state.audio = state.audio[len(state.audio) - self._keep :]
            return Update(final)
        return Update((), state.guess)


class PocketSphinx:
    """PocketSphinx with the English model of its package: a recogniser that streams by itself."""

    lookahead_samples = 0

    def __init__(self) -> None:
        self._decoder = needs("pocketsphinx", "pip install pocketsphinx==5.1.1").Decoder

    def start(self, *, language: str | None = None, recorder: Recorder = NULL) -> Any:
        """Return a decoder."""
        decoder = self._decoder(samprate=SAMPLE_RATE, loglevel="FATAL")
        decoder.start_utt()
        return decoder

    def step(self, state: Any, audio: Samples, *, last: bool) -> Update:
        """Decode the audio; see `Method`. Its text is a guess until the end."""
        if len(audio):
            state.process_raw((audio * 32767).astype("<i2").tobytes(), False, False)
        if last:
            state.end_utt()
        best = state.hyp()
        words = words_of(f" {word}" for word in (best.hypstr.split() if best else ()))
        return Update(words) if last else Update((), words)


class Simulstream:
    """hlt-mt/simulstream: retranslation of a sliding window; all is a guess until the end."""

    lookahead_samples = 0

    def __init__(self, *, path: str, window_s: int, max_tokens_per_second: int) -> None:
        """max_tokens_per_second: its default of 10 cuts Whisper off, see README.md."""
        remedy = "pip install simulstream==1.0.0; if it is torchaudio, pip uninstall torchaudio"
        them = needs(package := "simulstream.server.speech_processors", remedy)
        needs(module := f"{package}.hf_sliding_window_retranslation", remedy)
        self._processor = them.build_speech_processor(
            SimpleNamespace(
                type=f"{module}.HFSlidingWindowRetranslator",
                hf_model_name=path,
                window_len=window_s,
                speech_chunk_size=1,
                matching_threshold=0.1,
                max_tokens_per_second=max_tokens_per_second,
            )
        )

    def start(self, *, language: str | None = None, recorder: Recorder = NULL) -> list[str]:
        """Return the tokens shown; its object has one stream at a time, so `batch` must be 1."""
        self._processor.clear()
        return []

    def step(self, state: list[str], audio: Samples, *, last: bool) -> Update:
        """Feed a chunk; see `Method`."""
        if len(audio):
            output = self._processor.process_chunk(audio)
            del state[len(state) - len(output.deleted_tokens) :]
            state += output.new_tokens
        tokenizer = self._processor.processor.tokenizer
        words = words_of(pieces(f" {tokenizer.convert_tokens_to_string(state).strip()}"))
        return Update(words) if last else Update((), words)
