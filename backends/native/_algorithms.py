"""Which algorithm computes each product of a plan: of those that cuBLASLt proposes, the one that is the fastest here.

The library's first proposal follows from a model of the GPU, and is not always the fastest. So a plan's build times
several, of products whose sizes are known, and the plan keeps what was chosen: results of different algorithms differ
in their last digits, and every process that loads the plan is to give the same. A shelf, one file that processes and
plans share, has the same product computed alike in all of them, and timed once. What is chosen is for one release of
the library and one kind of GPU; elsewhere the library's first proposal is used, as it is for all that was not timed.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import NamedTuple

from hybrid_infer._errors import summary
from hybrid_infer._types import TF32, Memory
from hybrid_infer.backends.native import _kernels, _libraries
from hybrid_infer.backends.native._cublaslt import OPS, WORKSPACE, Products, Run, rounds
from hybrid_infer.backends.native._device import Device
from hybrid_infer.backends.native._plan import BYTES, NAME, Algorithm, Plan, Step
from hybrid_infer.backends.native._shelf import Shelf
from hybrid_infer.backends.native._timing import MEASURING, Bench, rounded

_log = logging.getLogger("hybrid_infer")

#: Seconds after which a build times no more proposals.
SECONDS = 1.0

#: Runs of a product in one recorded graph, each of other weights, and the bytes of all these weights: in a call the
#: weights of a product have left the caches since it was computed last, while what it computes on was just written.
_RUNS, _COLD = 8, 64 << 20

#: Bytes of weights, and of all else, up to which a product is timed.
_LARGEST = 256 << 20

#: What another algorithm has to take less than the first proposal to be chosen, as a part of that one's time.
_LESS = 0.97

#: Rows that the shelf holds at most.
_ROWS = 1000


class Row(NamedTuple):
    """What is kept of a choice, and what `explain()` says of it."""

    data: str
    why: str


class _Product(NamedTuple):
    """A distinct product of a plan. ``cold``: which operands are weights or arguments, by place."""

    name: str
    step: Step
    tf32: bool
    cold: tuple[int, ...]
    sizes: tuple[int, ...]  # bytes of the operands, then of the result

    def streamed(self) -> int:
        return sum(rounded(self.sizes[i]) for i in self.cold)

    def kept(self) -> int:
        return sum(rounded(n) for i, n in enumerate(self.sizes) if i not in self.cold)


def choose(plan: Plan, device: Device, memory: Memory, tf32: TF32, shelf: Shelf | None) -> None:
    """Give `plan` the algorithms that are the fastest on this GPU, which is current and whose libraries are open.

    A fault costs the choice alone.
    """
    products = _libraries.products(memory.index)
    if products is None or memory.capturing():  # the program itself
        return
    try:
        wanted = _products(plan, tf32)
        measured = _libraries.measured(products, device, memory.index)
        with MEASURING:
            found = _rows(plan, products, measured, (device, memory), wanted, shelf)
    except Exception as error:  # of the driver, the framework's pool or the binding
        _log.info("%s: cuBLASLt's proposals were not timed: %s", NAME, summary(error))
        return
    plan.measured = measured if found else ""
    for each in wanted:
        if each.name in found:
            plan.algorithms[each.name] = Algorithm(each.tf32, found[each.name].data)
            plan.decide("algorithms", each.step.outputs[0], found[each.name].why)
    if count := len(wanted) - len(found):
        why = f"{count} products keep what cuBLASLt proposes first, if anything: no others were timed"
        plan.decide("algorithms", "", why)


def _rows(
    plan: Plan, products: Products, measured: str, where: tuple[Device, Memory], wanted: Sequence[_Product],
    shelf: Shelf | None,
) -> dict[str, Row]:  # fmt: skip
    """What is chosen for each product, by name: what was chosen before, or else what is found now."""
    keys = {each.name: f"{measured}; {each.name}{', TF32' if each.tf32 else ''}" for each in wanted}
    kept = {} if shelf is None else _read(shelf.read())
    new = _timed(plan, products, *where, [each for each in wanted if keys[each.name] not in kept])
    made = {keys[name]: row for name, row in new.items()}
    if shelf is not None and made:

        def merge(data: bytes) -> bytes:
            known = _read(data)
            made.update({key: row for key, row in known.items() if key in made})  # another process was first
            return _written({**made, **known})

        shelf.update(merge)
    found = {**kept, **made}
    return {name: found[key] for name, key in keys.items() if key in found}


def _products(plan: Plan, tf32: TF32) -> list[_Product]:
    """The distinct products whose sizes are known, those first of which a call moves the most bytes."""
    found: dict[str, _Product] = {}
    moved: dict[str, int] = {}
    aliases = {} if plan.memory is None else plan.memory["aliases"]
    brought = {*plan.inputs, *plan.constants}
    for step in plan.steps:
        if step.op not in OPS:
            continue
        values = [plan.values[name] for name in (*step.inputs, *step.outputs) if name]
        shapes = [value.fixed() for value in values]
        if any(shape is None or 0 in shape for shape in shapes):
            continue
        name = _kernels.name_of(plan, step)
        sizes = tuple(math.prod(s or ()) * BYTES[v.dtype] for s, v in zip(shapes, values, strict=True))
        cold = tuple(i for i, each in enumerate(step.inputs[:2]) if aliases.get(each, each) in brought)
        coarse = rounds(step, plan.values[step.outputs[0]].dtype, tf32)
        made = found.setdefault(name, _Product(name, step, coarse, cold, sizes))
        moved[name] = moved.get(name, 0) + sum(made.sizes)
    fit = [each for each in found.values() if max(each.streamed(), each.kept()) <= _LARGEST]
    return sorted(fit, key=lambda each: -moved[each.name])


def _timed(
    plan: Plan, products: Products, device: Device, memory: Memory, wanted: Sequence[_Product]
) -> dict[str, Row]:  # fmt: skip
    """What is chosen for each, by name; without those for which there was no time, or not more than one proposal."""
    begun, found, count = monotonic(), dict[str, Row](), 0
    proposed = {each.name: products.proposals(plan, each.step, each.tf32) for each in wanted}
    several = [each for each in wanted if len(proposed[each.name]) > 1]
    if not several:
        return found
    cold = max(_COLD, *(each.streamed() for each in several))
    bench = Bench(memory, device, cold + WORKSPACE + max(each.kept() for each in several))
    try:
        for each in several:
            graphs: dict[bytes, int] = {}
            try:
                for algorithm in proposed[each.name]:
                    if monotonic() >= begun + SECONDS:
                        break
                    offered = products.by(plan, each.step, each.tf32, algorithm)
                    graph = 0 if offered is None else _recorded(bench, each, offered[0], cold)
                    if not graph and not graphs:  # there is nothing to compare with
                        break
                    if graph:
                        graphs[algorithm] = graph
                count += len(graphs)
                if len(graphs) > 1:
                    totals = bench.seconds([*graphs.values()], begun + SECONDS)
                    seconds = [total / _runs(each, cold) for total in totals]
                    if max(seconds) < math.inf:
                        found[each.name] = _fastest([*graphs], seconds)
            finally:
                for graph in graphs.values():
                    device.destroy(graph)
    finally:
        bench.close()
    text = "%s: %d of cuBLASLt's proposals for %d products were timed in %.2f s"
    _log.info(text, NAME, count, len(found), monotonic() - begun)
    return found


def _runs(product: _Product, cold: int) -> int:
    """How often it is computed in one graph, of weights elsewhere each time."""
    return min(_RUNS, cold // product.streamed()) if product.cold else _RUNS


def _recorded(bench: Bench, product: _Product, run: Run, cold: int) -> int:
    """A graph of some runs; 0 where the algorithm does not run."""
    workspace = at = bench.start + rounded(cold)
    at += WORKSPACE
    placed = []
    for i, nbytes in enumerate(product.sizes):
        placed.append(0 if i in product.cold else at)
        at += 0 if i in product.cold else rounded(nbytes)
    several, at = [], bench.start
    for _ in range(_runs(product, cold)):
        several.append(list(placed))
        for i in product.cold:
            several[-1][i] = at
            at += rounded(product.sizes[i])

    def work(stream: int) -> None:
        for pointers in several:
            run(pointers, workspace, stream)

    try:
        return bench.record(work)
    except Exception as error:  # of the binding
        _log.debug("%s: an algorithm of cuBLASLt's does not run: %s", NAME, error)
        return 0


def _fastest(algorithms: Sequence[bytes], seconds: Sequence[float]) -> Row:
    """The first one stays where none is clearly faster."""
    best = min(range(len(seconds)), key=seconds.__getitem__)
    if seconds[best] > _LESS * seconds[0]:
        best = 0
    which = "the first proposal" if not best else f"proposal {best + 1}"
    why = f"cuBLASLt: {which} of {len(seconds)} by time, {seconds[best] * 1e6:.1f} us"
    return Row(algorithms[best].hex(), why + (f", first proposal {seconds[0] * 1e6:.1f} us" if best else ""))


def _written(rows: Mapping[str, Row]) -> bytes:
    """The first of `rows`, as many as the shelf holds, behind a digest."""
    data = json.dumps(dict(list(rows.items())[:_ROWS]), separators=(",", ":")).encode()
    return hashlib.sha256(data).hexdigest().encode() + b"\n" + data


def _read(data: bytes) -> dict[str, Row]:
    """What `_written` wrote; nothing of anything else."""
    digest, _, text = data.partition(b"\n")
    if hashlib.sha256(text).hexdigest().encode() != digest:
        return {}
    return {key: Row(*row) for key, row in json.loads(text).items()}
