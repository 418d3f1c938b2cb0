"""Code that is typed, or run by exec, under the name of a library's program or module is the user's all the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hybrid_infer.fingerprint import _objects
from hybrid_infer.objects import _origin

CODE = """\
import torch, hybrid_infer
_ = torch.set_grad_enabled(False)
def helper(x): return x * FACTOR

class Layer(torch.nn.Module):
    @hybrid_infer.inference
    def forward(self, x): return helper(torch.relu(x))

x = torch.ones(2, 4)
print("found", *{float(Layer()(x).mean()) for _ in range(2)})
"""


def asyncio_prompt(code: str, folder: Path) -> tuple[list[str], str]:
    return ["-m", "asyncio"], code


def prompt(code: str, folder: Path) -> tuple[list[str], str]:
    return ["-i", "-"], code


def profiled(code: str, folder: Path) -> tuple[list[str], str]:
    (folder / "code.txt").write_text(code)
    (folder / "program.py").write_text("exec(open('code.txt').read())\n")
    return ["-m", "cProfile", "-o", os.devnull, "program.py"], ""


@pytest.mark.torch
@pytest.mark.processes
@pytest.mark.parametrize("way", [asyncio_prompt, prompt, profiled])
def test_a_helper_that_is_typed_anew_counts_in_the_next_process(way: Any, tmp_path: Path) -> None:
    for factor in (2, 500, 2):
        arguments, typed = way(CODE.replace("FACTOR", str(factor)), tmp_path)
        done = subprocess.run(
            [sys.executable, *arguments], input=typed, cwd=tmp_path, capture_output=True, text=True, timeout=300
        )
        assert f"found {factor}.0\n" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["json", "no_such_module", "__main__"])
def test_a_namespace_that_calls_itself_a_librarys(name: str) -> None:
    scope: dict[str, Any] = {"__name__": name}
    exec("def helper(x): return x * 2", scope)
    assert _objects.library_of(scope["helper"]) == _origin.USER


def test_what_libraries_make_by_exec_is_theirs() -> None:
    import inspect

    made = inspect.Parameter.__init__  # of a file
    assert _objects.library_of(made) == _origin.PYTHON
    from dataclasses import dataclass

    @dataclass
    class Own:
        value: int = 0

    assert _objects.library_of(Own.__init__) == _origin.USER
    dataclasses = sys.modules["dataclasses"]
    exec("def made_by_exec(): return 1", vars(dataclasses))
    try:
        assert _objects.library_of(dataclasses.made_by_exec) == _origin.PYTHON  # type: ignore[attr-defined]
    finally:
        del dataclasses.made_by_exec  # type: ignore[attr-defined]
