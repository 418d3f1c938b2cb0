"""A capture in a child process, so that the program's own threads keep the interpreter to themselves.

A tracer is Python code for seconds: in a thread of the program, every operator that eager code runs meanwhile waits for
the interpreter lock. A forked child has the layer as it is, and needs no copy of it; what it found out comes back as
plain data. It runs at low priority and keeps its hands off whatever it inherits.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import json
import logging
import os
import select
import signal
import stat
import sys
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any, NoReturn

from hybrid_infer import _fork_safe
from hybrid_infer._errors import HybridInferError
from hybrid_infer._request import Outcome
from hybrid_infer._unwarned import unwarned
from hybrid_infer._version import Version

_log = logging.getLogger("hybrid_infer")

_NICENESS = 15  # of 19: a thirtieth of a core that others use in full
_LIMIT = 1800.0  # seconds after which a child is given up
_STUCK = 20.0  # seconds of sleep after which it is: it waits for a lock that a thread of the parent held
_PATIENCE = 20.0  # seconds for which the program's own fork waits for a build
_POLL = 0.5
_ATTEMPTS = 20
_RETRY = 75  # exit code of a child that was forked at a bad moment
_SET_PDEATHSIG = 1  # of prctl(2), on Linux

_CHILDREN: set[int] = set()


class AtWork:
    """Held by the thread that compiles, except while it waits for a child. Whoever forks the program waits for it.

    Otherwise a child of the program could inherit an import, or an engine's lock, that nobody would ever end.
    """

    def __init__(self) -> None:
        self.lock = _fork_safe.Lock()
        self.holder: int | None = None

    def __enter__(self) -> None:
        self.lock.acquire()
        self.holder = threading.get_ident()

    def __exit__(self, *exception: object) -> None:
        self.holder = None
        self.lock.release()


at_work = AtWork()
_paused = threading.local()


def _before_fork() -> None:
    mine = at_work.holder == threading.get_ident()
    _paused.lock = at_work.lock if not mine and at_work.lock.acquire(timeout=_PATIENCE) else None


def _after_fork() -> None:
    lock, _paused.lock = getattr(_paused, "lock", None), None
    if lock is not None:
        lock.release()


def _enter_child() -> None:
    global at_work
    at_work, _paused.lock = AtWork(), None
    _CHILDREN.clear()


@functools.cache
def guard_forks() -> None:
    """From now on, whoever forks the program waits for the thread that compiles.

    The last that is registered is asked first. The locks of the store have a hook as well, which stops that thread
    where it is: waiting for it afterwards would be for ever.
    """
    import filelock  # noqa: F401

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_enter_child)


class Crashed(HybridInferError):
    """The process that traced a call ended without an answer; ``how`` says in what way."""

    def __init__(self, how: str) -> None:
        super().__init__(how)
        self.how = how

    def __str__(self) -> str:
        return f"the process that compiled it in the background {self.how}"


def possible(frontend: Any) -> bool:
    """Can a child of this process trace? Elsewhere than on Linux a fork of a program with threads is not safe."""
    return sys.platform == "linux" and bool(frontend.forkable())


def capture(trace: Callable[[], Outcome], alone: _fork_safe.Lock, frontend: Any) -> Outcome:
    """What ``trace()`` gives, found out in a child. `alone` is held for the fork: no other capture is half done then.

    For the thread that holds ``at_work``.

    Raises Crashed; OSError where no child could do it, for want of processes or because it inherited a lock that
    another thread held.
    """
    for attempt in range(_ATTEMPTS):
        received, how, status = _once(trace, alone, frontend)
        if status != _RETRY:
            break
        time.sleep(0.05 * (attempt + 1))
    else:
        raise BlockingIOError("another thread imports modules all the time")
    outcome = _outcome(received)
    if outcome is None:
        raise Crashed(how)
    return outcome


def _once(trace: Callable[[], Outcome], alone: _fork_safe.Lock, frontend: Any) -> tuple[bytes, str, int | None]:
    receiving, sending = os.pipe()
    try:
        with alone:
            parent, child = os.getpid(), _fork()
            if child == 0:
                _answer(trace, sending, frontend, parent)
            _CHILDREN.add(child)
    except OSError:
        os.close(receiving)
        raise
    finally:
        os.close(sending)
    working = at_work
    working.__exit__()
    try:
        return _receive(receiving, child)
    finally:
        working.__enter__()
        _CHILDREN.discard(child)
        os.close(receiving)


def _fork() -> int:
    with unwarned(DeprecationWarning):  # of threads, which is why so little is done in the child
        return os.fork()


def _answer(trace: Callable[[], Outcome], sending: int, frontend: Any, parent: int) -> NoReturn:
    """In the child: trace, send, and end without any clean-up, which is the parent's."""
    try:
        if _importing():
            os._exit(_RETRY)
        _end_with(parent)
        _settle(sending)
        frontend.enter_child()
        outcome = trace()
        graph = outcome.graph
        meta = {
            "version": outcome.version.to_meta(),
            "kept_off": list(outcome.kept_off),
            "graph": None if graph is None else len(graph.model),
        }
        with os.fdopen(sending, "wb") as pipe:
            pipe.write(json.dumps(meta).encode() + b"\n")
            if graph is not None:
                pipe.write(graph.model)
        os._exit(0)
    finally:
        os._exit(1)


def _importing() -> bool:
    """Was a thread of the parent in the middle of an import? Nobody would ever release its module."""
    specs = [getattr(module, "__spec__", None) for module in list(sys.modules.values())]
    return any(getattr(spec, "_initializing", False) for spec in specs)


def _settle(sending: int) -> None:
    gc.freeze()  # what the parent no longer needs is not for this process to destroy
    os.nice(_NICENESS)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # meant for the parent, which ends its children
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    quiet = os.open(os.devnull, os.O_RDWR)
    for stream in {0, 1, 2, *_connections()} - {sending}:
        os.dup2(quiet, stream)
    logging.disable(logging.CRITICAL)


def _connections() -> list[int]:
    """Sockets and pipes of the program: whoever is at their other end must see when the program closes them."""
    found = []
    for name in os.listdir("/dev/fd"):
        with contextlib.suppress(OSError):  # the one by which the folder was read
            mode = os.fstat(int(name)).st_mode
            if stat.S_ISSOCK(mode) or stat.S_ISFIFO(mode):
                found.append(int(name))
    return found


def _end_with(parent: int) -> None:
    """Nobody is there to hear what the child of a killed parent finds out."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _receive(receiving: int, child: int) -> tuple[bytes, str, int | None]:
    """All that a child sends until it ends, and how it ended: in words, and its exit code where that is known."""
    received = bytearray()
    life = _Life(child)
    while True:
        # A process that the program forked meanwhile may hold the other end open: its end is not waited for alone.
        if select.select([receiving], [], [], 0.0 if life.over else _POLL)[0]:
            part = os.read(receiving, 1 << 20)
            if part:
                received += part
                continue
            life.wait()
        if life.over:
            return bytes(received), life.how, life.code
        life.look()


class _Life:
    """Of a child, as far as its parent can see."""

    def __init__(self, child: int) -> None:
        self.child, self.over, self.code, self.how = child, False, None, ""
        self._end = time.monotonic() + _LIMIT
        self._used, self._since = "", time.monotonic()

    code: int | None

    def wait(self, options: int = 0) -> None:
        try:
            found, status = os.waitpid(self.child, options)
        except ChildProcessError:  # the program waits for every child itself
            self.over, self.how = True, "ended"
            return
        if found:
            self.over, self.code = True, os.waitstatus_to_exitcode(status)
            self.how = ended(self.code)

    def look(self) -> None:
        """Has it ended? Raises TimeoutError if it never will, after an end is put to it."""
        self.wait(os.WNOHANG)
        if self.over:
            return
        now, used = time.monotonic(), self._work()
        if used != self._used:
            self._used, self._since = used, now
        if now > self._end or now > self._since + _STUCK:
            os.kill(self.child, signal.SIGKILL)
            self.wait()
            raise TimeoutError("the process that traced it made no progress")

    def _work(self) -> str:
        """Something that changes while it works, waits for a processor or has a process of its own at work."""
        try:
            with open(f"/proc/{self.child}/stat", encoding="ascii", errors="replace") as file:
                state, *rest = file.read().rpartition(")")[2].split()
            with open(f"/proc/{self.child}/task/{self.child}/children", encoding="ascii") as file:
                busy = bool(file.read().strip()) or state == "R"
        except OSError:
            busy = True
        return str(time.monotonic()) if busy else " ".join(rest[10:12])


def _outcome(received: bytes) -> Outcome | None:
    """The child's message; None where it is not whole."""
    head, _, model = received.partition(b"\n")
    try:
        meta = json.loads(head)
        version = Version.from_meta(meta["version"])
    except (ValueError, KeyError, TypeError) as fault:
        _log.debug("a child that traces sent no answer: %s", fault)
        return None
    if meta["graph"] is None:
        return Outcome(version, None, tuple(meta["kept_off"]))
    if version.graph is None or len(model) != meta["graph"]:
        return None
    return Outcome(version, replace(version.graph, model=model), tuple(meta["kept_off"]))


def ended(code: int) -> str:
    """How a process ended, in words, by its exit code."""
    return f"ended with {f'signal {signal.Signals(-code).name}' if code < 0 else f'status {code}'}"


def children() -> set[int]:
    """The processes that are at work, by their ids."""
    return set(_CHILDREN)


def end(processes: Collection[int]) -> None:
    """End children that are at work: whoever waits for one learns that it crashed."""
    for child in _CHILDREN & set(processes):
        try:
            os.kill(child, signal.SIGKILL)
        except ProcessLookupError:
            _log.debug("a child that traced had ended")


def stop() -> None:
    """End all of them."""
    end(children())
