"""Steps that compute the same from the same are computed once, and so are equal constants."""

from __future__ import annotations

import json

from hybrid_infer.backends.native._plan import Plan, Step, encode
from hybrid_infer.backends.native._rewrite import drop_dead


def merge_duplicates(plan: Plan) -> None:
    names = _equal_constants(plan)
    seen: dict[str, Step] = {}
    kept, count = [], 0
    for step in plan.steps:
        step = step.renamed(names)
        if step.bodies:
            kept.append(step)
            continue
        key = json.dumps([step.op, step.inputs, encode(dict(step.attributes)), len(step.outputs)], sort_keys=True)
        twin = seen.get(key)
        present = [bool(name) for name in step.outputs]
        if twin is None or [bool(name) for name in twin.outputs] != present or set(step.outputs) & set(plan.outputs):
            seen.setdefault(key, step)
            kept.append(step)
            continue
        names.update({a: b for a, b in zip(step.outputs, twin.outputs, strict=True) if a})
        count += 1
    plan.steps = kept
    if count:
        plan.decide("duplicates", "", f"{count} steps repeat others and were merged with them")
    drop_dead(plan)


def _equal_constants(plan: Plan) -> dict[str, str]:
    first: dict[tuple[str, str, tuple[int, ...], bytes], str] = {}
    names: dict[str, str] = {}
    for name, array in plan.constants.items():
        if name in plan.outputs:
            continue
        key = (plan.values[name].dtype, array.dtype.name, array.shape, array.tobytes())
        if first.setdefault(key, name) != name:
            names[name] = first[key]
    return names
