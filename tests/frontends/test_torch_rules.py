"""The rules by which the exporter rewrites a graph, which are tried where they can apply and nowhere else."""

from __future__ import annotations

import threading
import warnings
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import onnx_ir  # noqa: E402
from onnxscript import optimizer, rewriter  # noqa: E402
from onnxscript.rewriter import _matcher  # noqa: E402

from hybrid_infer.frontends import _torch_rules  # noqa: E402

pytestmark = pytest.mark.torch
KIND = _matcher.SimplePatternMatcher


class Rewritten(torch.nn.Module):
    """With what rules are about: slices, casts, changes of shape, limits, a normalisation behind a product."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.norm = torch.nn.Conv1d(4, 4, 3, padding=1), torch.nn.BatchNorm1d(4)

    def forward(self, x: Any) -> Any:
        y = self.norm(self.convolution(x)).clamp(min=0).clamp(max=2).double().float()
        one, other = y[..., :3], y[..., 3:6]
        return torch.cat([other, one], -1).reshape(-1, 3).reshape(-1, 6) * 1 + x.transpose(0, 1).transpose(0, 1).sum()


@pytest.fixture(scope="module")
def plain() -> bytes:
    """The graph as the exporter has translated it, before any rule."""
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # the exporter's own
        program = torch.export.export(Rewritten().eval(), (torch.randn(2, 4, 6),))
        exported = torch.onnx.export(program, (), dynamo=True, verbose=False, optimize=False)
    return exported.model_proto.SerializeToString()


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The matchers that were asked, once for each node."""
    found: list[Any] = []
    plain = KIND.match
    monkeypatch.setattr(
        KIND, "match", lambda matcher, *args, **options: found.append(matcher) or plain(matcher, *args, **options)
    )
    return found


def optimised(graph: bytes) -> bytes:
    import onnx

    model = onnx_ir.serde.deserialize_model(onnx.ModelProto.FromString(graph))
    optimizer.optimize_ir(model)
    return onnx_ir.serde.serialize_model(model).SerializeToString()


def nameless(graph: bytes) -> Any:
    """Nodes and constants of a graph, in which the constants are called after the order of their use."""
    import onnx

    model = onnx.ModelProto.FromString(graph)
    constants = {each.name: each for each in model.graph.initializer}
    used = dict.fromkeys(name for node in model.graph.node for name in node.input if name in constants)
    names = {name: f"constant {n}" for n, name in enumerate(used)}
    values = []
    for name, new in names.items():
        constants[name].name = new
        values.append(constants[name].SerializeToString())
    for node in model.graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
    return values, [node.SerializeToString() for node in model.graph.node]


def test_the_same_graph_of_a_fraction_of_the_attempts(plain: bytes, tried: list[Any]) -> None:
    expected = optimised(plain)
    assert expected != plain
    before, many = vars(KIND)["match"], len(tried)
    tried.clear()
    with _torch_rules.where_they_apply():
        assert nameless(optimised(plain)) == nameless(expected)  # constants that rules make are numbered
    assert 0 < len(tried) < many / 5
    assert vars(KIND)["match"] is before


def test_a_rule_for_two_results_is_left_out(plain: bytes, tried: list[Any]) -> None:
    """For each node, it goes through them all."""
    rules = [rule for rule in rewriter._DEFAULT_REWRITE_RULES if not rule._target_pattern.has_single_output_node]
    assert rules
    optimised(plain)
    assert any(not matcher.pattern.has_single_output_node for matcher in tried)
    tried.clear()
    with _torch_rules.where_they_apply():
        optimised(plain)
    assert all(matcher.pattern.has_single_output_node for matcher in tried)


def test_other_threads_try_every_rule(plain: bytes, tried: list[Any]) -> None:
    optimised(plain)
    many = len(tried)
    tried.clear()
    with _torch_rules.where_they_apply():
        thread = threading.Thread(target=optimised, args=(plain,))
        thread.start()
        thread.join()
    assert len(tried) == many


def test_nothing_is_left_behind_after_an_error() -> None:
    before = vars(KIND)["match"]
    with pytest.raises(ZeroDivisionError), _torch_rules.where_they_apply():
        1 / 0  # noqa: B018
    assert vars(KIND)["match"] is before


def test_a_capture_tries_them_so(tried: list[Any]) -> None:
    """A method of one operator has none that a rule is about."""
    from hybrid_infer import inference

    @inference()
    def sine(x: Any) -> Any:
        return x.sin()

    sine(torch.ones(2, 3))
    assert {matcher.pattern.output_nodes[0].op_identifier() for matcher in tried} <= {None}
