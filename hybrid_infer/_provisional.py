"""Choices of an engine that were made on a busy machine, kept for a while.

What was measured there is worth little, but measuring takes seconds, the more the busier the machine is: the processes
of the next minute take over what one has found, and after each further measurement the time is longer. Once it is over,
an engine that was far ahead of the eager method is still taken over by what a process calls in its first minute: what
another engine may gain there is less than the seconds that it waits for a measurement. So is whatever was chosen where
the machine is still busy: what would be measured is worth no more than what is there, and where it comes out otherwise,
calls are captured that were left alone before.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Mapping
from typing import Any

from hybrid_infer import _others
from hybrid_infer._choice import EAGER, Choice
from hybrid_infer._family import Held
from hybrid_infer._pauses import ever_longer
from hybrid_infer._request import Request

_log = logging.getLogger("hybrid_infer")

#: Seconds until what was measured on a busy machine is measured again, and how many times longer it is at each time.
_AGAIN, _LONGER = 60.0, 5.0
#: Seconds for which it is taken over once its time is over, of an engine that was so many times as fast as eager.
_LEFT_OVER, _FAR_AHEAD = 60.0, 2.0
_NOTE = "choices.json"
_MOST = 64  # choices beside one version


def pause(times: int) -> float:
    """Seconds for which a choice holds that was made on a busy machine, as `times` others had been before it."""
    return ever_longer(_AGAIN, times, factor=_LONGER)


def far_ahead(choice: Choice) -> bool:
    """Is an engine so much faster than the eager method that it was not for the noise?"""
    return choice.seconds.get(EAGER, 0.0) >= _FAR_AHEAD * choice.seconds.get(choice.name, math.inf)


def known(request: Request, held: Held, key: str) -> Choice | None:
    """What some process has found for a key a short time ago; None where nothing is new, or its time is over.

    An engine that was far ahead is taken over also then, for a minute of this process, and any on a busy machine.
    """
    record = _read(request.store.note(held.entry, _NOTE)).get(key)
    if record is None:
        return None
    try:
        choice, times = Choice.from_meta(record), int(record["times"])
        left = float(record["until"]) - time.time()
    except (KeyError, TypeError, ValueError) as fault:
        _log.debug("%s: a choice is made again: %s", request.name, fault)
        return None
    if not held.doubtful[key] < times < _MOST:
        return None
    held.doubtful[key] = times
    if not 0 < left <= pause(times - 1):  # its time is over, or the clock was another one
        if not (far_ahead(choice) or _others.crowded()):
            return None
        left = _LEFT_OVER
    return Choice(choice.name, choice.seconds, False, time.monotonic() + left, choice.in_a_row)


def remember(request: Request, held: Held, key: str, choice: Choice) -> None:
    """Keep a choice beside its version until its time is over."""
    times = held.doubtful[key]
    made = {**choice.to_meta(), "times": times, "until": time.time() + pause(times - 1)}

    def merge(before: bytes) -> bytes:
        kept = _read(before)
        kept.pop(key, None)
        while len(kept) >= _MOST:
            kept.pop(next(iter(kept)))
        return json.dumps({**kept, key: made}).encode()

    request.store.update_note(held.entry, _NOTE, merge)


def _read(note: bytes) -> dict[str, Mapping[str, Any]]:
    try:
        found = json.loads(note) if note else {}
    except ValueError:
        return {}
    if not isinstance(found, dict):
        return {}
    return {name: each for name, each in found.items() if isinstance(each, dict)}
