"""Kernels that a plan was made without, since a library computed their steps there, and that are needed after all.

They are compiled when it shows: as a program is loaded, where the library is absent or refuses; at a call, where it
refuses its sizes. They are kept on a shelf, one file that processes and plans share, so that the next process compiles
nothing; what was lost there is compiled again.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence

from hybrid_infer._errors import PassingFault
from hybrid_infer.backends.native import _build, _kernels, _libraries, _nvrtc, _parts
from hybrid_infer.backends.native._build import ABSENT, FREE, Kernels
from hybrid_infer.backends.native._cuda_access import Kernel
from hybrid_infer.backends.native._plan import NAME, Plan, Step, refuse
from hybrid_infer.backends.native._schedule import Offer
from hybrid_infer.backends.native._shelf import Shelf

_log = logging.getLogger("hybrid_infer")

#: Bytes that the shelf holds at most: some hundred kernels.
LIMIT = 8 << 20

#: The oldest release of CUDA whose compiler is used.
_OLDEST = 12


def wanted(plan: Plan, kernels: Kernels, offers: Sequence[Offer]) -> dict[str, Step]:
    """The steps, by the names of their kernels, that lack one and that no library computes, as far as is known now.

    Of what depends on the sizes of a call libraries are asked at the call, if there are any.
    """
    lacking = {
        name: step for step, name in zip(plan.steps, kernels.steps, strict=True)
        if step.op not in FREE and kernels.kernels[name][0] == ABSENT
    }  # fmt: skip
    if not lacking or not offers:
        return lacking
    fixed = {name: step for name, step in lacking.items() if not _libraries.open_sizes(plan, step)}
    computed = _libraries.taken(plan, offers, only=fixed)
    return {name: step for name, step in fixed.items() if name not in computed}


def cubins(
    plan: Plan, steps: Mapping[str, Step], architecture: str, shelf: Shelf | None, driver: int
) -> dict[str, bytes]:
    """The cubins of the kernels of `steps`, by name: from the shelf, or compiled and put there.

    `driver`: its release of CUDA; it loads what compilers up to that one made. Raises EngineError.
    """
    made = {name: _kernel(plan, step, name, architecture) for name, step in steps.items()}
    why = f"no library computes {_ops(steps)} here, and its plan was made without a kernel of its own"
    return _cubins(made, architecture, shelf, driver, why)


def without_clusters(
    plan: Plan, steps: Mapping[str, Step], architecture: str, shelf: Shelf | None, driver: int
) -> dict[str, tuple[bytes, Kernel]]:
    """The same for steps over rows whose kernels have clusters of blocks: others, which have none."""
    made = {name: _kernel(plan, step, name, architecture, clusters=False) for name, step in steps.items()}
    why = "clusters of blocks are refused here, and its plan was made without kernels that have none"
    found = _cubins(made, architecture, shelf, driver, why)
    return {name: (found[name], kernel) for name, kernel in made.items()}


def _ops(steps: Mapping[str, Step]) -> str:
    return ", ".join(dict.fromkeys(step.op for step in steps.values()))


def _cubins(
    kernels: Mapping[str, Kernel], architecture: str, shelf: Shelf | None, driver: int, why: str
) -> dict[str, bytes]:
    sources = {name: _kernels.unit([kernel]) for name, kernel in kernels.items()}
    kept, found = {} if shelf is None else _parts.read(shelf.read()), dict[str, bytes]()
    for release in range(_OLDEST, driver + 1):
        keys = {name: _key(architecture, release, source) for name, source in sources.items()}
        taken = {name: kept[key].whole() for name, key in keys.items() if key in kept}
        found |= {name: cubin for name, cubin in taken.items() if cubin is not None}
    missing = [name for name in kernels if name not in found]
    if not missing:
        return found
    if reason := _nvrtc.lacking(driver):
        raise PassingFault(NAME, f"{why}: {reason}")
    made_by = int(_nvrtc.version().partition(".")[0] or driver)
    keys = {name: _key(architecture, made_by, source) for name, source in sources.items()}
    _log.info("%s: %d kernels are compiled that the plan lacks: %s", NAME, len(missing), why)
    made = dict(zip(missing, _build.compiled([sources[name] for name in missing], architecture), strict=True))
    if shelf is not None:
        new = {keys[name]: cubin for name, cubin in made.items()}
        shelf.update(lambda data: _parts.written(_parts.newest(new, _parts.read(data), LIMIT)))
    return {**found, **made}


def _key(architecture: str, release: int, source: str) -> str:
    return hashlib.sha256(f"{architecture}\0{release}\0{source}".encode()).hexdigest()


def _kernel(plan: Plan, step: Step, name: str, architecture: str, clusters: bool = True) -> Kernel:
    kernel = _kernels.kernel(plan, step, name, architecture, clusters)
    if kernel is None:
        raise refuse(f"has no kernel for {step.op}")
    return kernel
