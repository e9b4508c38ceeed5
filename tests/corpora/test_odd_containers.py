"""Files that are healthy and odd are read whole; damage that a file itself shows is reported."""

import itertools
import struct
from fractions import Fraction

import av
import numpy as np
import pytest
import soundfile
from containers import TIMED, UNTIMED, Track, assert_words, found_words, words, write_recording

from streaming_asr.corpora.audio import Reader, duration_s, load_audio
from streaming_asr.errors import UserError

# What the encoders of PyAV write, by container: its ending and FFmpeg's name of it.
MORE = {
    "mkv matroska": "tta wavpack mp2 eac3 alac pcm_s24le pcm_f32le pcm_f64le pcm_u8 real_144 opus",
    "wav wav": "pcm_s24le pcm_s32le pcm_s64le pcm_u8 pcm_f64le pcm_alaw adpcm_ima_wav "
    "adpcm_yamaha libmp3lame mp2 ac3 wmav1 wmav2 g726",
    "avi avi": "pcm_s16le pcm_mulaw aac ac3 mp2 adpcm_ms wmav2",
    "mov mov": "pcm_s16be alac aac pcm_s24le pcm_f32be pcm_mulaw pcm_s8 adpcm_ima_qt eac3",
    "caf caf": "pcm_s16le pcm_f32be pcm_alaw flac libmp3lame adpcm_ima_qt",
    "wma asf": "wmav1 libmp3lame pcm_s16le adpcm_ms",
    "flv flv": "adpcm_swf",
    "aiff aiff": "pcm_s24be pcm_s8 pcm_f32be",
    "au au": "pcm_s16be pcm_s8 pcm_f64be",
    "w64 w64": "pcm_s16le pcm_f32le",
    "ts mpegts": "mp2 ac3 libopus",
    "opus opus": "libopus",
    "mp4 mp4": "ac3 mp2",
    "eac3 eac3": "eac3",
}
RATES = (48_000, 44_100, 16_000, 8_000)
KINDS = [
    *TIMED,
    *UNTIMED,
    *(
        (*form.split(), codec, RATES[:3] if codec == "aac" else RATES)  # 8 kHz: its delay is 0.13 s
        for form, codecs in MORE.items()
        for codec in codecs.split()
    ),
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "-".join(kind[:3]))
def test_what_an_encoder_writes_is_read_without_a_remark(tmp_path, caplog, kind):
    ending, form, codec, rates = kind
    n_written = 0
    for rate, channels in itertools.product(rates, (1, 2)):
        track = Track(codec, rate, channels=channels, n_words=5 if channels == 1 else 1)
        path = tmp_path / f"a{rate}{channels}.{ending}"
        try:
            write_recording(path, [track], form=form)
        except (av.FFmpegError, ValueError):  # the encoder has no such rate or channels
            continue
        n_written += 1
        assert_words(load_audio(path), track)
        assert not caplog.text
    assert n_written


# What these formats store is not what was written: rates that are others, no rate, two files.
CHANGED = {"RAW", "SD2", "XI", "VOC", "WVE", "HTK"}


@pytest.mark.parametrize("form", sorted({*soundfile.available_formats()} - CHANGED))
def test_what_libsndfile_writes_is_read_without_a_remark(tmp_path, caplog, form):
    for subtype in soundfile.available_subtypes(form):
        for rate, channels in itertools.product((8_000, 44_100), (1, 2)):
            track, path = Track("", rate), tmp_path / "a"
            sound = np.repeat(words(4, rate)[:, None], channels, 1)
            try:
                soundfile.write(path, sound, rate, subtype, format=form)
            except soundfile.SoundFileError:  # no such rate or channels
                continue
            if not subtype.startswith("DWVW"):  # which libsndfile cannot read again in pieces
                assert_words(load_audio(path), track)
                assert not caplog.text


@pytest.mark.parametrize("form", ["matroska", "webm"])
@pytest.mark.parametrize(("rate", "channels"), [(8_000, 1), (44_100, 2)])
def test_vorbis_in_other_containers_than_ogg(tmp_path, caplog, form, rate, channels):
    sound = np.repeat(words(4, rate)[:, None], channels, 1)
    soundfile.write(tmp_path / "a.ogg", sound, rate, "VORBIS")
    path = copied(tmp_path / "a.ogg", tmp_path / "a", form)
    assert_words(load_audio(path), Track("vorbis", rate))
    assert not caplog.text


def copied(source, path, form):
    """A recording's packets in another container."""
    with av.open(str(source)) as old, av.open(str(path), "w", format=form) as new:
        stream = new.add_stream_from_template(old.streams.audio[0])
        for packet in old.demux():
            if packet.size:
                packet.stream = stream
                new.mux(packet)
    return path


RATE = 48_000


# -- more than sound and picture -----------------------------------------------------------------


ASS = b"""[V4+ Styles]
Format: Name, Fontname, Fontsize
Style: Default,Arial,16
[Events]
Format: Layer, Start, End, Style, Name, MarginL, MarginR, MarginV, Effect, Text
"""


def write_tracks(path, order, codec, form):
    """A recording whose tracks, of sound, pictures and texts, have this order."""
    with av.open(str(path), "w", format=form) as container:
        if form == "matroska" and "attachment" in order:
            container.add_attachment("a.txt", "text/plain", b"notes")
        streams = {}
        for kind in order:
            if kind == "sound":
                streams[kind] = container.add_stream(codec, rate=RATE, layout="mono")
                streams[kind].bit_rate = 64_000
            elif kind == "picture":
                streams[kind] = container.add_stream("mpeg4", rate=5)
                streams[kind].width = streams[kind].height = 64
                streams[kind].metadata["timecode"] = "01:00:00:00"  # of MP4 a track of its own
            elif kind == "subtitle":
                codec_name = "subrip" if form == "matroska" else "mov_text"
                streams[kind] = container.add_stream(codec_name)
                streams[kind].codec_context.subtitle_header = ASS
            elif kind == "data":
                streams[kind] = container.add_data_stream("bin_data")
        if hasattr(container, "set_chapters"):
            chapter = {
                "id": 1,
                "start": 0,
                "end": 1000,
                "time_base": Fraction(1, 1000),
                "metadata": {"title": "one"},
            }
            container.set_chapters([chapter, chapter | {"id": 2, "start": 1000, "end": 2000}])
        mono = words(4, RATE)
        resampler = av.AudioResampler(
            streams["sound"].format.name,
            "mono",
            RATE,
            streams["sound"].codec_context.frame_size or 1024,
        )
        frame = av.AudioFrame.from_ndarray(mono[None], format="fltp", layout="mono")
        frame.sample_rate, frame.pts = RATE, 0
        for each in (*resampler.resample(frame), *resampler.resample(None)):
            for packet in streams["sound"].encode(each):
                container.mux(packet)
        for packet in streams["sound"].encode(None):
            container.mux(packet)
        if "picture" in streams:
            for k in range(10):
                image = av.VideoFrame.from_ndarray(np.full((96, 64), k, np.uint8), format="yuv420p")
                image.pts = k
                for packet in streams["picture"].encode(image):
                    container.mux(packet)
            for packet in streams["picture"].encode(None):
                container.mux(packet)
        for kind, content in (("data", b"00:00:00:00"), ("subtitle", b"\0\2hi")):
            if kind in streams:
                packet = av.Packet(content)
                packet.stream, packet.pts, packet.dts = streams[kind], 0, 0
                packet.time_base, packet.duration = Fraction(1, 1000), 900
                container.mux(packet)
    return path


@pytest.mark.parametrize(
    ("form", "codec", "others"),
    [
        ("matroska", "aac", ("picture", "attachment", "subtitle")),
        ("matroska", "libopus", ("picture", "attachment")),
        ("mp4", "aac", ("picture", "subtitle")),
        ("ipod", "aac", ("picture", "subtitle")),
        ("mov", "pcm_s16le", ("picture", "subtitle")),
        ("asf", "wmav2", ("picture",)),
        ("mpegts", "aac", ("picture", "data")),
    ],
)
def test_sound_is_read_to_its_end_whatever_is_next_to_it(tmp_path, form, codec, others):
    lengths = set()
    for n in range(len(others) + 1):
        for order in itertools.permutations(("sound", *others), n + 1):
            if "sound" in order:
                heard = load_audio(write_tracks(tmp_path / f"a.{form}", order, codec, form))
                assert_words(heard, Track(codec, RATE))
                lengths.add(len(heard))
    assert max(lengths) - min(lengths) < 200


@pytest.mark.parametrize("channels", [2, 8, 9, 13, 16, 24])
@pytest.mark.parametrize("codec", ["pcm_s16le", "flac", "wavpack", "libopus"])
def test_a_recording_of_many_channels_is_their_mean(tmp_path, channels, codec):
    mono, layout = words(3, 48_000), f"{channels}c"
    path = tmp_path / "a.mka"
    try:
        with av.open(str(path), "w", format="matroska") as container:
            stream = container.add_stream(codec, rate=48_000, layout=layout)
            if codec == "libopus":
                stream.options = {"mapping_family": "255"}
            kind = stream.format.name
            data = np.repeat(mono[:, None], channels, 1)
            data = data if "fl" in kind else np.round(data * 32767)
            data = data.astype({"flt": "f4", "fltp": "f4", "s16": "i2", "s16p": "i2"}[kind])
            for at in range(0, len(data), stream.codec_context.frame_size or 960):
                part = data[at : at + (stream.codec_context.frame_size or 960)]
                frame = av.AudioFrame(kind, layout, len(part))
                planes = [part.reshape(-1)] if not kind.endswith("p") else list(part.T)
                for plane, values in zip(frame.planes, planes, strict=True):
                    content = np.ascontiguousarray(values).tobytes()
                    plane.update(content + bytes(plane.buffer_size - len(content)))
                frame.sample_rate, frame.pts = 48_000, at
                container.mux(stream.encode(frame))
            container.mux(stream.encode(None))
    except (av.FFmpegError, ValueError, KeyError) as error:
        pytest.skip(f"this encoder takes no {channels} channels: {error}")
    assert [round(hertz) for _, hertz in found_words(load_audio(path))] == [400, 600, 800]
    one = load_audio(path, channel=channels)
    assert [round(hertz) for _, hertz in found_words(one)] == [400, 600, 800]


@pytest.mark.parametrize("channels", [13, 31])
def test_aac_whose_frames_claim_many_channels_is_read(tmp_path, channels):
    path, rate_index = tmp_path / "a.m4a", 3  # 48 kHz
    with av.open(str(path), "w") as container:
        stream = container.add_stream("aac", rate=48_000, layout="mono")
        frame = av.AudioFrame.from_ndarray(words(3, 48_000)[None], "fltp", "mono")
        frame.sample_rate = 48_000
        container.mux([*stream.encode(frame), *stream.encode(None)])
    # An element in front of each frame's sound names one channel and pairs of others.
    elements = [0] + [1] * (channels // 2)
    front, side = elements[:15], elements[15:]
    bits = f"{5:03b}{0:04b}{1:02b}{rate_index:04b}{len(front):04b}{len(side):04b}" + "0" * 16
    bits += "".join(f"{pair}{max(at - 1, 0):04b}" for at, pair in enumerate(elements))
    bits += "0" * (-len(bits) % 8 + 8)
    names = int(bits, 2).to_bytes(len(bits) // 8, "big")
    damaged = tmp_path / "a.aac"
    with av.open(str(path)) as container, damaged.open("wb") as file:
        for packet in container.demux(audio=0):
            content = names + bytes(packet)
            head = 0xFFF1 << 40 | 1 << 38 | rate_index << 34 | (len(content) + 7) << 13 | 0x1FFC
            file.write(head.to_bytes(7, "big") + content if packet.size else b"")
    with av.open(str(damaged)) as container:
        assert next(container.decode(audio=0)).layout.nb_channels == channels
    sound = load_audio(damaged) * channels  # one of them is not silent
    assert [round(hertz) for _, hertz in found_words(sound)] == [400, 600, 800]


# -- values ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("peak", "share", "factor", "remark"),
    [
        (1.9, 1.0, 1, None),
        (2.97, 1.0, 4, "its samples reach 2.97, which is over 1; they are divided by 4"),
        (128.0, 1.0, 128, "divided by 128"),
        (999.0, 1.0, 1024, "divided by 1024"),
        (900.0, 0.0005, 1, "its samples reach 900, which is over 1; they are clipped"),
        (40.0, 0.2, 64, "divided by 64"),
        (1001.0, 1.0, None, "16-bit values stored as floats must be divided by 32768"),
    ],
)
@pytest.mark.parametrize("ending", ["wav", "mkv"])
def test_floats_above_full_scale_are_lowered(tmp_path, caplog, ending, peak, share, factor, remark):
    sound = np.sin(np.arange(48_000) * 0.2)
    loud = slice(0, max(1, round(share * len(sound))))
    sound[loud] *= peak / np.abs(sound[loud]).max()
    path = tmp_path / f"a.{ending}"
    if ending == "wav":
        soundfile.write(path, sound, 16_000, "FLOAT")
    else:
        write_recording(path, [Track("pcm_f32le", 16_000, sound=tuple(sound))])
    if factor is None:
        with pytest.raises(UserError, match=remark):
            load_audio(path)
        return
    expected = np.clip(sound / factor, -1, 1)
    np.testing.assert_allclose(load_audio(path), expected[: len(sound)], atol=1e-3)
    np.testing.assert_array_equal(Reader(path).read(10**6), load_audio(path))
    assert (remark is None and not caplog.text) or (remark is not None and remark in caplog.text)


# -- damage ----------------------------------------------------------------------------------


def wav_chunks(content):
    """The chunks of a WAV by name, with their headers."""
    chunks, at = {}, 12
    while at < len(content):
        size = 8 + int.from_bytes(content[at + 4 : at + 8], "little")
        chunks[content[at : at + 4]] = content[at : at + size]
        at += size
    return chunks


@pytest.mark.parametrize("subtype", ["PCM_16", "FLOAT", "ULAW"])
@pytest.mark.parametrize(
    ("names", "message"),
    [
        ((b"fmt ", b"fmt ", b"data"), "it has 2 chunks `fmt `"),
        ((b"fmt ", b"data", b"data"), "it has 2 chunks `data`"),
        ((b"fmt ", b"data", b"fmt "), "it has 2 chunks `fmt `"),
        ((b"fmt ", b"data", b"data", b"data"), "it has 3 chunks `data`"),
        ((b"fmt ", b"data"), None),
    ],
)
def test_a_wav_with_a_chunk_too_many(tmp_path, subtype, names, message):
    path = tmp_path / "a.wav"
    soundfile.write(path, words(3, 16_000), 16_000, subtype)
    chunks = wav_chunks(path.read_bytes())
    content = b"WAVE" + b"".join(chunks[name] for name in names)
    path.write_bytes(b"RIFF" + struct.pack("<I", len(content)) + content)
    if message is None:
        assert len(found_words(load_audio(path))) == 3
        return
    with pytest.raises(UserError, match=message):
        load_audio(path)


@pytest.mark.parametrize("at", [20, 22, 26])  # channels, samples, bits
def test_an_aiff_whose_numbers_are_not_those_of_its_sound(tmp_path, at):
    path = tmp_path / "a.aiff"
    soundfile.write(path, words(3, 16_000), 16_000)
    content = bytearray(path.read_bytes())
    content[at + 1] ^= 3 if at != 26 else 16 ^ 32
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"contradicts itself|is cut off|not readable"):
        load_audio(path)


def pages(content):
    """The pages of an Ogg."""
    begins = [at for at in range(len(content)) if content[at : at + 4] == b"OggS"]
    return [content[a:b] for a, b in itertools.pairwise([*begins, len(content)])]


@pytest.mark.parametrize("kind", [{}, {"subtype": "OPUS"}])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda own, other: own[:-3] + own[-2:], r"page \d+ is missing"),
        (lambda own, other: own[:2] + own[3:], "page 2 is missing"),
        (lambda own, other: own[:-2] + own[-3:-2] + own[-2:], r"page \d+ is out of order"),
        (lambda own, other: own[:-2] + other[-2:-1] + own[-2:], "of a stream without a first page"),
        (lambda own, other: own[1:], "of a stream without a first page"),
        (lambda own, other: own + other, None),
        (lambda own, other: own, None),
    ],
)
def test_pages_of_an_ogg_that_do_not_follow_one_another(tmp_path, kind, change, message):
    made = []
    for n in range(2):
        path = tmp_path / f"{n}.ogg"
        soundfile.write(path, np.random.default_rng(n).normal(0, 0.1, 160_000), 16_000,
                        format="OGG", **kind)  # fmt: skip
        made.append(pages(path.read_bytes()))
        assert len(made[-1]) > 5
    path = tmp_path / "a.ogg"
    path.write_bytes(b"".join(change(*made)))
    if message is None:
        assert len(load_audio(path)) in (160_000, pytest.approx(320_000, abs=2000))
        return
    with pytest.raises(UserError, match=message):
        load_audio(path)


@pytest.mark.parametrize(
    ("ending", "codec"), [("wv", "wavpack"), ("tta", "tta"), ("mkv", "flac"), ("mkv", "tta"),
                          ("mkv", "wavpack"), ("mp4", "flac")]
)  # fmt: skip
def test_a_byte_that_breaks_a_checksum_is_reported(tmp_path, caplog, ending, codec):
    path = write_recording(tmp_path / f"a.{ending}", [Track(codec, 48_000, n_words=4)])
    whole, content = load_audio(path), path.read_bytes()
    rng = np.random.default_rng(0)
    for at in rng.integers(len(content) // 4, 3 * len(content) // 4, 12):
        damaged = bytearray(content)
        damaged[at] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        caplog.clear()
        try:
            heard = load_audio(path)
        except UserError as error:
            assert "damaged" in str(error) or "not readable" in str(error)
            continue
        assert np.array_equal(heard, whole) or "is damaged" in caplog.text


def test_an_mp4_whose_clock_is_another(tmp_path):
    path = write_recording(tmp_path / "a.mp4", [Track("aac", 48_000, n_words=6)])
    content = path.read_bytes()
    for damaged in (
        content.replace(b"mdhd", b"free"),
        *(content[: (at := content.index(b"mdhd") + 16)] + struct.pack(">I", rate)
          + content[at + 4 :] for rate in (24_000, 96_000, 1000)),
    ):  # fmt: skip
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=r"packets are not those of their sound|cut off|gap of"):
            load_audio(path)


def test_an_avi_that_states_more_than_it_holds(tmp_path):
    path = write_recording(tmp_path / "a.avi", [Track("pcm_s16le", 16_000, n_words=6)])
    content = path.read_bytes()
    middle = content.index(b"00wb", len(content) // 2)
    path.write_bytes(content[:middle] + b"\x93" * (len(content) - middle))
    with pytest.raises(UserError, match=r"is cut off or damaged: 1.\d\d of 3.60 s"):
        load_audio(path)


# -- what a phone or a browser leaves --------------------------------------------------------


@pytest.mark.parametrize(("ending", "first"), [("amr", 6), ("3gp", None)])
def test_pauses_of_amr_are_silence(tmp_path, caplog, ending, first):
    """Every frame of AMR begins with its kind, which decides its size."""
    track = Track("libopencore_amrnb", 8_000, n_words=3)
    path = write_recording(tmp_path / "a.amr", [track], form="amr")
    content = path.read_bytes()
    size = {k: n for k, n in enumerate((13, 14, 16, 18, 20, 21, 27, 32))}[content[6] >> 3 & 15]
    frames = [content[at : at + size] for at in range(6, len(content), size)]
    pause = [b"\x7c", b"\x44" + bytes(5)]  # nothing, and the noise of a pause
    # The words sound from 0.2, 0.8 and 1.4 s on for 0.25 s; a frame lasts 20 ms.
    spoken = [any(0.1 < 0.02 * k - at < 0.45 for at in (0.0, 0.6, 1.2)) for k in range(len(frames))]
    kept = [
        f if is_kept else pause[k % 2]
        for k, (f, is_kept) in enumerate(zip(frames, spoken, strict=True))
    ]
    path.write_bytes(content[:6] + b"".join(kept))
    if ending == "3gp":
        path = copied(path, tmp_path / "a.3gp", "3gp")
    heard = load_audio(path)
    assert "its pauses hold no sound" in caplog.text
    assert_words(heard, track)
    assert len(heard) / 16_000 == pytest.approx(0.02 * len(frames), abs=0.03)


def test_a_later_part_of_a_live_recording_is_named(tmp_path, caplog):
    """As MediaRecorder gives it out every second, in WebM and in MP4."""
    track = Track("libopus", 48_000, n_words=12)
    options = {"cluster_time_limit": "1000"}
    webm = write_recording(tmp_path / "a.webm", [track], is_pipe=True, form="webm", options=options)
    content = webm.read_bytes()
    begins = [at for at in range(len(content)) if content[at : at + 4] == b"\x1f\x43\xb6\x75"]
    assert len(begins) > 4
    parts = [content[a:b] for a, b in itertools.pairwise([0, *begins[2::2], len(content)])]
    first, *later = parts
    options = {"movflags": "frag_keyframe+empty_moov+default_base_moof", "frag_duration": "500000"}
    mp4 = write_recording(tmp_path / "a.mp4", [Track("aac", 48_000, n_words=6)], options=options)
    fragment = mp4.read_bytes()
    fragment = fragment[fragment.index(b"moof") - 4 :]
    path = tmp_path / "b.webm"
    for wrong in (later[0], b"".join(later), b"".join(later) + first, fragment):
        path.write_bytes(wrong)
        with pytest.raises(UserError, match=r"is a part of a live recording .* join all parts"):
            load_audio(path)
    path.write_bytes(b"".join(parts))
    assert_words(load_audio(path), track)
    assert not caplog.text
    path.write_bytes(first + b"".join(reversed(later)))
    load_audio(path)
    assert "its time stamps go back by" in caplog.text


@pytest.mark.parametrize("ending", ["pcm", "raw", "al", "ulaw", "f32", "RAW"])
def test_samples_without_a_header_are_named(tmp_path, ending):
    rng = np.random.default_rng(0)
    path = tmp_path / f"a.{ending}"
    for content in (
        (words(4, 8000) * 30_000).astype("<i2").tobytes(),
        rng.normal(0, 3000, 16_000).astype("<i2").tobytes(),
        rng.bytes(16_000),
        words(4, 8000).tobytes(),
    ):
        path.write_bytes(content)
        with pytest.raises(
            UserError, match=r"without a header, so their rate is not in it.*ffmpeg -f"
        ):
            load_audio(path)
        assert duration_s(path) == 0.0
    soundfile.write(path, words(4, 16_000), 16_000, format="WAV")  # the content decides
    assert len(found_words(load_audio(path))) == 4
