"""ChunkFormer as a method: latency as declared, long form equal to one pass, folders, refusals."""

import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import soundfile
import torch
import yaml
from chunkformer_tiny import SHAPE, STATISTICS, TOKENS, tiny_folder, tiny_network
from recipes import WORDS, settings_of, toy_corpus
from tiny import noise
from tiny import tiny_folder as whisper_folder

from streaming_asr import contract
from streaming_asr.config.build import new_method
from streaming_asr.contract import OF_ANY_AUDIO, Setting
from streaming_asr.corpora.audio import File, load_audio
from streaming_asr.errors import UserError
from streaming_asr.events.log import read_log
from streaming_asr.method import display_text
from streaming_asr.methods.chunkformer.context import Context
from streaming_asr.methods.chunkformer.ctc import Greedy, best_path
from streaming_asr.methods.chunkformer.features import fbank
from streaming_asr.methods.chunkformer.load import load, save
from streaming_asr.methods.chunkformer.tokenizer import Tokenizer
from streaming_asr.methods.chunkformer.train import ChunkFormerRecipe
from streaming_asr.run import command as run
from streaming_asr.simulate.recorder import StepRecorder
from streaming_asr.training.windows import Window
from streaming_asr.whisper.encoder import encode_masked
from streaming_asr.whisper.features import log_mel

SHORT = {"mode": "longform", "chunk_frames": 4, "left_frames": 8, "right_frames": 5}


def method(**options):
    return new_method("chunkformer", **{"weights": str(tiny_folder()), "chunk_s": 0.32, **options})


def setting():
    return Setting(5120, 10_240, noise(3.0, seed=1), noise(1.7, seed=2))


def words_of(audio, context):
    """One pass over the whole recording."""
    (logits,) = load(tiny_folder()).network([fbank(torch.from_numpy(audio))], context)
    greedy = Greedy(TOKENS)
    return [*greedy.push(*best_path(logits)), *greedy.finish()]


@pytest.mark.parametrize("check", OF_ANY_AUDIO, ids=lambda check: check.__name__)
@pytest.mark.parametrize(
    "options",
    [{"right_frames": 3}, SHORT, SHORT | {"total_duration_s": 0.4}],
    ids=["look-ahead", "longform", "small-passes"],
)
def test_the_contract_holds_in_other_modes(check, options):
    check(method(**options), setting())


# -- streaming ----------------------------------------------------------------------------------


def test_what_is_shown_after_a_step_is_what_the_frames_heard_say():
    audio, heard, shown = setting().other, 0, []
    chunked = method()
    for piece, update in zip(
        contract.chunks(chunked, audio, setting()),
        contract.run(chunked, audio, setting()),
        strict=True,
    ):
        heard += len(piece)
        shown += update.committed
        n = (heard - 1360) // 5120 * 5120 + 1360 if heard < len(audio) else heard
        wanted = words_of(audio[:n], Context(4, 50, 0))
        assert display_text([*shown, *update.partial]) == display_text(wanted)


@pytest.mark.parametrize("right", [0, 2, 5])
def test_a_chunk_is_decoded_with_the_sample_that_the_declared_latency_names(right):
    chunked = method(right_frames=right)
    assert chunked.lookahead_samples == 1360 + 1280 * right  # 85 ms and 80 a frame
    recorder = StepRecorder()
    state = chunked.start(recorder=recorder)
    audio, done = noise(2.0), []
    for end in (
        0,
        *(k * 5120 + chunked.lookahead_samples + late for k in (1, 2, 3) for late in (-1, 0)),
    ):
        begin = sum(n for n, _ in done)
        chunked.step(state, audio[begin:end], last=False)
        done.append((end - begin, int(recorder.drain()[1].get("frames_real", 0))))
    assert [n for _, n in done] == [0, 0, 4, 0, 4, 0, 4]


def test_frames_past_the_chunk_are_counted_as_computed_not_as_real():
    chunked, recorder = method(right_frames=2), StepRecorder()
    state = chunked.start(recorder=recorder)
    chunked.step(state, noise(1.0), last=True)  # 98 mel frames: 11 encoder frames
    parts, counts = recorder.drain()
    assert set(parts) == {"feature", "encode", "decode", "finalise"}
    assert (counts["frames_real"], counts["frames_computed"]) == (11, 6 + 6 + 3)
    assert counts["encoder_flops"] > 0


@pytest.mark.parametrize(
    ("chunk_s", "frames"), [(0.02, 1), (0.3, 3), (0.32, 4), (0.24, 3), (1.0, 12)]
)
def test_a_chunk_is_the_frames_that_fit_into_it(chunk_s, frames):
    recorder = StepRecorder()
    chunked = method(chunk_s=chunk_s)
    state = chunked.start(recorder=recorder)
    chunked.step(state, noise(frames * 0.08 + 0.085 + 0.01), last=False)
    assert recorder.drain()[1]["frames_real"] == frames


# -- long form ----------------------------------------------------------------------------------


@pytest.mark.parametrize("total_duration_s", [0.4, 1800.0])
def test_long_form_equals_one_pass_whatever_the_deliveries(total_duration_s):
    recordings = [
        noise(6.0, seed=5),
        noise(0.1, seed=6),
        noise(2.5, seed=7),
        np.zeros(0, np.float32),
    ]
    chunked = method(**SHORT, total_duration_s=total_duration_s)
    states = chunked.start_many(4)
    n = [[0, 0, 0, 0], [30_000, 1600, 4, 0], [96_000, 1600, 40_000, 0]]
    said = [[], [], [], []]
    for k in (1, 2):
        parts = [audio[a:b] for audio, a, b in zip(recordings, n[k - 1], n[k], strict=True)]
        for row, update in enumerate(chunked.step_many(states, parts, last=[k == 2] * 4)):
            said[row] += update.committed
    for words, audio in zip(said, recordings, strict=True):
        assert contract.same_words(words, words_of(audio, Context(4, 8, 5)))
    assert [len(words) > 0 for words in said] == [True, False, True, False]


def test_long_form_of_files_reports_what_fails(tmp_path, monkeypatch):
    """Six files, two of which cannot be read; only the longest comes in pieces."""
    (tmp_path / "data").mkdir()
    seconds = {"a": 4.0, "b": 0.05, "d": 1.0, "e": 0.0, "f": 0.16}  # f: one frame
    for name, length in seconds.items():
        soundfile.write(tmp_path / f"data/{name}.wav", noise(length, seed=len(name)), 16_000)
    (tmp_path / "data/c.wav").write_bytes(b"no audio")
    progress, whole = [], []  # whole: what was in memory whole
    monkeypatch.setattr(
        "streaming_asr.run.progress.Progress.heard", lambda _, u, s: progress.append((u.id, s))
    )
    monkeypatch.setattr(File, "__call__", lambda f: whole.append(f.path.stem) or load_audio(f.path))
    command = [
        *("method=chunkformer", "method.mode=longform", "method.total_duration_s=2"),
        *("method.chunk_frames=4", "method.right_frames=4", "tracker=none"),
        *("data=folder", f"data.path={tmp_path / 'data'}", f"output={tmp_path}"),
        *("model=chunkformer", f"model.path={tiny_folder()}"),
    ]
    assert run.main(command) == 1
    (cell,) = (tmp_path / "default").iterdir()
    log = {u.utt: u for u in read_log(cell / "events.jsonl").utterances}
    assert {utt for utt, u in log.items() if u.status == "ok"} == {*"abdf"}
    assert "c.wav" in log["c"].error and "0 samples" in log["e"].error
    assert json.loads((cell / "metrics.json").read_text())["n_failed"] == 2

    audio = soundfile.read(tmp_path / "data/a.wav", dtype="float32")[0]
    words = words_of(audio, Context(4, 128, 4))
    texts = [word for step in log["a"].steps for word in step.committed]
    assert texts == [word.text for word in words] != []
    assert [step.audio_samples for step in log["a"].steps] == [32_000, 64_000]
    assert [len(log[utt].steps) for utt in "bdf"] == [1, 1, 1]
    assert sorted(whole) == [*"bcdef"]
    assert [s for utt, s in progress if utt == "a"] == [2.0, 4.0, 4.0]  # pieces, the end


# -- Checkpoint folders: both generations of names, and every way in which one can be wrong --


@pytest.fixture
def folder(tmp_path):
    save(tmp_path / "net", tiny_network(), TOKENS)
    (tmp_path / "net" / "global_cmvn").write_text(json.dumps(STATISTICS))
    return tmp_path / "net"


def edit_config(folder, **encoder):
    path = folder / "config.yaml"
    config = yaml.safe_load(path.read_text())
    config["encoder_conf"] |= encoder
    path.write_text(yaml.safe_dump(config))
    return config


def edit_weights(folder, change):
    path = folder / "pytorch_model.bin"
    weights = torch.load(path, weights_only=True)
    torch.save(change(weights), path)


def logits(folder):
    torch.manual_seed(0)
    (out,) = load(folder).network([14 + 5 * torch.randn(120, 80)], Context(4, 8, 0))
    return out


def test_what_was_saved_is_loaded(folder):
    loaded, saved = load(folder), tiny_network()
    assert loaded.tokens == TOKENS and loaded.network.shape == SHAPE
    for name, value in saved.state_dict().items():
        assert torch.allclose(loaded.network.state_dict()[name], value, rtol=1e-3, atol=1e-3), name
    assert not loaded.network.training
    assert (folder / "pytorch_model.bin").stat().st_size < 3 * sum(
        p.numel() for p in saved.parameters()
    )


def test_the_first_generation_of_names_is_read_too(folder):
    wanted = logits(folder)
    config = edit_config(
        folder,
        input_layer="depthwise",
        pos_enc_layer_type="stream_rel_pos",
        selfattention_layer_type="stream_rel_selfattn",
        use_dynamic_conv=True,
        limited_decoding_chunk_sizes=[64, 128, 256],
        limited_left_chunk_sizes=[128, 256, 128],
        right_context_sizes=[128, 128, 128],
    )
    del config["encoder_conf"]["dynamic_conv"]
    config |= {"is_json_cmvn": True, "cmvn_file": "global_cmvn"}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))

    def aliased(weights):
        return {
            (f"encoder.{k}" if k.startswith("ctc.") else k): v
            for k, v in weights.items()
            if "global_cmvn" not in k
        }

    edit_weights(folder, aliased)
    assert torch.allclose(logits(folder), wanted, atol=1e-4)


def without(part):
    return lambda weights: {name: value for name, value in weights.items() if part not in name}


def test_weights_have_other_endings_more_parts_or_no_statistics(folder):
    expected = logits(folder)
    edit_weights(folder, lambda w: w | {"decoder.left_decoder.embed.0.weight": torch.zeros(3, 3)})
    assert torch.equal(logits(folder), expected)
    for old, new in (("bin", "pt"), ("pt", "ckpt")):
        (folder / f"pytorch_model.{old}").rename(folder / f"pytorch_model.{new}")
        assert torch.equal(logits(folder), expected)
    (folder / "pytorch_model.ckpt").rename(folder / "pytorch_model.bin")
    (folder / "global_cmvn").unlink()
    edit_weights(folder, without("cmvn"))
    cmvn = load(folder).network.encoder.global_cmvn
    assert not cmvn.mean.any() and bool((cmvn.istd == 1).all())


VOCABULARY = "".join(f"{token} {i}\n" for i, token in enumerate([*TOKENS, "▁more"]))
BROKEN = [
    # a file, what it holds (None: it is absent), the answer
    ("config.yaml", None, "config.yaml"),
    ("vocab.txt", None, "vocab.txt"),
    ("pytorch_model.bin", None, "pytorch_model.bin"),
    ("config.yaml", "a: [1", "config.yaml"),
    ("pytorch_model.bin", "not weights", "pytorch_model.bin"),
    ("vocab.txt", VOCABULARY, "vocab.txt has 12 tokens, the CTC head 11"),
    ("vocab.txt", "<blank> 0\n▁the 2\n", "without a gap"),
    ("vocab.txt", "<blank>\n", 'a line is "token id"'),
]


@pytest.mark.parametrize(("name", "content", "answer"), BROKEN)
def test_a_broken_file_is_refused(folder, name, content, answer):
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_text(content)
    with pytest.raises(UserError) as refusal:
        load(folder)
    assert answer in str(refusal.value) and name in str(refusal.value)


OTHER = [
    ({"input_layer": "conv2d"}, "encoder_conf.input_layer is conv2d"),
    ({"cnn_module_norm": "batch_norm"}, "encoder_conf.cnn_module_norm is batch_norm"),
    ({"cnn_module_kernel": 31}, "encoder_conf.cnn_module_kernel is 31"),
    ({"num_blocks": 2}, 'Unexpected key(s) in state_dict: "encoder.encoders.2.'),
    ({"num_blocks": 4}, 'Missing key(s) in state_dict: "encoder.encoders.3.'),
    ({"linear_units": 50}, "size mismatch for encoder.encoders.0."),
    ({"output_size": None}, "needs output_size"),
]


@pytest.mark.parametrize(("settings", "answer"), OTHER, ids=str)
def test_another_architecture_is_refused(folder, settings, answer):
    edit_config(folder, **settings)
    with pytest.raises(UserError) as refusal:
        load(folder)
    assert answer in str(refusal.value)


def test_weights_without_a_head_or_statistics_and_no_folder_are_refused(folder):
    edit_weights(folder, without("cmvn"))
    (folder / "global_cmvn").write_text(json.dumps({"mean_stat": []}))
    with pytest.raises(UserError, match="global_cmvn"):
        load(folder)
    edit_weights(folder, without("ctc."))
    with pytest.raises(UserError, match="no CTC head"):
        load(folder)
    with pytest.raises(UserError, match=r"no such folder.*streaming_asr\.train method=chunkf"):
        load(folder / "gone")


# -- training --

Make = Callable[..., ChunkFormerRecipe]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return toy_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture
def recipe(corpus):
    def make(**options):
        torch.manual_seed(0)
        settings = {
            **{"vocabulary": 60, "d": 16, "heads": 2, "layers": 2, "hidden": 32},
            **{"decoder_layers": 1, "batch_s": 6.0, "augment": None, "dropout": 0.0},
            **options,
        }
        return ChunkFormerRecipe(**settings_of("chunkformer", corpus, **settings))

    return make


# -- the teacher --------------------------------------------------------------------------------


def test_a_frame_is_to_tell_the_four_frames_of_the_teacher_around_its_centre(recipe):
    made = recipe(teacher=str(whisper_folder()), window_s=4.0)
    audio = noise(2.0, 1)
    mel = log_mel(torch.from_numpy(audio), made.teacher_model.n_mels, n_frames=2 * 125 + 1)
    with torch.no_grad():
        hidden = encode_masked(made.teacher_model.model, mel[None], ends=[125])[0]
    taught = made._taught(made.teacher_model, audio, 23)
    assert taught.shape == (23, 4 * made.teacher_model.config.d_model)
    # Frame 5 is centred on 5 * 80 + 82.5 ms; the teacher's frames 22 to 25 are on 450 .. 510 ms.
    expected = torch.nn.functional.layer_norm(hidden[22:26], hidden.shape[-1:])
    assert torch.allclose(taught[5].unflatten(0, (-1, 4)).T, expected, atol=1e-6)


def test_what_the_teacher_knows_is_learnt_and_not_kept(recipe, tmp_path):
    made = recipe(teacher=str(whisper_folder()), window_s=4.0, batch_s=3.0)
    losses = []
    optimiser = torch.optim.Adam(made.model.parameters(), lr=3e-3)
    for _ in range(30):
        loss, logs = made.loss(made.model, made.draw(0, rank=0, world=1, progress=0.0))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(logs["teacher_loss"])
    assert losses[-1] < 0.7 * losses[0]
    made.save(tmp_path)
    assert '"teacher": ' in (tmp_path / "training.json").read_text()
    names = load(tmp_path).network.state_dict()
    assert not [name for name in names if "taught" in name]


# -- tokens -------------------------------------------------------------------------------------


def test_tokens_spell_the_text_and_those_of_a_text_are_those_of_its_words():
    tokenizer = Tokenizer.train([" ".join(WORDS), "Käse, $12.50"], 60)
    assert tokenizer.tokens[:2] == ["<blank>", "<unk>"]
    assert tokenizer.tokens[tokenizer.end] == "<sos/eos>" and len(tokenizer) <= 60
    ids = tokenizer.encode("the quick Käse, $12.50")
    assert "".join(tokenizer.tokens[i] for i in ids) == "▁the▁quick▁Käse,▁$12.50"
    assert ids == [i for w in ("the", "quick", "Käse,", "$12.50") for i in tokenizer.encode(w)]
    assert tokenizer.encode("") == []
    assert tokenizer.encode("ж")[-1] == 1


# -- batches ------------------------------------------------------------------------------------


def test_the_context_is_full_first_and_then_random(recipe):
    made = recipe(full_until=0.5, chunks=[4, 8, -1], lefts=[16, 32], rights=[0, 3])

    def seen(progress):
        return {made.draw(s, rank=0, world=1, progress=progress).context for s in range(25)}

    assert seen(0.49) == {None}
    later = seen(0.5)
    assert None in later
    assert {c.chunk for c in later if c} == {4, 8}
    assert {c.left for c in later if c} == {16, 32}
    assert {c.right for c in later if c} == {0, 3}


def test_the_frame_loss_fades_and_its_labels_lie_where_the_words_are(recipe):
    made = recipe(frame_weight=0.5, frame_until=0.4)
    weights = [made.draw(0, rank=0, world=1, progress=p).frame_weight for p in (0.0, 0.2, 0.4, 1)]
    assert weights == pytest.approx([0.5, 0.25, 0.0, 0.0])
    (fox,), (wash,) = made.tokenizer.encode("fox")[:1], made.tokenizer.encode("wash")[:1]
    window = Window(noise(2.0), [("fox", 0.24, 0.56, 0), ("wash", 1.0, 1.4, 0)], "", False, False)
    labels = made._spoken(window, 20).tolist()
    n_fox = len(made.tokenizer.encode("fox"))
    # frame i is centred on 0.0825 + 0.08 i: frames 2 to 5 lie in the first word
    assert labels[:2] == [0, 0] and labels[2] == fox and labels[6] == 0
    assert all(labels[2:6]) and len(set(labels[2:6])) == min(4, n_fox)
    assert labels[11] == 0 and labels[12] == wash and labels[17:] == [0, 0, 0]


def test_speech_without_word_times_teaches_its_text_and_no_frame(recipe):
    made = recipe(several=0.0)
    timed = made.items
    made.train_on([replace(item, words=()) for item in timed])
    batch = made.draw(0, rank=0, world=1, progress=0.1)
    spoken = [made.tokenizer.encode(item.text) for item in timed]
    assert batch.texts and all(text in spoken for text in batch.texts)
    assert all((labels == -100).all() for labels in batch.spoken)
    loss, logs = made.loss(made.model, batch)
    assert logs["frame_loss"] == 0 and torch.isfinite(loss) and logs["ctc_loss"] > 0


def test_short_utterances_come_first_and_one_by_one(corpus, recipe):
    made = recipe(short_until=0.5, several=1.0)
    longest = max(item.n_samples for item in made.items)
    asked = []
    near = made.near
    made.near = lambda share: asked.append(share) or near(share)

    def windows(progress):
        """The largest share of the lengths that is asked for, and frames of a batch's longest."""
        asked.clear()
        batches = [made.draw(s, rank=0, world=1, progress=progress) for s in range(30)]
        return max(asked), max(len(mel) for batch in batches for mel in batch.mels)

    (first, alone), (middle, _), (end, joined) = (windows(p) for p in (0.0, 0.25, 0.5))
    assert first <= 0.1 < middle <= 0.55 < end
    assert alone <= longest / 160 < joined


def test_utterances_longer_than_a_window_are_left_out(recipe):
    made = recipe()
    lengths = sorted(item.n_samples / 16_000 for item in made.items)
    window_s = lengths[len(lengths) // 2]
    assert max(i.n_samples for i in recipe(window_s=window_s).items) <= 16_000 * window_s
    slow = recipe(window_s=window_s, augment={"speed": 1.0, "speed_range": [0.8, 1.1]})
    assert max(i.n_samples for i in slow.items) <= 0.8 * 16_000 * window_s
    with pytest.raises(UserError, match=r"no utterance lasts at most window_s=0\.01"):
        recipe(window_s=0.01)


def test_every_parameter_gets_a_gradient_in_full_and_limited_context(recipe):
    for options in ({"full_until": 1.0}, {"full_until": 0.0, "chunks": [4], "rights": [2]}):
        made = recipe(**options)
        loss, logs = made.loss(made.model, made.draw(0, rank=0, world=1, progress=0.1))
        loss.backward()
        assert set(logs) == {"ctc_loss", "decoder_loss", "frame_loss"}
        without = [n for n, p in made.model.named_parameters() if p.grad is None]
        flat = [n for n, p in made.model.named_parameters() if not p.grad.abs().max() > 0]
        # a bias of the keys changes no softmax
        assert without == [] and all("linear_k.bias" in n or "in_proj" in n for n in flat), flat


# -- training -----------------------------------------------------------------------------------


def test_what_is_saved_is_a_network_that_loads_and_can_be_gone_on_from(recipe, tmp_path):
    made = recipe(chunks=[4], lefts=[8], rights=[0], dev_contexts=[[4, 8, 0]], batch_s=4.0)
    first = made.draw(0, rank=0, world=1, progress=0.0)
    assert set(made.evaluate()) == {"score", "wer_4_8_0", "seconds"}
    made.save(tmp_path / "final")
    loaded = load(tmp_path / "final")
    assert loaded.tokens == made.tokenizer.tokens
    assert not [name for name in loaded.network.state_dict() if "decoder" in name]
    mel = made.draw(1, rank=0, world=1, progress=1.0).mels[0]
    made.model.eval()
    with torch.no_grad():
        (ours,), (theirs,) = (n([mel], Context(4, 8, 0)) for n in (made.network, loaded.network))
    assert torch.allclose(ours, theirs, atol=0.05)  # saved at 16 bits

    again = recipe(initial=str(tmp_path / "final"), dropout=0.2)
    assert again.tokenizer.tokens == made.tokenizer.tokens
    assert again.network.encoder.encoders[0].dropout.p == 0.2
    loss, _ = again.loss(again.model, first)
    loss.backward()
    assert again.network.encoder.embed.out.weight.grad is not None
    again.save(tmp_path / "again")
    assert load(tmp_path / "again").network.shape == made.network.shape


def test_the_attention_decoder_goes_on_from_where_the_run_before_left_it(recipe, tmp_path):
    made = recipe()
    for weight in made.model.parameters():
        torch.nn.init.normal_(weight, std=0.1)
    made.save(tmp_path)
    again = recipe(initial=str(tmp_path))
    batch = made.draw(0, rank=0, world=1, progress=1.0)
    wanted, found = (r.loss(r.model, batch)[1] for r in (made, again))
    assert found["decoder_loss"] == pytest.approx(wanted["decoder_loss"], rel=1e-2)  # 16 bits
    assert found["frame_loss"] == pytest.approx(wanted["frame_loss"], rel=1e-2)
    with pytest.raises(UserError, match=r"decoder\..*; give the decoder_layers"):
        recipe(initial=str(tmp_path), decoder_layers=2)


def test_a_network_of_others_has_no_tokenizer_to_go_on_with(recipe):
    with pytest.raises(UserError, match=r"bpe\.json: no tokenizer there"):
        recipe(initial=str(tiny_folder()))
