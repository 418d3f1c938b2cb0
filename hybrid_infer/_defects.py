"""The last resort of a call: a defect of this library costs a warning, never the program's answer."""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hybrid_infer._errors import BackendError, CaptureError, OptionError, SpecError, StanceError, StaticModelError
from hybrid_infer._pauses import for_a_while

_log = logging.getLogger("hybrid_infer")

_PAUSE = 60.0  # seconds for which calls of that signature are left alone
_ROOT = Path(__file__).parent
#: Errors that a call raises on purpose. Others of this library's are for itself, and somebody failed to catch them.
_MEANT = (BackendError, CaptureError, OptionError, SpecError, StanceError, StaticModelError)
_DEEPER = "Keep linked objects in a list, or raise the limit by sys.setrecursionlimit()"
_REMEDY = "Please report it, with this line; with the level DEBUG the log has the traceback too"


def ours(fault: Exception, function: Any) -> bool:
    """Was a call's error raised on the way to `function`, rather than by it? What cannot be told is the program's.

    So is what a tensor raises that cannot be written to: the eager method would raise that too.
    """
    code = getattr(function, "__code__", None)
    if code is None or isinstance(fault, (*_MEANT, Warning)):  # a warning that is an error was wished for
        return False
    from hybrid_infer import _interrupts
    from hybrid_infer.state._written import Turn

    if _interrupts.raised(fault) is not None:
        return False
    theirs = (code, Turn.written.__code__)
    return all(frame.f_code not in theirs for frame, _ in traceback.walk_tb(fault.__traceback__))


def answer(
    state: Any, owner: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any], fault: Exception
) -> Any:
    """The eager method's result in place of `fault`, which is told of. Where the method fails as well, its error."""
    result = state.method.function(*owner, *args, **kwargs)
    tell(state, fault, lambda: state.key(state.parameters.bind(args, kwargs)))
    return result


def tell(state: Any, fault: Exception, key: Callable[[], Any]) -> None:
    """Log a defect, and leave calls with a key alone for a while."""
    from hybrid_infer._route import Eager

    reason, remedy = _told(fault)
    _log.debug("%s: %s", state.method.name, reason, exc_info=fault)
    route = Eager(reason, for_a_while(_PAUSE), remedy=remedy)
    try:
        state.remember(key(), route)
    except Exception as again:  # the defect may be in what makes a key
        _log.debug("%s: it is looked for at each call: %s", state.method.name, again)
    state.note(reason, remedy, "capture")


def _told(fault: Exception) -> tuple[str, str]:
    """What to say of a fault, and what can be done."""
    if isinstance(fault, RecursionError):
        limit = f"Python's recursion limit of {sys.getrecursionlimit()}"
        return f"what it holds is nested too deeply, or it is called from too deep, for {limit}", _DEEPER
    reason = f"a defect of hybrid_infer: {type(fault).__name__}: {' '.join(str(fault).split())} ({_place(fault)})"
    return reason, _REMEDY


def _place(fault: Exception) -> str:
    """The innermost line of this library that an error came through."""
    inside = [each for each in traceback.extract_tb(fault.__traceback__) if _ROOT in Path(each.filename).parents]
    return f"{Path(inside[-1].filename).relative_to(_ROOT)}:{inside[-1].lineno}" if inside else "outside of it"
