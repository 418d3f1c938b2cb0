"""Products and Einstein sums of arrays without elements, of which ONNX Runtime 1.31 makes something else than zeros.

A batch, a mask or a slice may be empty at one call and not at another. An Einstein sum of nothing ends the process,
which divides by its size. The product of a matrix and a vector leaves its result as the memory was before, and so does
one whose right side has axes that the left one lacks; where the left one is stretched along such an axis, it gives too
few results. ``Gemm`` does not scale what it adds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hybrid_infer.backends._source import rewrite_all


def spare(model: Any) -> None:
    """Rewrite `model` (an onnx.ModelProto) in place, graphs inside too, where sizes do not tell that there are any."""
    rewrite_all(model, _multiplies, _spared)


def _multiplies(node: Any) -> bool:
    if node.domain or len(node.input) < 2:
        return False
    if node.op_type == "Gemm":
        return len(node.input) == 3 and _number(node, "beta", 1.0) != 1.0
    return node.op_type in ("Einsum", "MatMul")


def _number(node: Any, name: str, otherwise: float) -> float:
    return next((float(each.f or each.i) for each in node.attribute if each.name == name), otherwise)


def _spared(node: Any, known: Mapping[str, Any]) -> list[Any]:
    if not all(name in known for name in node.input):
        return [node]
    kinds = [known[name] for name in node.input]
    if node.op_type == "Gemm":
        return _scaled(node, kinds)
    if all(kind.HasField("shape") and all(dim.dim_value > 0 for dim in kind.shape.dim) for kind in kinds):
        return [node]
    equation = node.attribute[0].s.decode() if node.op_type == "Einsum" else _equation(kinds)
    ranks = [len(kind.shape.dim) if kind.HasField("shape") else None for kind in kinds]
    axes = None if equation is None else _axes(equation, ranks)
    return [node] if axes is None else _branched(node, kinds, axes)


def _equation(kinds: Sequence[Any]) -> str | None:
    """Of a product that may be one of nothing, and would not be zeros then."""
    if not all(kind.HasField("shape") for kind in kinds):
        return None
    left, right = ([*kind.shape.dim] for kind in kinds)
    if not left or not right or left[-1].dim_value > 0 or right[max(len(right) - 2, 0)].dim_value > 0:
        return None
    if len(right) == 1:
        return None if len(left) == 1 else "...ij,j->...i"
    if len(left) == 1:
        return None if len(right) == 2 else "j,...jk->...k"
    batches = zip(reversed(left[:-2]), reversed(right[:-2]), strict=False)
    stretched = any(mine.dim_value == 1 and other.dim_value != 1 for mine, other in batches)
    return "...ij,...jk->...ik" if stretched or len(left) < len(right) else None


def _scaled(node: Any, kinds: Sequence[Any]) -> list[Any]:
    """What is added is scaled before, where there may be nothing to multiply."""
    from onnx import helper

    for kind, name, plain, turned in ((kinds[0], "transA", 1, 0), (kinds[1], "transB", 0, 1)):
        axis = turned if _number(node, name, 0) else plain
        if kind.HasField("shape") and kind.shape.dim[axis].dim_value > 0:
            return [node]
    factor, scaled, sizes = (f"{node.output[0]}::{part}" for part in ("factor", "scaled", "sizes"))
    beta = _number(node, "beta", 1.0)
    product = type(node).FromString(node.SerializeToString())
    product.input[2] = scaled
    del product.attribute[:]
    product.attribute.extend(each for each in node.attribute if each.name != "beta")
    if beta == 0.0:  # of what is no number, too
        zero = helper.make_tensor(factor, kinds[2].elem_type, [1], [0.0])
        zeros = helper.make_node("ConstantOfShape", [sizes], [scaled], value=zero)
        return [helper.make_node("Shape", [node.input[2]], [sizes]), zeros, product]
    number = helper.make_tensor(factor, kinds[2].elem_type, [], [beta])
    constant = helper.make_node("Constant", [], [factor], value=number)
    return [constant, helper.make_node("Mul", [node.input[2], factor], [scaled]), product]


def _branched(node: Any, kinds: Sequence[Any], axes: Sequence[Sequence[tuple[int, int]]]) -> list[Any]:
    """The node in a branch that is taken where there are elements; zeros of the result's sizes in the other one."""
    from onnx import TensorProto, helper

    result = node.output[0]

    def name(part: str) -> str:
        return f"{result}::{part}"

    def constant(part: str, numbers: Sequence[int], rank: int = 1) -> Any:
        value = helper.make_tensor(name(part), TensorProto.INT64, [len(numbers)] * rank, numbers)
        return helper.make_node("Constant", [], [name(part)], value=value)

    made = [constant("nothing", [0], 0), helper.make_node("Size", [node.input[0]], [name("count0")])]
    for at, operand in enumerate(node.input[1:], 1):
        made.append(helper.make_node("Size", [operand], [name(f"size{at}")]))
        made.append(helper.make_node("Mul", [name(f"count{at - 1}"), name(f"size{at}")], [name(f"count{at}")]))
    made.append(helper.make_node("Equal", [name(f"count{len(node.input) - 1}"), name("nothing")], [name("none")]))

    inside = [helper.make_node("Shape", [operand], [name(f"sizes{at}")]) for at, operand in enumerate(node.input)]
    parts = []
    inside.append(constant("one", [1]))
    for at, places in enumerate(axes):
        size = ""
        for operand, axis in places:
            mine = name(f"size{at}_{operand}")
            inside.append(constant(f"axis{at}_{operand}", [axis]))
            inside.append(helper.make_node("Gather", [name(f"sizes{operand}"), name(f"axis{at}_{operand}")], [mine]))
            if size:  # one of 1 is stretched to the other
                flat, wide = f"{mine}::flat", f"{mine}::wide"
                inside.append(helper.make_node("Equal", [size, name("one")], [flat]))
                inside.append(helper.make_node("Where", [flat, mine, size], [wide]))
                mine = wide
            size = mine
        parts.append(size)
    join = helper.make_node("Concat", parts, [name("sizes")], axis=0) if parts else constant("sizes", [])
    zero = helper.make_tensor("zero", kinds[0].elem_type, [1], [0])
    inside += [join, helper.make_node("ConstantOfShape", [name("sizes")], [name("zeros")], value=zero)]
    plain = type(node).FromString(node.SerializeToString())
    plain.output[0] = name("sum")
    branches = {
        branch: helper.make_graph(
            nodes, name(branch), [], [helper.make_tensor_value_info(given, kinds[0].elem_type, None)]
        )
        for branch, nodes, given in (("then_branch", inside, name("zeros")), ("else_branch", [plain], name("sum")))
    }
    return [*made, helper.make_node("If", [name("none")], [result], **branches)]


def _axes(equation: str, ranks: Sequence[int | None]) -> list[list[tuple[int, int]]] | None:
    """Operands, each with its axis, for each axis of the result; None where that is not to be told."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        return None
    places: dict[str, tuple[int, int]] = {}
    open_: list[list[tuple[int, int]]] = []
    for operand, (term, rank) in enumerate(zip(terms, ranks, strict=True)):
        before, dots, behind = term.partition("...")
        places.update({label: (operand, axis) for axis, label in enumerate(before)})
        places.update({label: (operand, axis - len(behind)) for axis, label in enumerate(behind)})
        if dots and rank is None:
            return None
        if dots:
            # The last of them lie upon each other.
            for from_end in range((rank or 0) - len(before) - len(behind)):
                if from_end >= len(open_):
                    open_.insert(0, [])
                open_[-1 - from_end].append((operand, -len(behind) - 1 - from_end))
    if not arrow:
        labels = left.replace(",", "").replace(".", "")
        right = ("..." if "..." in left else "") + "".join(sorted(each for each in labels if labels.count(each) == 1))
    first, dots, last = right.partition("...")
    try:
        return [*([places[each]] for each in first), *(open_ if dots else ()), *([places[each]] for each in last)]
    except KeyError:
        return None
