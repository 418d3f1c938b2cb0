"""Several heads of queries share keys and values, which a graph repeats for them: attention reads these where they are.

Grouped queries ("GQA", arXiv:2305.13245): ``groups`` neighbouring heads of queries have one head of keys and values.
The libraries and our own kernels take that as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hybrid_infer.backends.native._in_place import Source, readable, trace
from hybrid_infer.backends.native._plan import Plan, Step
from hybrid_infer.backends.native._rewrite import Finder, drop_dead, repeat, splice
from hybrid_infer.backends.native._size import Dim
from hybrid_infer.backends.native._window import given

#: The axis of heads, in front of the matrices' two.
_HEADS = -3


def share_heads(plan: Plan) -> None:
    repeat(plan, lambda finder, step: _turn_first(finder, step) or _share(finder, step))
    drop_dead(plan)


def _share(finder: Finder, step: Step) -> bool:
    if step.op != "attention" or "groups" in step.attributes:
        return False
    for groups in _counts(finder, step.inputs[1]):
        keys, values = (_shared(finder, name, groups) for name in step.inputs[1:3])
        if keys is None or values is None:
            continue
        seen = given(step)
        seen[1:3] = [keys.window.data(), values.window.data()]
        attributes = {**step.attributes, "groups": groups, "windows": seen}
        shared = replace(step, inputs=(step.inputs[0], keys.name, values.name, *step.inputs[3:]), attributes=attributes)
        plan = finder.plan
        splice(plan, step, [shared])
        plan.decide("attention", step.outputs[0], f"{groups} heads of queries read the same keys and values")
        return True
    return False


def _turn_first(finder: Finder, step: Step) -> bool:
    """Where heads are repeated and then turned, they are turned first and merged behind: so they can be told apart."""
    merged = finder.made_by(step.inputs[0], "view") if step.op == "Transpose" else None
    if merged is None or finder.made_by(merged.inputs[0], "broadcast") is None:
        return False
    fine, coarse = finder.shape(merged.inputs[0]), finder.shape(merged.outputs[0])
    parts = None if fine is None or coarse is None else _parts(fine, coarse)
    attended = any(each.op == "attention" for each in finder.users.get(step.outputs[0], ()))
    if fine is None or parts is None or "perm" not in step.attributes or not attended:
        return False
    plan, order = finder.plan, [each for axis in step.attributes["perm"] for each in parts[axis]]
    value = plan.values[step.outputs[0]]
    name = plan.fresh(f"{step.outputs[0]}:apart")
    plan.values[name] = replace(value, shape=tuple(fine[axis] for axis in order))
    splice(plan, step, [
        Step("Transpose", merged.inputs, (name,), {"perm": order}),
        Step("view", (name,), step.outputs, {"shape": list(value.shape or ())}),
    ])  # fmt: skip
    return True


def _parts(fine: Sequence[Dim], coarse: Sequence[Dim]) -> list[list[int]] | None:
    """The axes of `fine` that are merged in each of `coarse`; None where they are not."""
    found: list[list[int]] = []
    at = 0
    for size in coarse:
        axes, total = [at], fine[at] if at < len(fine) else 0
        while total != size and at + 1 < len(fine):
            at += 1
            axes.append(at)
            total = total * fine[at]
        if total != size:
            return None
        found.append(axes)
        at += 1
    return found if at == len(fine) else None


def _counts(finder: Finder, name: str) -> list[int]:
    """How often an axis is repeated on the way to a value."""
    found: list[int] = []
    while (step := finder.made_by(name, "view", "Transpose", "broadcast")) is not None:
        before, after = finder.shape(step.inputs[0]), finder.shape(step.outputs[0])
        if step.op == "broadcast" and before is not None and after is not None and len(before) == len(after):
            found += [b for a, b in zip(before, after, strict=True) if a == 1 and isinstance(b, int) and b > 1]
        name = step.inputs[0]
    return found


def _shared(finder: Finder, name: str, groups: int) -> Source | None:
    """Where keys or values lie of which each head is there `groups` times, one behind the other; each once."""
    shape = finder.shape(name)
    if shape is None or len(shape) < 3:
        return None
    heads = shape[_HEADS] // groups
    if heads * groups != shape[_HEADS]:
        return None
    source = trace(finder, name, (*shape[:_HEADS], heads, groups, *shape[_HEADS + 1 :]))
    if source is None or source.window.strides[_HEADS] != 0:
        return None
    window = source.window.cut(len(shape) + 1 + _HEADS, 0, 1).without(len(shape) + 1 + _HEADS)
    return source._replace(window=window) if readable(window, finder.dtype(source.name)) else None
