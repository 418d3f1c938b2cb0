"""How much of the library a program loads: what only a capture, a report or a message needs is imported by that."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

#: Whoever adds a module to what each program loads may raise these, if every program needs it.
IMPORTED, DECORATED, WARM = 25, 132, 162

#: The work of a first call ever, and what it is told by.
_COLD = {
    "_background", "_candidates", "_differences", "_recurring", "_spec", "_troubleshooting", "_warmup",
    "backends._nonfinite", "backends._plan", "cache._evict", "cache.memory", "capture._forked", "capture._tracing",
    "capture._twin", "checks._understudy", "state._reach", "static._model",
}  # fmt: skip

_IMPORT = """
import sys, hybrid_infer
print(*(name for name in sys.modules if name.partition(".")[0] == "hybrid_infer"))
"""

_DECORATE = """
import sys, hybrid_infer
hybrid_infer.inference(lambda x: x)
print(*(name for name in sys.modules if name.partition(".")[0] == "hybrid_infer"))
"""

_CALL = """
import sys
import torch
import hybrid_infer
layer = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.LayerNorm(4)).eval()
with torch.no_grad():
    layer = hybrid_infer.inference(layer, backend="onnxruntime")
    layer(torch.ones(2, 4))
    layer(torch.ones(2, 4))
(counts,) = hybrid_infer.stats().values()
print(counts["captures"], counts["hits"], *(name for name in sys.modules if name.partition(".")[0] == "hybrid_infer"))
"""


def _loaded(script: str) -> list[str]:
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()


def test_importing_the_library_loads_few_of_its_modules() -> None:
    names = _loaded(_IMPORT)
    assert not {f"hybrid_infer.{name}" for name in _COLD}.intersection(names)
    assert len(names) <= IMPORTED


def test_what_answers_calls_is_loaded_by_a_decoration_before_any_call() -> None:
    """Neither by the import, nor by each of the workers that a server forks once it has decorated its methods."""
    assert "hybrid_infer._dispatch" not in _loaded(_IMPORT)
    names = _loaded(_DECORATE)
    assert "hybrid_infer._dispatch" in names
    assert not {f"hybrid_infer.{name}" for name in _COLD}.intersection(names)
    assert len(names) <= DECORATED


def test_a_first_call_that_finds_its_static_model_loads_nothing_that_captures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("onnxruntime")
    monkeypatch.setenv("HYBRID_INFER_CACHE_DIR", str(tmp_path))
    captures, hits, *cold = _loaded(_CALL)
    assert (captures, hits) == ("1", "1")
    assert {"hybrid_infer.capture._tracing", "hybrid_infer.backends._plan"} <= {*cold}
    captures, hits, *warm = _loaded(_CALL)
    assert (captures, hits) == ("0", "2")
    assert not {f"hybrid_infer.{name}" for name in _COLD}.intersection(warm)
    assert len(warm) <= WARM
