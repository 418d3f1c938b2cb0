"""``torch.linspace`` of as many numbers as a size that varies, and from or to one.

torch's function takes them for plain numbers, so that the tracer fixes the size: each was captured anew, of
``affine_grid`` as well. Where all three are plain numbers, the graph has the function's own operator.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import torch

from hybrid_infer._own_thread import replaced

_SYMBOLS = (torch.SymInt, torch.SymFloat)


@contextlib.contextmanager
def of_any_count() -> Iterator[None]:
    """While methods are traced on this thread, and their operators put in other terms."""
    from torch._decomp import decompositions  # see `_torch_groups`
    from torch._export import non_strict_utils

    with contextlib.ExitStack() as stack:
        handler = getattr(non_strict_utils, "_NonStrictTorchFunctionHandler", None)
        places = ((handler, "_override", _overridden), (decompositions, "_linspace_from_neg_one", _of_grid))
        for where, name, function in places:
            if name in getattr(where, "__dict__", ()):  # a release may do it otherwise
                stack.enter_context(replaced(where, name, function))
        yield


def _overridden(override: Any, handler: Any, function: Any, given: Any, named: Any) -> Any:
    """What torch's tracer calls in the place of a function that it was asked for.

    The function itself stays in torch's namespace: others keep tables of what they find there.
    """
    if function is torch.linspace and _varies(given, named):
        return functools.partial(_linspace, function), given, named
    return override(handler, function, given, named)


def _linspace(linspace: Any, *given: Any, **named: Any) -> Any:
    found = _spaced(*given, **named)
    return linspace(*given, **named) if found is None else found


def _of_grid(linspace: Any, steps: Any, align_corners: bool, dtype: Any, device: Any) -> Any:
    """Of `affine_grid`: from -1 to 1, the ends of the pixels or the middle of each."""
    found = None
    if isinstance(steps, torch.SymInt) and steps > 1:
        found = _spaced(-1, 1, steps, dtype=dtype, device=device)
    if found is None:
        return linspace(steps, align_corners, dtype, device)
    return found if align_corners else found * (steps - 1) / steps


def _varies(given: tuple[Any, ...], named: dict[str, Any]) -> bool:
    numbers = [*given, *(named.get(name) for name in ("start", "end", "steps"))]
    return any(isinstance(each, _SYMBOLS) for each in numbers)


def _spaced(
    start: Any, end: Any, steps: Any = None, *, dtype: Any = None, device: Any = None, layout: Any = torch.strided,
    requires_grad: bool = False, pin_memory: bool | None = False, **others: Any,
) -> Any:  # fmt: skip
    """From both ends to the middle, as torch does; None for what is left to it."""
    dtype = dtype or torch.get_default_dtype()
    plain = layout in (None, torch.strided) and not requires_grad and not pin_memory and not others
    numbers = all(isinstance(each, (int, float, *_SYMBOLS)) for each in (start, end))
    counts = isinstance(steps, (int, torch.SymInt)) and steps >= 0
    if not (plain and numbers and counts) or dtype not in (torch.float32, torch.float64):
        return None
    along = torch.arange(steps, device=device).to(dtype)
    if steps < 2:
        return along + start
    last = along[-1:]
    step = (torch.zeros_like(last) + end - start) / last
    return torch.where(along < steps // 2, start + along * step, end - (last - along) * step)
