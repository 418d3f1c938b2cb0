"""Which convolutions take up the elementwise step behind them: those that cuDNN computes faster so, by time.

cuDNN compiles a kernel for a convolution with what stands behind it, which spares a launch and the way through memory,
but has fewer kernels to choose from than for the convolution alone. So a plan's build times both, where all sizes are
known, and the plan keeps the faster: results differ in their last digits, and every process that loads the plan is to
give the same. What was found is kept beside cuDNN's plans, for one GPU and one release of the library.
"""

from __future__ import annotations

import json
import logging
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from time import monotonic
from typing import NamedTuple

from hybrid_infer._errors import summary
from hybrid_infer._types import TF32, Memory
from hybrid_infer.backends.native import _build, _kernels, _libraries, _memory, _modules, _nvrtc
from hybrid_infer.backends.native._bound import Bound
from hybrid_infer.backends.native._build import Kernels
from hybrid_infer.backends.native._device import Device, Properties
from hybrid_infer.backends.native._epilogue import Pair, fuse, pairs
from hybrid_infer.backends.native._modules import Module
from hybrid_infer.backends.native._plan import BYTES, NAME, Plan, Step, Value
from hybrid_infer.backends.native._schedule import Offer, Schedule, schedule
from hybrid_infer.backends.native._timing import MEASURING, Bench, rounded

_log = logging.getLogger("hybrid_infer")

#: Moves whenever it is decided in another way.
_FORMAT = 1

#: Seconds after which a build tries no more, of the five that all of it is to take: the library compiles for about one,
#: for each way to compute what stands behind a convolution.
SECONDS = 2.0

#: Runs in one recorded graph, each of other weights, as far as their bytes allow, and bytes of memory at most.
_RUNS, _COLD, _LARGEST = 8, 64 << 20, 512 << 20

#: What one step has to take less than two to be chosen, as a part of their time.
_LESS = 0.97

#: Bytes of which reading and writing take about as long as a launch.
_LAUNCH = 4 << 20


class _Found(NamedTuple):
    """Seconds of both; of the fused one infinite where the library has none."""

    apart: float
    fused: float

    @property
    def faster(self) -> bool:
        return self.fused <= _LESS * self.apart and self.fused < self.apart


def choose(plan: Plan, device: Device, memory: Memory, tf32: TF32) -> None:
    """Fuse what is faster so on this GPU, which is current, and whose libraries are open.

    A fault costs the choice alone.
    """
    graphs = _libraries.graphs(memory.index)
    if graphs is None or memory.capturing():  # the program itself
        return
    offers, named = _libraries.offers(memory.index, tf32), [(_name(plan, pair), pair) for pair in pairs(plan)]
    distinct, count = dict(named), Counter(name for name, _ in named)
    if not distinct:
        return
    order = sorted(distinct, key=lambda name: -count[name] * (_LAUNCH + _moved(plan, distinct[name].elementwise)))
    # With another compiler the library may take what it refused.
    keys = {name: [_FORMAT, _nvrtc.version(), name] for name in order}
    known = {name: _read(graphs.recall(keys[name])) for name in order}
    found = {name: each for name, each in known.items() if each is not None}
    try:
        with MEASURING:
            missing = {name: distinct[name] for name in order if name not in found}
            for name, each in _timed(plan, missing, (device, memory), offers).items():
                found[name] = each
                graphs.remember(keys[name], json.dumps(list(_data(each))).encode())
    except Exception as error:  # of the driver, the framework's pool, the compiler or the binding
        _log.info("%s: convolutions were not timed with what stands behind them: %s", NAME, summary(error))
    chosen = []
    for name, pair in named:
        if name not in found:
            continue
        # A plan that was kept may not be there any more, nor be built again.
        takes = found[name].faster and any(offer(_with(plan, pair), pair.fused, {}) is not None for offer in offers)
        _tell(plan, pair, found[name], takes)
        chosen += [pair] if takes else []
    if rest := sum(count[name] for name in order if name not in found):
        why = f"{rest} keep the step behind them apart: there was no time, or no kernel, to try them as one"
        plan.decide("convolutions", "", why)
    if chosen:
        fuse(plan, chosen)


def _name(plan: Plan, pair: Pair) -> str:
    """Of all pairs that are computed alike."""
    alone = _with(plan, pair)
    return ", ".join(_kernels.name_of(alone, each) for each in (pair.convolution, pair.elementwise, pair.fused))


def _with(plan: Plan, pair: Pair) -> Plan:
    """A plan of the pair's values alone, all of which come from outside."""
    steps = (pair.convolution, pair.elementwise, pair.fused)
    names = dict.fromkeys(name for step in steps for name in (*step.inputs, *step.outputs) if name)
    numbers = {name: Value("float32", array.shape) for name, array in pair.numbers.items()}
    return Plan([], [], [], {name: numbers.get(name) or plan.values[name] for name in names}, {}, plan.opset)


def _moved(plan: Plan, step: Step) -> int:
    return sum(_bytes(plan.values[name]) for name in (*step.inputs, *step.outputs))


def _bytes(value: Value) -> int:
    return math.prod(value.fixed() or ()) * BYTES[value.dtype]


def _timed(
    plan: Plan, missing: Mapping[str, Pair], where: tuple[Device, Memory], offers: Sequence[Offer]
) -> dict[str, _Found]:
    """What each takes, by name; without those for which there was no time, or no library for the convolution alone."""
    begun, found = monotonic(), dict[str, _Found]()
    tried: dict[str, Pair] = {}
    for name, pair in missing.items():
        if monotonic() >= begun + SECONDS:
            break
        alone = _with(plan, pair)
        apart, fused = (any(offer(alone, step, {}) is not None for offer in offers)
                        for step in (pair.convolution, pair.fused))  # fmt: skip
        if apart and fused:
            tried[name] = pair
        elif apart and _libraries.settled(offers, alone, pair.fused, {}):
            found[name] = _Found(0.0, math.inf)
    if not tried:
        return found
    device, memory = where
    gpu = device.properties(memory.index)
    kernels = {
        name: made for name, pair in tried.items()
        if (made := _kernels.kernel(plan, pair.elementwise, _kernels.name_of(plan, pair.elementwise), gpu.architecture))
    }  # fmt: skip
    distinct = {made.names[0].rpartition("_")[0]: made for made in kernels.values()}
    compiled = _build.compiled([_kernels.unit([each]) for each in distinct.values()], gpu.architecture)
    modules = [_modules.module(device, memory.index, cubin) for cubin in compiled]
    ready = Kernels(gpu.architecture, "", {n: (i, k) for i, (n, k) in enumerate(distinct.items())}, [], [])
    until = max(begun + SECONDS, monotonic() + SECONDS / 5)
    races = {name: _race(plan, tried[name], ready, gpu, offers) for name in kernels}
    races = {name: race for name, race in races.items() if race.nbytes <= _LARGEST}
    if not races:
        return found
    bench = Bench(memory, device, max(race.nbytes for race in races.values()))
    try:
        for name, race in races.items():
            if monotonic() >= until:
                break
            seconds = _seconds(race, bench, modules, device, until)
            if max(seconds) < math.inf:
                found[name] = _Found(*seconds)
    finally:
        bench.close()
    text = "%s: %d convolutions were timed with what stands behind them in %.2f s"
    _log.info(text, NAME, len(found), monotonic() - begun)
    return found


class _Side(NamedTuple):
    """A way to compute a pair. ``sizes``: bytes of inputs and result; ``weights``: the place of the convolution's."""

    schedule: Schedule
    sizes: tuple[int, ...]
    weights: int


class _Race(NamedTuple):
    """Two steps against one, each run so often, in so many bytes."""

    sides: tuple[_Side, _Side]
    runs: int
    nbytes: int


def _race(plan: Plan, pair: Pair, ready: Kernels, gpu: Properties, offers: Sequence[Offer]) -> _Race:
    found = [
        _side(plan, pair, steps, ready, gpu, offers)
        for steps in ((pair.convolution, pair.elementwise), (pair.fused,))
    ]
    cold = found[0].sizes[found[0].weights]
    runs = max(1, min(_RUNS, _COLD // max(cold, 1)))
    nbytes = max(sum(side.sizes) + rounded(side.schedule.total) for side in found) + runs * cold
    return _Race((found[0], found[1]), runs, nbytes)


def _side(
    plan: Plan, pair: Pair, steps: Sequence[Step], ready: Kernels, gpu: Properties, offers: Sequence[Offer]
) -> _Side:
    """A plan of these steps alone, whose operands are all brought by the caller."""
    written = {name for step in steps for name in step.outputs}
    inputs = list(dict.fromkeys(name for step in steps for name in step.inputs if name not in written))
    made = replace(_with(plan, pair), inputs=inputs, outputs=[steps[-1].outputs[0]], steps=list(steps))
    _memory.plan_memory(made)
    ready = ready._replace(steps=[_kernels.name_of(made, step) for step in steps])
    sizes = tuple(rounded(_bytes(made.values[name])) for name in (*inputs, *made.outputs))
    return _Side(schedule(made, ready, {}, gpu, offers), sizes, inputs.index(pair.convolution.inputs[1]))


def _seconds(race: _Race, bench: Bench, modules: Sequence[Module], device: Device, until: float) -> list[float]:
    """What each side takes; infinite where one does not run."""
    made: list[int] = []
    try:
        made += [_recorded(bench, side, race.runs, modules, device) for side in race.sides]
        return [each / race.runs for each in bench.seconds(made, until)]
    except Exception as error:  # of the binding
        _log.debug("%s: a convolution does not run with what stands behind it: %s", NAME, summary(error))
        return [math.inf, math.inf]
    finally:
        for graph in made:
            device.destroy(graph)


def _recorded(bench: Bench, side: _Side, runs: int, modules: Sequence[Module], device: Device) -> int:
    """A graph of some runs, each of weights elsewhere. Raises what the library raises."""
    at, bases = bench.start + rounded(side.schedule.total), list[int]()
    for nbytes in side.sizes:
        bases.append(at)
        at += nbytes
    step, place = side.sizes[side.weights], side.weights
    several = [[at + run * step if i == place else base for i, base in enumerate(bases)] for run in range(runs)]
    bound = Bound(side.schedule, device, lambda module, name, shared: modules[module].function(name, shared),
                  bench.start, 0)  # fmt: skip

    def work(stream: int) -> None:
        for each in several:
            bound.run(each, stream)

    return bench.record(work)


def _tell(plan: Plan, pair: Pair, found: _Found, takes: bool) -> None:
    ops = ", ".join(op for op, *_ in pair.fused.attributes["epilogue"]["code"])
    if found.fused == math.inf:
        why = f"keeps what stands behind it apart: cuDNN has no kernel for both ({ops})"
    elif takes:
        why = f"cuDNN computes what stands behind it too ({ops}), {_us(found.fused)}, apart {_us(found.apart)}"
    else:
        why = f"keeps what stands behind it apart, {_us(found.apart)}, as one {_us(found.fused)}"
    plan.decide("convolutions", pair.elementwise.outputs[0], why)


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} us"


def _data(found: _Found) -> tuple[float, float | None]:
    return found.apart, None if found.fused == math.inf else found.fused


def _read(data: bytes | None) -> _Found | None:
    """What was kept; None of anything else."""
    try:
        apart, fused = json.loads(data) if data else (None, None)
        return None if apart is None else _Found(float(apart), math.inf if fused is None else float(fused))
    except (ValueError, TypeError):
        return None
