"""wav2vec 2.0 as STAR's feature extractor: truly causal, and chunk by chunk as at once."""

from __future__ import annotations

import pytest
import torch
from recipes import settings_of
from star_tiny import model_folder, star_folder
from tiny import noise
from toy_corpus import toy_corpus
from transformers import Wav2Vec2Config, Wav2Vec2Model

from experiments.star.wav2vec2 import CausalWav2Vec2, load_wav2vec2
from streaming_asr.config.build import new_method
from streaming_asr.errors import UserError
from streaming_asr.methods.star.train import StarRecipe
from streaming_asr.whisper.load import load_whisper

AUDIO = torch.from_numpy(noise(2.0, seed=6))
N_FRAMES = 80


def network(stable: bool = False) -> CausalWav2Vec2:
    torch.manual_seed(2)
    config = Wav2Vec2Config(
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        conv_dim=(8,) * 7,
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=2,
        do_stable_layer_norm=stable,
        feat_extract_norm="layer" if stable else "group",
    )
    model = Wav2Vec2Model(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim >= 2:
                weight *= 3.0 if "pos_conv" not in name else 1.0
    return CausalWav2Vec2(model, 32, 200).eval().requires_grad_(False)


@pytest.mark.parametrize("stable", [False, True], ids=["group norm", "layer norm"])
def test_chunk_by_chunk_equals_at_once(stable):
    wav2vec2 = network(stable)
    whole = wav2vec2.windows([AUDIO], [[N_FRAMES]])[0]
    for chunk in (5, 16, 33):
        state, at, parts = wav2vec2.start(), 0, []
        for end in [*range(chunk, N_FRAMES, chunk), N_FRAMES]:
            stop = end * 320 + wav2vec2.lookahead_samples
            wav2vec2.take(state, AUDIO[at:stop])
            at = stop
            parts.append(wav2vec2.encode(state, [end]))
        torch.testing.assert_close(torch.cat(parts), whole, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("stable", [False, True], ids=["group norm", "layer norm"])
def test_no_frame_hears_past_its_look_ahead(stable):
    wav2vec2, frame = network(stable), 40
    changed = AUDIO.clone()
    changed[frame * 320 + 400 :] *= -2.0
    before, after = wav2vec2.windows([AUDIO, changed], [[N_FRAMES]] * 2)
    assert torch.equal(before[: frame + 1], after[: frame + 1])
    assert not torch.allclose(before[frame + 3 :], after[frame + 3 :])


def test_a_stream_on_it_equals_the_same_audio_at_once():
    star = new_method(
        "star",
        str(model_folder()),
        weights=str(star_folder(wav2vec2=network(), features="wav2vec2")),
        chunk_s=0.1,
        first_chunk_s=0.2,
    )
    assert star.lookahead_samples == 80
    audio = noise(9.0, seed=3)  # more than one window of 4 s
    outcomes = []
    for samples in (len(audio), 1600, 4001):
        state, words = star.start(), []
        for start in range(0, len(audio), samples):
            last = start + samples >= len(audio)
            words += star.step(state, audio[start : start + samples], last=last).committed
        outcomes.append(([w.text for w in words], state.tokens, state.window_start))
    assert outcomes[0] == outcomes[1] == outcomes[2]
    assert len(outcomes[0][1]) > 3 and outcomes[0][2] > 100


def test_a_training_begins_from_the_model_that_is_named_and_leaves_it_beside_the_rest(tmp_path):
    corpus = toy_corpus(tmp_path, n=8, n_lengths=3, word_s=0.4, n_dev=1)

    def recipe(**options):
        settings = settings_of("star", corpus, model_folder(), **options)
        return StarRecipe(**{**settings, "rank": 4, "batch": 2, "layers": 1, "stage": "plain"})

    with pytest.raises(UserError, match="name its folder or hub name with wav2vec2="):
        recipe(features="wav2vec2")
    network().model.save_pretrained(tmp_path / "wav2vec2")
    made = recipe(features="wav2vec2", wav2vec2=str(tmp_path / "wav2vec2"))
    loss, _ = made.loss(made.model, made.draw(0, rank=0, world=1, progress=0.0))
    loss.backward()
    encoder = made.network.trained.model.encoder
    assert encoder.layers[0].attention.q_proj.weight.grad.abs().max() > 0
    made.save(tmp_path / "star")
    assert (tmp_path / "star/wav2vec2/config.json").is_file()
    assert recipe(features="wav2vec2", start=str(tmp_path / "star")).network.trained is not None


def test_a_folder_without_the_model_is_refused(tmp_path):
    with pytest.raises(UserError, match="facebook/wav2vec2-base-960h"):
        load_wav2vec2(str(tmp_path), load_whisper(model_folder()))
