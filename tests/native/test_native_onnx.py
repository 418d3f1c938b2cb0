"""ONNX's own tests of operators through planner and interpreter, against the data that comes with them."""

from __future__ import annotations

from pathlib import Path

import pytest
from native_support import check_case, excluded, exclusions, node_tests

EXPORTED = Path(__file__).with_name("exported_operators.txt")
CASES = node_tests()
KEPT = [name for name in CASES if not excluded(name)]


@pytest.mark.parametrize("name", KEPT)
def test_an_operator_gives_what_onnx_expects(name: str) -> None:
    check_case(CASES[name])


def test_eighty_operators_at_least() -> None:
    found = {node.op_type for name in KEPT for node in CASES[name].model.graph.node}
    assert len(found) >= 80, sorted(found)


def test_every_operator_that_the_exporters_emit_is_among_them() -> None:
    """For the models of the benchmarks and the examples; those of these tests are run as they are captured."""
    found = {node.op_type for name in KEPT for node in CASES[name].model.graph.node}
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
