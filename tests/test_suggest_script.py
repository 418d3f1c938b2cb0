"""hybrid-infer suggest: programs of both frameworks, run unchanged; the picture of their time."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from hybrid_infer import cli
from hybrid_infer.reports import _suggest
from hybrid_infer.reports._suggest import Row, Suggestions
from hybrid_infer.reports._time_tree import Part, bars

REPOSITORY = Path(__file__).resolve().parents[1]

TORCH = """
import argparse, torch

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(128, 128)

    def forward(self, x):
        return torch.relu(self.linear(x)) + x

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block() for _ in range(3))

    def encode(self, x):
        if float(x.sum()) > 1e9:
            raise ValueError("too large")
        for block in self.blocks:
            x = block(x)
        return x

class Pipeline:
    def __init__(self):
        self.model = Net().eval()

    def run(self, steps):
        for _ in range(steps):
            y = self.model.encode(torch.ones(64, 128))
        return y

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, required=True)
    with torch.no_grad():
        print("shape", list(Pipeline().run(parser.parse_args().steps).shape))
"""
PADDLE = (
    TORCH.replace("import argparse, torch", "import argparse, paddle")
    .replace("torch.nn.ModuleList(Block() for _ in range(3))", "paddle.nn.LayerList([Block() for _ in range(3)])")
    .replace("torch.nn.Module", "paddle.nn.Layer").replace("torch.relu", "paddle.nn.functional.relu")
    .replace("torch.ones(64, 128)", "paddle.ones([64, 128])").replace("Net().eval()", "Net(); self.model.eval()")
    .replace("torch.", "paddle.")
)  # fmt: skip


def run(folder: Path, source: str, *options: str) -> subprocess.CompletedProcess[str]:
    script = folder / "program.py"
    script.write_text(source)
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "HYBRID_INFER_CACHE_DIR": str(folder / "cache")}
    environment.pop("HYBRID_INFER_BACKEND", None)
    command = [sys.executable, "-m", "hybrid_infer", "suggest", *options, str(script), "--steps", "4"]
    return subprocess.run(command, capture_output=True, text=True, timeout=280, env=environment, cwd=folder)


@pytest.mark.processes
@pytest.mark.parametrize(
    "source", [pytest.param(TORCH, marks=pytest.mark.torch), pytest.param(PADDLE, marks=pytest.mark.paddle)],
    ids=["torch", "paddle"],
)  # fmt: skip
def test_a_program_is_run_unchanged_and_its_layers_are_named_as_it_names_them(source: str, tmp_path: Path) -> None:
    done = run(tmp_path, source, "--json", "--output", "time.html")
    assert done.returncode == 0, done.stderr
    assert "shape [64, 128]" in done.stderr  # what the program prints is apart from the data
    found = json.loads(done.stdout)
    rows = {row["where"]: row for row in found["rows"]}
    blocks = rows["self.model.blocks.*"]
    assert (blocks["kind"], blocks["count"], blocks["calls"]) == ("Block", 3, 12)
    assert blocks["line"] == "for block in self.model.blocks: inference(block)" and "program.py:" in blocks["place"]
    assert blocks["gain"] >= 1 and "onnxruntime" in blocks["figures"]
    encode = rows["self.model.encode()"]
    assert encode["outcome"] == "refused" and "program.py:" in encode["reason"]
    page = _Page()
    page.feed((tmp_path / "time.html").read_text(encoding="utf-8"))
    assert not page.outside and not page.open and "Block ×3" in page.text  # noqa: RUF001
    # What was captured has the name that it has in the program.
    listed = subprocess.run(
        [sys.executable, "-m", "hybrid_infer", "cache", "list", "--cache-dir", str(tmp_path / "cache"), "--json"],
        capture_output=True, text=True, timeout=60, env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )  # fmt: skip
    assert "__main__.Block.forward" in {model["method"] for model in json.loads(listed.stdout)["models"]}


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.outside: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag not in ("meta",):
            self.open.append(tag)
        self.outside += [tag] * (tag in ("script", "link", "img")) + [v for k, v in attrs if k in ("src", "href")]

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        assert tag == "rect"

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_script_without_layers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "plain.py"
    script.write_text("import sys; print(sys.argv[1:])")
    before, path = list(sys.argv), list(sys.path)
    try:
        assert cli.main(["suggest", str(script), "--flag"]) == 1
    finally:
        sys.argv[:], sys.path[:] = before, path
        import hybrid_infer

        hybrid_infer.uninstall()
    out, err = capsys.readouterr()
    assert out == "['--flag']\n" and "no layer of PyTorch or Paddle" in err


def test_an_output_that_cannot_be_is_told_before_the_program_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli.main(["suggest", "--output", "time.svg", "absent.py"]) == 2
    assert ".html or .png" in capsys.readouterr().err
    assert cli.main(["suggest", "--output", str(tmp_path / "absent" / "time.html"), "absent.py"]) == 2
    assert f"there is no folder {tmp_path / 'absent'}" in capsys.readouterr().err
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "matplotlib" else find(name))
    assert cli.main(["suggest", "--output", "time.png", "absent.py"]) == 2
    assert "pip install matplotlib" in capsys.readouterr().err


@pytest.mark.processes
@pytest.mark.torch
def test_what_was_found_is_told_where_the_picture_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "time.html").mkdir()
    done = run(tmp_path, TORCH, "--output", "time.html", "--time-limit", "0")
    assert done.returncode == 1 and "self.model.encode()" in done.stdout and "as a tree" not in done.stdout
    assert "hybrid-infer: the picture cannot be written" in done.stderr and "Traceback" not in done.stderr


def tree() -> Part:
    """Twelve blocks of four layers each."""
    inner = [Part(f"blocks.*.{i}", "Linear", 12, 12, 0.2, "") for i in range(4)]
    return Part("program", "", 0, 1, 1.0, "", [Part("blocks.*", "Block", 12, 12, 0.9, "openvino", inner),
                                                Part("head", "Linear", 1, 1, 0.005)])  # fmt: skip


def test_bars_lie_inside_of_their_callers() -> None:
    drawn = bars(tree(), 1.0)
    assert [bar.depth for bar in drawn] == [0, 1, 2, 2, 2, 2]  # what takes less than a hundredth is left out
    assert [round(bar.start, 2) for bar in drawn] == [0, 0, 0, 0.2, 0.4, 0.6]
    assert "90%" in drawn[1].figures and drawn[1].kind == "gains" and len({bar.colour for bar in drawn}) == 2


def test_a_wide_program_keeps_its_longest_parts() -> None:
    parts = [Part(f"layer{i}", "Linear", 1, 1, 0.02 - 0.0001 * i) for i in range(90)]
    drawn = bars(Part("program", "", 0, 1, 1.4, "", parts), 1.4)
    assert len(drawn) == 60 and drawn[0].text == "program" and "layer0" in {bar.text.split()[0] for bar in drawn}


def test_a_picture_as_png(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    Suggestions(1.0, [Row("blocks.*", "Block", 12, 12, 0.9, 0.9)], tree()).save(tmp_path / "time.png")
    assert (tmp_path / "time.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="html or"):
        _suggest.check_output(tmp_path / "time.jpg")


@pytest.mark.parametrize("given", ["-3", "soon", "nan"])
def test_a_time_that_is_none(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["suggest", "--time-limit", given, "program.py"])
    assert f"argument --time-limit: {given!r} is no number of seconds" in capsys.readouterr().err
