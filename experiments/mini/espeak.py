"""espeak-ng through ctypes: samples and the time of every word.

The library is called synchronously in retrieval mode; word events give the position in the text
and the start sample, phoneme events (names begin with ``_`` in pauses) give the ends. Two output
properties matter to users of this file: the audio of two equal calls may differ by about one
percent (so a committed recording is the reference, not this code), and some word pairs ("in the")
are one entry of the dictionary with one event; the second word is then cut off by phonemes.
"""

from __future__ import annotations

import ctypes
import functools

import numpy as np

_EVENT_WORD, _EVENT_PHONEME = 1, 7
_RATE, _VOLUME, _PITCH, _RANGE, _WORDGAP = 1, 2, 3, 4, 7
_RETRIEVAL_SYNCHRONOUS = 2
_PHONEME_EVENTS = 1
_UTF8 = 1
_POSITION_CHARACTER = 1


class _Event(ctypes.Structure):
    _fields_ = [
        ("type", ctypes.c_int),
        ("unique_identifier", ctypes.c_uint),
        ("text_position", ctypes.c_int),
        ("length", ctypes.c_int),
        ("audio_position", ctypes.c_int),
        ("sample", ctypes.c_int),
        ("user_data", ctypes.c_void_p),
        ("phoneme", ctypes.c_char * 8),
    ]


_Callback = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.POINTER(_Event)
)


class _Espeak:
    """One initialised library; it is not re-entrant, so one per process."""

    def __init__(self) -> None:
        self.lib = ctypes.CDLL("libespeak-ng.so.1")
        self.sample_rate = self.lib.espeak_Initialize(
            _RETRIEVAL_SYNCHRONOUS, 0, None, _PHONEME_EVENTS
        )
        if self.sample_rate <= 0:
            raise RuntimeError("libespeak-ng did not initialise; is espeak-ng-data installed?")
        self.pieces: list[np.ndarray] = []
        self.words: list[tuple[int, int]] = []  # text position (0-based), sample
        self.phonemes: list[tuple[int, str]] = []  # sample, name
        self._callback = _Callback(self._receive)  # kept: the library holds only a pointer
        self.lib.espeak_SetSynthCallback(self._callback)
        self.voice = ""

    def _receive(self, samples, n_samples, events) -> int:
        if n_samples > 0 and samples:
            self.pieces.append(np.ctypeslib.as_array(samples, (n_samples,)).copy())
        i = 0
        while events[i].type:
            event = events[i]
            if event.type == _EVENT_WORD and event.length > 0:
                self.words.append((event.text_position - 1, event.sample))
            elif event.type == _EVENT_PHONEME:
                self.phonemes.append((event.sample, event.phoneme.decode("utf-8", "replace")))
            i += 1
        return 0

    def set_voice(self, name: str) -> None:
        if name != self.voice:
            code = self.lib.espeak_SetVoiceByName(name.encode())
            if code != 0:  # the library would silently go on with the voice before
                raise RuntimeError(f"espeak-ng has no voice {name!r} (code {code})")
            self.voice = name

    def synthesise(self, text: str) -> np.ndarray:
        self.pieces, self.words, self.phonemes = [], [], []
        data = text.encode() + b"\0"
        code = self.lib.espeak_Synth(
            data, ctypes.c_size_t(len(data)), 0, _POSITION_CHARACTER, 0, _UTF8, None, None
        )
        if code != 0 or not self.pieces:
            raise RuntimeError(f"espeak-ng could not speak {text!r} (code {code})")
        return np.concatenate(self.pieces)


@functools.cache
def _library() -> _Espeak:
    return _Espeak()


def available() -> bool:
    """Whether the library can be loaded here."""
    try:
        ctypes.CDLL("libespeak-ng.so.1")
    except OSError:
        return False
    return True


def speak(
    words: list[str],
    voice: str,
    *,
    rate: int,
    pitch: int,
    pitch_range: int,
    pauses: frozenset[int],
) -> tuple[np.ndarray, int, list[tuple[float, float]]] | None:
    """Speaks ``words``. Returns samples (int16), their rate in Hz, (start_s, end_s) per word.

    ``pauses`` are the indices of words followed by a comma. Returns None when the events of the
    library do not map one to one onto the words.
    """
    espeak = _library()
    espeak.set_voice(voice)
    for parameter, value in ((_RATE, rate), (_PITCH, pitch), (_RANGE, pitch_range)):
        espeak.lib.espeak_SetParameter(parameter, value, 0)
    starts, text = [], ""
    for i, word in enumerate(words):
        starts.append(len(text))
        text += word + (", " if i in pauses else " ")
    samples = espeak.synthesise(text.rstrip(" ,") + ".")
    spans = _spans(espeak, words, starts, len(samples))
    if spans is None:
        return None
    rate_hz = espeak.sample_rate
    return samples, rate_hz, [(a / rate_hz, b / rate_hz) for a, b in spans]


@functools.cache
def _n_phonemes(word: str, voice: str) -> int:
    """Phonemes of ``word`` spoken by itself."""
    espeak = _library()
    espeak.set_voice(voice)
    espeak.synthesise(word)
    return sum(1 for _, p in espeak.phonemes if p and not p.startswith("_"))


def _spans(
    espeak: _Espeak, words: list[str], starts: list[int], n_samples: int
) -> list[tuple[int, int]] | None:
    """(first, end) sample of each word; None when the events do not map onto the words."""
    began: dict[int, int] = {}
    for position, sample in espeak.words:
        began.setdefault(position, sample)
    # An event inside a word (a hyphen, an apostrophe) is no start of a word; ignore it.
    begins = [began.get(start) for start in starts]
    phonemes = tuple(espeak.phonemes)  # the library object is overwritten by _n_phonemes
    if begins[0] is None:
        return None
    spans: list[tuple[int, int]] = []
    i = 0
    while i < len(words):
        j = i + 1
        while j < len(words) and begins[j] is None:
            j += 1
        start = begins[i]
        limit = begins[j] if j < len(words) else n_samples
        if start is None or limit is None or limit <= start:
            return None
        phones = [(s, p) for s, p in phonemes if start <= s < limit]
        end = next((s for s, p in phones if p.startswith("_") and s > start), limit)
        phones = [(s, p) for s, p in phones if s < end and p and not p.startswith("_")]
        if j - i == 1:
            spans.append((start, end))
        elif j - i == 2:
            n_second = _n_phonemes(words[j - 1], espeak.voice)
            if len(phones) <= n_second:
                return None
            cut = phones[-n_second][0]
            if not start < cut < end:
                return None
            spans += [(start, cut), (cut, end)]
        else:
            return None
        i = j
    return spans
