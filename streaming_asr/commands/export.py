"""Merges an adapter into its model for other programs.

    streaming-asr export OUT method=whisperrt model=mini chunk=300ms

The settings are those of `run`, which finds the adapter by them. OUT becomes a Hugging Face folder
with a card (README.md: base model, adapter, training, data). `streaming-asr get
OUT to=FOLDER form=ctranslate2` writes it for CTranslate2 and faster-whisper.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from streaming_asr.errors import UserError
from streaming_asr.files import replacing
from streaming_asr.terminal import add_config_dir, command_parser, exit_status, loading

# What a LoRA folder holds; anything else in one is more than can be merged.
MERGEABLE = frozenset(
    {"adapter_config.json", "adapter_model.safetensors", "adapter_model.bin", "training.json"}
)
SUFFIXES = (".safetensors", ".bin", ".pt", ".ckpt", ".npz")
CARD = "export_card.md.j2"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    about = "Merge an adapter into its model; write Hugging Face's form."
    parser = command_parser("streaming-asr export", about)
    parser.add_argument("out", type=Path, help="the folder to write; must not hold files yet")
    parser.add_argument("settings", nargs="*", help="as of run: method=whisperrt model=mini ...")
    add_config_dir(parser)
    arguments = vars(parser.parse_intermixed_args(argv))
    arguments["config_dir"] = next(iter(arguments["config_dir"][1:]), None)
    return exit_status(lambda: export(**arguments))


def export(out: Path, settings: Sequence[str], *, config_dir: str | None = None) -> None:
    """Write `out`, all of it or nothing. Raises UserError."""
    loading(f"the model of {' '.join(settings) or 'the default settings'}")
    from streaming_asr.config.settle import compose

    if "=" in str(out):
        raise UserError(f"{out}: the folder to write comes first, then the settings")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out}: exists and is not an empty folder; name a new one, or remove it")
    config = compose(settings, config_dir=config_dir)
    if config.dtype == "int8":
        raise UserError("dtype=int8: a model is exported in float32, float16 or bfloat16")
    if config.model.get("path") is None or "model_path" not in config.method:
        raise UserError("method: its network is no Whisper, so there is nothing to merge it into")
    adapter = None if config.method.get("weights") is None else Path(config.method.weights)
    if adapter is not None:
        _check_mergeable(adapter)
    elif "method.weights=none" not in settings:
        raise UserError(
            f"method={config.method._target_.split('.')[-2]}: has no adapter here, so there is "
            "nothing to merge; name a method and a model that have one, as method=whisperrt "
            "model=tiny.en; `streaming-asr get` writes the unmodified model"
        )

    with replacing(out) as folder:
        _write_model(folder, config, adapter)
        (folder / "README.md").write_text(card(config, settings, adapter), encoding="utf-8")
    print(f"exported: {out}")
    print(f"run it:   python -m streaming_asr.run {_use(config, out)}")


def _check_mergeable(adapter: Path) -> None:
    """Raise UserError for an adapter that is more than low-rank updates of a Whisper."""
    if adapter.is_file():
        return  # a published checkpoint: weights and low-rank updates
    more = sorted(
        file.relative_to(adapter).as_posix()
        for file in adapter.rglob("*")
        if file.suffix in SUFFIXES and file.name not in MERGEABLE
    )
    if more or not (adapter / "adapter_config.json").is_file():
        holds = ", ".join(more) or "no adapter_config.json"
        raise UserError(
            f"adapter {adapter}: holds {holds}, which a Whisper model has no place for; only LoRA "
            "adapters can be merged, others are used where they are with method.weights=<folder>"
        )


def _write_model(folder: Path, config: Any, adapter: Path | None) -> None:
    from streaming_asr.config.weights import scale_of
    from streaming_asr.whisper.load import load_whisper

    method = config.method
    scale = scale_of(method.get("adapter_scale", 1.0), adapter, method.get("chunk_s", 1.0))
    whisper = load_whisper(
        config.model.path,
        device=config.device,
        dtype=config.dtype,
        adapter=adapter,
        adapter_scale=scale,
    )
    whisper.save(folder)


# -- the card -------------------------------------------------------------------------------


def card(config: Any, settings: Sequence[str], adapter: Path | None) -> str:
    """Return the card in Markdown: what it is, its use, how it was trained."""
    from jinja2 import Environment, FileSystemLoader

    from streaming_asr.config.weights import training_of

    trained = {} if adapter is None else training_of(adapter)
    loader = FileSystemLoader(Path(__file__).parent)
    return (
        Environment(loader=loader)
        .get_template(CARD)
        .render(
            base=_published(str(config.model.path), config.model.get("name")),
            method=str(config.method._target_).split(".")[2],
            adapted=adapter is not None,
            use=_use(config, Path("<this folder>")),
            settings=" ".join(settings),
            method_settings={k: v for k, v in config.method.items() if k[0] != "_"},
            reached=trained.pop("reached", {}),
            trained=trained,
            published=_published,
        )
    )


def _use(config: Any, out: Path) -> str:
    method = str(config.method._target_).split(".")[2]
    none = " method.weights=none" if "weights" in config.method else ""
    return f"method={method} model=whisper model.path={out}{none} chunk={config.chunk}"


def _published(path: str, name: str | None = None) -> str:
    """Return a path without what is of one machine only, as a published file may have it."""
    return (name or Path(path).name) if Path(path).expanduser().is_absolute() else path
