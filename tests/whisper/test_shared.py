"""What the cells of a sweep share: loaded once, and again where another file or memory asks."""

from __future__ import annotations

from pathlib import Path

import torch
from tiny import tiny_folder

from streaming_asr.models import shared
from streaming_asr.whisper.adapters import merge_adapter, with_lora
from streaming_asr.whisper.load import load_whisper


class Loader:
    """Loads strings; `loaded` names them in order."""

    def __init__(self) -> None:
        self.loaded: list[str] = []

    def __call__(self, name: str, n_bytes: int = 1) -> str:
        def load() -> str:
            self.loaded.append(name)
            return name

        return shared.shared(name, load, lambda _: n_bytes)


def test_a_sweep_loads_what_its_cells_ask_for_once_and_keeps_nothing_behind_it() -> None:
    ask = Loader()
    with shared.sharing():
        assert [ask(name) for name in ("a", "b", "a", "b")] == ["a", "b", "a", "b"]
        assert ask.loaded == ["a", "b"]
    ask("a")
    ask("a")
    assert ask.loaded == ["a", "b", "a", "a"]


def test_changed_files_are_loaded_again() -> None:
    ask = Loader()
    with shared.sharing():
        for stamp in ("old", "new", "new"):
            shared.of_files(stamp)
            ask("a")
    assert ask.loaded == ["a", "a"]


def test_a_large_model_makes_room_for_the_next_and_a_failure_for_all() -> None:
    ask = Loader()
    with shared.sharing():
        ask("large", shared.MOST_BYTES + 1)
        ask("large")
        ask("small")  # drops the large one
        ask("other")
        ask("small")
        ask("large")
        assert ask.loaded == ["large", "small", "other", "large"]
        shared.forget()
        ask("small")
    assert ask.loaded == ["large", "small", "other", "large", "small"]


def test_cells_share_a_whisper_of_the_same_settings() -> None:
    folder = tiny_folder()
    with shared.sharing():
        one = load_whisper(folder)
        assert load_whisper(str(folder)) is one
        assert load_whisper(folder, dtype="bfloat16") is not one
    assert load_whisper(folder) is not one


def test_a_merged_adapter_draws_no_random_numbers_so_that_the_second_cell_draws_as_the_first(
    tmp_path: Path,
) -> None:
    folder = tiny_folder()
    model = load_whisper(folder).model
    with_lora(model, rank=2, target_modules=["q_proj"]).save_pretrained(tmp_path)
    model = load_whisper(folder).model
    before = torch.get_rng_state()
    merge_adapter(model, str(tmp_path))
    assert torch.equal(torch.get_rng_state(), before)
