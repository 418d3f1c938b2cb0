"""Layers that torch's compilers give, and those that are a saved program.

``torch.compile(layer)`` is a layer around the program's own, whose ``forward`` calls that. What its compiler makes of
the call is none of the method's: a static graph is made of the layer inside, as it is of functions under
`torch.compile`. A copy has a ``forward`` of its own, for its own copy of what is inside. A backend that is not torch's
may compute something else than the layer inside does, and no trace sees what.

What ``torch.jit`` gives holds its weights outside of Python, where no trace can take any for inputs. What
``paddle.jit.load`` gives runs a program that was made before, into which no trace goes.
"""

from __future__ import annotations

import types
from typing import Any

_COMPILED, _SCRIPT = ("torch._dynamo.eval_frame", "OptimizedModule"), ("torch.jit._script", "ScriptModule")
_LOADED = (
    ("paddle.jit.pir_translated_layer", "PirTranslatedLayer"), ("paddle.jit.translated_layer", "TranslatedLayer"),
)  # fmt: skip
_CONTEXTS = 4  # around a backend


def is_own(layer: Any) -> bool:
    """Is what an object has as ``forward`` what torch puts there, which calls no more than the layer inside?"""
    if not _is(layer, _COMPILED) or _foreign(layer):
        return False
    inside = vars(layer).get("_modules", {}).get("_orig_mod")
    called = getattr(vars(layer).get("forward"), "_torchdynamo_orig_callable", None)
    return inside is not None and inside in (getattr(called, "__self__", None), getattr(called, "__wrapped__", None))


def by_another_backend(layer: Any, where: str) -> str:
    """Why a layer that is held `where` keeps a method from being served, if it is compiled by no backend of torch's."""
    backend = _foreign(layer) if _is(layer, _COMPILED) else ""
    return f"{where} is compiled by {backend}, no backend of PyTorch's, and may compute otherwise" if backend else ""


def _foreign(layer: Any) -> str:
    """The name of what compiles a layer, where that is none of torch's own backends."""
    compiles = getattr(vars(layer).get("dynamo_ctx"), "callback", None)
    for _ in range(_CONTEXTS):
        compiles = getattr(compiles, "_torchdynamo_orig_backend", compiles)
    compiles = getattr(compiles, "compiler_fn", compiles)
    if isinstance(compiles, (bool, types.NoneType)):  # of torch.compiler.disable
        return ""
    module = getattr(compiles, "__module__", None) or type(compiles).__module__
    if module.partition(".")[0] == "torch":
        return ""
    return str(getattr(compiles, "__qualname__", type(compiles).__qualname__))


def out_of_sight(layer: Any, where: str) -> str:
    """Why a layer that is held `where` keeps a method from being served, if it is a program made before."""
    if any(_is(layer, kind) for kind in _LOADED):
        return f"{where} is a program that paddle.jit.load() gives ({type(layer).__name__}), into which no trace goes"
    if not _is(layer, _SCRIPT):
        return ""
    return f"{where} is a module of TorchScript ({type(layer).__name__}), which holds its weights outside of Python"


def _is(layer: Any, kind: tuple[str, str]) -> bool:
    return any((base.__module__, base.__name__) == kind for base in type(layer).__mro__)
