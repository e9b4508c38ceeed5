"""Where the files lie that come with the code."""

from pathlib import Path

HERE = Path(__file__).resolve().parent
CONF_DIR = next(p for p in (HERE / "conf", HERE.parent / "conf") if p.is_dir())
