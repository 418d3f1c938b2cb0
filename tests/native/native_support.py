"""What the tests of the native executor share: ONNX's own tests, and plans run against their data."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from hybrid_infer.backends.native import _interpret, _passes, _read, _size
from hybrid_infer.backends.native._plan import NUMPY, Plan

EXCLUSIONS = Path(__file__).with_name("onnx_exclusions.txt")


@lru_cache(maxsize=1)
def node_tests() -> dict[str, Any]:
    """ONNX's tests of single operators, by name, with the data that they are checked against."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import onnx.backend.test.case.node as node
        from onnx.backend.test.case import utils

        utils.import_recursive(node)
        return {case.name: case for case in node.collect_testcases(None)}


@lru_cache(maxsize=1)
def exclusions() -> list[tuple[re.Pattern[str], str]]:
    lines = (line.strip() for line in EXCLUSIONS.read_text().splitlines())
    pairs = (line.rpartition(" | ") for line in lines if line and not line.startswith("#"))
    return [(re.compile(pattern), reason) for pattern, _, reason in pairs]


def excluded(name: str) -> str:
    """Why ONNX's test of that name is left out; empty where it is not."""
    return next((reason for pattern, reason in exclusions() if pattern.fullmatch(name)), "")


def as_held(array: Any, dtype: str) -> Any:
    """ONNX's tests carry bfloat16 as its bits; plans hold the float32 of equal value."""
    array = np.asarray(array)
    return (array.astype(np.uint32) << 16).view(np.float32) if dtype == "bfloat16" else array


def run_and_check_shapes(plan: Plan, feeds: Mapping[str, Any]) -> list[Any]:
    """The outputs of a plan, after every value was compared with the type and shape that were inferred for it."""
    symbols, values, inferred = _read.symbols_of(plan, feeds), dict(feeds), dict(plan.values)
    with np.errstate(all="ignore"):
        _interpret._steps(plan, values, symbols)
    for name, value in inferred.items():
        if name not in values:
            continue
        array = np.asarray(values[name])
        assert array.dtype.name == NUMPY[value.dtype], name
        if value.shape is not None:
            assert array.shape == tuple(_size.evaluate(size, symbols) for size in value.shape), name
    return [np.asarray(values[name]) for name in plan.outputs]


def check_case(case: Any, *, without: tuple[str, ...] = ()) -> Plan:
    """Plan and run one of ONNX's tests, and compare with its data. Gives the plan."""
    plan = _passes.plan(case.model, without=without)
    _interpret.check(plan)
    for inputs, outputs in case.data_sets:
        held = [as_held(array, plan.values[name].dtype) for name, array in zip(plan.inputs, inputs, strict=True)]
        found = run_and_check_shapes(plan, dict(zip(plan.inputs, held, strict=True)))
        for name, ours, expected in zip(plan.outputs, found, outputs, strict=True):
            known = plan.values.get(name)
            wanted = as_held(expected, known.dtype if known is not None else "")
            assert ours.dtype == wanted.dtype and ours.shape == wanted.shape
            np.testing.assert_allclose(ours, wanted, rtol=case.rtol, atol=case.atol)
    return plan
