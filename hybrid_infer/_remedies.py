"""What usually helps where a method cannot be replaced by a graph, and the line of the program that it is about."""

from __future__ import annotations

import re
import types
from collections.abc import Iterable

from hybrid_infer import _lines

_PASS = "Read it outside of the method and pass what was read as an argument"
_RETURN = "Return the new value and assign it outside of the method"

#: By what a reason has in it; the first that fits.
_REMEDIES: tuple[tuple[str, str], ...] = (
    (r"^it communicates with other processes", "Decorate the parts before and after it"),
    (r"draws random numbers in training mode|running statistics in training mode", "Call eval() on the layer first"),
    (r"draws random numbers", "Draw them outside of the method and pass them as an argument"),
    (r"draws from (Python|NumPy)'s random", "Draw the number outside of the method and pass it as a tensor"),
    (r"^it (reads|opens)\b", _PASS),
    (r"^it calls .* which outlasts the call", "Call it outside of the method"),
    (r"\bprints a tensor", "Print outside of the method"),
    (r"\basserts on a tensor", "Check outside of the method"),
    (r"^it writes to argument", "Return the new value instead of writing to the argument"),
    (r"^it writes|^it replaces the tensor|^it changes|^it assigns", _RETURN),
    (r"^it enters", "Enter it around the call of the method"),
    (r"^it uses a tensor that no layer", "Keep the tensor as an attribute of the layer, or pass it as an argument"),
)

_WRITTEN = re.compile(r"^it (?:changes|replaces the tensor|assigns the global) (?:\w+ )*?([\w.]+)")
#: What is read, or called, on the line in question; torch tells the lines of methods called "forward" alone.
_READ = (
    re.compile(r"^it draws from (?:Python|NumPy)'s (random)$"),
    re.compile(r"^torch\.[\w.]*?(\w+) draws random numbers$"),
    re.compile(r"^it writes to self\.(?:\w+\.)*(\w+) in place$"),
    re.compile(r"^ONNX has no form of torch's operator (?:linalg_|special_|fft_)?(\w+)$"),
)
_PLACED = re.compile(r":\d+\)$")


def remedy(reasons: Iterable[str]) -> str:
    """What usually helps against the first of some reasons for which something is known; else empty."""
    for reason in reasons:
        for pattern, found in _REMEDIES:
            if re.search(pattern, reason):
                return found
    return ""


def located(reason: str, functions: Iterable[types.FunctionType]) -> str:
    """A reason with the line, among the code of some functions, that it is about, as far as there is one."""
    if _PLACED.search(reason):
        return reason
    place, written = "", _WRITTEN.match(reason)
    if written:
        place = _lines.written(functions, written[1].rpartition(".")[2])
    for pattern in _READ:
        found = pattern.match(reason)
        if found:
            place = _lines.read(functions, found[1])
    return f"{reason} ({place})" if place else reason


def functions_of(function: object, layers: Iterable[object], library: Iterable[type]) -> list[types.FunctionType]:
    """A method's own code, then that of the methods of the user's layers; classes of a `library` are none."""
    found = [function] if isinstance(function, types.FunctionType) else []
    tops = {each.__module__.partition(".")[0] for each in library}
    for kind in dict.fromkeys(type(layer) for layer in layers):
        for base in kind.__mro__:
            if base is object or base.__module__.partition(".")[0] in tops:
                continue
            held = (getattr(v, "__wrapped__", v) for name, v in vars(base).items() if name != "__init__")
            found += [each for each in held if isinstance(each, types.FunctionType)]
    return list(dict.fromkeys(found))
