"""Objects of settings that a layer holds: the next process, with another folder in them, captures nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from process_support import run_forked

PROGRAM = """
import json, sys
import {framework} as framework
from hybrid_infer import inference, stats
{source}
class Layer({base}):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg

    def eager(self, x):
        x = x * self.cfg.scale
        return x + 1 if self.cfg.model.act == "gelu" else x - 1

    forward = inference(eager, verify="off", fallback="error")

layer, x = Layer(made("{folder}")), framework.ones([2])
with framework.no_grad():
    def ask():
        for _ in range(2):
            assert float(layer(x)[0]) == float(layer.eager(x)[0])

    ask()
    layer.cfg.scale = 3.0
    ask()
    layer.cfg.model.act = "relu"
    ask()
print(json.dumps(sum(each["captures"] for each in stats().values())))
"""

#: Of each kind, what makes one; whether a folder that nothing reads counts; the library that it needs.
KINDS: dict[str, tuple[str, bool, str]] = {
    "pydantic": (
        """
import pydantic
class Model(pydantic.BaseModel):
    act: str = "gelu"
class Settings(pydantic.BaseModel):
    scale: float = 2.0
    output_dir: str
    model: Model = Model()
def made(folder): return Settings(output_dir=folder)
""",
        False,
        "pydantic",
    ),
    "attr": (
        """
import attr
@attr.s(auto_attribs=True, unsafe_hash=True)
class Model:
    act: str = "gelu"
@attr.s(auto_attribs=True, unsafe_hash=True)
class Settings:
    output_dir: str
    scale: float = 2.0
    model: Model = attr.Factory(Model)
def made(folder): return Settings(folder)
""",
        False,
        "attr",
    ),
    "attrs": (
        """
import attrs
@attrs.define
class Model:
    act: str = "gelu"
@attrs.define
class Settings:
    output_dir: str
    scale: float = 2.0
    model: Model = attrs.Factory(Model)
def made(folder): return Settings(folder)
""",
        True,
        "attrs",
    ),
    "omegaconf": (
        """
from omegaconf import OmegaConf
def made(folder):
    return OmegaConf.create({"scale": 2.0, "output_dir": folder, "model": {"act": "gelu"}, "to": "${output_dir}/to"})
""",
        False,
        "omegaconf",
    ),
    "omegaconf, a part": (
        """
from omegaconf import OmegaConf
def made(folder):
    part = {"scale": "${scale}", "model": {"act": "gelu"}}
    return OmegaConf.create({"scale": 2.0, "output_dir": folder, "part": part}).part
""",
        False,
        "omegaconf",
    ),
    "omegaconf, structured": (
        """
import dataclasses
from omegaconf import OmegaConf
@dataclasses.dataclass
class Model:
    act: str = "gelu"
@dataclasses.dataclass
class Settings:
    output_dir: str
    scale: float = 2.0
    model: Model = dataclasses.field(default_factory=Model)
def made(folder): return OmegaConf.structured(Settings(folder))
""",
        False,
        "omegaconf",
    ),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("name", "base"),
    [
        pytest.param("torch", "framework.nn.Module", marks=pytest.mark.torch),
        pytest.param("paddle", "framework.nn.Layer", marks=pytest.mark.paddle),
    ],
)
def test_the_next_process_captures_nothing(name: str, base: str, kind: str, tmp_path: Path) -> None:
    source, counts, library = KINDS[kind]
    pytest.importorskip(name)
    pytest.importorskip(library, reason=f"is about {library}")

    def captures(folder: str) -> Any:
        program = PROGRAM.format(framework=name, base=base, source=source, folder=folder)
        return json.loads(run_forked(name, program, tmp_path / "cache", tmp_path))

    assert captures("/runs/1") == 3
    assert captures("/runs/1") == 0
    assert captures("/runs/2") == (3 if counts else 0)
