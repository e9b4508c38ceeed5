"""What every test process is given before torch is imported."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from places import HANG_S, ROOT, SUPPORT

# Two threads that share a core wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ["HF_HUB_OFFLINE"] = "1"  # a test that asks the network is a defect
os.environ["WANDB_MODE"] = "offline"
os.environ["WANDB__SERVICE_WAIT"] = str(HANG_S)
# A program that a test starts runs this checkout, whatever is installed, and finds the fakes.
os.environ["PYTHONPATH"] = os.pathsep.join((str(ROOT), str(SUPPORT)))
# Modules that pytest has rewritten are kept, also where PYTHONDONTWRITEBYTECODE is set: to rewrite
# them takes half of the time of collecting, in each worker and each run.
sys.dont_write_bytecode = False


def _avoid_broken_amx() -> None:
    """Keep oneDNN off AMX where the processor names it and its use ends the process.

    Some hypervisors show AMX to their guests without letting them use it. Workers and programs
    started by tests inherit the variable, so that the question is put once.
    """
    name = "ONEDNN_MAX_CPU_ISA"
    cpuinfo = Path("/proc/cpuinfo")
    if name in os.environ or not cpuinfo.exists() or "amx_bf16" not in cpuinfo.read_text():
        return
    product = "import torch; a = torch.ones(64, 64, dtype=torch.bfloat16); a @ a"
    ended = subprocess.run([sys.executable, "-c", product], capture_output=True).returncode
    os.environ[name] = "AVX512_CORE_BF16" if ended < 0 else "DEFAULT"


_avoid_broken_amx()


@pytest.fixture(autouse=True)
def _no_handler_of_another_test() -> Iterator[None]:
    """Hydra's logging and `basicConfig` of packages leave handlers that write to the standard
    error of the test that called them, which is closed by then."""
    yield
    root = logging.getLogger()
    for handler in [each for each in root.handlers if type(each) is logging.StreamHandler]:
        root.removeHandler(handler)
    root.setLevel(logging.WARNING)


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
