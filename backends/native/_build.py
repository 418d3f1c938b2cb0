"""Plans made ready for GPUs: their kernels as cubins, and what launching them takes, as files of a plan.

Kernels of steps that a library computes may be left out: how they are launched is known, and they are compiled where
the library turns out not to compute them (see `hybrid_infer.backends.native._late`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from hybrid_infer.backends.native import _kernels, _nvrtc
from hybrid_infer.backends.native._cuda_access import Kernel
from hybrid_infer.backends.native._plan import Plan, Step, refuse

#: How the kernels of a plan are launched, and which step has which.
KERNELS = "kernels.json"
#: One of the modules that hold them.
MODULE = "kernels-{}.cubin"

#: Modules of one plan at most: each is compiled by a thread of its own.
_MODULES = 8

#: In place of the number of a module: the kernel was left out.
ABSENT = -1

#: What needs no kernel: it names memory that is there, or copies it whole.
FREE = ("view", "Identity")


class Kernels(NamedTuple):
    """The kernels of a plan, each with the number of its module. ``steps``: the name of each step's, empty of none.

    ``compiler``: the release of the compiler that made them.
    """

    architecture: str
    compiler: str
    kernels: Mapping[str, tuple[int, Kernel]]
    modules: list[bytes]
    steps: list[str]


def uncovered(plan: Plan, kernels: Mapping[str, Kernel]) -> str:
    """Why a plan cannot run on a GPU as a whole; empty if it can."""
    assert plan.memory is not None
    if plan.memory["apart"]:
        return f"the size of {plan.memory['apart'][0]!r} is known only once it is computed"
    for step in plan.steps:
        if step.op not in FREE and _kernels.name_of(plan, step) not in kernels:
            return f"has no kernel for {step.op} {_words(plan, step)}"
        if step.op in FREE and plan.values.get(step.outputs[0], None) is None:
            return f"has no kernel for {step.op} of an unknown size"
    return ""


def _words(plan: Plan, step: Step) -> str:
    values = [plan.values.get(name) for name in step.inputs if name]
    return "of " + ", ".join("something unknown" if v is None else f"{v.dtype} {_sizes(v.shape)}" for v in values)


def _sizes(shape: Any) -> str:
    return "of unknown rank" if shape is None else str(tuple(n if isinstance(n, int) else "?" for n in shape))


def build(plan: Plan, architecture: str, without: Collection[str] = ()) -> dict[str, bytes]:
    """`KERNELS` and modules of a plan, compiled but for the kernels named in `without`. Raises EngineError."""
    kernels = _kernels.kernels(plan, architecture)
    if reason := uncovered(plan, kernels):
        raise refuse(reason)
    groups = _groups({name: kernel for name, kernel in kernels.items() if name not in without})
    modules = compiled([_kernels.unit([kernels[name] for name in group]) for group in groups], architecture)
    where = {name: i for i, group in enumerate(groups) for name in group}
    steps = ["" if step.op in FREE else _kernels.name_of(plan, step) for step in plan.steps]
    data = {
        "architecture": architecture,
        "compiler": _nvrtc.version(),
        "modules": len(modules),
        "kernels": {name: [where.get(name, ABSENT), kernel.to_json()] for name, kernel in kernels.items()},
        "steps": steps,
    }
    for step, name in zip(plan.steps, steps, strict=True):
        if name and kernels[name].what:
            plan.decide("kernels", step.outputs[0], kernels[name].what)
    plan.decide("kernels", "", f"{len(kernels)} kernels serve {len(steps) - steps.count('')} steps, for {architecture}")
    if left := len(kernels) - len(where):
        plan.decide("kernels", "", f"{left} of them are compiled only where no library computes their steps")
    files = {KERNELS: json.dumps(data, separators=(",", ":")).encode()}
    files.update({MODULE.format(i): module for i, module in enumerate(modules)})
    return files


def compiled(units: Sequence[str], architecture: str) -> list[bytes]:
    """The cubins of several sources, side by side: the compiler holds no lock. Raises EngineError."""
    with ThreadPoolExecutor(max(min(len(units), _cores()), 1), "hybrid_infer-nvrtc") as pool:
        return list(pool.map(lambda unit: _nvrtc.compile_cubin(unit, architecture), units))


def _cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _groups(kernels: Mapping[str, Kernel]) -> list[list[str]]:
    """Names of kernels, shared out so that the groups take about as long to compile."""
    count = min(_MODULES, _cores(), len(kernels))
    groups: list[list[str]] = [[] for _ in range(count)]
    loads = [0] * count
    for name in sorted(kernels, key=lambda each: -len(kernels[each].source)):
        least = loads.index(min(loads))
        groups[least].append(name)
        loads[least] += len(kernels[name].source) * len(kernels[name].names)
    return groups


def restore(files: Mapping[str, bytes]) -> Kernels:
    """What `build` made. Raises EngineError for anything else."""
    try:
        data = json.loads(files[KERNELS])
        return Kernels(
            str(data["architecture"]),
            str(data["compiler"]),
            {name: (int(module), Kernel.from_json(kernel)) for name, (module, kernel) in data["kernels"].items()},
            [files[MODULE.format(i)] for i in range(data["modules"])],
            [str(name) for name in data["steps"]],
        )
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise refuse(f"the stored kernels cannot be read: {error}") from error
