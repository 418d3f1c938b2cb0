"""What code asks the interpreter itself: its command line and settings, the frames of callers. See `_moment`."""

from __future__ import annotations

import datetime
import dis
import functools
import gc
import sys
import time
import types
from collections.abc import Mapping
from typing import Any

from hybrid_infer.capture import _formats
from hybrid_infer.fingerprint._iteration import CALLS
from hybrid_infer.fingerprint._steps import GLOBALS, Steps, paddle_passes
from hybrid_infer.objects import _origin

#: What tells of which module a caller is, since Python 3.12.
_NAMES_CALLER = "_getframemodulename"
ERROR = "which error its callers handle"
_ZONE, _COLLECTOR, _SETTING = "the time zone", "the garbage collector", "a setting of the interpreter"
_FRAMES, _LOCALE, _SEED = "the frames of its callers", "the locale", "the seed of the framework's random numbers"
#: Attributes that another process, or the program itself, has other values in, by the modules that hold them.
_ATTRIBUTES: dict[types.ModuleType, dict[str, str]] = {
    sys: {
        **dict.fromkeys(("argv", "orig_argv"), "the command line"),
        **dict.fromkeys(("flags", "_xoptions", "warnoptions", "dont_write_bytecode", "pycache_prefix"),
                        "the options of the interpreter"),
        **dict.fromkeys(("executable", "prefix", "exec_prefix", "base_prefix", "base_exec_prefix"),
                        "where Python is installed"),
        "tracebacklimit": _SETTING,
        "path": "the folders in which modules are looked for",
        "modules": "which modules are loaded",
    },
    time: dict.fromkeys(("tzname", "timezone", "altzone", "daylight"), _ZONE),
}  # fmt: skip
_READ = frozenset().union(*_ATTRIBUTES.values())
#: Functions that give attributes by names which code may have computed.
_BY_NAME = frozenset({"getattr", "hasattr", "vars", "dir"})
_MODULES = {module.__name__: module for module in _ATTRIBUTES}


def _watching() -> list[Any]:
    """Functions that say whether something watches what runs, as a debugger does; of some since Python 3.12."""
    names = (sys, ("gettrace", "getprofile", "is_stack_trampoline_active"))
    newer = (getattr(sys, "monitoring", None), ("get_tool", "get_events", "get_local_events"))
    return [getattr(of, name) for of, each in (names, newer) for name in each if hasattr(of, name)]


#: Functions in C.
ANSWERS: dict[Any, str] = {
    **{
        getattr(sys, name): _SETTING
        for name in ("getrecursionlimit", "getswitchinterval", "get_int_max_str_digits", "getdlopenflags",
                     "get_asyncgen_hooks", "getallocatedblocks", "getunicodeinternedsize",
                     "get_coroutine_origin_tracking_depth")
        if hasattr(sys, name)
    },
    sys._current_frames: _FRAMES, sys._current_exceptions: ERROR,
    **{function: "whether a debugger or profiler is on" for function in _watching()},
    **dict.fromkeys((gc.isenabled, gc.get_threshold, gc.get_freeze_count), _COLLECTOR),
}  # fmt: skip
#: Of the error that is handled where they are called, be it by a caller.
_HANDLED = tuple(getattr(sys, name) for name in ("exc_info", "exception") if hasattr(sys, name))
#: Functions in Python, by their modules and names.
OF_PYTHON = {
    ("traceback", "format_exc"): ERROR,
    **{("inspect", name): _FRAMES for name in ("currentframe", "stack", "getouterframes")},
    **{("traceback", name): _FRAMES for name in ("extract_stack", "format_stack", "walk_stack")},
    ("torch.random", "initial_seed"): _SEED,
    ("numpy._core._ufunc_config", "geterr"): "NumPy's settings",
    ("numpy.core._ufunc_config", "geterr"): "NumPy's settings",
    ("numpy._core.arrayprint", "get_printoptions"): "NumPy's settings",
    ("numpy.core.arrayprint", "get_printoptions"): "NumPy's settings",
}  # fmt: skip
#: Names of all these that are no others' (torch has a ``stack`` too).
NAMES = frozenset(
    {
        "_getframe", _NAMES_CALLER, "exc_info", "strftime", *(function.__name__ for function in ANSWERS),
        *(name for _, name in OF_PYTHON if name != "stack"),
    }
)  # fmt: skip
#: And of what is called with a format, which tells whether it is one of them.
CALLED = NAMES | {"format"}
#: What stands between a name and its attribute: in code that Paddle has rewritten, a call that passes the value on.
_BETWEEN = frozenset({"PUSH_NULL", *CALLS})
_CALLS = frozenset({*CALLS, "CALL_FUNCTION_KW", "CALL_KW"})
#: Files of libraries.
_LIBRARIES: set[str] = set()
_DATES = (datetime.date, datetime.time)
#: Where a trace begins.
TRACING = "hybrid_infer.capture._tracing"
#: What depends on the locale, and what goes by the time zone where a date has none.
_LOCAL, _ZONED = frozenset("aAbBcpxX"), frozenset("sZ")


def named(code: types.CodeType, scope: Mapping[str, Any]) -> bool:
    """May a piece of code ask for any of it?"""
    names = {*code.co_names}
    return (
        _formats.suspected(code, scope) or not names.isdisjoint(NAMES) or {"inspect", "stack"} <= names
        or {"sys", "exception"} <= names or _climbs(code)
        or (not names.isdisjoint(_READ | _BY_NAME) and any(_module(name, scope) is not None for name in names))
    )  # fmt: skip


def of_code(frame: Any) -> str | None:
    """Which of these attributes code of the user in a frame reads, or that it makes a text by the locale, in words."""
    if _formats.of_texts(frame.f_code):
        return _LOCALE
    if _climbs(frame.f_code):
        return _FRAMES
    names = frame.f_code.co_names
    if _READ.isdisjoint(names) and _BY_NAME.isdisjoint(names):
        return None
    for holder, name in _reads(frame.f_code):
        module = _module(holder, frame.f_globals)
        if module is not None and name is None:
            return _SETTING
        if module is not None and name in _ATTRIBUTES[module]:
            return _ATTRIBUTES[module][name]
    return None


def of_builtin(frame: Any, called: Any, owner: Any) -> str | None:
    """What a function in C answers that a frame is about to call; None where that is nothing of the kind."""
    if called is sys._getframe or called.__name__ == _NAMES_CALLER:
        return _FRAMES if _looks_up(frame) else None
    if called is format or (called.__name__ == "format" and isinstance(owner, str)):
        by_locale = _formats.given(frame) if called is format else _formats.of_fields(owner)
        return _LOCALE if by_locale and is_of_user(frame) else None
    if called in _HANDLED:
        return None if handles(frame) or not is_of_user(frame) else ERROR
    if called.__name__ == "strftime" and isinstance(owner, _DATES):
        directives = _directives(frame.f_code)
        if directives is None or directives & _LOCAL:
            return _LOCALE
        return _ZONE if directives & _ZONED and getattr(owner, "tzinfo", None) is None else None
    return _SEED if called.__name__ == "initial_seed" and type(owner).__module__.startswith("torch") else None


def gives_its_own(frame: Any) -> bool:
    """Is a function of `OF_PYTHON` that begins in a frame asked for the frame of what calls it, and for no caller's?"""
    return frame.f_code.co_name == "currentframe" and "f_back" not in frame.f_back.f_code.co_names


def handles(frame: Any) -> bool:
    """Is the error that is handled now one of the method's own, of which a frame is a part, and no caller's?"""
    error = sys.exc_info()[1]
    trace = None if error is None else error.__traceback__
    while trace is not None and frame is not None and frame.f_globals.get("__name__") != TRACING:
        if frame is trace.tb_frame:  # the first one of a traceback is that of what handles it
            return True
        frame = frame.f_back
    return False


def _climbs(code: types.CodeType) -> bool:
    """Does a piece of code go from where an error was handled to the callers?"""
    return "tb_frame" in code.co_names and "f_back" in code.co_names


def _looks_up(frame: Any) -> bool:
    """Does the user's code ask for a frame that is not its own? Libraries do so for themselves."""
    return is_of_user(frame) and ("f_back" in frame.f_code.co_names or arguments(frame) != 0)


def is_of_user(frame: Any) -> bool:
    """Is the code of a frame the user's? Quickly, as it is asked of all code that runs in a trace."""
    file = frame.f_code.co_filename
    if file in _LIBRARIES:
        return False
    if _origin.of_file(file, str(frame.f_globals.get("__name__"))) == _origin.USER:
        return True
    if "site-packages" in file or "/lib/python" in file:
        _LIBRARIES.add(file)
    return False


def arguments(frame: Any) -> int | None:
    """With how many arguments a frame is about to call something, as far as its code tells."""
    for step in dis.get_instructions(frame.f_code):
        if step.offset == frame.f_lasti:
            return step.arg if step.opname in _CALLS else None
    return None


def _module(name: str, scope: Mapping[str, Any]) -> types.ModuleType | None:
    """The module that a name stands for, as a global or imported where it is used."""
    found = scope.get(name, _MODULES.get(name))
    return found if isinstance(found, types.ModuleType) and found in _ATTRIBUTES else None


@functools.lru_cache(maxsize=256)
def _reads(code: types.CodeType) -> tuple[tuple[str, str | None], ...]:
    """The attributes that a piece of code reads from what it has under a name, which may be a module.

    None where it has the name of one from elsewhere (``getattr(sys, name)``), or asks for all of them. But for
    ``sys.modules[__name__]`` and its like: the module of what runs is always there.
    """
    found, imported, module = list[tuple[str, str | None]](), dict[str, str](), ""
    steps = [step for step in Steps(code) if step.opname not in _BETWEEN]
    passes = paddle_passes(steps)
    steps = [step for at, step in enumerate(steps) if at not in passes]
    for at, step in enumerate(steps):
        before = steps[at - 1]
        if step.opname == "IMPORT_NAME":
            module = step.argval
        elif step.opname.startswith("STORE_") and before.opname == "IMPORT_NAME":
            imported[step.argval] = module  # `import sys as system`
        elif step.opname == "IMPORT_FROM":
            found.append((module, step.argval))
        elif step.opname in ("LOAD_ATTR", "LOAD_METHOD") and step.argval in _READ:
            after = {each.argval for each in steps[at + 1 : at + 4]}
            if step.argval != "modules" or after.isdisjoint(("__name__", "__module__")):
                holder = str(before.argval)
                found.append((imported.get(holder, holder), step.argval))
        elif step.opname in GLOBALS and step.argval in _BY_NAME and at + 2 < len(steps):
            holder, name = str(steps[at + 1].argval), steps[at + 2]
            of_constant = step.argval.endswith("attr") and name.opname == "LOAD_CONST"
            found.append((imported.get(holder, holder), name.argval if of_constant else None))
    return tuple(found)


def _directives(code: types.CodeType) -> set[str] | None:
    """The directives in all formats that a piece of code holds; None where it holds none, and has them from elsewhere.
    """
    texts = [each for each in code.co_consts if isinstance(each, str) and "%" in each]
    return {each[at + 1 : at + 2] for each in texts for at in range(len(each)) if each[at] == "%"} if texts else None
