"""``enable_cinn=True``: the native executor's fusing compiler is demanded; the user is told where it cannot be had.

Without it, it is used where it serves: on a GPU it is among the candidates in any case.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hybrid_infer import _trt
from hybrid_infer._demanded import Demand, say_absent, say_passed_over

if TYPE_CHECKING:
    from hybrid_infer._options import Options
    from hybrid_infer._request import Request

NAME = "native"

_DEMAND = Demand("enable_cinn", "the native executor")


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
        say_absent(_DEMAND, reason)
    return not reason


def passed_over(request: Request, engine: Any, reason: str) -> None:
    """It was demanded and cannot serve a version: said once."""
    if request.options.enable_cinn and engine.name == NAME:
        say_passed_over(_DEMAND, request.name, reason.removeprefix(f"{NAME}: "))
