"""What a checker of types, and so an editor, knows of what was decorated: what it knew before."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
PROGRAM = """
from hybrid_infer import InputSpec, inference, stance, to_static

class Tensor: ...

class Model:
    @inference
    def plain(self, x: Tensor, count: int = 3) -> tuple[Tensor, int]:
        return x, count

    @inference(backend=["openvino", "onnxruntime"], input_spec=[InputSpec([None, 4])])
    def named(self, x: Tensor) -> Tensor:
        return x

    @to_static
    def trained(self, x: Tensor) -> Tensor:
        return x

    @to_static(input_spec=[InputSpec([None, 4])], max_versions=3)
    def specified(self, x: Tensor) -> Tensor:
        return x

@inference()
def function(x: Tensor, *, scale: float = 1.0) -> dict[str, Tensor]:
    return {"y": x}

@stance("eager")
def eager(x: Tensor) -> Tensor:
    return x

model = inference(Model(), True, verify="off")
reveal_type(model)
reveal_type(model.plain)
reveal_type(model.named)
reveal_type(model.trained)
reveal_type(model.specified)
reveal_type(function)
reveal_type(inference(function=model.named))
reveal_type(eager)
function("text")
inference(model, bakend="openvino")
inference(model, max_versions="3")
"""


@pytest.mark.processes
def test_types_go_through_the_decorators(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    options = ["--strict", "--python-version=3.10", "--hide-error-context", "--cache-dir", str(tmp_path / "cache")]
    options += ["--config-file", str(REPOSITORY / "pyproject.toml")]
    command = [sys.executable, "-m", "mypy", *options, str(file)]
    said = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY).stdout.splitlines()
    revealed = [line.partition("Revealed type is ")[2].strip('"') for line in said if "Revealed type" in line]
    assert revealed == [
        "program.Model",
        "def (x: program.Tensor, count: int =) -> tuple[program.Tensor, int]",
        "def (x: program.Tensor) -> program.Tensor",
        "def (x: program.Tensor) -> program.Tensor",
        "def (x: program.Tensor) -> program.Tensor",
        "def (x: program.Tensor, *, scale: float =) -> dict[str, program.Tensor]",
        "def (x: program.Tensor) -> program.Tensor",
        "def (x: program.Tensor) -> program.Tensor",
    ], said
    lines = PROGRAM.splitlines()
    wrong = {int(line.split(":")[1]) for line in said if ": error: " in line}
    assert [lines[number - 1] for number in sorted(wrong)] == lines[-3:], said
