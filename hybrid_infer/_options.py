"""What a user may ask for, checked once; the only reader of the environment."""

from __future__ import annotations

import contextlib
import enum
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from hybrid_infer._errors import OptionError
from hybrid_infer._log import LOGGER as _log

_PREFIX = "HYBRID_INFER_"

BACKENDS = ("onnxruntime", "openvino", "native", "tensorrt")
#: Taken as well, and offered to nobody: what computes nothing.
_INTERNAL = ("null",)
PRECISIONS = ("float32", "float16", "bfloat16")
STANCES = ("default", "eager", "background", "fail_on_compile")

#: What precisions are called elsewhere.
_TYPES = {"fp32": "float32", "fp16": "float16", "half": "float16", "bf16": "bfloat16"}
#: What engines are called elsewhere.
_ALIASES = {
    "onnx": "onnxruntime", "ort": "onnxruntime", "onnx-runtime": "onnxruntime", "trt": "tensorrt", "ov": "openvino",
    "cinn": "native",
}  # fmt: skip

_CHOICES: dict[str, tuple[Any, ...]] = {
    "precision_mode": PRECISIONS,
    "trt_precision_mode": PRECISIONS,
    "weights": ("auto", "bound", "live"),
    "fallback": ("eager", "error"),
    "verify": ("build", "first", "always", "off"),
}
_FLAGS = (
    "cache_static_model", "switch_ir_optim", "switch_ir_debug", "enable_cinn", "with_trt", "trt_use_static",
    "collect_shape", "enable_new_ir", "exp_enable_use_cutlass", "skip_prune_program", "background", "core_handover",
)  # fmt: skip


@dataclass(frozen=True)
class Options:
    """The options of ``inference()``; see there for their meaning."""

    cache_static_model: bool = True
    save_model_dir: str | None = None
    memory_pool_init_size_mb: int = 1000
    precision_mode: str = "float32"
    switch_ir_optim: bool = True
    switch_ir_debug: bool = False
    enable_cinn: bool = False
    with_trt: bool = False
    trt_precision_mode: str = "float32"
    trt_use_static: bool = False
    collect_shape: bool = False
    enable_new_ir: bool = False
    exp_enable_use_cutlass: bool = False
    delete_pass_lists: tuple[str, ...] = ()
    skip_prune_program: bool = False
    backend: tuple[str, ...] = ()
    device: str | None = None
    input_spec: tuple[Any, ...] | None = None
    weights: str = "auto"
    fallback: str = "eager"
    verify: str = "build"
    rtol: float | None = None
    atol: float | None = None
    background: bool = False
    core_handover: bool = True
    max_versions: int = 8
    cache_key: str | None = None


def check_names(given: Iterable[str], known: Collection[str] = (), function: str = "inference()") -> None:
    """Raise TypeError for an option that there is not, with the nearest that there is, which Python would not name.

    `known`: the options of `function`; those of ``inference()`` where it is empty.
    """
    known = known or sorted(f.name for f in fields(Options))
    for name in given:
        if name not in known:
            import difflib

            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"its options are {', '.join(known)}"
            raise TypeError(f"{function} has no option {name!r}; {hint}")


def make(given: dict[str, Any]) -> Options:
    """Options from the keyword arguments of ``inference()``. Raises OptionError, or TypeError for an unknown name."""
    check_names(given)
    values = dict(given)
    for name, allowed in _CHOICES.items():
        if name in values and values[name] not in allowed:
            listed = ", ".join(map(repr, allowed))
            raise OptionError(name, values[name], f"one of {listed}{_near(values[name], allowed)}")
    for name in _FLAGS:
        if name in values and not isinstance(values[name], bool):
            raise OptionError(name, values[name], "True or False" + _meant(values[name]))
    _check_path(values)
    for name in ("rtol", "atol"):
        number = values.get(name)
        if number is not None and not (isinstance(number, (int, float)) and number >= 0):
            raise OptionError(name, number, "None or a number not below 0")
    for name, least in (("memory_pool_init_size_mb", 0), ("max_versions", 1)):
        number = values.get(name, least)
        if not isinstance(number, int) or isinstance(number, bool) or number < least:
            raise OptionError(name, number, f"an integer not below {least}")
    if values.get("cache_key") is not None and not isinstance(values["cache_key"], str):
        raise OptionError("cache_key", values["cache_key"], "None or a string")
    values["device"] = _device(values.get("device"))
    values["delete_pass_lists"] = _names("delete_pass_lists", values.get("delete_pass_lists"))
    values["backend"] = _backend(values.get("backend", "auto"))
    asked = os.environ.get("HYBRID_INFER_STANCE", "")
    if asked and asked not in STANCES:
        raise OptionError("HYBRID_INFER_STANCE", asked, f"one of {', '.join(map(repr, STANCES))}")
    if values.get("input_spec") is not None:
        values["input_spec"] = _specs(values["input_spec"])
    options = Options(**values)
    _announce(options)
    return options


_DEVICE = r"cpu|(gpu|cuda)(:[0-9]+)?"


def _device(value: Any) -> str | None:
    """The name of a device, or of the object that a framework has for it, which reads as it or as ``Place(it)``."""
    if value is None:
        return None
    foreign = type(value).__module__.partition(".")[0] in ("torch", "paddle")
    name = str(value).removeprefix("Place(").removesuffix(")") if foreign else value
    if not isinstance(name, str) or not re.fullmatch(_DEVICE, name):
        allowed = "None, 'cpu', 'gpu', 'gpu:<index>', 'cuda', 'cuda:<index>', or such a device of torch or Paddle"
        raise OptionError("device", value, allowed)
    return name


def _specs(value: Any) -> tuple[Any, ...]:
    """Specs, nested in lists and dicts and beside plain values; one at least. An example tensor fixes its sizes."""
    allowed = "None or a list of InputSpec or example tensors, which plain values and nested lists and dicts may join"
    found, queue = 0, [value]
    while queue:
        each = queue.pop()
        if isinstance(each, enum.Enum):
            continue
        if isinstance(each, (list, tuple)):
            queue.extend(each)
        elif isinstance(each, dict) and each is not value:
            queue.extend(each.values())
        elif hasattr(each, "shape") and hasattr(each, "dtype") and each is not value:
            found += 1
        elif each is value or not (each is None or isinstance(each, (bool, int, float, complex, str, bytes))):
            raise OptionError("input_spec", value, allowed)
    if not found:
        raise OptionError("input_spec", value, allowed)
    return tuple(map(_described, value))


def _described(value: Any) -> Any:
    """A spec for each tensor: options are compared with each other, and tensors have no truth value."""
    from hybrid_infer._spec import InputSpec

    if isinstance(value, enum.Enum):
        return value
    if isinstance(value, (list, tuple)):
        return type(value)(map(_described, value))
    if isinstance(value, dict):
        return {key: _described(item) for key, item in value.items()}
    tensor = hasattr(value, "shape") and hasattr(value, "dtype") and not isinstance(value, InputSpec)
    return InputSpec.from_tensor(value) if tensor else value


def _meant(value: Any) -> str:
    """What follows the error about a flag that was given a string: most often an option without its name."""
    if not isinstance(value, str):
        return ""
    engine = _engine_like(value)
    allowed = {"precision_mode": PRECISIONS, **{name: _CHOICES[name] for name in ("weights", "fallback", "verify")}}
    near = [("backend", engine)] if engine else [(name, value) for name, values in allowed.items() if value in values]
    return "; options are given by name" + "".join(f": did you mean {name}={found!r}?" for name, found in near[:1])


def _is_engine(name: Any) -> bool:
    return name in BACKENDS or name in _INTERNAL


def _engine_like(name: Any) -> str:
    """The engine that a name most likely means; empty where none comes near."""
    if not isinstance(name, str):
        return ""
    import difflib

    plain = name.strip().lower()
    near = difflib.get_close_matches(plain, BACKENDS, 1, 0.75)
    return _ALIASES.get(plain) or (near[0] if near else "")


def _near(value: Any, allowed: Collection[str]) -> str:
    """What follows the error about a choice that there is not, where one comes near."""
    import difflib

    plain = value.strip().lower() if isinstance(value, str) else ""
    meant = _TYPES.get(plain, plain)
    near = [meant] if meant in allowed else difflib.get_close_matches(plain, allowed, 1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _did_you_mean(names: Iterable[Any]) -> str:
    meant = [_engine_like(name) or name for name in names]
    if not meant or not all(name in BACKENDS for name in meant):
        return ""
    return f"; did you mean {meant[0]!r}?" if len(meant) == 1 else f"; did you mean {meant!r}?"


def _check_path(values: dict[str, Any]) -> None:
    path = values.get("save_model_dir")
    if path is None:
        return
    text = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
    if not isinstance(text, str) or not text or "\0" in text:
        raise OptionError("save_model_dir", path, "None or the path of a directory")
    values["save_model_dir"] = os.path.expanduser(text)


def _names(name: str, value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, (list, tuple)) or not all(isinstance(v, str) for v in value):
        raise OptionError(name, value, "None or a list of names")
    return tuple(value)


def _backend(value: Any) -> tuple[str, ...]:
    """Names of engines in the order to try them; empty: the library chooses."""
    if value == "auto":
        asked = os.environ.get("HYBRID_INFER_BACKEND") or "auto"
        if asked == "auto":
            return ()
        value = [name.strip() for name in asked.split(",")]
        if not all(map(_is_engine, value)):
            raise OptionError("HYBRID_INFER_BACKEND", asked, f"'auto', or one or several of {', '.join(BACKENDS)}, "
                              f"separated by commas{_did_you_mean(value)}")  # fmt: skip
    names: Sequence[Any] = [value] if isinstance(value, str) else value
    if not isinstance(names, (list, tuple)) or not names or not all(map(_is_engine, names)):
        allowed = f"'auto', or one or a list of {', '.join(map(repr, BACKENDS))}"
        raise OptionError("backend", value, allowed + _did_you_mean(names if isinstance(names, (list, tuple)) else ()))
    return tuple(names)


def _absent(names: Sequence[str]) -> list[str]:
    """Those engines among `names` that this version does not have."""
    if not names:
        return []
    from hybrid_infer.backends import BY_NAME, ENGINES

    return [name for name in names if name not in (*ENGINES, *BY_NAME)]


_LATER = {
    "enable_new_ir": (False, "internal to Paddle"),
    "exp_enable_use_cutlass": (False, "internal to Paddle"),
}

def _announce(options: Options) -> None:
    """One INFO line that lists the options that were asked for and have no effect in this version."""
    found = []
    for name, (default, text) in _LATER.items():
        if getattr(options, name) != default:
            found.append(f"{_shown(name, getattr(options, name))} ({text})")
    if options.device not in (None, "cpu") and not options.with_trt:
        found.append(f"device={options.device!r} (a method computes where the tensors of its call are)")
    for name, usual in (("collect_shape", False), ("trt_precision_mode", "float32"), ("trt_use_static", False)):
        if getattr(options, name) != usual and not options.with_trt and "tensorrt" not in options.backend:
            found.append(f"{_shown(name, getattr(options, name))} (for with_trt=True)")
    absent = _absent(options.backend)
    if absent:
        found.append(f"backend={', '.join(map(repr, absent))} (not there yet; the next engine is used)")
    from hybrid_infer.passes import NAMES

    unknown = [name for name in options.delete_pass_lists if name not in NAMES]
    if unknown:
        found.append(
            f"delete_pass_lists (it names passes that this library does not have: {', '.join(unknown)}; "
            f"those that it has: {', '.join(NAMES)})"
        )
    if found:
        _log.info("these options of inference() have no effect in this version: %s", ", ".join(found))


def _shown(name: str, value: Any) -> str:
    return f"{name}={value!r}" if isinstance(value, (bool, str)) else name


def _environment() -> tuple[Callable[[Any], Any], Callable[[str], Any]]:
    """A look-up in the table behind ``os.environ``, and the form of its keys and values.

    It takes 30 ns, where ``os.environ.get`` takes 700: this one is made at every call.
    """
    table = getattr(os.environ, "_data", None)
    if not isinstance(table, dict):
        return os.environ.get, str
    return table.get, os.fsencode if all(isinstance(key, bytes) for key in table) else str


#: ``look_up(STANCE)``: what HYBRID_INFER_STANCE says now, in the form that ``as_environment`` gives; None if nothing.
look_up, as_environment = _environment()
STANCE = as_environment("HYBRID_INFER_STANCE")


#: What a user can do about a cache that cannot be written.
REMEDY = "set HYBRID_INFER_CACHE_DIR to a directory that you can write"
#: Settings of thread pools, which are the user's own.
_POOLS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "KMP_BLOCKTIME", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT",
          "CUDA_VISIBLE_DEVICES")  # fmt: skip


def surroundings() -> dict[str, str]:
    """What the environment says to this library and to thread pools, by name."""
    return {name: os.environ[name] for name in sorted(os.environ) if name in _POOLS or name.startswith(_PREFIX)}


def said(setting: str) -> str:
    """A setting of the environment as a shell is given it ("NAME=value"), and empty where it is not there."""
    name = f"{_PREFIX}{setting.upper()}"
    return f"{name}={os.environ[name]}" if name in os.environ else ""


def store_root(options: Options) -> Path:
    """Where static models are kept: the option, HYBRID_INFER_CACHE_DIR, or the user's cache directory."""
    if options.save_model_dir is not None:
        return Path(options.save_model_dir)
    named = os.environ.get("HYBRID_INFER_CACHE_DIR")
    if named:
        return Path(named).expanduser()
    from platformdirs import user_cache_path

    return Path(user_cache_path("hybrid_infer", appauthor=False))


def open_store(options: Options) -> Any:
    """The store on disk that the options name, with those that are searched after it."""
    from hybrid_infer.cache import Store

    root = store_root(options)
    return Store(root, base=store_bases(root))


def use_store_root(path: str) -> None:
    """Have this process and its children keep static models in `path`, wherever no option says otherwise."""
    os.environ["HYBRID_INFER_CACHE_DIR"] = os.path.abspath(path)


def store_bases(root: Path) -> list[Path]:
    """Stores that are searched after the one at `root` and never written: HYBRID_INFER_CACHE_READONLY.

    Paths between ``os.pathsep``. One that is no directory is left out with a warning in the log; so is, silently, one
    that is `root` itself or named twice.
    """
    found: dict[str, Path] = {}
    for named in (os.environ.get("HYBRID_INFER_CACHE_READONLY") or "").split(os.pathsep):
        if not named:
            continue
        path = Path(named).expanduser()
        real = os.path.realpath(path)
        if real == os.path.realpath(root) or real in found:
            continue
        if path.is_dir():
            found[real] = path
        else:
            _log.warning("HYBRID_INFER_CACHE_READONLY names %r, which is no directory: it is not searched", named)
    return list(found.values())


@contextlib.contextmanager
def process_stance(name: str) -> Iterator[None]:
    """The stance of this process, all of its threads, and of processes that it starts meanwhile."""
    before = os.environ.get("HYBRID_INFER_STANCE")
    os.environ["HYBRID_INFER_STANCE"] = name
    try:
        yield
    finally:
        os.environ.pop("HYBRID_INFER_STANCE", None)
        if before is not None:
            os.environ["HYBRID_INFER_STANCE"] = before


def plain_terminal() -> bool:
    """Does the terminal, if there is one, understand nothing but text?"""
    return os.environ.get("TERM") == "dumb"


def colours() -> bool | None:
    """Whether colours were asked for or turned off, by the user or the terminal; None where nobody says.

    In the order of https://no-color.org, https://force-color.org and Python itself.
    """
    if os.environ.get("NO_COLOR"):
        return False
    return True if os.environ.get("FORCE_COLOR") else False if plain_terminal() else None
