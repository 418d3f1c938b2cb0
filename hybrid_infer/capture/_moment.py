"""What answers something else at each call, in each process or on each machine: functions in C and Python's own."""

from __future__ import annotations

import builtins
import datetime
import dis
import functools
import io
import itertools
import os
import random
import sys
import threading
import time
import types
from typing import Any

from hybrid_infer.capture import _identity, _interpreter, _sameness
from hybrid_infer.objects import _origin

_CLOCKS = frozenset(
    {
        "time", "monotonic", "perf_counter", "process_time", "thread_time", "clock_gettime", "localtime", "gmtime",
        "ctime", "asctime", "strftime",
    }
)  # fmt: skip
_FILES = ("stat", "lstat", "listdir", "scandir", "access", "readlink", "getcwd", "pread", "read", "statvfs", "fstat",
          "getcwdb", "getxattr", "listxattr")
_PROCESS, _THREAD, _ZONE = "the number of the process", "the thread that it runs on", "the time zone"
_MODULE, _HELD = "a module by its name", "a stream that it has not made itself"
_MACHINE, _SYSTEM = "the machine that it runs on", "the system's random numbers"
_ENVIRONMENT, _CONTEXT = "the environment as a whole", "the context of decimal"
#: The last one is Python 3.10's name for ``getencoding``.
_LOCALES = ("setlocale", "localeconv", "nl_langinfo", "getencoding", "_get_locale_encoding")
_SOURCES: dict[str, tuple[Any, ...]] = {
    "the clock": (os.times, *(getattr(time, name) for name in dir(time) if name.removesuffix("_ns") in _CLOCKS)),
    "the file system": tuple(getattr(os, name) for name in _FILES if hasattr(os, name)),
    _PROCESS: tuple(getattr(os, name) for name in ("getpid", "getppid", "getpgrp", "getpgid", "getsid")
                    if hasattr(os, name)),
    _SYSTEM: (os.urandom,),
    _THREAD: (threading.get_ident, threading.get_native_id),
    _ZONE: (time.mktime,),
    _MACHINE: tuple(getattr(os, name) for name in ("uname", "cpu_count", "sched_getaffinity", "getloadavg")
                    if hasattr(os, name)),
    "a hash, which is another one in each process": (hash,),
    "where an object lies in memory": (id,),
    "how often an object is referred to": (sys.getrefcount,),
}  # fmt: skip
_ANSWERS = {
    **{function: what for what, functions in _SOURCES.items() for function in functions}, **_interpreter.ANSWERS,
}  # fmt: skip
#: The same of modules that may not have been imported, by their names (of decimal the second, from Python 3.13 on).
_OF_MODULES = {
    ("_uuid", "generate_time_safe"): "the clock",
    ("_socket", "gethostname"): _MACHINE,
    ("resource", "getrusage"): "what the process has used",
    **{("gc", name): "the garbage collector" for name in ("get_count", "get_stats", "get_objects", "get_referrers")},
    **{("_locale", name): "the locale" for name in _LOCALES},
    **dict.fromkeys(itertools.product(("decimal", "_decimal"), ("getcontext", "localcontext")), _CONTEXT),
}
#: Python's own functions, which keep what they were told, by their modules and names.
_OF_PYTHON = {
    ("threading", "current_thread"): _THREAD, ("threading", "active_count"): _THREAD,
    ("threading", "enumerate"): _THREAD, ("multiprocessing.process", "current_process"): _PROCESS,
    ("multiprocessing.process", "parent_process"): _PROCESS, ("platform", "uname"): _MACHINE,
    ("platform", "node"): _MACHINE, ("uuid", "getnode"): _MACHINE, ("random", "seed"): _SYSTEM,
    ("os", "__len__"): _ENVIRONMENT, ("importlib", "import_module"): _MODULE, **_interpreter.OF_PYTHON,
}  # fmt: skip
_NAMES_OF_MODULES = frozenset(name for _, name in _OF_MODULES)
_NAMES_OF_PYTHON = frozenset(name for _, name in _OF_PYTHON)
_CALENDAR = (datetime.datetime, datetime.date)
_DATES = frozenset({"now", "utcnow", "today"})
_OPENED = (io.TextIOWrapper, io.BufferedReader, io.BufferedRandom, io.FileIO)
_READS = frozenset({"read", "read1", "readline", "readlines", "readinto", "readall", "peek", "tell"})
#: Streams in memory, what gives their content, and what may lead back to it.
_IN_MEMORY, _CONTENT = (io.StringIO, io.BytesIO), _READS | {"getvalue", "getbuffer", "seek"}
#: Methods by which an object tells what it is, or is looked up: what they make of a hash or an address stays inside.
_TOLD = frozenset({"__hash__", "__eq__", "__repr__", "__str__", "__format__", "__deepcopy__"})
_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR")

#: What code of ours asks for itself, which passes calls of the user's on.
_OWN = (hash, id, threading.get_ident)
_HASHES = frozenset({"hash", "id"})

#: Names of all of these, as code calls them.
NAMES = frozenset(
    {
        *(function.__name__ for function in _ANSWERS), *_NAMES_OF_MODULES, *_DATES, *_READS, "uuid", "uuid1", "uuid4",
        "secrets", "exists", "lexists", "isfile", "isdir", "islink", "getsize", "getmtime", "is_file", "is_dir",
        "iterdir", "glob", "rglob", "walk", "cwd", "absolute", "resolve", "is_symlink", "is_mount", "abspath",
        "realpath", "relpath", "getctime", "getatime", "samefile", "which", "disk_usage", "copy_context",
        "__subclasses__", "current_thread", "active_count", "current_process", "parent_process", "platform", "getnode",
        "getfqdn", "fromtimestamp", "astimezone", "timestamp", "SystemRandom", "Random", "default_rng", "RandomState",
        "SeedSequence", "getvalue", "getbuffer", "seek", "import_module", "process_cpu_count", "getlocale",
        "getpreferredencoding", "format_string", "__hash__",
    }
)  # fmt: skip
_STREAMS = frozenset({"StringIO", "BytesIO"})
#: How many objects are looked at for a function that answers so.
_MANY = 1000


def named(code: types.CodeType, scope: dict[str, Any]) -> bool:
    """Does a piece of code name any of them, or a global that holds one?"""
    names = {*code.co_names}
    if not names.isdisjoint(NAMES) or {"environ", "len"} <= names:
        return True
    if _interpreter.named(code, scope) or _sameness.asks(code):
        return True
    return any(map(held, map(scope.get, names)))


def held(value: Any) -> bool:
    """Is a value such a function, or holds it one?"""
    left, seen = [value], 0
    while left and (seen := seen + 1) < _MANY:
        each = left.pop()
        if isinstance(each, functools.partial):
            left += (each.func, *each.args)
        elif isinstance(each, (list, tuple)):
            left += each[:_MANY]
        elif type(each) is dict:
            left += [*each.values()][:_MANY]
        elif isinstance(each, random.SystemRandom) or _is_source(each):
            return True
    return False


def _is_source(value: Any) -> bool:
    if isinstance(value, types.FunctionType):
        return (value.__module__, value.__name__) in _OF_PYTHON
    if isinstance(value, types.MethodType):
        return isinstance(value.__self__, random.SystemRandom)
    if not isinstance(value, types.BuiltinFunctionType):
        return False
    owner = value.__self__
    if isinstance(owner, types.ModuleType):
        return value in _ANSWERS or (owner.__name__, value.__name__) in _OF_MODULES
    return owner in _CALENDAR if isinstance(owner, type) else isinstance(owner, (*_OPENED, *_IN_MEMORY))


def of_builtin(frame: Any, called: Any, owner: Any) -> str | None:
    """What a function in C answers that a frame is about to call, in words; None where that is nothing of the kind."""
    name = called.__name__
    if isinstance(owner, types.ModuleType):
        what = _ANSWERS.get(called)
        if what is None and name in _NAMES_OF_MODULES:
            return _OF_MODULES.get((owner.__name__, name))
        if called in _OWN and str(frame.f_globals.get("__name__")).startswith("hybrid_infer."):
            return None
        return what or _interpreter.of_builtin(frame, called, owner)
    if isinstance(owner, type):
        if name in _DATES and owner in _CALENDAR:
            return "the clock"
        by_zone = name == "fromtimestamp" and owner in _CALENDAR and _interpreter.arguments(frame) in (1, None)
        return _ZONE if by_zone else None
    if isinstance(owner, datetime.datetime):
        naive = owner.tzinfo is None and name in ("timestamp", "astimezone")
        if naive or (name == "astimezone" and _interpreter.arguments(frame) in (0, None)):
            return _ZONE
    if name in _READS and isinstance(owner, _OPENED):
        return "the file that was opened before the call"
    if name in _CONTENT and isinstance(owner, _IN_MEMORY):
        return None if _makes_streams(frame) else _HELD
    return _interpreter.of_builtin(frame, called, owner) if name in _interpreter.CALLED else None


def _makes_streams(frame: Any) -> bool:
    """Does code of the user's that runs make such streams, or does a library ask for the content of one of its own?"""
    if not _interpreter.is_of_user(frame):
        return True
    while frame is not None and frame.f_globals.get("__name__") != _interpreter.TRACING:
        if not _STREAMS.isdisjoint(frame.f_code.co_names):
            return True
        frame = frame.f_back
    return False


def of_python(frame: Any) -> str | None:
    """The same of a function of Python's own that begins in a frame."""
    name = frame.f_code.co_name
    if name not in _NAMES_OF_PYTHON:
        return None
    what = _OF_PYTHON.get((frame.f_globals.get("__name__", ""), name))
    if what is not None and _interpreter.gives_its_own(frame):
        return None
    if what is _MODULE and _origin.of_import(frame.f_locals["name"].split(".")) != _origin.USER:
        return None  # which is known by its version
    if what is _interpreter.ERROR and _interpreter.handles(frame):
        return None
    if what is _SYSTEM and frame.f_locals.get("a") is not None:
        return None  # the seed that it is given
    if what is _ENVIRONMENT and frame.f_locals.get("self") is not os.environ:
        return None
    return what


def names_hashes(code: types.CodeType) -> bool:
    """May a piece of code hand on what gives a hash? Quickly, as it is asked of all code that runs in a trace."""
    return not {"__hash__", *_HASHES}.isdisjoint(code.co_names) and code.co_name not in _TOLD


def passed_on(frame: Any) -> str | None:
    """The same of what a piece of code hands on to be called elsewhere (``map(hash, names)``), unseen."""
    code = frame.f_code
    asked = "__hash__" in code.co_names and any(
        step.opname in _ATTRIBUTES and step.argval == "__hash__" for step in dis.get_instructions(code)
    )
    name = "hash" if asked else _identity.handed_on(code, _HASHES)
    return None if name is None or _tells(frame) else _ANSWERS[getattr(builtins, name)]


def stays_inside(frame: Any, called: Any) -> bool:
    """Does a frame only look something up, or tell objects apart, by the hash or the address that it asks for?"""
    if called not in (hash, id):
        return False
    return (called is id and _identity.only_tells_apart(frame.f_code, frame.f_lasti)) or _tells(frame)


def _tells(frame: Any) -> bool:
    """Does a frame run for a method by which an object tells what it is, be it a helper's or a generator's?"""
    while frame is not None and frame.f_globals.get("__name__") != _interpreter.TRACING:
        code = frame.f_code
        if code.co_name in _TOLD:
            return True
        if code.co_name == "<lambda>" and code.co_argcount == 1:
            given = frame.f_locals.get(code.co_varnames[0])
            if getattr(type(given).__hash__, "__code__", None) is code:
                return True
        frame = frame.f_back
    return False
