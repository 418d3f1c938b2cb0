"""All kinds of values, by name."""

from __future__ import annotations

from doors import callables, containers, objects, tensors, values

KINDS = {
    kind.name: kind
    for module in (values, containers, objects, tensors, callables)
    for kind in module.KINDS
}  # fmt: skip

#: Functions, which in the body of a class would become methods of it.
FUNCTIONS = frozenset({"function", "function_code", "lambda", "closure", "remembered"})
