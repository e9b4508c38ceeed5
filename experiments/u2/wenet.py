"""Whisper checkpoints of WeNet, CTC head included, as a folder that `method.weights` takes.

    python -m experiments.u2.wenet final.pt --base openai/whisper-medium --out FOLDER

WeNet holds the same weights under names of its own; `--base` gives what a checkpoint lacks, the
configuration and the tokenizer. A head over the whole vocabulary keeps its text tokens and the
blank: control tokens are never CTC targets.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import nn

from streaming_asr.errors import UserError
from streaming_asr.methods.u2.head import MODEL_FOLDER, save_head
from streaming_asr.methods.u2.tokenizer import CtcTokenizer
from streaming_asr.models.tensors import load_pickled
from streaming_asr.terminal import exit_status
from streaming_asr.whisper.load import Whisper, load_whisper

_LAYER = r"(encoder|decoder)\.(?:encoders|decoders)\.(\d+)\."
_NAMES = (  # WeNet's, ours
    (r"encoder\.embed\.conv\.0", r"encoder.conv1"),
    (r"encoder\.embed\.conv\.2", r"encoder.conv2"),
    (r"(encoder|decoder)\.after_norm", r"\1.layer_norm"),
    (r"decoder\.embed\.0", r"decoder.embed_tokens"),
    (_LAYER + r"self_attn\.linear_(q|k|v|out)", r"\1.layers.\2.self_attn.\3_proj"),
    (_LAYER + r"src_attn\.linear_(q|k|v|out)", r"\1.layers.\2.encoder_attn.\3_proj"),
    (_LAYER + r"feed_forward\.w_(1|2)", r"\1.layers.\2.fc\3"),
    (_LAYER + r"norm1", r"\1.layers.\2.self_attn_layer_norm"),
    (r"encoder\.encoders\.(\d+)\.norm2", r"encoder.layers.\1.final_layer_norm"),
    (r"decoder\.decoders\.(\d+)\.norm2", r"decoder.layers.\1.encoder_attn_layer_norm"),
    (r"decoder\.decoders\.(\d+)\.norm3", r"decoder.layers.\1.final_layer_norm"),
)
_POSITIONS = {
    "encoder.embed.pos_enc.pe": "encoder.embed_positions.weight",
    "decoder.embed.1.pe": "decoder.embed_positions.weight",
}


def our_name(key: str) -> str | None:
    """WeNet's key -> the key below `model.` in transformers; None where there is no such."""
    stem, _, leaf = key.rpartition(".")
    for theirs, ours in _NAMES:
        if match := re.fullmatch(theirs, stem):
            return f"{match.expand(ours)}.{leaf}"
    return _POSITIONS.get(key)


def convert(
    weights: Mapping[str, torch.Tensor], base: Whisper, blank: int | None = None
) -> nn.Linear:
    """Puts the weights into `base`'s model, in place, and returns the CTC head.

    blank: class of the blank; by default the token for no speech in a head over the whole
    vocabulary, else the last class. Raises UserError where the checkpoint is of another form.
    """
    tensors = base.model.model.state_dict()
    output = base.model.proj_out.weight
    renamed: dict[str, torch.Tensor] = {}
    rest = dict(weights)
    head_weight, head_bias = rest.pop("ctc.ctc_lo.weight", None), rest.pop("ctc.ctc_lo.bias", None)
    output_weight = rest.pop("decoder.output_layer.weight", None)
    output_bias = rest.pop("decoder.output_layer.bias", None)
    if head_weight is None or head_bias is None:
        raise UserError("no ctc.ctc_lo.weight and bias: this checkpoint has no CTC head")
    for key, value in rest.items():
        name = our_name(key)
        if name is not None and name not in tensors and not value.any():
            continue  # a bias of zeros where Whisper has none
        if name is None or name not in tensors:
            raise UserError(f"unknown key {key!r}: not a Whisper of WeNet's, or of another size")
        if key in _POSITIONS:
            value = value.reshape(-1, value.shape[-1])
        if value.shape != tensors[name].shape:
            raise UserError(
                f"{key} is {tuple(value.shape)}, the base model has {tuple(tensors[name].shape)}; "
                "give the base of the same size"
            )
        renamed[name] = value
    lacking = sorted(set(tensors) - set(renamed) - set(_POSITIONS.values()))
    if lacking:
        raise UserError(f"nothing for {lacking[0]}: the checkpoint is of a smaller model")
    if output_bias is not None and output_bias.any():
        raise UserError("decoder.output_layer.bias is not zero: Whisper has none to put it in")
    base.model.model.load_state_dict(renamed, strict=False)
    if output_weight is not None:
        if output_weight.shape != output.shape:
            raise UserError(
                f"decoder.output_layer.weight is {tuple(output_weight.shape)}, the base model has "
                f"{tuple(output.shape)}"
            )
        if not torch.equal(output_weight.to(output), output):  # trained apart from the embedding
            base.model.proj_out.weight = nn.Parameter(output_weight.to(output))
            base.model.config.tie_word_embeddings = False
    return _head(base, head_weight, head_bias, blank)


def _head(base: Whisper, weight: torch.Tensor, bias: torch.Tensor, blank: int | None) -> nn.Linear:
    n_classes, whole = len(weight), len(weight) == base.config.vocab_size
    if blank is None:
        silent = map(base.tokenizer.convert_tokens_to_ids, ("<|nospeech|>", "<|nocaptions|>"))
        positions = [i for i in silent if i is not None and i > base.eot]
        if whole and not positions:
            raise UserError("the tokenizer has no token for no speech; give blank=<class>")
        blank = positions[0] if whole else n_classes - 1
    if not 0 <= blank < n_classes:
        raise UserError(f"blank={blank}: the head has classes 0 to {n_classes - 1}")
    text = [i for i in range(base.eot if whole else n_classes) if i != blank]
    CtcTokenizer(base, len(text))  # raises where these are no prefix of the vocabulary
    chosen = torch.tensor([*text, blank])
    head = nn.Linear(weight.shape[1], len(chosen))
    head.load_state_dict({"weight": weight[chosen].float(), "bias": bias[chosen].float()})
    return head


def import_checkpoint(checkpoint: Path, base: str, out: Path, blank: int | None = None) -> None:
    """Writes `out`: the whole model under model/ and the CTC head. Raises UserError."""
    if not checkpoint.is_file():
        raise UserError(f"{checkpoint}: no such file; give WeNet's final.pt")
    content = load_pickled(checkpoint, str(checkpoint))
    weights = {k: v for k, v in content.items() if isinstance(v, torch.Tensor)}
    whisper = load_whisper(base)
    head = convert(weights, whisper, blank)
    out.mkdir(parents=True, exist_ok=True)
    whisper.save(out / MODEL_FOLDER)
    save_head(head, out)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return its exit status."""
    parser = argparse.ArgumentParser(prog="experiments.u2.wenet", description=__doc__)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument(
        "--base", required=True, help="Whisper of the same size: folder or hub name"
    )
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--blank", type=int, help="class of the blank")
    options = parser.parse_args(arguments)

    def job() -> None:
        import_checkpoint(options.checkpoint, options.base, options.out, options.blank)
        print(f"run it with method=u2 method.weights={options.out}")

    return exit_status(job)


if __name__ == "__main__":
    sys.exit(main())
