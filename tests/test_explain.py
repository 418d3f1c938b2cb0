"""explain(): what it says of static models, engines, refusals and times, as text, data and HTML."""

from __future__ import annotations

import functools
import html.parser
import json
import types
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

import hybrid_infer
from hybrid_infer import explain, inference
from hybrid_infer._choice import Choice
from hybrid_infer.reports import _explain

pytestmark = pytest.mark.torch


def layers() -> tuple[type, type]:
    """A layer, and a model of three of them and one that is refused: made anew, with the store of the test."""

    class Block(torch.nn.Module):
        def __init__(self, width: int = 4) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(width, width)

        @inference
        def forward(self, x: torch.Tensor, scale: float = 2.0) -> torch.Tensor:
            return torch.relu(self.linear(x)) * scale

    class Branch(torch.nn.Module):
        @inference
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            while x.abs().sum() < 100:
                x = x * 2
            return x

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = torch.nn.ModuleList(Block() for _ in range(3))
            self.branch = Branch()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for block in self.blocks:
                x = block(x)
            result: torch.Tensor = self.branch(x)
            return result

    return Block, Net


@pytest.fixture
def Block() -> Any:
    return layers()[0]


@pytest.fixture
def Net() -> Any:
    return layers()[1]


def only(target: Any) -> dict[str, Any]:
    (method,) = explain(target).to_dict()["methods"]
    return dict(method)


def test_what_was_captured_and_what_made_a_dimension_vary(Block: Any) -> None:
    block = Block().eval()
    with torch.no_grad():
        for rows in (3, 5, 7):
            block(torch.ones(rows, 4))
    method = only(block)
    assert method["instances"] == 1 and method["where"] == ["forward"]
    assert method["calls"] == {
        "hits": 1, "eager_calls": 0, "captures": 2, "builds": 2, "disk_loads": 0, "bindings": 2
    }  # fmt: skip
    (version,) = method["versions"]  # the wider one has taken the place of the first
    assert version["origin"] == "captured" and len(version["key"]) == 32
    assert version["takes"] == ["x: float32 (any, 4)"] and version["gives"] == ["float32 (any, 4)"]
    assert version["constants"] == {"scale": "2.0"}
    assert version["dynamic"] == [{"tensor": "x", "axis": 0, "why": "was 3, then 5"}]
    assert version["served_by"] == ["onnxruntime"] and version["weights"] == ["bound"]
    assert list(version["seconds"]) == ["capture", "build", "load", "verify"]
    assert all(seconds > 0 for seconds in version["seconds"].values())
    assert 0 <= version["largest_error"]["onnxruntime"] < 1e-5
    assert version["bytes"]["weights"] == 4 * (16 + 4) and version["bytes"]["graph"] > 0
    assert method["refusals"] == [] and method["changes"] == {}


class Pair(NamedTuple):
    first: torch.Tensor
    rest: Any


def test_where_in_a_structure_each_result_is() -> None:
    @inference
    def parts(x: torch.Tensor, kept: dict[str, Any]) -> Any:
        twice, shifted = x * 2, x[:1] + 1
        kept["last"] = x.sum()
        return {"twice": twice, 3: [shifted, twice], "pair": Pair(x - 1, (x, 4))}

    with torch.no_grad():
        parts(torch.ones(3, 4), {})
    (version,) = only(parts)["versions"]
    assert version["gives"] == [
        "['twice'], [3][1]: float32 (3, 4)", "[3][0]: float32 (1, 4)", "['pair'].first: float32 (3, 4)",
        "put into an argument: float32 ()",
    ]  # fmt: skip
    assert "gives      ['twice'], [3][1]: float32 (3, 4)" in str(explain(parts))


def test_a_static_model_from_disk_brings_its_error_along(Block: Any) -> None:
    x = torch.linspace(-1, 1, 12).reshape(3, 4)
    with torch.no_grad():
        block = Block().eval()
        block(x)
        error = only(block)["versions"][0]["largest_error"]
        hybrid_infer._family._FAMILIES.clear()  # as in another process
        again = Block().eval()
        again(x)
    (version,) = only(again)["versions"]
    assert version["origin"] == "disk" and "capture" not in version["seconds"]
    assert version["largest_error"] == error and "load" in version["seconds"]


def test_conditions_name_the_parameters() -> None:
    @inference
    def halves(x: torch.Tensor, n: int) -> torch.Tensor:
        return x + n if x.shape[0] % 2 == 0 else x

    for rows, n in ((4, 3), (6, 4)):
        halves(torch.ones(rows, 4), n)
    conditions = only(halves)["versions"][-1]["conditions"]
    assert "axis 0 of x % 2 == 0" in conditions and not [each for each in conditions if "tensor 0" in each]


def test_sizes_asked_for_ahead(Block: Any) -> None:
    block = Block().eval()
    hybrid_infer.warmup(block, [hybrid_infer.InputSpec([None, 4])])
    (version,) = only(block)["versions"]
    assert version["dynamic"] == [{"tensor": "x", "axis": 0, "why": "asked for ahead of calls"}]


def test_the_choice_comes_with_the_figures_of_all_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HYBRID_INFER_BACKEND")
    layer = inference(torch.nn.Linear(4, 4).eval())
    with torch.no_grad():
        layer(torch.ones(3, 4))
    (version,) = only(layer)["versions"]
    (choice,) = version["choices"]
    assert {"eager", "onnxruntime"} <= set(choice["seconds"])
    low, high = choice["elements"]
    assert low <= 12 <= high and version["served_by"] == [choice["engine"]]
    assert "measure" in version["seconds"]


def test_choices_come_by_the_size_of_calls() -> None:
    ledger = types.SimpleNamespace(scales={"a": 8, "b": 5, "c": 7}, terms={})
    held = types.SimpleNamespace(ledger=ledger, choices={key: Choice(key) for key in "abc"})
    assert [each["engine"] for each in _explain._choices(held)] == ["b", "c", "a"]


def test_equal_blocks_are_one_row_and_refusals_have_their_reasons(Net: Any) -> None:
    net = Net().eval()
    with torch.no_grad():
        net(torch.ones(3, 4))
        net(torch.ones(3, 4))
    blocks, branch = explain(net).to_dict()["methods"]
    assert blocks["where"] == ["blocks.*.forward"] and blocks["instances"] == 3 and len(blocks["versions"]) == 1
    (refusal,) = branch["refusals"]
    assert refusal["refused"] and refusal["calls"] == 2 and Path(__file__).name in refusal["reason"]
    assert "torch.where" in refusal["remedy"] and branch["versions"] == []


def test_guards_that_fired_are_counted(Block: Any) -> None:
    block, x = Block().eval(), torch.ones(3, 4)
    with torch.no_grad():
        block(x)
        block.linear.weight.mul_(2)
        block(x)
        block(x)
    assert only(block)["changes"] == {"a weight": 1}


def test_an_attribute_that_had_changed_is_named() -> None:
    class Leaky(torch.nn.Module):
        @inference
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.leaky_relu(x, self.slope)

    layer = Leaky().eval()
    for slope in (0.25, 0.5, 0.75):
        layer.slope = slope
        for _ in range(2):
            layer(torch.ones(3, 4))
    assert only(layer)["changes"] == {"attribute self.slope": 2}
    assert "guards      attribute self.slope had changed (2 times)" in str(explain(layer))


def test_every_form_that_can_be_decorated(Block: Any) -> None:
    @inference
    def double(x: torch.Tensor) -> torch.Tensor:
        return x + x

    first, second, x = Block().eval(), Block().eval(), torch.ones(2, 4)
    with torch.no_grad():
        double(x)
        first(x)
        second(x)
    wrapped = inference(torch.nn.Linear(4, 4))
    assert only(double)["versions"][0]["takes"] == ["x: float32 (2, 4)"]
    assert only(first.forward)["instances"] == 1
    assert only(Block.forward)["instances"] >= 2
    assert {each["where"][0] for each in explain(Block).to_dict()["methods"]} == {"forward"}
    never = only(wrapped)
    assert not never["called"] and never["versions"] == never["refusals"] == []


def test_tensors_are_named_by_their_places() -> None:
    @inference
    def total(pair: list[torch.Tensor], named: dict[str, torch.Tensor]) -> torch.Tensor:
        return pair[0] + pair[1] + named["z"]

    x = torch.ones(2, 4)
    total([x, x + 1], {"z": x + 2})
    assert only(total)["versions"][0]["takes"] == [f"{p}: float32 (2, 4)" for p in ("pair[0]", "pair[1]", "named['z']")]


def test_one_tensor_in_two_places_has_the_name_of_each() -> None:
    @inference
    def add(a: torch.Tensor, pair: list[torch.Tensor]) -> torch.Tensor:
        return a + pair[0] * pair[1]

    x = torch.ones(2, 3)
    add(x, [x, torch.ones(3)])
    (version,) = only(add)["versions"]
    assert version["takes"] == ["a: float32 (2, 3)", "pair[0]: float32 (2, 3)", "pair[1]: float32 (3)"]


def test_how_a_call_passes_its_arguments_to_a_wrapper_is_told_in_words() -> None:
    """It lies between the arguments and what the method carries from call to call, whose names are not moved by it."""

    def wrapping(function: Any) -> Any:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return wrapped

    class Stream(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.state = torch.zeros(2, 4)

        @inference
        @wrapping
        def forward(self, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
            self.state = self.state * 0.5 + x * scale
            return self.state

    stream, x = Stream().eval(), torch.ones(2, 4)
    with torch.no_grad():
        stream(x, scale=2.0), stream(x=x)
    first, second = only(stream)["versions"]
    assert first["takes"] == second["takes"] == ["x: float32 (2, 4)", "self.state: float32 (2, 4)"]
    assert (first["constants"], first["passed"]) == ({"scale": "2.0"}, "1 by position, scale by name")
    assert (second["constants"], second["passed"]) == ({"scale": "1.0"}, "x by name")
    assert "    passed     x by name\n" in str(explain(stream))


def test_an_engine_that_is_left_out_is_named_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HYBRID_INFER_BACKEND")

    @inference
    def chosen(x: torch.Tensor, which: torch.Tensor) -> torch.Tensor:
        return x[which] * 2

    chosen(torch.ones(3, 4), torch.ones(2, dtype=torch.int64))
    (version,) = only(chosen)["versions"]
    assert version["not_considered"]["openvino"].startswith("reads or crashes past the end")


@pytest.mark.parametrize("target", [len, torch.nn.Linear(2, 2), torch.nn.Linear, 3])
def test_what_is_not_decorated_is_refused(target: Any) -> None:
    with pytest.raises(TypeError, match="nothing is decorated"):
        explain(target)


class _Balanced(html.parser.HTMLParser):
    """Notes tags that are open, and what would be loaded from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.outside: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag != "meta":
            self.open.append(tag)
        self.outside += [value for name, value in attrs if name in ("src", "href")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_text_data_and_html_of_one_explanation(Net: Any) -> None:
    net = Net().eval()
    with torch.no_grad():
        net(torch.ones(3, 4))
    found = explain(net)
    shown = str(found)
    assert "Block.forward (blocks.*.forward: 3 instances)" in shown and "refused" in shown
    assert repr(found) == shown and "\x1b" not in shown
    assert [line.split()[0] for line in shown.splitlines() if "torch.where" in line] == ["remedy"]
    columns = {line.index("float32") for line in shown.splitlines() if line.lstrip().startswith(("takes  ", "gives  "))}
    assert len(columns) <= 2  # aligned: values with a name before them, and results
    assert json.loads(json.dumps(found.to_dict())) == found.to_dict()
    found.to_dict()["methods"].clear()
    assert found.to_dict()["methods"]
    page = _Balanced()
    page.feed(found.to_html())
    assert page.open == [] and page.outside == []
    assert "&lt;locals&gt;" in explain(_local()).to_html()


def _local() -> Any:
    @inference
    def local(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    return local


def test_static_models_that_look_alike_are_told_apart_by_what_they_read() -> None:
    class Adapter(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up = torch.nn.Linear(4, 4)
            self.scale = 1.0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.up(x) * self.scale

    class Adapted(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = torch.nn.ModuleList(Adapter() for _ in range(3))

        @inference
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for part in self.parts:
                x = part(x)
            return x

    model, x = Adapted().eval(), torch.ones(2, 4)
    with torch.no_grad():
        model(x)
        assert "differs" not in str(explain(model))
        for part in model.parts:
            part.scale = 0.3
        model(x)
    versions = only(model)["versions"]
    assert [set(each["told_apart_by"].values()) for each in versions] == [{"1.0"}, {"0.3"}]
    assert set(versions[0]["told_apart_by"]) == {f"attribute self.parts.{n}.scale" for n in range(3)}
    text = str(explain(model))
    for value in ("1.0", "0.3"):
        assert f"differs    from others in attribute self.parts.*.scale = {value} (3 times)\n" in text


def test_properties_and_static_methods_are_found() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(4, 4)

        @property
        @inference
        def doubled(self) -> torch.Tensor:
            return self.linear.weight * 2

        @functools.cached_property
        @inference
        def halved(self) -> torch.Tensor:
            return self.linear.weight / 2

        @staticmethod
        @inference
        def squared(x: torch.Tensor) -> torch.Tensor:
            return x * x

        @inference
        @staticmethod
        def cubed(x: torch.Tensor) -> torch.Tensor:
            return x * x * x

    model = Model().eval()
    with torch.no_grad():
        for _ in range(2):
            assert all(each.shape == (4, 4) for each in (model.doubled, model.halved))
            model.squared(torch.ones(2))
            Model.cubed(torch.ones(2))
    for target in (model, Model):
        found = {each["where"][0]: each for each in explain(target).to_dict()["methods"]}
        assert set(found) == {"doubled", "halved", "squared", "cubed"}
        assert all(each["called"] and each["versions"] for each in found.values()), found
    assert found["squared"]["calls"]["hits"] == 1 and found["squared"]["versions"]
