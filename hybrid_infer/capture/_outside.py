"""What a method reads from outside the program, or sets there, while it is traced: a static graph would do neither.

Seen: what is set in ``os.environ``, files opened, folders changed and programs run by the user's code, Python's and
NumPy's random numbers, the clock and its like (see `_moment`), context variables, whether locks are held, settings of
the framework and the seeds of its random numbers. Environment variables that are read are listed, since they can be
watched (see `_environment`). Only the tracing thread counts.
"""

from __future__ import annotations

import contextlib
import contextvars
import importlib._bootstrap
import os
import random
import sys
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

from hybrid_infer import _fork_safe, _profiler
from hybrid_infer._errors import TraceError
from hybrid_infer.capture import _contexts, _interpreter, _moment, _sameness
from hybrid_infer.objects import _locks, _origin
from hybrid_infer.state import _environment
from hybrid_infer.state._ran import Trail

_LOCAL = threading.local()
_LOCK = _fork_safe.Lock()
_HOOKED = False
_OBSERVERS: list[Any] = []

#: Functions of the frameworks that leave something behind, by the end of their names.
_SETTERS = frozenset(
    {
        "manual_seed", "manual_seed_all", "seed", "seed_all", "seed_everything", "set_seed", "set_rng_state",
        "set_cuda_rng_state", "set_state", "set_anomaly_enabled", "set_default_device", "set_default_dtype",
        "set_default_tensor_type", "set_device", "set_deterministic_debug_mode", "set_flags",
        "set_float32_matmul_precision", "set_flush_denormal", "set_num_interop_threads", "set_num_threads",
        "use_deterministic_algorithms",
    }
)  # fmt: skip
_NAMES = _SETTERS | _locks.NAMES


def suspected(function: types.FunctionType, code: types.CodeType) -> bool:
    """Does the code name anything that may be the clock or its like, or set what outlasts the call?

    What is only named may never be called: `watch` tells, at the price of a slower trace.
    """
    if not _NAMES.isdisjoint(code.co_names) or _moment.named(code, function.__globals__):
        return True
    held = (function.__globals__.get(name) for name in code.co_names)
    return any(
        isinstance(each, types.BuiltinFunctionType) and type(getattr(each, "__self__", None)) in _locks.KINDS
        for each in held
    )


class Watch:
    """Reasons found while a watch was on, and the environment variables that were read."""

    def __init__(
        self, origin: Callable[[tuple[str, int]], tuple[str, int]] | None = None, trail: Trail | None = None,
        tokens: bool = False,
    ) -> None:  # fmt: skip
        self.reasons: list[str] = []
        self.trail = trail
        self.variables: dict[str, Any] = {}
        self.assigned = _environment.Assigned()
        self.locks = _locks.Locks()
        self.contexts = _contexts.Variables(tokens)
        self._origin = origin

    def line(self, frame: Any) -> tuple[str, int]:
        """Where a frame is, in code that somebody wrote."""
        line = (frame.f_code.co_filename, frame.f_lineno)
        return line if self._origin is None else self._origin(line)

    def note(self, reason: str, frame: Any = None) -> None:
        """Add a reason, with the line of a frame of the user's."""
        if frame is not None:
            reason = _placed(reason, self.line(frame))
        if reason not in self.reasons:
            self.reasons.append(reason)

    def reads(self, what: str, frame: Any) -> None:
        """Add that code reads something, if it is the user's that a frame runs for."""
        user = _users(self, frame)
        if user is not None:
            self.note(f"it reads {what}", user)


@contextlib.contextmanager
def watch(
    *, clocks: bool = False, origin: Callable[[tuple[str, int]], tuple[str, int]] | None = None,
    trail: Trail | None = None, tokens: bool = False,
) -> Iterator[Watch]:  # fmt: skip
    """Note what the code inside reads from the outside world, on this thread; with `clocks`, of the clock as well.

    `origin` tells of a line of generated code which line of the user's it was made of. With `clocks`, the `trail` gets
    all code that runs. `tokens`: may the code look at what a context variable held before it set that?
    """
    found = Watch(origin, trail, tokens)
    _install()
    if getattr(os.environ, "encodekey", None) not in _OBSERVERS:
        found.note("it reads the environment, and os.environ is not Python's own: nobody notes what is read there")
    outer = getattr(_LOCAL, "watch", None)
    _LOCAL.watch = found
    numpy = sys.modules.get("numpy")
    before = random.getstate(), _numpy_state(numpy)
    table = None if numpy is None else numpy.random.get_state()
    try:
        with _clocks(found) if clocks else contextlib.nullcontext():
            yield found
    finally:
        _LOCAL.watch = outer
        found.assigned.take_back()
        if found.locks.put_back():
            found.note(_placed("it leaves a lock in another state than it found it in", found.locks.line))
        for name in found.contexts.left():
            found.note(f"it sets the context variable {name}, which outlasts the call")
        for name, held in found.variables.items():
            if _environment.state(name) != held:
                found.note(f"it reads the environment variable {name}, which another thread changes")
        if random.getstate() != before[0]:
            random.setstate(before[0])
            found.note("it draws from Python's random")
        if numpy is not None and _numpy_state(numpy) != before[1]:
            numpy.random.set_state(table)
            found.note("it draws from NumPy's random")


@contextlib.contextmanager
def observing() -> Iterator[None]:
    """Inside, the watch that is on sees the clock, whatever the method names: other code runs than it has."""
    found = getattr(_LOCAL, "watch", None)
    if found is None or _profiler.on():
        yield
        return
    with _clocks(found):
        yield


@contextlib.contextmanager
def _clocks(found: Watch) -> Iterator[None]:
    """Calls inside are observed. Raises TraceError where they cannot be."""
    with _profiler.observed(_clock_observer(found)) as ours:
        yield
    if ours.lost and not found.reasons:  # an error of ours ends the observation too, and has its reason
        found.note("it sets another profile function, which outlasts the call")


def _placed(reason: str, line: tuple[str, int]) -> str:
    file, number = line
    return f"{reason} ({file}:{number})"


def _clock_observer(found: Watch) -> Any:
    trail = found.trail

    def observe(frame: Any, event: str, called: Any) -> None:
        if event == "call":
            code = frame.f_code
            if trail is not None:
                trail.note(frame)
            if code is _IMPORTS:
                _note_import(found, frame)
            if (what := _moment.of_python(frame)) is not None:
                found.reads(what, frame.f_back)
            elif (
                _moment.names_hashes(code) and _users(found, frame) is not None
                and (what := _moment.passed_on(frame)) is not None
            ):  # fmt: skip
                found.reads(what, frame)
            elif _interpreter.is_of_user(frame) and (what := _interpreter.of_code(frame) or _sameness.asked(frame)):
                found.reads(what, frame)
            if code.co_name in _SETTERS and not _sets_what_is_set(frame):
                _note_setter(found, code.co_name, frame.f_globals.get("__name__", ""), frame.f_back)
        if event in ("call", "return"):  # what is returned is any object, which may compute its attributes
            return
        owner = getattr(called, "__self__", None)
        if type(owner) in _locks.KINDS and called.__name__ in _locks.NAMES:
            _note_lock(found, frame, event, called)
        elif isinstance(owner, contextvars.ContextVar):
            _note_variable(found, frame, event, called)
        if event != "c_call":
            return
        if trail is not None:
            trail.called(frame, called)
        if called.__name__ in _SETTERS:
            module = getattr(called, "__module__", None) or type(owner).__module__
            _note_setter(found, called.__name__, str(module), frame)
        what = _moment.of_builtin(frame, called, owner)
        if what is None and (called is contextvars.copy_context or type(owner) is contextvars.Context):
            what = "the context variables as a whole"
        elif what is None and called.__name__ == "__subclasses__" and isinstance(owner, type):
            what = "the subclasses of a class"
        if what is not None and not (_users(found, frame) is None or _stays_inside(frame, called)):
            found.reads(what, frame)

    return observe


def _stays_inside(frame: Any, called: Any) -> bool:
    """Is it a hash, or an address, that what asks for it makes no answer of?"""
    if called in (hash, id) and str(frame.f_globals.get("__name__")).partition(".")[0] in _SKIPPED:
        return True  # Python's own code, as that which writes JSON, knows where it has been by these
    return _moment.stays_inside(frame, called)


def _note_import(found: Watch, frame: Any) -> None:
    """A module is imported that was not there. Raises TraceError: a trace is no place for what its code may do."""
    user, name = _users(found, frame.f_back), frame.f_locals["name"]
    if user is not None and found.trail is not None and found.trail.imports(name):
        found.note(f"it imports {name}", user)
        raise TraceError(found.reasons[-1])


def _note_lock(found: Watch, frame: Any, event: str, called: Any) -> None:
    """Count a call of a method of a lock, which is about to be made or has returned."""
    user = _users(found, frame)
    if event == "c_return":
        found.locks.done(called.__self__, called.__name__, None if user is None else found.line(user))
    elif event == "c_call" and user is not None and _locks.asks(frame, called.__name__):
        found.note("it reads whether a lock is held", user)
        if called.__name__ in _locks.TAKES:  # it is not known what would have to be put back
            raise TraceError(found.reasons[-1])


def _note_variable(found: Watch, frame: Any, event: str, called: Any) -> None:
    """The same of a context variable's."""
    user, variable, method = _users(found, frame), called.__self__, called.__name__
    if user is None:
        return
    if event == "c_return":
        found.contexts.done(variable, method)
    elif event == "c_call" and found.contexts.asks(variable, method):
        found.note(f"it reads the context variable {variable.name}", user)


def _note_setter(found: Watch, name: str, module: str, frame: Any) -> None:
    """Count a call of a framework's function, unless the framework itself makes it."""
    by = ""
    while frame is not None and (by := frame.f_globals.get("__name__", "")).startswith(_WRAPPERS):
        frame = frame.f_back
    if module.partition(".")[0] in _FRAMEWORKS and by.partition(".")[0] not in (*_FRAMEWORKS, "hybrid_infer"):
        found.note(f"it calls {name} of {module.partition('.')[0]}, which outlasts the call", frame)


def _sets_what_is_set(frame: Any) -> bool:
    """Is ``set_device`` about to set the device that is set? Detectors do so around what has kernels for the CPU alone.
    """
    if frame.f_code.co_name != "set_device":
        return False
    wanted, ask = frame.f_locals.get("device"), frame.f_globals.get("get_device")
    return isinstance(wanted, str) and callable(ask) and ask() == wanted


_FRAMEWORKS = ("torch", "paddle")
_WRAPPERS = (
    "torch._compile", "torch._dynamo", "torch.utils._contextlib", "paddle.base.wrapped_decorator", "contextlib",
)  # fmt: skip


def _numpy_state(numpy: Any) -> Any:
    if numpy is None:
        return None
    _, keys, position, *rest = numpy.random.get_state()
    return keys.tobytes(), position, rest


def _install() -> None:
    """Put the two observers in place, once per process; they cost nothing while no watch is on."""
    global _HOOKED
    with _LOCK:
        if _HOOKED:
            return
        _HOOKED = True
        sys.addaudithook(_audit)
        decode = os.environ.decodekey

        def noting(encode: Callable[[Any], Any]) -> Callable[[Any], Any]:
            def encodekey(key: Any) -> Any:
                found = getattr(_LOCAL, "watch", None)
                if found is not None and isinstance(key, (str, bytes)) and _asks(found, sys._getframe(1)):
                    name = os.fsdecode(key)
                    found.variables.setdefault(name, _environment.state(name))
                return encode(key)

            return encodekey

        def decodekey(key: Any) -> Any:  # of each in turn: a variable that is not there yet may come to be among them
            found = getattr(_LOCAL, "watch", None)
            if found is not None and (user := _users(found, sys._getframe(1))) is not None:
                found.note("it reads the environment as a whole", user)
            return decode(key)

        os.environ.encodekey, os.environ.decodekey = noting(os.environ.encodekey), decodekey
        _OBSERVERS.append(os.environ.encodekey)
        if os.supports_bytes_environ:
            os.environb.encodekey = noting(os.environb.encodekey)


#: What a trace must not do, as the eager method will do it, by the event that tells of it.
_CHANGES = {
    **dict.fromkeys(
        ("subprocess.Popen", "os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn"),
        "it runs another program",
    ),
    **dict.fromkeys(
        ("os.mkdir", "os.rmdir", "os.remove", "os.rename", "os.link", "os.symlink", "os.truncate", "os.chmod",
         "os.chown", "os.utime"), "it changes the file system",
    ),
}  # fmt: skip
_EVENTS = frozenset({"open", "os.putenv", "os.unsetenv", *_CHANGES})


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if event not in _EVENTS:
        return
    found = getattr(_LOCAL, "watch", None)
    if found is not None and event in _CHANGES:
        if (user := _users(found, _past_stand_in(event, sys._getframe(1)))) is not None:
            found.note(_CHANGES[event], user)
            raise TraceError(found.reasons[-1])
        return
    if found is not None and event != "open":
        if _asks(found, sys._getframe(1)):
            name = found.assigned.note(arguments[0])
            found.note(f"it sets the environment variable {name}", _users(found, sys._getframe(1)))
        return
    if found is None or str(arguments[0]).endswith((".py", ".pyc")):
        return
    user = _users(found, sys._getframe(1))
    if user is not None:
        found.note(f"it opens the file {arguments[0]}", user)
        if arguments[2] & (os.O_WRONLY | os.O_RDWR):  # a trace must not write what the eager method will write
            raise TraceError(found.reasons[-1])


def _past_stand_in(event: str, frame: Any) -> Any:
    """The frame that asks, where a program has put a function of its own in the place of the system's."""
    module, _, name = event.partition(".")
    stands = getattr(getattr(sys.modules.get(module), name, None), "__code__", None)
    return frame.f_back if frame.f_code is stands else frame


#: What reads the environment for itself, by the names of its modules: its settings are no part of a method.
_TOOLS = frozenset(
    {
        "torch", "torchgen", "functorch", "paddle", "paddle2onnx", "onnx", "onnxscript", "onnx_ir", "onnxruntime",
        "openvino", "numpy", "sympy", "triton", "cupy", "tensorrt", "hybrid_infer",
    }
)  # fmt: skip


def _asks(found: Watch, frame: Any) -> bool:
    """Is it the user's code, or a library that runs as part of the method, which looks into the environment?"""
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if name.partition(".")[0] in _TOOLS:
            return False
        if _origin.of_file(found.line(frame)[0], name) != _origin.PYTHON:
            return True
        frame = frame.f_back
    return False


_SKIPPED = (
    "numpy", "os", "pathlib", "io", "codecs", "tempfile", "json", "collections", "importlib", "genericpath", "uuid",
    "secrets", "random", "posixpath", "ntpath", "glob", "shutil", "subprocess", "locale", "platform", "multiprocessing",
)  # fmt: skip
#: What an import runs of a module that is not there yet: what it asks of the file system is none of the method's.
_IMPORTS: types.CodeType = importlib._bootstrap._find_and_load.__code__  # type: ignore[attr-defined]
#: What stands between code and what it calls.
_PASSED_ON = (
    "hybrid_infer.capture._outside", "paddle.jit.dy2static.convert_operators",
    *(f"hybrid_infer.frontends._paddle_{name}" for name in ("source", "shown", "loops")),
)  # fmt: skip


def _users(found: Watch, frame: Any) -> Any:
    """The frame of the user's code that asks, directly or through a library that merely passes it on; else None."""
    while frame is not None and frame.f_code is not _IMPORTS:
        name = frame.f_globals.get("__name__", "")
        top = name.partition(".")[0]
        file = frame.f_code.co_filename
        if top in _SKIPPED or file.startswith("<frozen") or name in _PASSED_ON:
            frame = frame.f_back
            continue
        file = found.line(frame)[0]
        if file != frame.f_code.co_filename and _origin.of_file(file, "") == _origin.PYTHON:
            frame = frame.f_back  # Python's own code that a framework has rewritten, in a module of another name
            continue
        mine = "site-packages" not in file and "/lib/python" not in file and top != "hybrid_infer"
        return frame if mine else None
    return None
