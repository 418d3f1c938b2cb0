"""Files that are no sound program of ``torch.export``: the error says what they are, and nothing damaged is served."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hybrid_infer import StaticModelError, load

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("program") / "model.pt2"
    torch.export.save(torch.export.export(torch.nn.Linear(4, 3).eval(), (torch.rand(2, 4),)), path)
    return path


def refused(path: Path) -> str:
    with pytest.raises(StaticModelError) as error:
        load(path)
    assert str(error.value).startswith(f"{path}: ") and error.value.remedy
    return error.value.reason


def rewritten(program: Path, path: Path, change: Callable[[str, bytes], bytes | None]) -> Path:
    with zipfile.ZipFile(program) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            data = change(name, old.read(name))
            if data is not None:
                new.writestr(name, data)
    return path


def test_a_weight_with_a_bit_turned_over_is_not_served(program: Path, tmp_path: Path) -> None:
    """torch loads it, and computes with it."""
    with zipfile.ZipFile(program) as archive:
        name = next(each for each in archive.namelist() if each.endswith("weights/weight_0"))
        weight = archive.read(name)
    data = bytearray(program.read_bytes())
    data[data.index(weight) + 3] ^= 0x10
    path = tmp_path / "model.pt2"
    path.write_bytes(data)
    assert torch.export.load(path) is not None
    assert refused(path) == f"it is damaged: {name!r} in it does not have the checksum it was given"


def test_what_is_no_archive(program: Path, tmp_path: Path) -> None:
    path, data = tmp_path / "model.pt2", program.read_bytes()
    for content, words in (
        (b"", "it is empty"), (data[:300], "cut short"), (data[: len(data) // 2], "cut short"),
        (b"hello\n", "no program of torch.export"), (os.urandom(4000), "no program of torch.export"),
    ):  # fmt: skip
        path.write_bytes(content)
        assert words in refused(path)


def test_archives_of_something_else(program: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.pt2"
    torch.save(torch.nn.Linear(4, 3).state_dict(), path)
    assert "weights or pickled objects" in refused(path)
    script: Any = torch.jit.script
    try:
        torch.jit.save(script(torch.nn.Linear(4, 3)), path)
    except Exception:  # of a release that has none any more
        pytest.skip("this torch writes no TorchScript")
    assert "TorchScript" in refused(path)
    rewritten(program, path, lambda name, data: None if name.endswith("model.json") else data)
    assert refused(path) == "it is an archive without a program of torch.export"


@pytest.mark.parametrize(
    ("part", "content"), [("model.json", b"{"), ("archive_version", b"999"), ("model_weights_config.json", None)]
)
def test_what_torch_itself_cannot_read(program: Path, tmp_path: Path, part: str, content: bytes | None) -> None:
    path = rewritten(program, tmp_path / "model.pt2", lambda name, data: content if name.endswith(part) else data)
    reason = refused(path)
    assert reason.startswith(f"torch {torch.__version__} cannot read the program in it") and "above" not in reason


class Named(torch.nn.Module):
    """Its weights have names that a class which holds them may want for itself."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(4))
        self.held = torch.nn.Linear(4, 4)
        self.register_buffer("program", torch.rand(4))

    def forward(self, x: Any) -> Any:
        return self.held(x) * self.weight + self.program


@pytest.mark.parametrize("layer", [torch.nn.Linear(4, 3), Named()])
def test_weights_of_any_name(layer: Any, tmp_path: Path) -> None:
    x = torch.rand(2, 4)
    torch.export.save(torch.export.export(layer.eval(), (x,)), tmp_path / "model.pt2")
    static = load(tmp_path / "model.pt2", backend="onnxruntime")
    assert static.state_dict().keys() == layer.state_dict().keys()
    with torch.no_grad():
        assert torch.allclose(static(x), layer(x), atol=1e-6)
