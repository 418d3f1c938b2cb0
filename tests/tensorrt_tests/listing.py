"""What TensorRT's bindings offer, as JSON: run by a Python that has them, with the names that are asked for on stdin.

Reads ``{"<class>": ["<attribute>", ...]}``; writes for each class its bases, members, properties, and methods with all
their signatures, and beside these the names of all attributes of all classes. Uses nothing but the bindings.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from typing import Any


def split(text: str) -> list[str]:
    """At the commas outside of brackets."""
    found, depth, last = [], 0, 0
    for i, letter in enumerate(text):
        depth += (letter in "([<") - (letter in ")]>" and text[i - 1 : i + 1] != "->")
        if letter == "," and not depth:
            found.append(text[last:i])
            last = i + 1
    return [part.strip() for part in [*found, text[last:]] if part.strip()]


def signatures(name: str, doc: str) -> list[dict[str, Any]]:
    """The overloads that a method's docstring lists, without ``self``."""
    found = []
    for line in doc.splitlines():
        match = re.fullmatch(rf"(?:\d+\. )?{re.escape(name)}\((self: .*)\) -> (.*)", line.strip())
        if match is None:
            continue
        arguments = [
            {"name": re.split(r"[:=]", part)[0].strip(), "optional": " = " in part} for part in split(match[1])[1:]
        ]
        found.append({"arguments": arguments, "returns": match[2].rpartition(".")[2]})
    return found


def documented(doc: str) -> dict[str, list[str]]:
    """The methods that a class's docstring shows in an example of a subclass, with their parameters."""
    return {
        match[1]: [part.partition(":")[0] for part in split(match[2])][1:]
        for match in re.finditer(r"def (\w+)\(([^)]*)\)", doc)
        if match[1] != "__init__"
    }


def describe(kind: Any, names: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "bases": [base.__name__ for base in kind.__mro__[1:-1] if base.__name__ != "pybind11_object"],
        "members": {}, "properties": {}, "methods": {}, "classes": [], "missing": [],
        "documented": documented(kind.__doc__ or ""),
    }  # fmt: skip
    members = getattr(kind, "__members__", {})
    for name in names:
        value = inspect.getattr_static(kind, name, None)
        if name in members:
            found["members"][name] = int(members[name])
        elif value is None:
            found["missing"].append(name)
        elif isinstance(value, property):
            found["properties"][name] = value.fset is not None
        elif inspect.isclass(value):
            found["classes"].append(name)
        else:
            found["methods"][name] = signatures(name, value.__doc__ or "")
    return found


def subclassed(kind: Any) -> bool:
    """Can a class of Python's be made of it, as the engine does?"""

    class Ours(kind):  # type: ignore[misc]
        def __init__(self) -> None:
            kind.__init__(self)

    return isinstance(Ours(), kind)


def main() -> None:
    import tensorrt_bindings as trt

    asked: dict[str, list[str]] = json.load(sys.stdin)
    classes = {name: value for name, value in vars(trt).items() if inspect.isclass(value)}
    found: dict[str, Any] = {"version": trt.__version__, "classes": {}, "missing": [], "subclassed": {}}
    for name, names in asked.items():
        if name not in classes:
            found["missing"].append(name)
            continue
        found["classes"][name] = describe(classes[name], names)
        if "__init__" in names and name.startswith("I"):
            found["subclassed"][name] = subclassed(classes[name])
    found["names"] = sorted({n for kind in classes.values() for n in dir(kind) if not n.startswith("__")})
    json.dump(found, sys.stdout)


main()
