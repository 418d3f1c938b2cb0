"""Rows that a cluster of blocks was to share, on a GPU that refuses clusters: a block takes each row alone.

A part of a GPU that a process was given may lack the multiprocessors that a cluster runs on, and a driver may refuse
what it should take. It is asked when a program is loaded; and what it refuses at a launch is known from then on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hybrid_infer import _fork_safe
from hybrid_infer.backends import _fork
from hybrid_infer.backends._cuda._driver import DriverError
from hybrid_infer.backends.native._build import ABSENT, Kernels
from hybrid_infer.backends.native._cuda_access import Kernel
from hybrid_infer.backends.native._cuda_tilings import Tiling
from hybrid_infer.backends.native._device import Device

#: CUDA_ERROR_INVALID_VALUE, LAUNCH_OUT_OF_RESOURCES, NOT_SUPPORTED and INVALID_CLUSTER_SIZE: what a launch is refused
#: with before it is enqueued. Others tell of work that was enqueued earlier.
_REFUSALS = (1, 701, 801, 912)

_noting = _fork_safe.Lock()
#: The blocks of the smallest cluster whose launch was refused, and why, by the driver's interface and GPU's number.
_refused: dict[tuple[Device, int], tuple[int, str]] = {}


class ClusterRefused(DriverError):
    """The launch of a cluster of so many ``blocks`` was refused."""

    def __init__(self, message: str, blocks: int) -> None:
        super().__init__(message)
        self.blocks = blocks


def refuses(error: DriverError) -> bool:
    """Does it say that a launch cannot be, and nothing of what was enqueued before?"""
    return error.code in _REFUSALS


def note(device: Device, index: int, refusal: ClusterRefused) -> None:
    """Clusters that are as large are not tried again on the GPU of that number."""
    with _noting:
        least, _ = _refused.get((device, index), (refusal.blocks + 1, ""))
        if refusal.blocks < least:
            _refused[device, index] = refusal.blocks, str(refusal)


def unfit(kernels: Kernels, device: Device, index: int, find: Callable[[int, str, int], int]) -> dict[str, str]:
    """Why kernels whose blocks work in clusters do not run on the GPU of that number, which is current, by name.

    `find` gives an entry point by module, name and shared memory.
    """
    found: dict[str, str] = {}
    for name, (module, kernel) in kernels.kernels.items():
        clusters = [each for each in kernel.tilings if each.blocks > 1 and module != ABSENT]
        reasons = (_why(device, index, find, module, each) for each in clusters)
        if why := next(filter(None, reasons), ""):
            found[name] = why
    return found


def _why(device: Device, index: int, find: Callable[[int, str, int], int], module: int, each: Tiling) -> str:
    least, why = _refused.get((device, index), (each.blocks + 1, ""))
    if each.blocks >= least:
        return why
    try:
        room = device.clusters(find(module, each.entry, each.shared), each.blocks, each.threads, each.shared)
    except DriverError as error:
        return str(error)
    return "" if room else f"this GPU has no room for {each.blocks} blocks at the same time"


def alone(kernel: Kernel) -> Kernel | None:
    """`kernel` by what it has without clusters; None where that does not serve all calls."""
    rest = [each for each in kernel.tilings if each.blocks == 1]
    wide = not all(each.narrow for each in kernel.tilings)
    serves = any(not each.narrow for each in rest) if wide else bool(rest)
    return replace(kernel, tilings=rest) if serves else None


_fork.in_child(_refused.clear)
