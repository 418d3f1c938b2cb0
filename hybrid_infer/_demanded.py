"""Options that demand an engine, and what the user is told, once, where another one serves."""

from __future__ import annotations

import functools
import logging
from typing import NamedTuple

_log = logging.getLogger("hybrid_infer")


class Demand(NamedTuple):
    """``option=True`` demands ``engine``, by the name that a user knows."""

    option: str
    engine: str


@functools.cache
def say_absent(demand: Demand, reason: str) -> None:
    _log.warning("%s=True: the next engine serves instead of %s: %s", *demand, reason)


@functools.cache
def say_passed_over(demand: Demand, method: str, reason: str) -> None:
    option, engine = demand
    _log.warning("%s=True: the next engine serves %s instead of %s: %s", option, method, engine, reason)
