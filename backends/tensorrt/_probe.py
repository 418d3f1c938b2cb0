"""Can this process use TensorRT, and with which GPU? Asked in the order in which things fail without harm.

The driver comes before everything of TensorRT's own: without one, its Runtime and its Builder are objects around
nothing, which crash when they are dropped.
"""

from __future__ import annotations

import functools
import importlib.util
from typing import Any

from hybrid_infer import _fork_safe, _installed
from hybrid_infer._errors import EngineError
from hybrid_infer.backends import _fork
from hybrid_infer.backends._cuda import _driver

NAME = "tensorrt"

#: The oldest release that the code serves, and what brings one.
_OLDEST = (10, 13)
INSTALL = "pip install 'hybrid_infer[tensorrt]'"


def missing() -> str:
    """Why TensorRT cannot be used, with the remedy; empty if it can."""
    if _fork.generation() != _born:
        return "the process that this one was forked from had loaded it, and CUDA does not work after that"
    found = importlib.util.find_spec("tensorrt")
    if found is None or found.origin is None:  # a folder of that name somewhere on the way is no package
        # The driver is not asked: that starts CUDA in a process that may want to fork.
        return f"the package tensorrt is not installed: {INSTALL}, of use on a machine with an NVIDIA GPU alone"
    if none := _driver.missing():
        return none
    try:
        trt = module()
    except EngineError as error:
        return error.reason
    if numbers(str(trt.__version__)) < _OLDEST:
        return f"TensorRT {trt.__version__} is too old, {'.'.join(map(str, _OLDEST))} is needed: {INSTALL}"
    return ""


def numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version.

    >>> numbers("10.16.1.11"), numbers("11.4.0rc1") < (11, 4)
    ((10, 16, 1, 11), False)
    """
    found = []
    for part in version.split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        found.append(int(digits))
    return tuple(found)


def version() -> str:
    """The version of the package, without importing it where that can be had."""
    for distribution in ("tensorrt", "tensorrt_cu13", "tensorrt_cu12"):
        if number := _installed.version(distribution):
            return number
    return str(module().__version__)


@functools.cache
def gpu(index: int) -> _driver.Gpu:
    """The GPU that a plan is built for. Raises EngineError."""
    try:
        return _driver.driver().gpu(index)
    except _driver.DriverError as error:
        raise EngineError(NAME, str(error)) from error


_importing = _fork_safe.Lock()
_born = _fork.generation()
_loaded = False


def module() -> Any:
    """TensorRT's module. Raises EngineError, with the remedy."""
    global _loaded
    with _importing:
        try:
            import tensorrt
        except Exception as error:
            # The package is there and the vendor's libraries, which it fetches when it is installed, are not: of these
            # it raises whatever loading them does.
            raise EngineError(NAME, f"TensorRT's libraries cannot be loaded ({error}): {INSTALL}") from error
        _loaded = True
        return tensorrt


def _enter_child() -> None:
    """A child forked from a process that has not used TensorRT may use it."""
    global _born
    _driver.enter_child()
    gpu.cache_clear()
    if not _loaded:
        _born = _fork.generation()


_fork.in_child(_enter_child)
