"""What a user most likely meant by an option that there is not, or by a value that is not allowed."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

#: What precisions are called elsewhere.
_TYPES = {"fp32": "float32", "fp16": "float16", "half": "float16", "bf16": "bfloat16"}
#: What element types are called elsewhere, beside these.
_MORE_TYPES = {
    "fp64": "float64", "double": "float64", "float": "float32", "int": "int64", "long": "int64", "short": "int16",
    "byte": "uint8", "char": "int8", "boolean": "bool",
}  # fmt: skip
#: What engines are called elsewhere.
_ENGINES = {
    "onnx": "onnxruntime", "ort": "onnxruntime", "onnx-runtime": "onnxruntime", "trt": "tensorrt", "ov": "openvino",
    "cinn": "native",
}  # fmt: skip
#: What options are called elsewhere: by torch.compile, by engines, by caches.
_OPTIONS = {
    "engine": "backend", "engines": "backend", "provider": "backend", "providers": "backend", "dtype": "precision_mode",
    "cache": "cache_static_model", "cache_dir": "save_model_dir", "cache_path": "save_model_dir",
    "fullgraph": "fallback", "dynamic_shapes": "input_spec", "dynamic_axes": "input_spec",
}  # fmt: skip
#: Values of choices that are said otherwise.
_CHOICES: tuple[tuple[Any, str], ...] = ((False, "off"), ("none", "off"), ("raise", "error"))


def given(value: Any) -> str:
    """What was given, by its class."""
    kind = value if isinstance(value, type) else type(value)
    name = f"{kind.__module__}.{kind.__qualname__}"
    return "None" if value is None else f"the class {name}" if value is kind else f"an object of class {name}"


def option(name: str, known: Collection[str]) -> str:
    """What follows the error about an option that there is not."""
    found = _OPTIONS.get(name)
    near = [found] if found in known else difflib.get_close_matches(name, known, 1)
    return f"did you mean {near[0]!r}?" if near else f"its options are {', '.join(known)}"


#: How programs say a flag in words.
_SAID = {**dict.fromkeys(("true", "yes", "on", "1"), True), **dict.fromkeys(("false", "no", "off", "0", "none"), False)}


def flag(name: str, value: Any, choices: Mapping[str, Collection[str]], known: Collection[str]) -> str:
    """What follows the error about a flag that was given a string: it in words, or another option without its name."""
    if not isinstance(value, str):
        return ""
    said = _SAID.get(value.strip().lower())
    if said is not None:
        return f"; did you mean {name}={said}?"
    engine = _engine(value, known)
    near = [("backend", engine)] if engine else [(other, value) for other, each in choices.items() if value in each]
    return "".join(f"; options are given by name: did you mean {other}={found!r}?" for other, found in near[:1])


def choice(value: Any, allowed: Collection[str]) -> str:
    """What follows the error about a choice that there is not, where one comes near."""
    said = next((meant for other, meant in _CHOICES if type(other) is type(value) and other == value), "")
    plain = value.strip().lower() if isinstance(value, str) else _element_type(value)
    meant = said if said in allowed else _TYPES.get(plain, plain)
    inexact = difflib.get_close_matches(plain, allowed, 1) if isinstance(value, str) else []
    near = [meant] if meant in allowed else inexact
    return f"; did you mean {near[0]!r}?" if near else ""


def element_type(value: Any, known: Collection[str]) -> str:
    """What follows the error about an element type that there is not."""
    plain = str(value.__name__ if isinstance(value, type) else value).rpartition(".")[2].lower()
    meant = {**_TYPES, **_MORE_TYPES}.get(plain)
    near = [meant] if meant in known else difflib.get_close_matches(plain, known, 1, 0.75)
    return f"; did you mean {near[0]!r}?" if near else ""


def _element_type(value: Any) -> str:
    """The name of an element type of a framework or of NumPy, as of torch.float16; empty of other objects' names."""
    return str(value.__name__ if isinstance(value, type) else value).rpartition(".")[2]


def specs(value: Any, typed: Callable[[Any], bool]) -> str:
    """What follows the error about ``input_spec=`` where it is no list of specs; `typed` tells specs and tensors."""
    if isinstance(value, dict):
        return "; entries go by their places, not by name: give a list of them in the order of the parameters"
    if typed(value):
        return "; did you mean a list of it?"
    shapes = [value] if _shape(value) else list(value) if isinstance(value, (list, tuple)) else []
    if shapes and all(map(_shape, shapes)):
        return f"; did you mean [{', '.join(f'InputSpec({list(each)})' for each in shapes)}]?"
    return ""


def _shape(value: Any) -> bool:
    """Is it a list of sizes?"""
    sizes = value if isinstance(value, (list, tuple)) else ()
    return bool(sizes) and all(n is None or type(n) is int for n in sizes) and any(sizes)


def backend(value: Any, known: Collection[str]) -> str:
    """What follows the error about ``backend=``."""
    if value is None:
        return "; did you mean 'auto'?"
    if value == "eager":
        return "; to run eagerly, leave the decorator out or use stance('eager')"
    if isinstance(value, str) and "," in value:
        return engines([name.strip() for name in value.split(",")], known)
    return engines([value] if isinstance(value, str) else value if isinstance(value, (list, tuple)) else (), known)


def engines(names: Iterable[Any], known: Collection[str]) -> str:
    meant = [_engine(name, known) or name for name in names]
    if not meant or not all(name in known for name in meant):
        return ""
    return f"; did you mean {meant[0]!r}?" if len(meant) == 1 else f"; did you mean {meant!r}?"


def _engine(name: Any, known: Collection[str]) -> str:
    """The engine that a name most likely means; empty where none comes near."""
    if not isinstance(name, str):
        return ""
    plain = name.strip().lower()
    near = difflib.get_close_matches(plain, known, 1, 0.75)
    return _ENGINES.get(plain) or (near[0] if near else "")
