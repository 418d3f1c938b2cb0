"""ONNX's own tests of operators through planner and interpreter, against the data that comes with them."""

from __future__ import annotations

from pathlib import Path

import exported
import pytest
from native_support import check_case, excluded, exclusions, node, node_tests
from onnx import helper

from hybrid_infer._options import Options
from hybrid_infer._types import Graph

EXPORTED = Path(__file__).with_name("exported_operators.txt")
CASES = node_tests()
KEPT = [name for name in CASES if not excluded(name)]


@pytest.mark.parametrize("name", KEPT)
def test_an_operator_gives_what_onnx_expects(name: str) -> None:
    check_case(CASES[name])


def test_eighty_operators_at_least() -> None:
    """And they are those against which every capture of the test suite is held (``exported.py``)."""
    found = {node.op_type for name in KEPT for node in CASES[name].model.graph.node}
    assert len(found) >= 80 and found == exported.covered()
    assert not found & exported.excluded().keys() and all(exported.excluded().values())


def test_an_operator_that_is_neither_covered_nor_excluded_is_noticed() -> None:
    from hybrid_infer import _rewriting
    from hybrid_infer.backends import engine

    def rewrite(*operators: str) -> None:
        nodes = [node(each, ["x"], [f"y{i}"]) for i, each in enumerate(operators)]
        made = helper.make_graph(nodes, "g", [], [])
        inner = helper.make_model(helper.make_graph([node("If", ["c"], [], then_branch=made)], "g", [], []))
        graph = Graph(inner.SerializeToString(), (), (), (), (), ())
        _rewriting.rewrite(Options(switch_ir_optim=False), engine("onnxruntime"), graph, None)

    rewrite("Relu", "Loop")
    assert not exported.RECORDER.unknown()
    rewrite("Relu", "StringNormalizer")
    assert exported.RECORDER.unknown() == {"StringNormalizer"}


def test_every_operator_that_the_exporters_emit_is_among_them() -> None:
    """For the models of the benchmarks and the examples; what the tests capture is looked at as they do."""
    found = exported.covered()
    lines = [line for line in EXPORTED.read_text().splitlines() if not line.startswith("#")]
    assert len(lines) >= 10
    for line in lines:
        model, _, operators = line.partition(": ")
        assert not set(operators.split()) - found, model


def test_no_exclusion_is_stale() -> None:
    """What is excluded does fail, and each line excludes something."""
    for name, case in CASES.items():
        if not excluded(name):
            continue
        try:
            check_case(case)
        except Exception:
            continue
        pytest.fail(f"{name} passes: {excluded(name)}")
    for pattern, _ in exclusions():
        assert any(pattern.fullmatch(name) for name in CASES), pattern.pattern
