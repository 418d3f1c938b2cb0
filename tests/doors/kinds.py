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

#: What has no fingerprint, or no copy: it keeps whatever uses it off the disk.
OPAQUE = ("memoryview", "tensor_slots", "proxy", "values", "weak_values", "queue")
#: What is never captured: variables of a thread's own; attributes of a function, which Paddle's tracer loses.
EAGER = {"torch": ("local",), "paddle": ("local", "function")}
