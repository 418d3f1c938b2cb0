"""``enable_cinn=True``: the native executor's fusing compiler is demanded; the user is told where it cannot be had.

Without it, it is used where it serves: on a GPU it is among the candidates in any case.
"""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING, Any

from hybrid_infer import _trt

if TYPE_CHECKING:
    from hybrid_infer._options import Options
    from hybrid_infer._request import Request

_log = logging.getLogger("hybrid_infer")

NAME = "native"


def _absent(device: str) -> str:
    """Why it cannot be had for tensors there; empty if it can."""
    from hybrid_infer import backends

    if device.partition(":")[0] not in _trt.DEVICES:
        return f"it compiles for NVIDIA GPUs, and the tensors of the call are on the device {device!r}"
    return backends.engine(NAME, device).missing()


def names_the_order(options: Options, device: str) -> bool:
    """Is the native executor taken for tensors there, without a measurement?"""
    return options.enable_cinn and not _absent(device)


def wanted(options: Options, device: str) -> bool:
    """Is it to be tried before the engines that were not asked for? If not, the user is told why, once."""
    if not options.enable_cinn:
        return False
    reason = _absent(device)
    if reason:
        _say_absent(reason)
    return not reason


@functools.cache
def _say_absent(reason: str) -> None:
    _log.warning("enable_cinn=True: the next engine serves instead of the native executor: %s", reason)


@functools.cache
def _say_passed_over(method: str, reason: str) -> None:
    _log.warning("enable_cinn=True: the next engine serves %s instead of the native executor: %s", method, reason)


def passed_over(request: Request, engine: Any, reason: str) -> None:
    """It was demanded and cannot serve a version: said once."""
    if request.options.enable_cinn and engine.name == NAME:
        _say_passed_over(request.name, reason.removeprefix(f"{NAME}: "))
