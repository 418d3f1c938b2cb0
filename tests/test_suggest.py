"""suggest(): which sublayers it names, what it says of those that are refused, and that it leaves the layer alone."""

from __future__ import annotations

import importlib
import json
import os
import threading
import types
from pathlib import Path
from typing import Any

import pytest

from hybrid_infer import _choice, _dispatch, explain, inference, reset_stats, stats, suggest
from hybrid_infer.capture import _forked
from hybrid_infer.reports import _suggest
from hybrid_infer.reports._profile import Node
from hybrid_infer.reports._suggest import Row, Suggestions


@pytest.fixture(params=[pytest.param(name, marks=getattr(pytest.mark, name)) for name in ("torch", "paddle")])
def framework(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.delenv("HYBRID_INFER_BACKEND")  # which engine serves is measured
    return importlib.import_module(request.param)


def model(framework: Any) -> Any:
    nn: Any = framework.nn
    base = nn.Module if hasattr(nn, "Module") else nn.Layer

    class Block(base):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(64, 64)

        def forward(self, x: Any) -> Any:
            return nn.functional.relu(self.linear(x)) + x

    class Net(base):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            super().__init__()
            blocks = [Block() for _ in range(3)]
            self.blocks = nn.ModuleList(blocks) if hasattr(nn, "ModuleList") else nn.LayerList(blocks)

        def forward(self, x: Any) -> Any:
            if float(x.max()) > 1e9:  # of a value: what is around the blocks cannot be captured
                raise ValueError("too large")
            for block in self.blocks:
                x = block(x)
            return x

    net = Net()
    net.eval()
    return net


def test_blocks_are_offered_and_the_refused_model_has_its_reason(framework: Any) -> None:
    net = model(framework)
    before = [dict(vars(layer)) for layer in (net, *net.blocks)]
    reset_stats()
    found = suggest(net, framework.ones([16, 64]))
    assert not stats()  # the program has made no call of a decorated method
    rows = {row.where: row for row in found.rows}
    assert rows["(itself)"].outcome == "refused" and rows["(itself)"].reason in str(found)
    assert ("test_suggest.py" if framework.__name__ == "torch" else "too large") in rows["(itself)"].reason
    blocks = rows["blocks.*"]
    assert (blocks.kind, blocks.count, blocks.calls) == ("Block", 3, 3) and 0 < blocks.share <= 1
    assert blocks.outcome in ("eager", "onnxruntime", "openvino") and blocks.gain is not None and blocks.gain >= 1
    assert blocks.line == "for block in model.blocks: inference(block)"
    if blocks.outcome != "eager":
        assert rows["blocks.*.linear"].outcome == "" and "inside" in rows["blocks.*.linear"].reason
        assert set(blocks.figures) >= {"eager", "onnxruntime"}
    assert Path(__file__).name in blocks.place
    assert found.seconds > 0 and json.loads(json.dumps(found.to_dict()))["rows"]
    assert "blocks.*" in str(found) and str(found).startswith("WHERE")
    assert [dict(vars(layer)) for layer in (net, *net.blocks)] == before


def test_what_is_decorated_already_is_left(framework: Any) -> None:
    net = model(framework)
    for block in net.blocks:
        inference(block)
    rows = {row.where: row for row in suggest(net, framework.ones([16, 64])).rows}
    assert rows["blocks.*"].reason == "decorated already" and rows["blocks.*"].outcome == ""


def test_the_time_limit_holds(framework: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()
    monkeypatch.setattr(_dispatch.State, "compile", lambda *args: over.wait(60))
    rows = suggest(model(framework), framework.ones([16, 64]), time_limit=0.2).rows
    assert not over.is_set()  # it was not waited for
    over.set()
    assert [row.reason for row in rows if "not captured within" in row.reason]
    assert [row.reason for row in rows if "time was up" in row.reason]


def test_a_tracer_that_never_ends_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.delenv("HYBRID_INFER_BACKEND")

    class Endless(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            while "Fake" in type(x).__name__:
                x = x + 1
            return x + 1

    (row,) = suggest(Endless().eval(), torch.ones(4), time_limit=3).rows
    assert row.outcome == "refused" and row.reason.startswith(("it was not captured within", "Crashed"))
    assert not _forked.children()


@pytest.mark.parametrize(
    ("holder", "path", "place", "line"),
    [
        ("self.net", "", "app.py:3", "@inference() above `def forward` of Net"),
        ("self.net", "head", "app.py:3", "@inference() above `def forward` of Net"),
        ("self.net", "", "", "inference(self.net)"),  # of a library's class, which is not the program's to edit
        ("net", "head", "app.py:3", "inference(net.head)"),
    ],
)
def test_a_line_stands_where_its_names_are_known(holder: str, path: str, place: str, line: str) -> None:
    names = types.SimpleNamespace(path=lambda node: (holder, path))
    row = Row(holder, "Net", 1, 1, 1.0, 1.0, place=place)
    assert _suggest._line(types.SimpleNamespace(name="forward"), row, names) == line


def test_methods_are_timed_beside_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.delenv("HYBRID_INFER_BACKEND")

    class Net(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(256, 256)

        def encode(self, x: Any) -> Any:
            return self.linear(torch.relu(self.linear(x)))

        def forward(self, x: Any) -> Any:
            if float(x.max()) > 1e9:
                return x
            return self.encode(x)

    before = vars(Net)["encode"], vars(torch.nn.Module)["__call__"]
    found = suggest(Net().eval(), torch.ones(64, 256))
    rows = {row.where: row for row in found.rows}
    assert rows["encode()"].kind == "Net" and rows["encode()"].share > 0  # of a call that another test may slow down
    assert rows["encode()"].line == "@inference() above `def encode` of Net"
    assert (vars(Net)["encode"], vars(torch.nn.Module)["__call__"]) == before
    (top,) = found.tree.parts
    assert (top.label, top.parts[0].label, top.parts[0].parts[0].label) == ("(itself)", "encode()", "linear")


CRASHING = """
import os, signal
from hybrid_infer import backends
engine = backends.engine({name!r})
type(engine).prepare = lambda *_: os.kill(os.getpid(), signal.SIGSEGV)
"""


def test_an_engine_that_crashes_ends_no_program(
    framework: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It crashes in the process in which it is tried first, and the next one is tried in another."""
    pytest.importorskip("openvino")
    (tmp_path / "sitecustomize.py").write_text(CRASHING.format(name="openvino"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(Path(__file__).resolve().parents[1])]))
    net = model(framework)
    found = suggest(net, framework.ones([16, 64]))
    row = next(row for row in found.rows if row.where == "blocks.*")
    assert row.figures.keys() == {"eager", "onnxruntime"}
    inference(net.blocks[0])
    with framework.no_grad():
        net.blocks[0](framework.ones([16, 64]))
    assert "the process in which it was tried ended with signal SIGSEGV" in str(explain(net.blocks[0]))


@pytest.mark.torch
def test_lines_to_add_are_code() -> None:
    """A layer in a list has a number for its name, which Python takes in brackets alone."""
    torch: Any = importlib.import_module("torch")
    linear = torch.nn.Linear(2, 2)
    stage = torch.nn.ModuleDict({"head": linear, "blocks": torch.nn.ModuleList([torch.nn.ReLU(), torch.nn.ReLU()])})
    names = _suggest._Names({"model": torch.nn.ModuleList([stage])}, alone=True)
    for layer, where, count, line in (
        (linear, "*.head", 1, "inference(model[0].head)"),
        (linear, "*.head", 3, "inference(model[0].head), and so on for *.head"),
        (stage["blocks"][1], "0.blocks.*", 2, "for block in model[0].blocks: inference(block)"),
    ):
        row = Row(where, "Linear", count, 1, 0.1, 0.9, "openvino", "", 1.8)
        assert _suggest._line(Node(layer, "forward"), row, names) == line


def test_only_layers_are_taken() -> None:
    with pytest.raises(TypeError, match="was given an object of class list; it takes"):
        suggest([])


def test_a_layer_without_the_inputs_of_a_call(framework: Any) -> None:
    words = r"suggest\(\) runs the layer and was given no inputs for it \(missing.*'x'\).*suggest\(model, x\)"
    with pytest.raises(TypeError, match=words):
        suggest(model(framework))
    with pytest.raises(TypeError, match="given no inputs"):
        suggest(framework.nn.Linear(4, 4))
    with pytest.raises(TypeError) as raised:
        suggest(model(framework), 1, 2, 3)
    assert "given no inputs" not in str(raised.value)


def test_a_busy_machine_tells_of_no_gain_that_is_not_there() -> None:
    busy = Row("a", "A", 1, 1, 0.1, 1.0, "eager", figures={"eager": 1.0}, gain=1.0, line="inference(a)", steady=False)
    found = Suggestions(0.1, [busy])
    for text in (str(found), found.to_html()):
        assert "The machine was busy" in text and "gains 5% or more" not in text
    busy.gain = 1.5
    assert "machine was busy" in str(found) and str(found).endswith("Add:\n    inference(a)")


@pytest.mark.parametrize(
    ("line", "told"),
    [("a = inference(a)", "its forward: program.py:7"), ("@inference() above `def step` of A", "program.py:7")],
)
def test_where_a_line_goes_is_not_mistaken_for_where_the_method_is(line: str, told: str) -> None:
    gains = Row("a", "A", 1, 1, 0.1, 1.0, "onnxruntime", gain=1.5, line=line, place="program.py:7")
    assert str(Suggestions(0.1, [gains])).endswith(f"Add:\n    {line}    # {told}")


def test_the_table_says_what_to_add() -> None:
    good = Row("encoder", "Encoder", 1, 1, 0.1, 0.9, "openvino", "", 1.8, "inference(model.encoder)")
    text = str(Suggestions(0.11, [good, Row("head", "Linear", 1, 1, 0.01, 0.1)]))
    assert "1.80x" in text and text.endswith("Add:\n    inference(model.encoder)") and "not tried" in text
    assert "gains 5% or more" in str(Suggestions(0.1, []))
    row = Row("a", "A", 1, 1, 0.1, 1.0, "onnxruntime", gain=1.02, line="inference(a)")
    inside = Row("a.b", "B", 1, 1, 0.1, 0.9, "", "the time was up")
    for text in (str(Suggestions(0.1, [row, inside])), Suggestions(0.1, [row, inside]).to_html()):
        assert "inference(a)" not in text and "gains 5% or more" in text and "the time was up" in text


def test_what_was_measured_on_a_busy_machine_is_to_be_repeated(
    framework: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each figure of a busy machine is as good as none: where eager seems faster, an engine may be."""
    monkeypatch.setattr(_choice, "_STEADY", 0.0)
    found = suggest(model(framework), framework.ones([16, 64]))
    row = next(row for row in found.rows if row.where == "blocks.*")
    assert not row.steady and found.to_dict()["rows"][found.rows.index(row)]["steady"] is False
    assert "The machine was busy: the figures of blocks.*" in str(found) and "Run this again" in str(found)
    assert "machine was busy" in found.to_html()
    monkeypatch.undo()
    assert "busy" not in str(Suggestions(0.1, [Row("head", "Linear", 1, 1, 0.01, 0.1)]))
