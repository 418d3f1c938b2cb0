"""The code that the eager method runs, where a static model is to be kept with the code that its trace ran (`_ran`).

A method may ask whether it is traced, or of what class a tensor is, and take another way where it is not. Its answers
come of that way, so that the code there counts as well: it is seen at the eager run that a static model is compared
with, before anybody relies on the model. Where it is more than the trace ran, the method is captured once more.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from hybrid_infer import _profiler
from hybrid_infer.state._ran import Trail


class Eagerly(NamedTuple):
    """``codes``: marks of code that eager calls have run and no trace; ``hidden``: why that may not be all of it."""

    codes: frozenset[str] = frozenset()
    hidden: str = ""


#: Of most methods.
NOTHING_ELSE = Eagerly()


class MoreRan(Exception):
    """The eager method has run code that the trace did not."""


@contextlib.contextmanager
def noted(trail: Trail | None) -> Iterator[None]:
    """What runs inside is put on the trail, if there is one."""
    if trail is None:
        yield
        return
    if _profiler.hindrance():
        trail.lost = _profiler.hindrance()
        yield
        return

    def observe(frame: Any, event: str, called: Any) -> None:
        if event == "call":
            trail.note(frame)
        elif event == "c_call":
            trail.called(frame, called)

    with _profiler.observed(observe) as ours:
        yield
    if ours.lost:
        trail.lost = "it sets another profile function, which outlasts the call"
    trail.look_at_caches()


def more(trail: Trail, subject: Any) -> Eagerly | None:
    """What has run beside that which counts for a subject; None where that is all."""
    assert subject.among is not None
    codes = trail.marks(subject, subject.among) - subject.among
    if not codes and not trail.lost:
        return None
    found = subject.narrowed(subject.among | codes)
    return Eagerly(codes, "; ".join([*found.opaque, *trail.hidden(found)][:3]))
