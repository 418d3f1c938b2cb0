"""CUDA C for convolutions and poolings where no library computes them: a thread for each element of the result.

Any number of axes, groups, strides, dilations and padding. Sums are taken in float32 (float64 for float64). What a
transposed convolution spreads over several elements, each of these gathers: of its taps those that meet an element.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hybrid_infer.backends.native._code import inside
from hybrid_infer.backends.native._cuda_access import Access, Kernel, access, declaration, indices
from hybrid_infer.backends.native._cuda_body import Body, head
from hybrid_infer.backends.native._cuda_elementwise import THREADS
from hybrid_infer.backends.native._cuda_entries import entry_points
from hybrid_infer.backends.native._cuda_expressions import COMPUTE, STORED, literal
from hybrid_infer.backends.native._plan import FLOATS, Plan, Step
from hybrid_infer.backends.native._size import Dim, Size, product

WINDOWS = ("Conv", "ConvTranspose", "MaxPool", "AveragePool")


def _channels(shape: Sequence[Dim], last: bool) -> tuple[Sequence[Dim], list[Dim]]:
    """Sizes with the channels in the second place, and their strides, whichever way round they are held."""
    steps: list[Dim] = [product(shape[axis + 1 :]) for axis in range(len(shape))]
    if not last:
        return shape, steps
    return (shape[0], shape[-1], *shape[1:-1]), [steps[0], steps[-1], *steps[1:-1]]


def _behind(epilogue: Mapping[str, Any], types: Sequence[str], y: Sequence[Dim], c: str) -> tuple[list[str], str]:
    """The lines of what a convolution takes up behind it (see `_epilogue`), and its result."""
    views, first = epilogue["views"], epilogue["first"]
    # One element is read of each operand, as of one that is spread.
    body = Body([inside(types[0]), *types[first:-1]], Access([1], [[0] for _ in range(1 + len(views))]))
    lines = ["  const I at = v;", f"  const {c} a0 = total;"]
    for k, view in enumerate(views, 1):
        reach = access(y, [view])
        kind, pointer = STORED[types[first + k - 1]], f"p{first + k - 1}"
        lines += [f"  {kind} a{k};", "  {", *(f"    {line}" for line in reach.offsets([0]))]
        lines += [f"    a{k} = {pointer}[o0];", "  }"]
    lines += [f"  {line}" for line in body.lines(epilogue["code"], "t")]
    return lines, body.argument(epilogue["result"], "t")[0]


def window(plan: Plan, step: Step, name: str) -> Kernel | None:
    """The kernel of a convolution or pooling; None where shapes are not known, or for what frameworks do not write."""
    at = step.attributes
    values = [plan.values.get(each) for each in (*step.inputs, step.outputs[0])]
    shapes = [None if value is None else value.shape for value in values]
    x, y, dtype = shapes[0], shapes[-1], plan.values[step.inputs[0]].dtype
    if x is None or y is None or any(shape is None for shape in shapes) or any(step.outputs[1:]):
        return None
    if dtype not in FLOATS or at.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        return None
    if at.get("output_shape"):
        return None
    count, back = len(x) - 2, step.op == "ConvTranspose"
    convolution, last = back or step.op == "Conv", bool(at.get("channels_last"))
    image, x_step = _channels(x, last)
    result, _ = _channels(y, last)
    w, w_step = _channels(shapes[1] or (), last) if convolution else ((), [])
    kernel = [*w[2:]] if convolution else list(at["kernel_shape"])
    if any(isinstance(size, Size) for size in kernel):
        return None
    ones, none = [1] * count, [0] * (2 * count)
    strides, dilations = at.get("strides") or ones, at.get("dilations") or ones
    pads = (at.get("pads") if at.get("auto_pad", "NOTSET") == "NOTSET" else None) or none
    reach = Access([1], [])
    term, c = reach.term, COMPUTE[inside(dtype)]
    start = literal(float("-inf") if step.op == "MaxPool" else 0.0, dtype)
    lines = [
        f"const I count = {term(product(y))};",
        "for (I v = (I)blockIdx.x * blockDim.x + threadIdx.x; v < count; v += (I)gridDim.x * blockDim.x) {",
        "  I rest = v;",
    ]
    channels = term(result[1])
    lines += [f"  const I channel = rest % {channels};", f"  rest /= {channels};"] if last else []
    for axis in range(count - 1, -1, -1):
        size = term(result[2 + axis])
        place = f" + (I){pads[axis]}" if back else f" * (I){strides[axis]} - (I){pads[axis]}"
        lines.append(f"  const I y{axis} = rest % {size}{place};")
        lines.append(f"  rest /= {size};")
    lines += ["  const I n = rest;"] if last else [f"  const I channel = rest % {channels}, n = rest / {channels};"]
    lines.append(f"  {c} total = {start};")
    if convolution:
        each: Dim = result[1] // at.get("group", 1)
        taps = "(first + k)", f"channel % {term(each)}"
        lines += [
            f"  const I inner = {term(w[0] // at.get('group', 1) if back else w[1])};",
            f"  const I first = channel / {term(each)} * inner;",
            "  for (I k = 0; k < inner; ++k) {",
            f"    const I image = n * {term(x_step[0])} + (first + k) * {term(x_step[1])};",
            f"    const I taps = {taps[0] if back else 'channel'} * {term(w_step[0])} + "
            f"{taps[1] if back else 'k'} * {term(w_step[1])};",
        ]
    else:
        lines += ["  I seen = 0;", "  {", f"    const I image = n * {term(x_step[0])} + channel * {term(x_step[1])};"]
    for axis in range(count):
        lines.append(f"    for (int w{axis} = 0; w{axis} < {kernel[axis]}; ++w{axis}) {{")
        apart, far = f"w{axis} * (I){dilations[axis]}", term(image[2 + axis])
        if back:
            lines.append(f"      const I s{axis} = y{axis} - {apart}, x{axis} = s{axis} / (I){strides[axis]};")
            lines.append(f"      if (s{axis} < 0 || s{axis} % (I){strides[axis]} || x{axis} >= {far}) continue;")
        else:
            lines.append(f"      const I x{axis} = y{axis} + {apart};")
            lines.append(f"      if (x{axis} < 0 || x{axis} >= {far}) continue;")
    place = "".join(f" + x{axis} * {term(x_step[2 + axis])}" for axis in range(count))
    lines.append(f"      const {c} element = hi_load(p0[image{place}]);")
    if convolution:
        tap = "".join(f" + w{axis} * {term(w_step[2 + axis])}" for axis in range(count))
        lines.append(f"      total += element * hi_load(p1[taps{tap}]);")
    elif step.op == "MaxPool":
        lines.append("      total = hi_max(total, element);")
    else:
        lines.append("      total += element; ++seen;")
    lines += ["    }" * count, "  }"]
    if step.op == "AveragePool":
        full = at.get("count_include_pad")
        counted = f"{product(kernel)}" if full else "seen"
        if full and at.get("ceil_mode"):  # what that adds is never counted
            lines.append("  I counted = 1;")
            for axis, (most, gap) in enumerate(zip(kernel, dilations, strict=True)):
                left = f"{term(image[2 + axis])} + (I){pads[count + axis]} - y{axis} + (I){gap - 1}"
                lines.append(f"  {{ const I left = ({left}) / (I){gap}; counted *= left < {most} ? left : {most}; }}")
            counted = "counted"
        lines.append(f"  total /= ({c}){counted};")
    types = [plan.values[each].dtype for each in (*step.inputs, step.outputs[0])]
    epilogue = at.get("epilogue")
    if convolution and (len(step.inputs) if epilogue is None else epilogue["first"]) > 2 and step.inputs[2]:
        lines.append("  total += hi_load(p2[channel]);")
    stored = "total"
    if epilogue is not None:
        more, stored = _behind(epilogue, types, y, c)
        lines += more
    lines += [f"  p{len(types) - 1}[v] = HiStore<{STORED[dtype]}, {c}>::of({stored});", "}"]
    parameters = declaration(types, 1, reach.numbers)
    passed = ", ".join([*(f"p{i}" for i in range(len(types))), *(f"n{i}" for i in range(len(reach.numbers)))])
    body = "\n".join(f"  {line}" for line in lines)
    text = f"template <class I> __device__ inline void {name}_body({parameters}) {{\n{body}\n}}"
    largest: Dim = 0
    for shape in shapes:
        largest = largest + product(shape or ())
    entries, points = entry_points(name, parameters, passed, indices(largest), THREADS)
    return Kernel(head(text) + "\n" + text + points + "\n", entries, types, reach.numbers, largest, 1, rows=product(y))
