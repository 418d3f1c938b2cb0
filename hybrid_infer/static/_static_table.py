"""What ``print()`` shows of a static model."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hybrid_infer import _served_sizes
from hybrid_infer._spec import InputSpec
from hybrid_infer.static._model import Model

_OPERATORS = 8  # that are shown of a method


def table(model: Model, specs: Mapping[str, tuple[tuple[Any, ...], Any]]) -> str:
    """Inputs, outputs, operators by count, weights and bytes, as aligned columns."""
    rows: list[Sequence[str]] = []
    for name, (inputs, results) in specs.items():
        method = model.methods[name]
        rows.append((f"method {name}", ""))
        names = [each.name for each in method.parameters]
        wide = max((saved.version for saved in method.versions), key=lambda version: version.width)
        limits, number = _served_sizes.limits([saved.version for saved in method.versions], wide.tree), 0
        for place, spec in leaves(dict(zip(names, inputs, strict=True)), ""):
            if spec is not None:  # an argument that was left out
                rows.append(("  input", place, *_shown(spec)))
            if isinstance(spec, InputSpec):
                rows += [("  ", f"  axis {axis}: {limit.text}") for (i, axis), limit in limits.items() if i == number]
                number += 1
        for place, spec in leaves(results, "") if not isinstance(results, InputSpec) else [("result", results)]:
            if spec is not None:
                rows.append(("  output", place, *_shown(spec)))
        counts = max(method.versions, key=lambda saved: saved.version.width).operators
        most = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        shown = [f"{operator} {count}" for operator, count in most[:_OPERATORS]]
        more = [f"{len(most) - _OPERATORS} more"] if len(most) > _OPERATORS else []
        rows.append(("  operators", str(sum(counts.values())), ", ".join(shown + more)))
        if len(method.versions) > 1:
            rows.append(("  versions", str(len(method.versions))))
    values = sum(math.prod(array.shape) for _, array in model.tensors.values())
    size = sum(array.nbytes for _, array in model.tensors.values())
    rows.append(("weights", str(len(model.tensors)), f"{values:,} values", f"{size:,} bytes"))
    widths = [0] * 4
    for row in rows:
        if len(row) > 2:
            for n, cell in enumerate(row[:-1]):
                widths[n] = max(widths[n], len(cell))
    lines = ["  ".join(cell.ljust(widths[n]) for n, cell in enumerate(row)).rstrip() for row in rows]
    return "\n".join([f"StaticLayer of {model.path}" if model.path else "StaticLayer", *lines])


def _shown(spec: Any) -> tuple[str, ...]:
    if isinstance(spec, InputSpec):
        return spec.dtype, f"({', '.join('any' if n == -1 else str(n) for n in spec.shape)})"
    return "constant", repr(spec)


def leaves(value: Any, place: str) -> Iterator[tuple[str, Any]]:
    """What is in nested containers, each with its place in words."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, f"{place}.{key}" if place else str(key))
    elif isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        for i, item in enumerate(value):
            yield from leaves(item, f"{place}[{i}]")
    elif isinstance(value, tuple):
        for key, item in zip(value._fields, value, strict=True):  # type: ignore[attr-defined]
            yield from leaves(item, f"{place}.{key}" if place else key)
    elif hasattr(value, "__dataclass_fields__"):
        for key in value.__dataclass_fields__:
            yield from leaves(getattr(value, key), f"{place}.{key}" if place else key)
    else:
        yield place, value
