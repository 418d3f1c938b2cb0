"""Errors and warnings of the library: one base class, subclasses that carry what went wrong as fields."""

from __future__ import annotations

import re
import sys


class HybridInferError(Exception):
    """Base class of every error that this library raises on its own account."""


class OptionError(HybridInferError, ValueError):
    """An option has a value that is not allowed.

    Parameters
    ----------
    name : the parameter, as the caller spelled it.
    value : what was given.
    allowed : what would have been accepted, in words.
    """

    def __init__(self, name: str, value: object, allowed: str) -> None:
        super().__init__(name, value, allowed)
        self.name, self.value, self.allowed = name, value, allowed

    def __str__(self) -> str:
        return f"{self.name}={self.value!r} is not allowed: {self.name} must be {self.allowed}"


class _MethodError(HybridInferError):
    """Base of errors about one method: which, why, and what the user can do."""

    verb = "failed"

    def __init__(self, method: str, reason: str, remedy: str = "") -> None:
        super().__init__(method, reason, remedy)
        self.method, self.reason, self.remedy = method, reason, remedy

    def __str__(self) -> str:
        text = f"{self.method} {self.verb}: {self.reason}"
        return f"{text}. {self.remedy}" if self.remedy else text


class CaptureError(_MethodError):
    """A method could not be turned into a static graph.

    Fields: ``method`` (qualified name), ``reason``, ``remedy`` (what to do, may be empty).
    """

    verb = "cannot be captured"


class BackendError(_MethodError):
    """No engine could build or run a captured graph, or its result did not agree with the eager one.

    Fields: ``method`` (qualified name), ``reason``, ``remedy``.
    """

    verb = "cannot be served by an engine"


class StanceError(_MethodError):
    """A call needs a static model that is not there, where the stance "fail_on_compile" forbids to make one.

    Fields: ``method`` (qualified name), ``reason`` (what differs from the nearest static model), ``remedy``.
    """

    verb = "may not be compiled here"


class EngineError(HybridInferError):
    """One engine refused a graph or failed to run it; the caller goes on with the next engine.

    Fields: ``engine`` (its name), ``reason``.
    """

    def __init__(self, engine: str, reason: str) -> None:
        super().__init__(engine, reason)
        self.engine, self.reason = engine, reason

    def __str__(self) -> str:
        return f"{self.engine}{' ' if self.reason.startswith('has no ') else ': '}{self.reason}"


class PassingFault(EngineError):
    """The same for a cause of the moment: memory, the disk, the driver, an interruption. It is tried again later.

    ``until``: of the monotonic clock, before which it is not; 0.0 where nothing is known about that.
    """

    def __init__(self, engine: str, reason: str, until: float = 0.0) -> None:
        super().__init__(engine, reason)
        self.until = until


#: What engines, and libraries, say of causes of the moment.
_MOMENT = (
    r"out.of.memory|bad_?alloc|insufficient memory|not enough (memory|space)|no space left|too many open files|"
    r"failed to map segment|(cannot|could not be|failed to) allocated?|alloc(ation)?_failed"
)


def of_the_moment(text: str) -> bool:
    """Does an error's text name a cause that passes?

    >>> of_the_moment("CUDNN_STATUS_ALLOC_FAILED"), of_the_moment("CUDNN_STATUS_NOT_SUPPORTED")
    (True, False)
    """
    return re.search(_MOMENT, text, re.IGNORECASE) is not None


class GraphRefused(EngineError):
    """The same for a cause that lies in the graph, whatever the sizes for which a plan is asked for."""


class ArgumentsRefused(EngineError):
    """The same for the values of one call's arguments, which says nothing about calls with others."""


class CheckFailed(ArgumentsRefused):
    """The same where the graph itself said no: a check of values that the method makes, or takes for granted."""


class TraceError(HybridInferError):
    """A frontend could not trace a call; ``reason`` is for the user, ``remedy`` says what usually helps."""

    def __init__(self, reason: str, remedy: str = "") -> None:
        super().__init__(reason, remedy)
        self.reason, self.remedy = reason, remedy

    def __str__(self) -> str:
        return self.reason


class SpecError(HybridInferError, ValueError):
    """An InputSpec, or an argument of a static model, is not what it must be.

    Fields: ``argument`` (which one, in words), ``reason``.
    """

    def __init__(self, argument: str, reason: str) -> None:
        super().__init__(argument, reason)
        self.argument, self.reason = argument, reason

    def __str__(self) -> str:
        return f"{self.argument}: {self.reason}"


class StaticModelError(HybridInferError):
    """A static model cannot be read from a path or written to it.

    Fields: ``path``, ``reason``, ``remedy`` (what to do, may be empty).
    """

    def __init__(self, path: str, reason: str, remedy: str = "") -> None:
        super().__init__(path, reason, remedy)
        self.path, self.reason, self.remedy = path, reason, remedy

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}" + (f". {self.remedy}" if self.remedy else "")


class CacheWarning(UserWarning):
    """The store could not be read or written; the call was answered all the same."""


#: Characters of what an error is told by; the error itself is the cause of ours, or in the log.
_LONGEST = 300


def summary(error: BaseException) -> str:
    """What an error says, on one line; the name of its class where it says nothing."""
    return " ".join(str(error).split())[:_LONGEST] or type(error).__name__


_BETWEEN = frozenset({"hybrid_infer", "torch", "paddle", "contextlib", "functools"})


def users_level() -> int:
    """The ``stacklevel`` with which whoever asks warns about the user's line, past this library and the frameworks."""
    frame, level = sys._getframe(1), 1
    while frame.f_globals.get("__name__", "").partition(".")[0] in _BETWEEN and frame.f_back is not None:
        frame, level = frame.f_back, level + 1
    return level
