"""A plan for the sizes of one call: what is launched, in which order, and where every value lies.

An address is a base and an offset. Bases are the arena, the constants, then the plan's inputs and its outputs in their
order: what the caller brings has other addresses at each call.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hybrid_infer.backends.native import _memory, _size
from hybrid_infer.backends.native._build import ABSENT, Kernels
from hybrid_infer.backends.native._device import Properties
from hybrid_infer.backends.native._geometry import Geometry, geometry
from hybrid_infer.backends.native._plan import BYTES, Plan, Step, refuse
from hybrid_infer.backends.native._size import Atom
from hybrid_infer.backends.native._window import windows

ARENA, CONSTANTS, FIRST = 0, 1, 2


class Place(NamedTuple):
    base: int
    offset: int = 0


@dataclass(frozen=True)
class Launch:
    """A generated kernel. ``numbers`` are its 64-bit arguments behind the addresses."""

    module: int
    geometry: Geometry
    places: tuple[Place, ...]
    numbers: tuple[int, ...]
    cached: bool | None


@dataclass(frozen=True)
class Copy:
    """Bytes from one place to another: an output that is a view of something else, or an input."""

    source: Place
    target: Place
    nbytes: int


@dataclass(frozen=True)
class Call:
    """A library's function for a step ``op``; it is given the addresses of ``places``, that of its workspace, a stream.
    """

    run: Callable[[Sequence[int], int, int], None]
    places: tuple[Place, ...]
    workspace: int
    op: str


@dataclass(frozen=True)
class Schedule:
    """``total``: bytes of the arena, workspaces of libraries included. ``shapes``: of the outputs."""

    work: tuple[Launch | Copy | Call, ...]
    total: int
    shapes: tuple[tuple[int, ...], ...]


#: A library's function (see `Call`), and the bytes of workspace that it wants.
Offered = tuple[Callable[[Sequence[int], int, int], None], int]
#: Offers one for a step; None where the library has none for it.
Offer = Callable[[Plan, Step, Mapping[Atom, int]], "Offered | None"]


def constant_offsets(plan: Plan) -> tuple[dict[str, int], int]:
    """Where each constant lies in the one block that holds them, as they lie in a GPU's memory, and its size."""
    found, total = {}, 0
    for name, array in plan.constants.items():
        found[name] = total
        nbytes = array.size * BYTES[plan.values[name].dtype]
        total += -(-nbytes // _memory.ALIGNMENT) * _memory.ALIGNMENT
    return found, total


def _none(steps: Mapping[str, Step]) -> Mapping[str, int]:
    """There are no more kernels."""
    raise refuse(f"no library computes {next(iter(steps.values())).op} here, and its plan was made without its kernel")


def schedule(
    plan: Plan, kernels: Kernels, symbols: Mapping[Atom, int], gpu: Properties, offers: Sequence[Offer] = (),
    more: Callable[[Mapping[str, Step]], Mapping[str, int]] = _none,
) -> Schedule:  # fmt: skip
    """`more` gives the modules of kernels, by name, that the plan was made without, and that no library replaces.

    Raises EngineError where a kernel cannot be launched for these sizes.
    """
    assert plan.memory is not None
    layout = _memory.layout(plan.memory, symbols, BYTES)
    places: dict[str, Place] = {name: Place(ARENA, offset) for name, offset in layout.offsets.items()}
    offsets, _ = constant_offsets(plan)
    places.update({name: Place(CONSTANTS, offset) for name, offset in offsets.items()})
    places.update({name: Place(FIRST + i) for i, name in enumerate(plan.inputs)})
    given = {name: Place(FIRST + len(plan.inputs) + i) for i, name in enumerate(plan.outputs)}
    passed = [name for name in plan.outputs if name in places]  # inputs and constants that are results as they are
    places.update({name: place for name, place in given.items() if name not in places})
    for name, root in plan.memory["aliases"].items():
        places[name] = places[root]
    workspace = -(-layout.total // _memory.ALIGNMENT) * _memory.ALIGNMENT
    total = workspace
    work: list[Launch | Copy | Call] = []
    calls = [
        next((found for offer in offers if name and (found := offer(plan, step, symbols)) is not None), None)
        for step, name in zip(plan.steps, kernels.steps, strict=True)
    ]
    wanted = {
        name: step for step, name, call in zip(plan.steps, kernels.steps, calls, strict=True)
        if name and call is None and kernels.kernels[name][0] == ABSENT
        and geometry(kernels.kernels[name][1], symbols, gpu).grid
    }  # fmt: skip
    added = more(wanted) if wanted else {}
    for step, name, offered in zip(plan.steps, kernels.steps, calls, strict=True):
        if not name:
            if step.outputs[0] not in plan.memory["aliases"]:
                work += _copy(plan, symbols, places[step.inputs[0]], places[step.outputs[0]], step.outputs[0])
            continue
        if offered is not None:
            run, scratch = offered
            operands, results = _used(plan, step, places, symbols)
            work.append(Call(run, (*operands, *results), workspace, step.op))
            total = max(total, workspace + scratch)
            continue
        module, kernel = kernels.kernels[name]
        made = geometry(kernel, symbols, gpu)
        if not made.grid:
            continue
        operands, results = _used(plan, step, places, symbols)
        used = (*operands[: len(kernel.pointers) - len(results)], *results)
        if len(used) != len(kernel.pointers):
            raise refuse(f"the kernel of {step.op} takes {len(kernel.pointers)} addresses")
        cached = made.cached if kernel.cached else None
        work.append(Launch(added.get(name, module), made, used, tuple(kernel.arguments(symbols)), cached))
    for name in passed:
        work += _copy(plan, symbols, places[name], given[name], name)
    return Schedule(tuple(work), total, tuple(_shape(plan, name, symbols) for name in plan.outputs))


def _used(
    plan: Plan, step: Step, places: Mapping[str, Place], symbols: Mapping[Atom, int]
) -> tuple[list[Place], list[Place]]:
    """Where the operands and the results of a step begin."""
    found: list[Place | None] = []
    for name, window in zip((*step.inputs, *step.outputs), windows(step), strict=True):
        place = places[name] if name else None
        if place is not None and window is not None:
            nbytes = _size.evaluate(window.start, symbols) * BYTES[plan.values[name].dtype]
            place = place._replace(offset=place.offset + nbytes)
        found.append(place)
    count = len(step.inputs)
    return [place for place in found[:count] if place is not None], [each for each in found[count:] if each is not None]


def _shape(plan: Plan, name: str, symbols: Mapping[Atom, int]) -> tuple[int, ...]:
    shape = plan.values[name].shape
    if shape is None or not all(_size.known(size) for size in shape):
        raise refuse(f"the size of {name!r} is known only once it is computed")
    return tuple(_size.evaluate(size, symbols) for size in shape)


def _copy(plan: Plan, symbols: Mapping[Atom, int], source: Place, target: Place, name: str) -> list[Copy]:
    nbytes = math.prod(_shape(plan, name, symbols)) * BYTES[plan.values[name].dtype]
    return [Copy(source, target, nbytes)] if nbytes else []
