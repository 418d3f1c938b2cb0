"""Recognises attention in the forms that torch.onnx and paddle2onnx write.

``softmax(scale * q @ k.T + mask) @ v``, where the scale may stand before or after the product, on one operand or
both, as a product or a quotient; Paddle adds a zero to it; torch replaces the NaN of a row that is masked whole by 0.
Where products are in half precision and the softmax is not, as under autocast, the casts between them go: the step
computes what lies between in float32 in any case.
A mask of truths takes the place of the scores instead: ``where(mask, fill, scores)`` or ``where(mask, scores, fill)``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from hybrid_infer.backends.native._plan import FLOATS, Plan, Step
from hybrid_infer.backends.native._rewrite import Finder, drop_dead, exchange, repeat
from hybrid_infer.backends.native._size import broadcast


def fuse_attention(plan: Plan) -> None:
    repeat(plan, _fuse)
    drop_dead(plan)


@dataclass
class _Match:
    scale: float = 1.0
    mask: str = ""
    zero_nan: bool = False
    #: What stands for a score that is masked, and for which truth of the mask it does.
    fill: float | None = None
    fills: bool = True


def _fuse(finder: Finder, step: Step) -> bool:
    if step.op != "MatMul" or finder.dtype(step.outputs[0]) not in FLOATS:
        return False
    found = _Match()
    weights, user = step.inputs[0], step
    cast = finder.made_by(weights, "Cast")
    if cast is not None and finder.dtype(cast.inputs[0]) == "float32":
        if not finder.only_for(weights, user):
            return False
        weights, user = cast.inputs[0], cast
    softmax = finder.made_by(weights, "Softmax")
    guard = finder.made_by(weights, "Where")
    if guard is not None:
        softmax = _guarded(finder, guard)
        found.zero_nan = True
        if not finder.only_for(weights, user):
            return False
    if softmax is None or not (found.zero_nan or finder.only_for(weights, user)):
        return False
    shape = finder.shape(softmax.outputs[0])
    if shape is None or len(shape) < 3 or softmax.attributes.get("axis", -1) not in (-1, len(shape) - 1):
        return False
    name, user = softmax.inputs[0], softmax
    product = _scores(finder, found, name, user)
    if product is None:
        return False
    q = _unscaled(finder, found, product.inputs[0])
    turned = _unscaled(finder, found, product.inputs[1])
    rank, v = len(shape), step.inputs[1]
    k, order = _keys(finder, turned)
    shapes = [finder.shape(name) or () for name in (q, k, v)]
    if len({finder.dtype(name) for name in (q, k, v, step.outputs[0])}) > 1:
        return False
    if any(len(each) != rank for each in shapes) or (finder.shape(product.outputs[0]) or ())[-1] != shapes[2][-2]:
        return False
    attributes: dict[str, Any] = {"scale": found.scale, "zero_nan": found.zero_nan, "k_turned": order is None}
    if order is not None and order != sorted(order):
        k = _in_order(finder.plan, step, k, order)
    if found.fill is not None:
        attributes.update(fill=found.fill, fills=int(found.fills))
    fused = Step("attention", (q, k, v, *([found.mask] if found.mask else [])), step.outputs, attributes)
    finder.plan.decide(
        "attention", step.outputs[0],
        f"softmax({_words(found)}) @ v is one step"
        + (", a row that is masked whole gives 0" if found.zero_nan else ""),
    )  # fmt: skip
    exchange(finder.plan, [step], fused)
    drop_dead(finder.plan)
    return True


def _words(found: _Match) -> str:
    scores = f"{found.scale:.6g} * q @ k.T"
    if found.fill is None:
        return f"{scores} + mask" if found.mask else scores
    choice = f"{found.fill:.6g}, {scores}" if found.fills else f"{scores}, {found.fill:.6g}"
    return f"where(mask, {choice})"


def _keys(finder: Finder, turned: str) -> tuple[str, list[int] | None]:
    """The keys whose last two axes are turned in `turned`, and the order of axes in which they lie.

    No order where they do not lie with their last axis last, so that they are read as they are.
    """
    turn = finder.made_by(turned, "Transpose")
    order = list(turn.attributes.get("perm") or ()) if turn is not None else []
    if turn is None or len(order) < 3 or order[-2] != len(order) - 1:
        return turned, None
    return turn.inputs[0], [*order[:-2], order[-1], order[-2]]


def _in_order(plan: Plan, step: Step, k: str, order: list[int]) -> str:
    """The keys with their axes in order."""
    value = plan.values[k]
    name = plan.fresh(f"{step.outputs[0]}:keys")
    plan.values[name] = replace(value, shape=tuple((value.shape or ())[axis] for axis in order))
    plan.steps.insert(plan.steps.index(step), Step("Transpose", (k,), (name,), {"perm": order}))
    return name


def _guarded(finder: Finder, guard: Step) -> Step | None:
    """The softmax in ``where(isnan(s), 0, s)``."""
    test = finder.made_by(guard.inputs[0], "IsNaN")
    softmax = finder.made_by(guard.inputs[2], "Softmax")
    if test is None or softmax is None or test.inputs[0] != guard.inputs[2] or finder.number(guard.inputs[1]) != 0:
        return None
    users = finder.users.get(softmax.outputs[0], [])
    inside = all(each is test or each is guard for each in users) and softmax.outputs[0] not in finder.outputs
    return softmax if inside and finder.only_for(test.outputs[0], guard) else None


def _scores(finder: Finder, found: _Match, name: str, user: Step) -> Step | None:
    """The product of queries and keys below scale and mask, if nothing else reads what lies between."""
    while True:
        step = finder.made_by(name, "MatMul", "Add", "Mul", "Div", "Where", "Cast")
        if step is None or not finder.only_for(name, user):
            return None
        if step.op == "MatMul":
            return step
        if step.op == "Cast":
            if not _widens(finder, step):
                return None
            name, user = step.inputs[0], step
            continue
        if step.op == "Where":
            below = _filled(finder, found, step)
            if not below:
                return None
            name, user = below, step
            continue
        if step.op == "Add":
            if (zero := finder.operand_and_number(step)) is not None and zero[1] == 0:
                name, user = zero[0], step
                continue
            sums = [each for each in step.inputs if _may_be_scores(finder, each)]
            if found.mask or found.scale != 1 or not sums or not _is_mask(finder, step, sums[0]):
                return None
            found.mask = next(each for each in step.inputs if each != sums[0])
            name, user = sums[0], step
            continue
        scaled = _scaled(finder, step)
        if scaled is None:
            return None
        found.scale *= scaled[1]
        name, user = scaled[0], step


def _may_be_scores(finder: Finder, name: str) -> bool:
    cast = finder.made_by(name, "Cast")
    return finder.made_by(name, "MatMul", "Mul", "Div", "Add") is not None or (
        cast is not None and _widens(finder, cast)
    )


def _widens(finder: Finder, cast: Step) -> bool:
    """Does a cast keep the values? What is rounded on purpose stays so."""
    return finder.dtype(cast.inputs[0]) in ("float16", "bfloat16") and finder.dtype(cast.outputs[0]) == "float32"


def _filled(finder: Finder, found: _Match, step: Step) -> str:
    """The scores in ``where(mask, fill, scores)``, either way round; empty where that is not what stands there."""
    mask, *choices = step.inputs
    numbers = [finder.number(each) for each in choices]
    if found.mask or found.scale != 1 or (numbers[0] is None) == (numbers[1] is None):
        return ""
    scores = choices[0] if numbers[0] is None else choices[1]
    if not _spreads(finder, mask, scores, step):
        return ""
    found.mask, found.fills = mask, numbers[0] is not None
    found.fill = float(numbers[0] if found.fills else numbers[1])
    return scores


def _is_mask(finder: Finder, step: Step, scores: str) -> bool:
    """Does what is added leave the shape of the scores as it is?"""
    mask = next((each for each in step.inputs if each != scores), "")
    return _spreads(finder, mask, scores, step)


def _spreads(finder: Finder, mask: str, scores: str, step: Step) -> bool:
    """Is what `step` makes of the scores as large as they are?

    Along the keys it is: there are as many as values, or the product with these would fail.
    """
    shape, old, new = finder.shape(mask), finder.shape(scores), finder.shape(step.outputs[0])
    if shape is None or old is None or new is None or len(shape) > len(old) or len(new) != len(old):
        return False
    return new[:-1] == old[:-1] and new[-1] in (old[-1], broadcast(old[-1], shape[-1]))


def _scaled(finder: Finder, step: Step) -> tuple[str, float] | None:
    """What a step multiplies or divides by a number, and the factor."""
    if step.op == "Mul":
        return finder.operand_and_number(step)
    divisor = finder.number(step.inputs[1])
    return None if not divisor else (step.inputs[0], 1 / divisor)


def _unscaled(finder: Finder, found: _Match, name: str) -> str:
    """The operand below factors and zeros; the factors go into the scale of the whole."""
    while True:
        step = finder.made_by(name, "Mul", "Div", "Add")
        if step is None:
            return name
        if step.op == "Add":
            zero = finder.operand_and_number(step)
            inner = None if zero is None or zero[1] != 0 else finder.made_by(zero[0], "Mul", "Div")
            if zero is None or inner is None:
                return name
            name = zero[0]
            continue
        scaled = _scaled(finder, step)
        if scaled is None or finder.shape(scaled[0]) != finder.shape(step.outputs[0]):
            return name
        found.scale *= scaled[1]
        name = scaled[0]
