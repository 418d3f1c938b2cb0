"""What the tests of the native executor share: ONNX's own tests, and plans run against their data."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from hybrid_infer.backends.native import _interpret, _memory, _passes, _plan, _read, _size
from hybrid_infer.backends.native._plan import BYTES, NUMPY, Plan

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
    check_memory(plan, symbols)
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


def check_memory(plan: Plan, symbols: Mapping[Any, int]) -> None:
    """Every read finds what was written: nothing that was written since lies where the value lies.

    Knows nothing of lifetimes, so that it cannot share their mistakes.
    """
    assert plan.memory is not None
    place = _memory.layout(plan.memory, symbols, BYTES)
    aliases = plan.memory["aliases"]

    def extent(name: str) -> tuple[int, int] | None:
        root = aliases.get(name, name)
        if root not in place.offsets:
            return None
        value = plan.values[root]
        assert value.shape is not None
        count = int(np.prod([_size.evaluate(size, symbols) for size in value.shape], dtype=np.int64))
        start = place.offsets[root]
        assert start % _memory.ALIGNMENT == 0 and start + count * BYTES[value.dtype] <= place.total
        return (start, start + count * BYTES[value.dtype]) if count else None

    owners: dict[tuple[int, int], str] = {}
    reads = [*(list(step.reads()) for step in plan.steps), plan.outputs]
    for i, step in enumerate([*plan.steps, None]):
        for name in reads[i]:
            if (mine := extent(name)) is not None:
                assert owners.get(mine) == aliases.get(name, name), f"{name} was overwritten before step {i}"
        for name in step.outputs if step is not None else ():
            if not name or name in aliases or (mine := extent(name)) is None:
                continue
            for other in [o for o in owners if o[0] < mine[1] and mine[0] < o[1]]:
                # Written while the step still reads.
                assert owners[other] not in {aliases.get(n, n) for n in reads[i]}, f"step {i} overwrites its operand"
                del owners[other]
            owners[mine] = name


def check_case(case: Any, *, without: tuple[str, ...] = ()) -> Plan:
    """Plan and run one of ONNX's tests, and compare with its data. Gives the plan."""
    plan = _passes.plan(case.model, without=without)
    _interpret.check(plan)
    for inputs, outputs in case.data_sets:
        held = [as_held(array, plan.values[name].dtype) for name, array in zip(plan.inputs, inputs, strict=True)]
        feeds = dict(zip(plan.inputs, held, strict=True))
        checked = run_and_check_shapes(plan, feeds)
        found = _interpret.run(plan, feeds)
        for ours, same in zip(found, checked, strict=True):
            np.testing.assert_array_equal(ours, same)  # with each value in an array of its own
        for name, ours, expected in zip(plan.outputs, found, outputs, strict=True):
            known = plan.values.get(name)
            wanted = as_held(expected, known.dtype if known is not None else "")
            assert ours.dtype == wanted.dtype and ours.shape == wanted.shape
            np.testing.assert_allclose(ours, wanted, rtol=case.rtol, atol=case.atol)
    return plan


Spec = tuple[str, tuple[int | str, ...]]
node = helper.make_node


def model(
    nodes: Sequence[Any], inputs: Mapping[str, Spec], outputs: Sequence[str], constants: Mapping[str, Any] | None = None
) -> Any:
    """An onnx.ModelProto; inputs map to (dtype, shape), where a size may be a name."""
    kinds = {"float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16, "int64": TensorProto.INT64,
             "bfloat16": TensorProto.BFLOAT16, "bool": TensorProto.BOOL, "float64": TensorProto.DOUBLE,
             "int32": TensorProto.INT32, "int16": TensorProto.INT16, "uint8": TensorProto.UINT8}  # fmt: skip
    taken = [helper.make_tensor_value_info(name, kinds[dtype], shape) for name, (dtype, shape) in inputs.items()]
    given = [onnx.ValueInfoProto(name=name) for name in outputs]
    fixed = [numpy_helper.from_array(np.asarray(array), name) for name, array in (constants or {}).items()]
    graph = helper.make_graph(list(nodes), "test", taken, given, fixed)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    return onnx.shape_inference.infer_shapes(made, strict_mode=True)


def attended(result: str, scale: str, mask: str = "") -> list[Any]:
    """``result = softmax(scale * q @ k.T + mask) @ v``, heads in front of tokens."""
    return [
        node("Transpose", ["k"], ["kt"], perm=[0, 1, 3, 2]),
        node("MatMul", ["q", "kt"], ["s"]),
        node("Mul", ["s", scale], ["scaled"]),
        *([node("Add", ["scaled", mask], ["masked"])] if mask else []),
        node("Softmax", ["masked" if mask else "scaled"], ["p"], axis=-1),
        node("MatMul", ["p", "v"], [result]),
    ]


def reference(made: Any, feeds: Mapping[str, Any]) -> list[Any]:
    """The outputs as ONNX's own reference computes them."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return ReferenceEvaluator(made).run(None, dict(feeds))


def ops(plan: Plan) -> dict[str, int]:
    return dict(Counter(step.op for step in plan.steps))


def compare(plan: Plan, made: Any, feeds: Mapping[str, Any], rtol: float = 1e-5, atol: float = 1e-5) -> None:
    """The plan, run, gives what the reference gives; and so it does after a round trip through its stored form."""
    symbols = _read.symbols_of(plan, feeds)
    check_memory(plan, symbols)
    expected = reference(made, feeds)
    for each in (plan, _plan.restore(*_plan.dump(plan))):
        for ours, theirs in zip(_interpret.run(each, feeds), expected, strict=True):
            assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
            np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=atol)


def i64(*numbers: int) -> Any:
    return np.array(numbers, np.int64)


def sample(shape: Sequence[int], seed: int = 0, dtype: str = "float32") -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)
