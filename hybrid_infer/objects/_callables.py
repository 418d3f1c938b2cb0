"""What can be called, and is neither a function written in Python nor a layer: what to decorate in its place."""

from __future__ import annotations

import functools
import sys
import types
from typing import Any

#: By the module of the class: who made a layer, its forward or a function of another one.
_MAKERS = {
    "torch._dynamo.eval_frame": "torch.compile", "torch.jit._script": "torch.jit.script",
    "torch.jit._trace": "torch.jit.trace", "torch.jit": "torch.jit.script",
    "paddle.jit.dy2static.program_translator": "paddle.jit.to_static",
}  # fmt: skip
#: Functions and methods without source.
_IN_C = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.MethodWrapperType)


def made_by(target: Any) -> str:
    """The compiler of a framework that made an object of another one; empty if none did.

    Of a function, ``torch.compile`` makes one of its own module, as ``torch.compiler.disable`` does.
    """
    function = getattr(target, "__func__", target)
    if isinstance(function, types.FunctionType):
        maker = _MAKERS.get(function.__globals__.get("__name__", ""), "")
        return "" if getattr(function, "_torchdynamo_disable", False) else maker
    if type(target).__name__ == "ScriptMethod":  # whose module is torch itself
        return "torch.jit.script"
    found = (_MAKERS.get(kind.__module__) for kind in type(target).__mro__)
    return next(filter(None, found), "")


def as_method(forward: Any, layer: Any) -> types.MethodType | None:
    """The method of a layer that its ``forward`` is under another form; None where it is none.

    accelerate puts its hooks around a layer as ``functools.partial(function, layer)``.
    """
    if not isinstance(forward, functools.partial) or not isinstance(forward.func, types.FunctionType):
        return None
    own = len(forward.args) == 1 and forward.args[0] is layer and not forward.keywords
    return types.MethodType(forward.func, layer) if own else None


def remedy(target: Any) -> str:
    """What follows the error about an object that is neither a function nor a layer; empty where nothing helps."""
    maker = made_by(target)
    if maker:
        return f". It is what {maker} made of a function: give it the function itself"
    if isinstance(target, functools.partial):
        return f". Write the call out in a function: `def f(x): return {_spelled(target.func)}(..., x)`"
    if isinstance(target, functools.partialmethod):
        return ". Write it out as a method of the class, which calls the other one"
    if type(target).__name__ == "ExportedProgram":  # which is called by none of the names that its class has
        return ". A layer is what its module() gives"
    inner = getattr(target, "__wrapped__", None)
    if isinstance(inner, types.FunctionType):  # as of functools.cache
        name = inner.__qualname__
        return f". Give it the function that it is around ({name}): the decorator belongs below, not above it"
    if callable(target) and (isinstance(target, _IN_C) or not _in_python(target)):
        return f". Call it in a function of your own: `def f(x): return {_spelled(target)}(x)`"
    if callable(target):
        return ". Decorate the `__call__` of its class, or give it that method: `inference(it.__call__)`"
    return ""


def _in_python(target: Any) -> bool:
    """Is what a call of an object runs a function of the program's own?"""
    call = next((vars(kind)["__call__"] for kind in type(target).__mro__ if "__call__" in vars(kind)), None)
    theirs = ("torch", "paddle", "numpy")
    return isinstance(call, types.FunctionType) and call.__module__.partition(".")[0] not in theirs


def _spelled(function: Any) -> str:
    """How a program is likely to call a function."""
    name = str(getattr(function, "__name__", "") or "it")
    for module in ("torch", "torch.nn.functional", "paddle", "paddle.nn.functional"):
        if getattr(sys.modules.get(module), name, None) is function:
            return f"{module}.{name}"
    return name if name.isidentifier() else "it"
