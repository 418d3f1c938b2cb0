"""Einsum is spelled out: turns, products of matrices, sums and products of elements, as fuse like any others.

Operands are joined from the left, two at a time. Of the letters of two, those that both and the rest have are batches,
those that both have alone are summed over, and each operand's own are the rows and the columns of a product.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hybrid_infer.backends.native import _conditions
from hybrid_infer.backends.native._plan import FLOATS, Plan, Step, Value
from hybrid_infer.backends.native._size import Dim, known, product
from hybrid_infer.backends.native._spelling import Spelling, spell
from hybrid_infer.backends.native._terms import terms


def spell_einsum(plan: Plan) -> None:
    spell(plan, _spelled)


def _spelled(plan: Plan, step: Step) -> list[Step]:
    if step.op != "Einsum" or step.outputs[0] not in plan.values:
        return [step]
    values = [plan.values.get(name) for name in step.inputs]
    shapes = [value.shape for value in values if value is not None and value.shape is not None]
    if len(shapes) != len(step.inputs) or any(value.dtype not in FLOATS for value in values if value):
        return [step]
    inner, result = terms(step.attributes["equation"], [len(shape) for shape in shapes])
    sizes: dict[str, Dim] = {}
    for letters, shape in zip(inner, shapes, strict=True):
        if len(set(letters)) != len(letters):  # a diagonal
            return [step]
        for letter, size in zip(letters, shape, strict=True):
            if sizes.get(letter, 1) == 1:
                sizes[letter] = size
            elif size not in (1, sizes[letter]):
                _conditions.ask(plan.conditions, _conditions.Condition("same", sizes[letter], size, step.op))
    if not all(known(size) for size in sizes.values()) or len(set(result)) != len(result):
        return [step]
    made = _Joined(plan, step, sizes)
    made.write(inner, shapes, result)
    plan.decide("einsum", step.outputs[0], f"{step.attributes['equation']} is made of turns, products and sums")
    return made.made.steps


class _Joined:
    def __init__(self, plan: Plan, step: Step, sizes: Mapping[str, Dim]) -> None:
        self.made, self.sizes, self.inputs = Spelling(plan, step.outputs[0]), sizes, step.inputs
        self.dtype = plan.values[step.outputs[0]].dtype

    def write(self, inner: Sequence[str], shapes: Sequence[Sequence[Dim]], result: str) -> None:
        parts = []
        for i, (name, letters, shape) in enumerate(zip(self.inputs, inner, shapes, strict=True)):
            # What is spread along an axis does without it.
            kept = "".join(a for a, size in zip(letters, shape, strict=True) if size != 1 or self.sizes[a] == 1)
            same = tuple(shape) == tuple(self.shape(kept))
            parts.append((name if same else self.shaped(name, f"operand {i}", kept), kept))
        name, letters = parts[0]
        for i, (other, theirs) in enumerate(parts[1:], 1):
            wanted = set(result).union(*(each for _, each in parts[i + 1 :]))
            name, letters = self.join((name, letters), (other, theirs), wanted, f"{i}", result)
        name, letters = self.summed(name, letters, set(result), "sum")
        self.turned(name, letters, result, "turned", "")

    def shape(self, letters: str) -> list[Dim]:
        return [self.sizes[a] for a in letters]

    def shaped(self, name: str, part: str, letters: str, ones: str = "") -> str:
        """A value without its other axes, or with axes of 1 for the letters of `ones`."""
        return self.made.view(name, part, [1 if a in ones else self.sizes[a] for a in letters])

    def turned(self, name: str, letters: str, wanted: str, part: str, last: str | None = None) -> str:
        """With its axes in another order; under the name of the result where `last` is empty."""
        if letters == wanted and last is None:
            return name
        of = Value(self.dtype, tuple(self.shape(wanted)))
        return self.made.add("Transpose", (name,), part if last is None else last, of,
                             perm=[letters.index(a) for a in wanted])  # fmt: skip

    def summed(self, name: str, letters: str, wanted: set[str], part: str) -> tuple[str, str]:
        axes = [i for i, a in enumerate(letters) if a not in wanted]
        if not axes:
            return name, letters
        kept = "".join(a for a in letters if a in wanted)
        told = self.made.constant(f"{part} axes", axes, "int64")
        of = Value(self.dtype, tuple(self.shape(kept)))
        return self.made.add("ReduceSum", (name, told), part, of, keepdims=0), kept

    def join(
        self, one: tuple[str, str], two: tuple[str, str], wanted: set[str], part: str, order: str
    ) -> tuple[str, str]:
        """Two operands as one, whose letters are those of `wanted` that they have, in that order as far as may be."""
        (a, left), (b, right) = (
            self.summed(*each, wanted | set(other), f"{which} {part}")
            for each, other, which in ((one, two[1], "left"), (two, one[1], "right"))
        )
        place = {letter: i for i, letter in enumerate(order)}
        batch = "".join(sorted((x for x in left if x in right and x in wanted), key=lambda x: place.get(x, -1)))
        inner = "".join(x for x in left if x in right and x not in wanted)
        rows = "".join(sorted((x for x in left if x not in right), key=lambda x: place.get(x, -1)))
        columns = "".join(sorted((x for x in right if x not in left), key=lambda x: place.get(x, -1)))
        if not inner or not rows + columns:
            every = batch + rows + columns + inner
            a, b = (
                self.shaped(self.turned(name, mine, "".join(x for x in every if x in mine), f"{which} turned {part}"),
                            f"{which} spread {part}", every, "".join(x for x in every if x not in mine))
                for name, mine, which in ((a, left, "left"), (b, right, "right"))
            )  # fmt: skip
            found = self.made.add("Mul", (a, b), f"product {part}", Value(self.dtype, tuple(self.shape(every))))
            return self.summed(found, every, wanted, f"inner {part}")
        a = self.turned(a, left, batch + rows + inner, f"left turned {part}")
        b = self.turned(b, right, batch + inner + columns, f"right turned {part}")
        outer, m, k, n = self.shape(batch), *(product(self.shape(each)) for each in (rows, inner, columns))
        if len(rows) != 1 or len(inner) != 1:
            a = self.made.view(a, f"left matrix {part}", [*outer, m, k])
        if len(inner) != 1 or len(columns) != 1:
            b = self.made.view(b, f"right matrix {part}", [*outer, k, n])
        found = self.made.add("MatMul", (a, b), f"product {part}", Value(self.dtype, (*outer, m, n)))
        letters = batch + rows + columns
        if len(rows) != 1 or len(columns) != 1:
            found = self.made.view(found, f"joined {part}", self.shape(letters))
        return found, letters
