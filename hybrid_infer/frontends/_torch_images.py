"""Pools and resampling with arguments that the exporter's forms of them leave out."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from hybrid_infer._errors import TraceError
from hybrid_infer.frontends._nearest import doubled
from hybrid_infer.frontends._torch_quotients import few_digits


def decompositions() -> dict[Any, Callable[..., Any]]:
    """By operator; what returns NotImplemented leaves the exporter's form in its place."""
    aten = torch.ops.aten
    return {
        aten.avg_pool2d.default: functools.partial(_divided, 2, aten.avg_pool2d.default),
        aten.avg_pool3d.default: functools.partial(_divided, 3, aten.avg_pool3d.default),
        aten._upsample_bilinear2d_aa.default: _smoothed,
        aten._upsample_bicubic2d_aa.default: _smoothed,
        aten.upsample_linear1d.vec: _scaled_along,
        **{kind.vec: functools.partial(_between, kind.default, mode) for kind, mode in _between_pixels().items()},
        aten.upsample_nearest1d.default: functools.partial(_nearest, 0.0),
        aten.upsample_nearest2d.default: functools.partial(_nearest, 0.0),
        aten.upsample_nearest3d.default: functools.partial(_nearest, 0.0),
        aten.upsample_nearest1d.vec: functools.partial(_nearest_by, 0.0),
        aten.upsample_nearest2d.vec: functools.partial(_nearest_by, 0.0),
        aten.upsample_nearest3d.vec: functools.partial(_nearest_by, 0.0),
        aten._upsample_nearest_exact1d.default: functools.partial(_nearest, 0.5),
        aten._upsample_nearest_exact1d.vec: functools.partial(_nearest_by, 0.5),
        aten._upsample_nearest_exact2d.default: functools.partial(_nearest, 0.5),
        aten._upsample_nearest_exact2d.vec: functools.partial(_nearest_by, 0.5),
        aten._upsample_nearest_exact3d.default: functools.partial(_nearest, 0.5),
        aten._upsample_nearest_exact3d.vec: functools.partial(_nearest_by, 0.5),
    }


def translations() -> dict[Any, Callable[..., Any]]:
    """For ``torch.onnx.export(custom_translation_table=...)``."""
    return {kind.default: functools.partial(_resized, mode) for kind, mode in _between_pixels().items()}


def _between_pixels() -> dict[Any, str]:
    """Lines are left to torch's own steps, whose sizes are Python's: long ones need all digits of these."""
    aten = torch.ops.aten
    return {
        aten.upsample_bilinear2d: "linear", aten.upsample_trilinear3d: "linear", aten.upsample_bicubic2d: "cubic",
    }  # fmt: skip


def refuse_bytes(program: Any) -> None:
    """Between pixels that are bytes torch reckons with weights that it rounds, and its kernels differ in that."""
    aten = torch.ops.aten
    smoothed = (aten._upsample_bilinear2d_aa, aten._upsample_bicubic2d_aa)
    kinds = (aten.upsample_bilinear2d, aten.upsample_bicubic2d, *smoothed)
    graphs = (each.graph for each in program.graph_module.modules() if isinstance(each, torch.fx.GraphModule))
    for node in (node for graph in graphs for node in graph.nodes if node.op == "call_function"):
        if getattr(node.target, "overloadpacket", None) in kinds and node.args[0].meta["val"].dtype is torch.uint8:
            raise TraceError("torch's interpolate of uint8 rounds as no engine does", "Make float32 of the image first")


def _divided(
    axes: int, pool: Callable[..., Any], x: Any, kernel_size: Sequence[int], stride: Sequence[int] = (),
    padding: Sequence[int] = (0,), ceil_mode: bool = False, count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:  # fmt: skip
    """The sum of each window over a number that is given: as means of windows that are whole."""
    if divisor_override is None:
        return NotImplemented
    kernel, step, pad = (_each(given, axes) for given in (kernel_size, stride or kernel_size, padding))
    around: list[int] = []
    for size, width, by, before in zip(x.shape[-axes:], kernel, step, pad, strict=True):
        behind = before
        if ceil_mode:
            if not isinstance(size, int):
                raise TraceError("the last window of a pool with a divisor and ceil_mode depends on a size that varies")
            windows = -(-(size + 2 * before - width) // by) + 1
            windows -= (windows - 1) * by >= size + before  # one that begins in the padding behind
            behind = max((windows - 1) * by + width - size - before, 0)
        around = [before, behind, *around]
    whole = torch.nn.functional.pad(x, around) if any(around) else x
    return pool(whole, kernel, step) * (math.prod(kernel) / divisor_override)


def _each(given: Sequence[int], axes: int) -> list[int]:
    return [*given] * axes if len(given) == 1 else [*given]


def _smoothed(x: Any, size: Any, align_corners: bool, *scales: float | None) -> Any:
    """With the corners in place, torch takes other pixels together than ONNX does; and it goes by a scale it is given.

    ONNX goes by the sizes, of which that of the result is rounded.
    """
    if align_corners:
        raise TraceError("ONNX has no form of torch's interpolate with antialias and align_corners")
    for before, after, scale in zip(x.shape[-2:], size, scales, strict=False):
        exact = scale is None or float(scale).is_integer() or (isinstance(before, int) and before * scale == after)
        if not exact:
            raise TraceError("ONNX has no form of torch's interpolate with antialias and a scale that is rounded")
    return NotImplemented


def _between(
    plain: Callable[..., Any], mode: str, x: Any, size: Sequence[Any] | None, align_corners: bool,
    scales: Sequence[float] | None,
) -> Any:  # fmt: skip
    """To the size that Python makes of a scale: of 1.3 times 90, ONNX makes 116, in float32.

    Of a side that a scale is rounded to no pixel more of, torch finds none between pixels, and a cubic all the same.
    ONNX finds some in each, and engines as they please: a cubic has such a side longer, and the rest is cut off again.
    """
    size = _scaled(x, scales or ()) if size is None else size
    if scales is None or align_corners:
        return plain(x, size, align_corners, *scales or (None for _ in size))
    kept = [_kept(*each) for each in zip(x.shape[2:], scales, strict=True)]
    sides = list(zip(kept, scales, strict=True))
    if mode == "linear":
        return plain(x, size, align_corners, *(1.0 if same else by for same, by in sides))
    behind = [_grows_at(by) if same else 0 for same, by in sides]
    if not any(kept):
        return plain(x, size, align_corners, *scales)
    whole = torch.nn.functional.pad(x, [each for more in reversed(behind) for each in (0, more)], mode="replicate")
    found = plain(whole, _scaled(whole, scales), align_corners, *scales)
    for axis, same in enumerate(kept, start=2):
        found = found.narrow(axis, 0, x.shape[axis]) if same else found
    return found


def _scaled_along(
    x: Any, size: Sequence[Any] | None, align_corners: bool, scales: Sequence[float] | None
) -> Any:  # fmt: skip
    """torch's own form of it finds some between pixels, too."""
    if scales is not None and not align_corners and _kept(x.shape[2], scales[0]):
        return x.clone()
    scale = scales[0] if scales else None
    whole = size if scales is None else _scaled(x, scales)
    form = torch._decomp.decomposition_table[torch.ops.aten.upsample_linear1d.default]
    return form(x, whole, align_corners, scale)


def _kept(size: Any, scale: float) -> bool:
    """Where it is asked for, it is a condition on a size that varies. From 1.5 on it matters to single pixels alone."""
    return 1 < scale < 1.5 and bool(size < _grows_at(scale))


def _grows_at(scale: float) -> int:
    """The least size of which a scale above 1 makes another."""
    size = max(1, math.floor(1 / (scale - 1)) - 1)
    while int(size * scale) == size:
        size += 1
    return size


def _resized(mode: str, x: Any, size: Sequence[Any], align_corners: bool, *scales: float | None) -> Any:
    """By a scale that is given, one row and column more than there are, all of which are those at the edge.

    So there are enough of them to cut the result to its size, which is not the one that ONNX makes of the scale.
    """
    from onnxscript import opset20 as op

    form = {"mode": mode, "cubic_coeff_a": -0.75}
    lengths = [op.Constant(value_ints=[n]) if isinstance(n, int) else op.Reshape(n, [1]) for n in size]
    ends = op.Concat(*lengths, axis=0)
    if align_corners or None in scales or len(scales) < len(lengths):
        whole = op.Concat(op.Shape(x, end=2, start=0), ends, axis=0)
        how = "align_corners" if align_corners else "half_pixel"
        return op.Resize(x, None, None, whole, coordinate_transformation_mode=how, **form)
    more, axes = x, len(lengths)
    exact = all(scale is not None and few_digits(scale) for scale in scales)
    if not exact:
        more = op.Pad(x, op.Constant(value_ints=[0] * (axes + 4) + [1] * axes), None, None, mode="edge")
    factors = op.Constant(value_floats=[1.0, 1.0, *scales])
    found = op.Resize(more, None, factors, None, coordinate_transformation_mode="half_pixel", **form)
    if exact:
        return found
    first, behind = (op.Constant(value_ints=each) for each in ([0] * axes, [*range(2, 2 + axes)]))
    return op.Slice(found, first, ends, behind)


def _nearest(offset: float, x: Any, size: Sequence[Any], *scales: float | None) -> Any:
    """Of each element its place in `x`, as torch computes it: where engines round otherwise, they take the one before.

    Doubled and redoubled, there is nothing to round.
    """
    first, given = x.dim() - len(size), scales or (None,) * len(size)
    sizes = list(zip(x.shape[first:], size, given, strict=True))
    accurate = torch.float64 if x.dtype is torch.float64 else torch.float32
    if all(doubled(*each) for each in sizes):
        if offset == 0 and accurate is torch.float32:
            return NotImplemented
    elif accurate is torch.float64 and len(size) > 1:  # some kernels reckon in float32, by the sizes and the layout
        raise TraceError("torch's nearest interpolate of float64 images rounds by their layout", "Make float32 of them")
    twice = _rounded_twice(x, size) if offset else None
    for axis, (before, after, scale) in enumerate(sizes, start=first):
        one = torch.ones(1, dtype=accurate, device=x.device)
        step = one * before / after
        if scale is not None:
            by_scale = one * (1 / scale)
            # For the CPU torch takes a scale for 1 or 2 where the sizes are rounded to that.
            rounded = (step == 1) | (step == 0.5)
            step = torch.where(rounded, step, by_scale) if offset == 0 and x.device.type == "cpu" else by_scale
        middles = torch.arange(after, dtype=accurate, device=x.device) + offset
        places = (middles * step).float()
        if twice is not None and accurate is torch.float32:
            again = (middles.double() * step.double() - 0.5).float() + 0.5
            places = torch.where(twice, again, places)
        x = x.index_select(axis, places.to(torch.int64).clamp(max=before - 1))
    return x


def _rounded_twice(x: Any, size: Sequence[Any]) -> Any:
    """Whether torch takes half a pixel off, of a product not rounded, and adds it again: most kernels of the CPU do.

    Those do not that take the channels last, and those for small images. A tensor, as sizes may vary, or None.
    """
    channels, behind = x.shape[1], x.stride(1)
    last = type(channels) is int and channels > 3 and type(behind) is int and behind == 1 and len(size) > 1
    if x.device.type != "cpu" or last:
        return None
    far = torch.ones(1, device=x.device) * (sum(size) if len(size) == 2 else math.inf)
    return far > 128


def _nearest_by(offset: float, x: Any, size: Sequence[Any] | None, scales: Sequence[float] | None) -> Any:
    if size is None and scales is not None:
        size = _scaled(x, scales)
    return _nearest(offset, x, size or (), *scales or ())


def _scaled(x: Any, scales: Sequence[float]) -> list[Any]:
    """Of a side of which nothing is left, torch's kernels raise, and not its tracer."""
    if any(before < math.ceil(1 / scale) for before, scale in zip(x.shape[2:], scales, strict=True) if 0 < scale < 1):
        raise TraceError("an image or line is scaled to nothing, which torch refuses")
    whole = [int(scale) if float(scale).is_integer() else scale for scale in scales]
    return [torch.sym_int(before * scale) for before, scale in zip(x.shape[2:], whole, strict=True)]
