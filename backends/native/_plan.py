"""A plan: steps, values with types and shapes, constants, and why each decision was taken. Plain data, kept as JSON.

Names are those of the graph; the empty name stands for an operand that is absent. A value is written by one step.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from hybrid_infer._errors import EngineError
from hybrid_infer.backends.native import _size
from hybrid_infer.backends.native._conditions import Condition
from hybrid_infer.backends.native._size import Dim, Size

NAME = "native"

#: The element types that plans may hold, and NumPy's type for each. bfloat16 is held as the float32 of equal value.
NUMPY = {
    "bool": "bool", "uint8": "uint8", "int8": "int8", "uint16": "uint16", "int16": "int16", "uint32": "uint32",
    "int32": "int32", "uint64": "uint64", "int64": "int64", "float16": "float16", "bfloat16": "float32",
    "float32": "float32", "float64": "float64",
}  # fmt: skip

BYTES = {"bool": 1, "uint8": 1, "int8": 1, "uint16": 2, "int16": 2, "float16": 2, "bfloat16": 2, "uint32": 4,
         "int32": 4, "float32": 4, "uint64": 8, "int64": 8, "float64": 8}  # fmt: skip

FLOATS = ("float16", "bfloat16", "float32", "float64")


@dataclass(frozen=True)
class Value:
    """Type and shape of a value; no shape where not even the rank is known before it is computed."""

    dtype: str
    shape: tuple[Dim, ...] | None

    def fixed(self) -> tuple[int, ...] | None:
        """The shape, if every size in it is a number."""
        if self.shape is None or any(isinstance(size, Size) for size in self.shape):
            return None
        return tuple(int(size) for size in self.shape if not isinstance(size, Size))


@dataclass(frozen=True)
class Step:
    """One operation. ``op`` is an ONNX operator, or in lower case one of ours. ``bodies`` are graphs inside it."""

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    bodies: Mapping[str, Plan] = field(default_factory=dict)

    def reads(self) -> Iterator[str]:
        """Every value that the step needs, those that graphs inside it take from outside included."""
        yield from (name for name in self.inputs if name)
        for body in self.bodies.values():
            yield from body.free()

    def renamed(self, names: Mapping[str, str]) -> Step:
        """The step with other operands; `names` maps old names to new ones."""
        bodies = {key: body.renamed(names) for key, body in self.bodies.items()}
        return replace(self, inputs=tuple(names.get(name, name) for name in self.inputs), bodies=bodies)


class Algorithm(NamedTuple):
    """Of cuBLASLt for a product. ``tf32``: does it round float32? ``data``: the library's own 64 bytes, as digits."""

    tf32: bool
    data: str


@dataclass
class Plan:
    """Steps in an order in which they can run. ``decisions`` say what the planner did and why."""

    inputs: list[str]
    outputs: list[str]
    steps: list[Step]
    values: dict[str, Value]
    constants: dict[str, Any]
    opset: int
    decisions: list[dict[str, Any]] = field(default_factory=list)
    #: Lifetimes of the values between steps, see `_memory`; None before they are planned.
    memory: dict[str, Any] | None = None
    #: What the sizes of a call have to be, each once.
    conditions: dict[Condition, None] = field(default_factory=dict)
    #: The algorithms of a library that were the fastest, by the names of kernels; of which release, on which GPU.
    algorithms: dict[str, Algorithm] = field(default_factory=dict)
    measured: str = ""

    def free(self) -> Iterator[str]:
        """Names that come from outside, for a graph inside a step."""
        made = {*self.inputs, *self.constants}
        for step in self.steps:
            yield from (name for name in step.reads() if name not in made)
            made.update(step.outputs)
        yield from (name for name in self.outputs if name not in made)

    def renamed(self, names: Mapping[str, str]) -> Plan:
        return replace(
            self,
            steps=[step.renamed(names) for step in self.steps],
            outputs=[names.get(name, name) for name in self.outputs],
        )

    def uses(self) -> dict[str, list[Step]]:
        """The steps that read each value, each step once."""
        found: dict[str, list[Step]] = {}
        for step in self.steps:
            names = step.reads() if step.bodies else step.inputs
            for name in dict.fromkeys(names):
                if name:
                    found.setdefault(name, []).append(step)
        return found

    def makers(self) -> dict[str, Step]:
        """The step that writes each value."""
        return {name: step for step in self.steps for name in step.outputs if name}

    def decide(self, rule: str, step: str, why: str) -> None:
        """Record a decision: which rule, about the step that writes `step`, and the reason in words."""
        self.decisions.append({"rule": rule, "step": step, "why": why})

    def fresh(self, name: str) -> str:
        """A name that nothing has yet."""
        taken, count = name, 0
        while taken in self.values or taken in self.constants:
            count += 1
            taken = f"{name}.{count}"
        return taken


def refuse(reason: str) -> EngineError:
    return EngineError(NAME, reason)


def dump(plan: Plan) -> tuple[bytes, bytes]:
    """A plan as JSON, and the bytes of its constants."""
    blob = bytearray()
    return json.dumps(_plan_data(plan, blob), allow_nan=False, separators=(",", ":")).encode(), bytes(blob)


def restore(text: bytes, blob: bytes) -> Plan:
    """The plan that `dump` wrote. Raises EngineError for anything else."""
    try:
        return _plan_from(json.loads(text), blob)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise refuse(f"the stored plan cannot be read: {error}") from error


def _plan_data(plan: Plan, blob: bytearray) -> dict[str, Any]:
    constants = {}
    for name, array in plan.constants.items():
        constants[name] = [array.dtype.name, list(array.shape), len(blob)]
        blob += array.tobytes()
        blob += bytes(-len(blob) % 16)
    return {
        "inputs": plan.inputs,
        "outputs": plan.outputs,
        "opset": plan.opset,
        "values": {name: [value.dtype, encode(value.shape)] for name, value in plan.values.items()},
        "constants": constants,
        "steps": [
            {
                "op": step.op,
                "inputs": list(step.inputs),
                "outputs": list(step.outputs),
                **({"attributes": encode(dict(step.attributes))} if step.attributes else {}),
                **({"bodies": {k: _plan_data(b, blob) for k, b in step.bodies.items()}} if step.bodies else {}),
            }
            for step in plan.steps
        ],
        "decisions": plan.decisions,
        "memory": encode(plan.memory),
        "conditions": [encode(each) for each in plan.conditions],
        **({"algorithms": plan.algorithms, "measured": plan.measured} if plan.algorithms else {}),
    }


def _plan_from(data: Any, blob: bytes) -> Plan:
    import numpy as np

    constants = {}
    for name, (dtype, shape, offset) in data["constants"].items():
        count = math.prod(shape)
        constants[name] = np.frombuffer(blob, dtype, count, offset).reshape(shape)
    return Plan(
        inputs=data["inputs"],
        outputs=data["outputs"],
        steps=[
            Step(
                step["op"],
                tuple(step["inputs"]),
                tuple(step["outputs"]),
                decode(step.get("attributes", {})),
                {key: _plan_from(body, blob) for key, body in step.get("bodies", {}).items()},
            )
            for step in data["steps"]
        ],
        values={
            name: Value(dtype, None if shape is None else tuple(decode(shape)))
            for name, (dtype, shape) in data["values"].items()
        },
        constants=constants,
        opset=data["opset"],
        decisions=data["decisions"],
        memory=decode(data["memory"]),
        conditions={Condition(*decode(each)): None for each in data["conditions"]},
        algorithms={name: Algorithm(bool(of), str(it)) for name, (of, it) in data.get("algorithms", {}).items()},
        measured=data.get("measured", ""),
    )


def encode(value: Any) -> Any:
    """An attribute as JSON: sizes and numbers that JSON lacks become objects of one key."""
    if isinstance(value, Size):
        return {"size": _size.to_json(value)}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    if isinstance(value, (list, tuple)):
        return [encode(each) for each in value]
    if isinstance(value, dict):
        return {"map": {key: encode(each) for key, each in value.items()}}
    return value


def decode(data: Any) -> Any:
    """What `encode` was given, sequences as lists."""
    if isinstance(data, list):
        return [decode(each) for each in data]
    if isinstance(data, dict):
        if "size" in data:
            return _size.from_json(data["size"])
        if "float" in data:
            return float(data["float"])
        return {key: decode(each) for key, each in data.get("map", {}).items()}
    return data
