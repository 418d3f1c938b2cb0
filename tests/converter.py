"""Paddle's converter in a server's forks: its library is loaded once, which takes ten times as long as a conversion.

The package has a fresh process load it each time. Imported by the server (see `zygote`), whose children end as that
process does.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

_FILE = Path(__file__).resolve().parents[1] / "hybrid_infer" / "frontends" / "_paddle_convert.py"


def _convert() -> ModuleType:
    spec = importlib.util.spec_from_file_location("_paddle_convert", _FILE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _folders() -> dict[str, Any]:
    found = {name: importlib.util.find_spec(name) for name in ("paddle", "paddle2onnx")}
    folders = {name: next(iter(spec.submodule_search_locations or ())) for name, spec in found.items() if spec}
    return {**folders, "path": sys.path}


_MODULE = _convert()
_CONVERTER = _MODULE._converter(_folders())


def main(path: str) -> None:
    """As ``python -I -S _paddle_convert.py REQUEST``."""
    _MODULE.convert(_CONVERTER, json.loads(Path(path).read_text(encoding="utf-8")))
