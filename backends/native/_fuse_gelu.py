"""Recognises the two forms of GELU that a graph spells out, so that a product may take the one it can.

``x * 0.5 * (1 + erf(x / sqrt(2)))`` and ``0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3)))``, factors in any
order.
"""

from __future__ import annotations

import math

from hybrid_infer.backends.native._plan import Plan, Step
from hybrid_infer.backends.native._rewrite import Finder, drop_dead, exchange, repeat


def fuse_gelu(plan: Plan) -> None:
    repeat(plan, _fuse)
    drop_dead(plan)


def _near(value: object, wanted: float) -> bool:
    """Equal but for rounding to a float of 16 bits or more."""
    return isinstance(value, float) and math.isclose(value, wanted, rel_tol=1e-3)


def _factors(finder: Finder, name: str, above: Step | None = None) -> tuple[list[str], float]:
    """The factors of a product, numbers multiplied together; looks through products that nothing else reads."""
    step = finder.made_by(name, "Mul", "Div")
    if step is None or (above is not None and not finder.only_for(name, above)):
        return [name], 1.0
    if step.op == "Div":
        divisor = finder.number(step.inputs[1])
        if not isinstance(divisor, float) or divisor == 0:
            return [name], 1.0
        names, number = _factors(finder, step.inputs[0], step)
        return names, number / divisor
    names, number = [], 1.0
    for each in step.inputs:
        value = finder.number(each)
        if isinstance(value, float):
            number *= value
            continue
        more, factor = _factors(finder, each, step)
        names += more
        number *= factor
    return names, number


def _fuse(finder: Finder, step: Step) -> bool:
    if step.op != "Mul":
        return False
    names, number = _factors(finder, step.outputs[0])
    if len(names) != 2 or not _near(number, 0.5):
        return False
    for x, gate in (names, names[::-1]):
        plus = finder.made_by(gate, "Add")
        inner = None if plus is None else finder.operand_and_number(plus)
        if inner is None or inner[1] != 1:
            continue
        curve = finder.made_by(inner[0], "Erf", "Tanh")
        form = None if curve is None else _form(finder, curve, x)
        if form is not None:
            finder.plan.decide("gelu", step.outputs[0], f"spelled out, is one Gelu ({form})")
            exchange(finder.plan, [step], Step("Gelu", (x,), step.outputs, {"approximate": form}))
            return True
    return False


def _form(finder: Finder, curve: Step, x: str) -> str | None:
    names, number = _factors(finder, curve.inputs[0], curve)
    if curve.op == "Erf":
        return "none" if names == [x] and _near(number, math.sqrt(0.5)) else None
    if len(names) != 1 or not _near(number, math.sqrt(2 / math.pi)):
        return None
    total = finder.made_by(names[0], "Add")
    if total is None or x not in total.inputs:
        return None
    cubic = next((each for each in total.inputs if each != x), x)
    parts, factor = _factors(finder, cubic, total)
    if not _near(factor, 0.044715):
        return None
    if parts == [x, x, x]:
        return "tanh"
    power = finder.made_by(parts[0], "Pow") if len(parts) == 1 else None
    cubed = power is not None and power.inputs[0] == x and finder.number(power.inputs[1]) == 3
    return "tanh" if cubed else None
