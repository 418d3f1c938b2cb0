"""The line of the program that a reason is about, where whoever found the reason did not know it."""

from __future__ import annotations

import re
import types
from collections.abc import Iterable

from hybrid_infer.fingerprint import _lines

_WRITTEN = re.compile(r"^it (?:changes|replaces the (?:tensor|tuple)|assigns the global) (?:\w+ )*?([\w.]+)")
#: What is read, or called, on the line in question; torch tells the lines of methods called "forward" alone.
_READ = (
    re.compile(r"^it draws from (?:Python|NumPy)'s (random)$"),
    re.compile(r"^torch\.[\w.]*?(\w+) draws random numbers$"),
    re.compile(r"^it reads the attribute (\w+) of "),
    re.compile(r"^it writes to self\.(?:\w+\.)*(\w+) in place$"),
    re.compile(r"^ONNX has no form of torch's operator (?:linalg_|special_|fft_)?(\w+)$"),
)
_PLACED = re.compile(r":\d+\)$")


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
