"""What the first bytes of a recording and the sizes in its headers tell, before it is decoded.

A file is judged by its content, never by its name.
"""

from __future__ import annotations

import logging
import mmap
import os
import re
import zlib
from pathlib import Path
from typing import IO

from streaming_asr.errors import UserError
from streaming_asr.files import check_file

SHORT_S = 0.1  # a recording may be so much shorter or longer than its header states
TEXT_BYTES = 512  # enough to tell a text from a recording
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/+[^/]")
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_FLAC = re.compile(rb"fLaC[\x00\x80]\x00\x00\x22")  # the first block of a FLAC has 34 bytes
_SEGMENT = b"\x18\x53\x80\x67"  # the element of a Matroska file that holds all others
_BITS_REVERSED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))
_OGG_HEADER_BYTES = 27
OGG_PAGE_BYTES = 27 + 255 + 255 * 255  # at most

log = logging.getLogger(__name__)


def check_recording(path: str | Path) -> None:
    """Raise UserError for what is no recording: a URL, a missing file, a pipe or an empty file."""
    check_no_url(path)
    check_file(path)
    if Path(path).is_dir():
        raise UserError(f"{path}: is a folder, not a recording; rename it.")
    if not Path(path).is_file():
        raise UserError(f"{path}: no such audio file; correct the path.")
    try:
        with Path(path).open("rb") as file:
            begin = file.read(1)
    except OSError as error:
        raise UserError(
            f"{path}: cannot be read ({error.strerror}); change its permissions"
        ) from error
    if not begin:
        raise UserError(f"{path}: holds 0 bytes; record or export it again")


def check_no_text(path: str | Path, begin: bytes) -> None:
    """Raise UserError where a file that libsndfile does not read begins with a text."""
    if _is_text(begin[:TEXT_BYTES]):
        raise UserError(
            f"{path}: not readable as audio (it holds text); of a playlist, name the recordings "
            "that it lists"
        )


def check_no_url(name: str | Path) -> None:
    """Raise UserError for a URL."""
    if is_url(name):
        raise UserError(f"{name}: is a URL; download the recording and name the file")


def is_url(name: str | Path) -> bool:
    """Return whether a name is a URL and no file. Path() leaves one slash of two."""
    return _URL.match(str(name)) is not None and not Path(name).exists()


def _is_text(begin: bytes) -> bool:
    if _CONTROL.search(begin):
        return False
    try:
        begin.decode()
    except UnicodeDecodeError as error:
        return len(begin) == TEXT_BYTES and error.start > TEXT_BYTES - 4  # a letter cut in two
    return True


def is_counted(path: str | Path) -> bool:
    """Return whether the header of a recording, if libsndfile reads it, counts its samples.

    It does not where recordings follow one another, where an Ogg has several streams, and where
    the samples of a WAV go on behind the size that its header states. Raises UserError for an Ogg
    that is cut off or damaged.
    """
    with Path(path).open("rb", buffering=0) as file:
        if len(wav_parts(file)) > 1 or wav_goes_on(file):
            return False
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            if content[:4] == b"OggS":
                return _is_one_ogg(content, path)
            first = _FLAC.search(content, 0, 2**20)
            return first is None or _FLAC.search(content, first.end()) is None


# -- Ogg (RFC 3533) -------------------------------------------------------------------------


def _is_one_ogg(content: mmap.mmap, path: str | Path) -> bool:
    """Return whether an Ogg holds one stream. Raises UserError for a page that is cut off or whose
    checksum differs, and warns where the last page is missing."""
    at, serials, n_begins, is_ended = 0, set(), 0, False
    while at < len(content):
        if content[at : at + 4] != b"OggS":
            raise _bad_ogg(path, f"is damaged: no Ogg page begins at byte {at}")
        header = content[at : at + _OGG_HEADER_BYTES]
        n_segments = header[26] if len(header) == _OGG_HEADER_BYTES else 0
        lacing = content[at + _OGG_HEADER_BYTES : at + _OGG_HEADER_BYTES + n_segments]
        end = at + _OGG_HEADER_BYTES + n_segments + sum(lacing)
        if len(header) < _OGG_HEADER_BYTES or len(lacing) < n_segments or end > len(content):
            raise _bad_ogg(path, f"is cut off: its last Ogg page ends after byte {len(content)}")
        page = content[at:end]
        if _ogg_checksum(page) != int.from_bytes(header[22:26], "little"):
            raise _bad_ogg(path, f"is damaged: the checksum of its Ogg page at byte {at} differs")
        serials.add(header[14:18])
        n_begins += bool(header[5] & 2)
        is_ended = bool(header[5] & 4)
        at = end
    if not is_ended:
        log.warning("%s: has no last Ogg page; it may be cut off", path)
    return len(serials) == n_begins == 1


def is_ogg(path: str | Path) -> bool:
    """Return whether a file is an Ogg."""
    with Path(path).open("rb") as file:
        return file.read(4) == b"OggS"


def is_chained_ogg(file: IO[bytes]) -> bool:
    """Return whether the last page of an Ogg belongs to another stream than the first."""
    first = _read(file, 0, _OGG_HEADER_BYTES)
    end = _read(file, max(0, file.seek(0, os.SEEK_END) - OGG_PAGE_BYTES), OGG_PAGE_BYTES)
    last = end[end.rfind(b"OggS") :]
    return first[:4] == b"OggS" and last[14:18] != first[14:18]


def _ogg_checksum(page: bytes) -> int:
    """Return Ogg's CRC-32 of a page: that of zlib with the bits of every byte the other way round,
    and without the inversion of what goes in and comes out."""
    without = page[:22] + bytes(4) + page[26:]
    crc = zlib.crc32(without.translate(_BITS_REVERSED), 0xFFFFFFFF) ^ 0xFFFFFFFF
    return int(f"{crc:032b}"[::-1], 2)


def _bad_ogg(path: str | Path, fault: str) -> UserError:
    return UserError(f"{path}: {fault}; copy or export it again.")


# -- WAV ------------------------------------------------------------------------------------


def wav_parts(file: IO[bytes]) -> list[int]:
    """Return where the recordings begin in a file of WAVs that follow one another; [0] for others,
    too."""
    begins, at = [0], 0
    while len(head := _read(file, at, 12)) == 12 and head[:4] == b"RIFF" and head[8:] == b"WAVE":
        if at:
            begins.append(at)
        size = int.from_bytes(head[4:8], "little")
        at += 8 + size + size % 2
    return begins


def wav_goes_on(file: IO[bytes], begin: int = 0, end: int | None = None) -> bool:
    """Return whether samples lie behind the size that a WAV's header states for them: what a
    recorder leaves that was stopped, or a program that cannot seek back. begin, end: its bytes."""
    if _read(file, begin, 4) != b"RIFF":
        return False
    end = file.seek(0, os.SEEK_END) if end is None else end
    at, name, size, bytes_per_s = begin + 12, b"", 0, 0
    while name != b"data":
        if at + 8 > end:
            return False
        name, size = _chunk(file, at)
        at += 8
        if name == b"fmt ":
            bytes_per_s = int.from_bytes(_read(file, at + 8, 4), "little")
        at += size + size % 2
    if end - at <= SHORT_S * bytes_per_s:
        return False
    name, size = _chunk(file, at)
    if re.fullmatch(rb"[A-Za-z0-9 _]{4}", name) and at + 8 + size <= end + 1:
        return False  # a chunk of another kind
    return any(_read(file, each, 2**20).strip(b"\0") for each in range(at, end, 2**20))


def _chunk(file: IO[bytes], at: int) -> tuple[bytes, int]:
    head = _read(file, at, 8)
    return head[:4], int.from_bytes(head[4:], "little")


def _read(file: IO[bytes], at: int, n: int) -> bytes:
    file.seek(at)
    return file.read(n)


# -- sizes that other formats state ---------------------------------------------------------

BEGIN_BYTES = 2**16  # of a file, in which its sizes stand
_UNKNOWN_BYTES = 2**31 - 512  # from here on RIFF says "as long as it goes on"
_ASF_PROPERTIES = bytes.fromhex("a1dcab8c47a9cf118ee400c00c205365")


def stated_bytes(begin: bytes) -> int | None:
    """Return the bytes that a file holds by its own header; None where none states them.

    begin: the first BEGIN_BYTES of a Matroska, AVI, ASF (WMA), CAF or SPHERE file.
    """
    if begin[:4] == b"\x1aE\xdf\xa3":
        return _matroska_bytes(begin)
    if begin[:4] == b"RIFF" and begin[8:12] == b"AVI ":
        size = int.from_bytes(begin[4:8], "little")
        return 8 + size if size < _UNKNOWN_BYTES else None
    if begin[:4] == b"caff":
        return _caf_bytes(begin)
    if begin[:7] == b"NIST_1A":
        return _sphere_bytes(begin)
    if (at := begin.find(_ASF_PROPERTIES)) > 0:
        return int.from_bytes(begin[at + 40 : at + 48], "little") or None
    return None


def _caf_bytes(begin: bytes) -> int | None:
    at = 8
    while at + 12 <= len(begin):
        name, size = begin[at : at + 4], int.from_bytes(begin[at + 4 : at + 12], signed=True)
        if size < 0:
            return None
        at += 12 + size
        if name == b"data":
            return at
    return None


def _sphere_bytes(begin: bytes) -> int | None:
    """Return the size of a SPHERE file whose samples are not compressed."""
    fields = dict(re.findall(rb"^(\w+) -\w+ (\S+)", begin[:1024], re.MULTILINE))
    if b"," in fields.get(b"sample_coding", b""):  # pcm,embedded-shorten-v2.00
        return None
    try:
        n = int(fields[b"sample_count"]) * int(fields[b"sample_n_bytes"])
        return int(begin[8:16]) + n * int(fields.get(b"channel_count", b"1"))
    except (KeyError, ValueError):
        return None


def _matroska_bytes(begin: bytes) -> int | None:
    length, at = _matroska_size(begin, 4)  # after the id of the EBML header
    at += length or 0
    if length is None or begin[at : at + 4] != _SEGMENT:
        return None
    length, at = _matroska_size(begin, at + 4)
    return None if length is None else at + length


def _matroska_size(begin: bytes, at: int) -> tuple[int | None, int]:
    """Return a size (None: unknown), whose first bit set tells its bytes, and where it ends."""
    if at >= len(begin) or not begin[at]:
        return None, at
    n_bytes = 9 - begin[at].bit_length()
    value = int.from_bytes(begin[at : at + n_bytes]) & (2 ** (7 * n_bytes) - 1)
    return (None if value == 2 ** (7 * n_bytes) - 1 else value), at + n_bytes
