"""flite through ctypes: samples and the time of every word.

The last words of all four voices end within about 10 ms of the energy of the audio. The diphone
voice kal16 drops most of its last pause, so its segments outlast its audio by 0.1 s; do not scale
them. It is the speaker of festival's kal and is used for training only.
"""

from __future__ import annotations

import ctypes
import functools

import numpy as np

VOICES = ("awb", "rms", "slt", "kal16")
_START = b"R:SylStructure.daughter.daughter.R:Segment.p.end"
_END = b"R:SylStructure.daughtern.daughtern.R:Segment.end"


class _Wave(ctypes.Structure):
    _fields_ = [
        ("type", ctypes.c_char_p),
        ("sample_rate", ctypes.c_int),
        ("num_samples", ctypes.c_int),
        ("num_channels", ctypes.c_int),
        ("samples", ctypes.POINTER(ctypes.c_short)),
    ]


class _Voice(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("features", ctypes.c_void_p),
    ]


@functools.cache
def _library() -> ctypes.CDLL:
    lib = ctypes.CDLL("libflite.so.1", mode=ctypes.RTLD_GLOBAL)
    for name in ("flite_usenglish", "flite_cmulex"):  # symbols that the voices refer to
        ctypes.CDLL(f"lib{name}.so.1", mode=ctypes.RTLD_GLOBAL)
    for name, result in (
        ("flite_synth_text", ctypes.c_void_p),
        ("utt_relation", ctypes.c_void_p),
        ("relation_head", ctypes.c_void_p),
        ("item_next", ctypes.c_void_p),
        ("utt_wave", ctypes.POINTER(_Wave)),
        ("ffeature_float", ctypes.c_float),
        ("ffeature_string", ctypes.c_char_p),
        ("delete_utterance", None),
        ("feat_set_float", None),
    ):
        getattr(lib, name).restype = result
    lib.feat_set_float.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_float]
    lib.flite_init()
    return lib


@functools.cache
def _voice(name: str):
    _library()
    lib = ctypes.CDLL(f"libflite_cmu_us_{name}.so.1", mode=ctypes.RTLD_GLOBAL)
    register = getattr(lib, f"register_cmu_us_{name}")
    register.restype = ctypes.POINTER(_Voice)
    return register(None)


def available() -> bool:
    """Whether the library and its voices can be loaded here."""
    try:
        for name in VOICES:
            _voice(name)
    except (OSError, AttributeError):
        return False
    return True


def speak(
    text: str, voice: str, *, stretch: float
) -> tuple[np.ndarray, int, list[tuple[str, float, float]]]:
    """Speaks ``text``. Returns samples (int16), their rate in Hz, (name, start_s, end_s) per word.

    ``stretch`` multiplies all durations.
    """
    lib, chosen = _library(), _voice(voice)
    lib.feat_set_float(chosen.contents.features, b"duration_stretch", stretch)
    utterance = ctypes.c_void_p(lib.flite_synth_text(text.encode(), chosen))
    try:
        wave = lib.utt_wave(utterance).contents
        samples = np.ctypeslib.as_array(wave.samples, (wave.num_samples,)).copy()
        rate_hz = wave.sample_rate
        item = lib.relation_head(ctypes.c_void_p(lib.utt_relation(utterance, b"Word")))
        timed = []
        while item:
            pointer = ctypes.c_void_p(item)
            name = lib.ffeature_string(pointer, b"name").decode()
            start = lib.ffeature_float(pointer, _START)
            timed.append((name, start, lib.ffeature_float(pointer, _END)))
            item = lib.item_next(pointer)
    finally:
        lib.delete_utterance(utterance)
    return samples, rate_hz, timed
