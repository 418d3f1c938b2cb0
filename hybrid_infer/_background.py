"""Compilation while calls are answered eagerly: jobs, and the one thread that works on them.

A job has copies of the tensors of the call that it is about, so that the program may change its own; it holds the
instance until it is done. The thread ends when there is nothing to do, and its memory with it.
"""

from __future__ import annotations

import atexit
import contextlib
import contextvars
import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from hybrid_infer._pauses import for_a_while
from hybrid_infer._route import Eager
from hybrid_infer._signature import Layout
from hybrid_infer.capture import _forked

_log = logging.getLogger("hybrid_infer")

REASON = "it is being compiled in the background"
_PAUSE = 300.0  # seconds after which what failed in a way of its own is tried again
_LINGER = 1.0  # seconds for which the thread waits for another job
_PATIENCE = 20.0  # seconds for which the end of the program waits for a build that no signal can stop


class Work(Protocol):
    """What the thread can be given. ``run`` raises nothing."""

    def run(self) -> None: ...


class Job:
    """One call to compile for: the state of its instance, its key, its values with copies of the tensors.

    ``keyed``: see ``State.keyed``.
    """

    def __init__(
        self, state: Any, owner: tuple[Any, ...], style: Any, keyed: tuple[Any, Any], layout: Layout, errand: Any
    ) -> None:
        self.state, self.owner, self.errand = state, owner, errand
        self.key, self.ambient = keyed
        frontend, parameters = state.frontend, state.parameters
        self.values = layout.rebuilder(frontend, parameters.defaults)([*map(frontend.duplicate, layout.tensors)])
        self.args, self.kwargs = parameters.unbind(self.values, *style)
        self.context = contextvars.copy_context()
        self.modes: Callable[[], AbstractContextManager[Any]] = frontend.modes()
        self._done = False

    def pending(self) -> bool:
        return not self._done

    def run(self) -> None:
        """Compile, and leave what was found where the next call looks."""
        try:
            with self.modes():
                self.context.run(
                    self.state.compile, self.owner, tuple(self.args), self.kwargs, self.values, self.key, self.errand,
                    self.ambient,
                )  # fmt: skip
        except (Exception, SystemExit) as fault:  # the method's own wish to end the program is for its callers
            self._fail(fault)
        finally:
            self._done = True
            self._let_go()

    def _let_go(self) -> None:
        """Of the instance and the copies: routes and the state ask this for good whether it is pending."""
        self.owner, self.args, self.kwargs, self.values = (), (), {}, ()
        self.context, self.modes = contextvars.Context(), contextlib.nullcontext

    def _fail(self, fault: BaseException) -> None:
        reason = f"{fault}" if isinstance(fault, _forked.Crashed) else f"compiling it in the background failed: {fault}"
        if not _worker.stopping:
            _log.warning("%s runs eagerly: %s", self.state.method.name, reason)
            _log.debug("%s: %s", self.state.method.name, reason, exc_info=True)
        self.state.remember(self.key, Eager(reason, for_a_while(_PAUSE), kind="build"))


class _Worker:
    def __init__(self) -> None:
        self.jobs: deque[Work] = deque()
        self.changed = threading.Condition()
        self.thread: threading.Thread | None = None
        self.stopping = False

    def submit(self, job: Work) -> None:
        with self.changed:
            if self.stopping:
                return
            self.jobs.append(job)
            self.changed.notify()
            if self.thread is None:
                # A daemon: a program that ends does not wait for what nobody will use. See `stop`.
                thread = threading.Thread(target=self.work, name="hybrid_infer background", daemon=True)
                try:
                    thread.start()
                except RuntimeError:
                    self.jobs.remove(job)
                    raise
                self.thread = thread

    def work(self) -> None:
        while (job := self._next()) is not None:
            with _forked.at_work:
                job.run()
            del job  # and with it the instance and the copies, before the next one is waited for

    def _next(self) -> Work | None:
        with self.changed:
            if not self.jobs and not self.stopping:
                self.changed.wait(_LINGER)
            if self.jobs and not self.stopping:
                return self.jobs.popleft()
            self.thread = None
            return None

    def stop(self) -> None:
        """At the end of the program: no thread may be inside an engine or a framework when the interpreter goes."""
        with self.changed:
            self.stopping = True
            self.jobs.clear()
            self.changed.notify()
            thread = self.thread
        _forked.stop()
        if thread is not None:
            thread.join(_PATIENCE)


_worker = _Worker()


def _stop() -> None:
    _worker.stop()


atexit.register(_stop)


def _enter_child() -> None:
    """A forked child has no worker thread; what was compiled for the parent is compiled anew when it is called."""
    global _worker
    _worker = _Worker()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_enter_child)


def submit(job: Work) -> None:
    """Have a job done, after those that were submitted before. Raises RuntimeError where no thread can be begun."""
    _forked.guard_forks()
    _worker.submit(job)


def stopping() -> bool:
    """Is the program ending?"""
    return _worker.stopping


def wait() -> None:
    """Return when everything that was submitted is done, and the thread that did it has ended."""
    while (thread := _worker.thread) is not None:
        thread.join()
