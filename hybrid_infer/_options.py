"""What a user may ask for, checked once; the only reader of the environment."""

from __future__ import annotations

import contextlib
import enum
import math
import os
import re
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from hybrid_infer._errors import CacheWarning, OptionError, users_level
from hybrid_infer._log import LOGGER as _log

_PREFIX = "HYBRID_INFER_"

BACKENDS = ("onnxruntime", "openvino", "native", "tensorrt")
#: Taken as well, and offered to nobody: what computes nothing.
_INTERNAL = ("null",)
PRECISIONS = ("float32", "float16", "bfloat16")
STANCES = ("default", "eager", "background", "fail_on_compile")

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
            from hybrid_infer import _meant

            raise TypeError(f"{function} has no option {name!r}; {_meant.option(name, known)}")


def make(given: dict[str, Any]) -> Options:
    """Options from the keyword arguments of ``inference()``. Raises OptionError, or TypeError for an unknown name."""
    check_names(given)
    values = dict(given)
    for name, allowed in _CHOICES.items():
        if name in values and not (isinstance(values[name], str) and values[name] in allowed):
            from hybrid_infer import _meant

            listed = ", ".join(map(repr, allowed))
            raise OptionError(name, values[name], f"one of {listed}{_meant.choice(values[name], allowed)}")
    for name in _FLAGS:
        if name in values:
            values[name] = _flag(name, values[name])
    _check_path(values)
    for name in ("rtol", "atol"):
        values[name] = _tolerance(name, values.get(name))
    if isinstance(size := values.get("memory_pool_init_size_mb"), float) and 0 <= size < math.inf:
        values["memory_pool_init_size_mb"] = int(size)  # a share of the memory that there is
    for name, least in (("memory_pool_init_size_mb", 0), ("max_versions", 1)):
        if name in values:
            values[name] = _integer(name, values[name], least)
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


def _flag(name: str, value: Any) -> bool:
    """NumPy's, and the 0 and 1 that programs take from their arguments and the environment, are some too."""
    if isinstance(value, bool):
        return value
    of_numpy = type(value).__module__ == "numpy" and type(value).__name__ in ("bool", "bool_")
    if of_numpy or (isinstance(value, Integral) and value in (0, 1)):
        return bool(value)
    from hybrid_infer import _meant

    choices = {name: _CHOICES[name] for name in ("precision_mode", "weights", "fallback", "verify")}
    raise OptionError(name, value, "True or False" + _meant.flag(name, value, choices, BACKENDS))


def _tolerance(name: str, value: Any) -> float | None:
    """NumPy's numbers are some too. With an infinite one nothing would be compared."""
    if value is None:
        return None
    number = float(value) if not isinstance(value, bool) and isinstance(value, Real) else -1.0
    if not 0 <= number < math.inf:
        raise OptionError(name, value, "None or a finite number not below 0")
    return number


def _integer(name: str, value: Any, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < least:
        raise OptionError(name, value, f"an integer not below {least}")
    return int(value)


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
    if not isinstance(value, (list, tuple)):
        from hybrid_infer import _meant

        raise OptionError("input_spec", value, allowed + _meant.specs(value, _typed))
    found, queue = 0, [*value]
    while queue:
        each = queue.pop()
        if isinstance(each, enum.Enum):
            continue
        if isinstance(each, (list, tuple)):
            queue.extend(each)
        elif isinstance(each, dict):
            queue.extend(each.values())
        elif _typed(each):
            found += 1
        elif not (each is None or isinstance(each, (bool, int, float, complex, str, bytes))):
            raise OptionError("input_spec", value, f"{allowed}; one entry is {each!r}")
    if not found:
        from hybrid_infer import _meant

        raise OptionError("input_spec", value, allowed + _meant.specs(value, _typed))
    return tuple(map(_described, value))


def _typed(value: Any) -> bool:
    """Is it a spec or a tensor?"""
    return hasattr(value, "shape") and hasattr(value, "dtype") and not isinstance(value, type)


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


def _check_path(values: dict[str, Any]) -> None:
    path = values.get("save_model_dir")
    if path is None:
        return
    text = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
    if not isinstance(text, str) or not text or "\0" in text:
        raise OptionError("save_model_dir", path, "None or the path of a directory")
    values["save_model_dir"] = _expanded(text)


def _names(name: str, value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, (list, tuple, set, frozenset)) or not all(isinstance(v, str) for v in value):
        hint = f"; did you mean {[value]!r}?" if isinstance(value, str) else ""
        raise OptionError(name, value, f"None or a list of names{hint}")
    return tuple(sorted(value) if isinstance(value, (set, frozenset)) else value)


def _is_engine(name: Any) -> bool:
    return name in BACKENDS or name in _INTERNAL


def _backend(value: Any) -> tuple[str, ...]:
    """Names of engines in the order to try them; empty: the library chooses."""
    if value == "auto":
        asked = os.environ.get("HYBRID_INFER_BACKEND") or "auto"
        if asked == "auto":
            return ()
        value = [name.strip() for name in asked.split(",")]
        if not all(map(_is_engine, value)):
            from hybrid_infer import _meant

            raise OptionError("HYBRID_INFER_BACKEND", asked, f"'auto', or one or several of {', '.join(BACKENDS)}, "
                              f"separated by commas{_meant.engines(value, BACKENDS)}")  # fmt: skip
    names: Sequence[Any] = [value] if isinstance(value, str) else value
    if not isinstance(names, (list, tuple)) or not names or not all(map(_is_engine, names)):
        from hybrid_infer import _meant

        allowed = f"'auto', or one or a list of {', '.join(map(repr, BACKENDS))}"
        raise OptionError("backend", value, allowed + _meant.backend(value, BACKENDS))
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
    for name in ("save_model_dir", "cache_key"):
        if getattr(options, name) is not None and not options.cache_static_model:
            found.append(f"{_shown(name, getattr(options, name))} (for cache_static_model=True)")
    for name in ("rtol", "atol"):
        if getattr(options, name) is not None and options.verify == "off":
            found.append(f"{name} (nothing is compared under verify='off')")
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
    """Where static models are kept: the option, HYBRID_INFER_CACHE_DIR, or the user's cache directory. Absolute.

    Raises OptionError for a relative one where the folder in which the program runs is gone.
    """
    if options.save_model_dir is not None:
        return _absolute("save_model_dir", options.save_model_dir)
    named = os.environ.get("HYBRID_INFER_CACHE_DIR")
    if named:
        return _absolute("HYBRID_INFER_CACHE_DIR", _expanded(named))
    from platformdirs import user_cache_dir

    try:
        found = user_cache_dir("hybrid_infer", appauthor=False)
    except RuntimeError:  # from a release on, for a user without a home directory; "~" stays in it before
        found = "~/.cache/hybrid_infer"
    return Path(_expanded(found))


def _expanded(path: str) -> str:
    """A path with the home directory for "~": "/" for a user who has none, such as the number given to a container."""
    found = os.path.expanduser(path)
    return f"/{path[2:]}" if found == path and f"{path}/".startswith("~/") else found


def _absolute(name: str, path: str) -> Path:
    try:
        return Path(os.path.abspath(path))
    except FileNotFoundError as fault:
        raise OptionError(name, path, "an absolute path, as the folder in which the program runs is gone") from fault


def open_store(options: Options) -> Any:
    """The store on disk that the options name, with those that are searched after it; in memory where it has no place.
    """
    from hybrid_infer.cache import Store

    try:
        root = store_root(options)
    except OptionError as fault:
        from hybrid_infer.cache import MemoryStore

        store = MemoryStore()
        text = f"nothing is stored, so that each process compiles anew: {fault}"
        warnings.warn(text, CacheWarning, stacklevel=users_level())
        return store
    return Store(root, base=store_bases(root))


def use_store_root(path: str) -> None:
    """Have this process and its children keep static models in `path`, absolute, wherever no option says otherwise."""
    os.environ["HYBRID_INFER_CACHE_DIR"] = path


def store_bases(root: Path) -> list[Path]:
    """Stores that are searched after the one at `root` and never written: HYBRID_INFER_CACHE_READONLY.

    Paths between ``os.pathsep``. One that is no directory is left out with a warning in the log; so is, silently, one
    that is `root` itself or named twice.
    """
    found: dict[str, Path] = {}
    for named in (os.environ.get("HYBRID_INFER_CACHE_READONLY") or "").split(os.pathsep):
        if not named:
            continue
        path = Path(_expanded(named))
        try:
            real = os.path.realpath(path)
        except FileNotFoundError:  # a relative one, where the folder in which the program runs is gone
            real = ""
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
