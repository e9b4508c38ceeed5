"""One thread per test process: two that share a core wait for each other."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ["HF_HUB_OFFLINE"] = "1"  # a test that asks the network is a defect
os.environ["WANDB_MODE"] = "offline"


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    """A LoRA adapter of the tiny model with random updates, as training leaves it."""
    import torch
    from tiny import tiny_folder
    from transformers import WhisperForConditionalGeneration

    from streaming_asr.whisper.adapters import save_lora, with_lora

    torch.manual_seed(1)
    model = WhisperForConditionalGeneration.from_pretrained(tiny_folder())
    wrapped = with_lora(model, 4, ["q_proj", "v_proj"])
    with torch.no_grad():
        for name, weight in wrapped.named_parameters():
            if "lora_B" in name:
                weight.normal_(0.0, 0.3)
    folder = tmp_path / "adapters" / "whisperrt" / "300ms"
    save_lora(wrapped, folder, "tiny")
    training = {"rank": 4, "train_data": "/corpora/mine/train", "reached": {"dev/wer": 12.5}}
    (folder / "training.json").write_text(json.dumps(training))
    return folder
