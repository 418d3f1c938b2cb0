"""A plan on a GPU: the framework's tensors in and out, where they lie, on the caller's stream.

The first call of some sizes launches kernel by kernel; the second captures a CUDA graph, unless launching is cheaper
than what would have to be copied into and out of it (see `_graph_costs`).
"""

from __future__ import annotations

import traceback
import weakref
from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, cast

from hybrid_infer import _fork_safe
from hybrid_infer._errors import EngineError, summary
from hybrid_infer._types import EngineOptions, Graph, Memory
from hybrid_infer.backends import _fork
from hybrid_infer.backends._cuda import _checks
from hybrid_infer.backends._cuda._driver import Driver, DriverError
from hybrid_infer.backends._cuda._graphs import Buffer, Graphs
from hybrid_infer.backends._cuda._memory import block
from hybrid_infer.backends.native import (
    _constants,
    _graph_costs,
    _keys,
    _late,
    _libraries,
    _modules,
    _no_clusters,
    _schedule,
)
from hybrid_infer.backends.native._apart import apart
from hybrid_infer.backends.native._arena import Arena, Arenas, Lane, place
from hybrid_infer.backends.native._bound import Bound
from hybrid_infer.backends.native._build import Kernels
from hybrid_infer.backends.native._device import Device, Properties
from hybrid_infer.backends.native._keys import Key
from hybrid_infer.backends.native._plan import FLOATS, NAME, Plan, Step, refuse
from hybrid_infer.backends.native._recorded import Recorded
from hybrid_infer.backends.native._schedule import Offer, Schedule
from hybrid_infer.backends.native._weights import Weights, aligned

#: Sizes for which a program keeps what is to be launched.
_SIZES = 64

#: Graphs that a program keeps, and the call of some sizes at which one is made.
_GRAPHS, _AFTER = 8, 2

#: Decisions about calls that are kept for `explain()`, by each rule.
_TOLD = 16


class Program:
    """See `hybrid_infer._types.Program`. ``weights``: tensors in the order of ``graph.weights``, none if fed live."""

    engine = NAME
    in_place = True
    #: What is written to a weight where it lies is seen by the next call: no new program has to be made for it.
    reads_weights = True
    shared = False

    def __init__(
        self, graph: Graph, plan: Plan, kernels: Kernels, weights: Sequence[Any], options: EngineOptions,
        device: Device, gpu: Properties, offers: Sequence[Offer] = (),
    ) -> None:  # fmt: skip
        assert options.memory is not None
        self.input_dtypes = tuple(spec.dtype for spec in graph.input_specs)
        self.output_dtypes = tuple(spec.dtype for spec in graph.output_specs)
        self.generation = _fork.generation()
        self._memory: Memory = options.memory
        self._plan, self._kernels, self._device, self._gpu, self._offers = plan, kernels, device, gpu, offers
        #: Does what it computes depend on whether float32 may be rounded to TF32?
        self.heeds_tf32 = bool(offers) and _libraries.heeds_tf32(plan)
        self._live, self._checked = options.live, graph.checked
        self._fed = len(graph.weights) if self._live else 0  # in front of the arguments of a call
        self._count = self._fed + len(graph.inputs)
        kept = [i for i, name in enumerate(graph.weights) if name is not None]
        self._weight_places = kept
        self._argument_places = [self._fed + i for i, name in enumerate(graph.inputs) if name is not None]
        names = [name for name in (*graph.weights, *graph.inputs) if name is not None]
        if names != plan.inputs:
            raise refuse(f"the plan takes {plan.inputs[:4]} where the graph gives {names[:4]}")
        #: What the plan calls the arguments of a call; what its kernels read, or it gives as it is.
        self._names, self._read = plan.inputs[len(kept) :], set(plan.uses()) | set(plan.outputs)
        self._lock = _fork_safe.Lock()
        self._schedules: OrderedDict[Key, Schedule] = OrderedDict()
        #: Bytes of the arguments and results of a call that a graph would copy, and whether it is worth that.
        self._costs: dict[Key, tuple[tuple[list[int], list[int]], bool]] = {}
        #: What was decided since the plan was made, as the plan's own decisions are.
        self.decided: list[dict[str, str]] = []
        #: How often kernels were replaced: what was bound before has the old ones.
        self._replaced = 0
        self._arenas, self._closed = Arenas(self._memory), False
        #: The graphs that were made and not let go: those of the present weights.
        self._captured: list[Graphs] = []
        self._weights: Weights | None = None
        #: Where kernels are kept that the plan was made without; the modules of those that were needed after all.
        self._shelf = options.extra.get("kernels")
        self._adding, self._added = _fork_safe.Lock(), dict[str, int]()
        self._outlived: list[object] = []
        with self._memory.scope(), device.relaxed():
            device.enter(self._memory.index)
            self._modules = [_modules.module(device, self._memory.index, cubin) for cubin in kernels.modules]
            if wanted := _late.wanted(plan, kernels, offers):
                self._more(wanted)
            self._spare_clusters()
            self._constants = _constants.upload(plan, self._memory)
            #: The streams that are known to read them.
            self._streams = {place(self._memory.stream())}
            if not self._live:
                self._bind(weights)
        _fork.protect(self)
        weakref.finalize(self, _let_go, self._captured, self.generation).atexit = False

    def usable(self) -> bool:
        return not self._closed and self.generation == _fork.generation()

    def inherit(self) -> object:
        """In a forked child nothing of this may be destroyed: the driver is its parent's."""
        return self.__dict__.copy()

    def close(self) -> None:
        self._closed = True
        with self._lock:
            self._schedules.clear()
            self._costs.clear()
            self._weights = None
            self._outlived = []
        _let_go(self._captured, self.generation)
        self._arenas.clear()

    def run(self, arrays: Sequence[Any]) -> list[Any]:
        try:
            if not self.usable():
                raise refuse("the program is closed" if self._closed else "the program was loaded by another process")
            if len(arrays) != self._count:
                raise refuse(f"{len(arrays)} tensors given to a program that takes {self._count}")
            with self._memory.scope():
                if self._checked:
                    _checks.possible(NAME, self._memory)
                self._device.enter(self._memory.index)
                found = self._run(arrays)
                if self._checked:
                    _checks.hold(NAME, found)
                return found
        except EngineError:
            raise
        except Exception as error:
            # The eager method answers next: what the call holds, which the error's frames keep, may be what it needs.
            traceback.clear_frames(error.__traceback__)
            if "out of memory" in str(error).lower():
                self._give_back()
            raise EngineError(NAME, summary(error)) from error

    def _give_back(self) -> None:
        """What no call has under way: graphs with their buffers, and scratch memory."""
        with self._lock:
            held = list(self._captured)
        for graphs in held:
            graphs.clear()
        self._arenas.let_go()
        self._arenas.clear()

    def _run(self, arrays: Sequence[Any]) -> list[Any]:
        memory, plan = self._memory, self._plan
        stream, capturing = memory.stream(), memory.capturing()
        weights = self._weights
        if weights is None or (self._live and not weights.same(arrays)):
            weights = self._bind(arrays[: self._fed])
        if not capturing:  # what is captured stays for good
            self._use(stream, ((self._constants,), self._streams), (weights.copies, weights.streams))
        fresh = weights.refresh(stream)
        tensors, shapes, numbers = [], [], []
        for name, i in zip(self._names, self._argument_places, strict=True):
            tensor, shape, number = self._argument(name, arrays[i], stream)
            tensors.append(tensor)
            shapes.append(shape)
            numbers.append(number)
        key = Key(tuple(shapes), tuple(numbers))
        schedule = self._schedule(key)
        outputs = [
            memory.empty(shape, plan.values[name].dtype)
            for name, shape in zip(plan.outputs, schedule.shapes, strict=True)
        ]
        given = [0 if tensor is None else memory.pointer(tensor) for tensor in tensors]
        results = [memory.pointer(tensor) for tensor in outputs]
        # The caller's own graph will run on its block whenever it likes: no other call may.
        lane = Lane(Arena()) if capturing else self._arenas.on(stream)
        with lane.lock:
            if not capturing and self._replay(lane, weights, stream, key, schedule, (given, results)):
                return outputs
            written = []
            for i, dtype, data in _keys.numbers(plan, self._names, self._read, key):
                written.append(memory.empty((), dtype))
                given[i] = memory.pointer(written[-1])
                self._device.write(given[i], data, stream)
            if capturing:
                made = [] if memory.keeps_captured else [*fresh, *written, *self._copies(tensors, arrays), lane]
                self._outlive(schedule, weights.copies, self._constants, *made)
            with self._device.relaxed():  # a library, or the driver, may load code at its first run
                self._launch(lane, key, schedule, [*weights.addresses, *given, *results], stream)
        return outputs

    def _use(self, stream: int, *those: tuple[Sequence[Any], set[Hashable]]) -> None:
        """Tell the pool, once, that this stream reads things too; where it does not heed that, they stay for good."""
        here = place(stream)
        for things, streams in those:
            if here not in streams:
                streams.add(here)
                self._outlive(*(each for each in things if not self._memory.used(each)))

    def _launch(self, lane: Lane, key: Key, schedule: Schedule, bases: Sequence[int], stream: int) -> None:
        """Enqueue all steps; once more from the first on, without clusters, where those are refused."""
        try:
            self._bound(lane, key, schedule).run(bases, stream)
        except _no_clusters.ClusterRefused as refusal:
            _no_clusters.note(self._device, self._memory.index, refusal)
            self._spare_clusters()
            other = self._schedule(key)
            if self._memory.capturing():
                self._outlive(other)
            self._bound(lane, key, other).run(bases, stream)

    def _outlive(self, *things: object) -> None:
        """The caller's graph has these in it, and may outlive this program: they stay for good."""
        for thing in things:
            if all(thing is not each for each in self._outlived):
                self._outlived.append(thing)
                _fork.keep(thing)

    def _copies(self, tensors: Sequence[Any], arrays: Sequence[Any]) -> list[Any]:
        """Those of the arguments that are not the caller's."""
        pointer = self._memory.pointer
        pairs = [(tensor, arrays[i]) for tensor, i in zip(tensors, self._argument_places, strict=True)]
        return [
            each for each, given in pairs
            if each is not None and each is not given and (_on_host(given) or pointer(each) != pointer(given))
        ]  # fmt: skip

    def _argument(self, name: str, tensor: Any, stream: int) -> tuple[Any, tuple[int, ...], int | None]:
        """A tensor that kernels can read, its shape, and the number that it is, if it is an integer of the call."""
        memory, value = self._memory, self._plan.values[name]
        if _on_host(tensor):
            if tensor.dtype.kind in "iub" and value.dtype not in FLOATS:
                return None, (), int(tensor)
            tensor = memory.upload(tensor)
        tensor = aligned(memory, self._device, memory.ready(tensor), stream)
        dtype, shape = memory.describe(tensor)
        if dtype != value.dtype or (value.shape is not None and len(shape) != len(value.shape)):
            raise refuse(f"{name!r} is {dtype} of rank {len(shape)} where the plan takes {value.dtype} {value.shape}")
        return tensor, tuple(shape), None

    def _bind(self, given: Sequence[Any]) -> Weights:
        """Read these weights from now on; graphs that have the addresses of others are let go."""
        with self._lock:
            if self._closed:
                raise refuse("the program is closed")
            before = self._weights
            if before is not None and before.same(given):  # by another thread, meanwhile
                return before
            graphs = Graphs(NAME, _GRAPHS, _AFTER, _graph_costs.COPIED)
            found = Weights(self._memory, self._device, self._plan, given, self._weight_places, graphs)
            gone: list[Graphs] = []
            if before is not None and before.addresses == found.addresses:
                found.graphs = before.graphs
            else:
                gone, self._captured[:] = list(self._captured), [found.graphs]
            self._weights = found
        _let_go(gone, self.generation)
        return found

    def _schedule(self, key: Key) -> Schedule:
        with self._lock:
            found = self._schedules.get(key)
            if found is not None:
                self._schedules.move_to_end(key)
                return found
        symbols = _keys.symbols(self._plan, self._names, key)
        with self._device.relaxed():  # a library may load code
            found = _schedule.schedule(self._plan, self._kernels, symbols, self._gpu, self._offers, self._more)
            _libraries.flush_plans(self._memory.index)
        with self._lock:
            self._schedules[key] = found
            if len(self._schedules) > _SIZES:
                self._costs.pop(self._schedules.popitem(last=False)[0], None)
        return found

    def _spare_clusters(self) -> None:
        """Have a block take each row alone where the GPU or its driver refuses the clusters that were to share it."""
        plan, kernels, steps = self._plan, self._kernels, dict[str, Step]()
        with self._adding:
            held = dict(self._kernels.kernels)
            refused = _no_clusters.unfit(self._kernels, self._device, self._memory.index, self._find)
            for step, name in zip(plan.steps, kernels.steps, strict=True):
                if name in refused and name not in steps:
                    module, kernel = held[name]
                    if (other := _no_clusters.alone(kernel)) is not None:
                        held[name] = module, other
                    else:
                        steps[name] = step
                    why = f"no cluster of blocks takes a row of {kernel.width}: {refused[name]}"
                    self._decide("kernels", step.outputs[0], why)
            if steps:
                made = _late.without_clusters(plan, steps, kernels.architecture, self._shelf, self._device.cuda())
                for name, (cubin, kernel) in made.items():
                    self._modules.append(_modules.module(self._device, self._memory.index, cubin))
                    held[name] = len(self._modules) - 1, kernel
            with self._lock:
                self._kernels = kernels._replace(kernels=held)
                self._schedules.clear()
                self._costs.clear()
                self._replaced += 1

    def _decide(self, rule: str, step: str, why: str) -> None:
        made = {"rule": rule, "step": step, "why": why}
        if made not in self.decided and sum(each["rule"] == rule for each in self.decided) < _TOLD:
            self.decided.append(made)

    def _more(self, steps: Mapping[str, Step]) -> Mapping[str, int]:
        """The modules of kernels that the plan was made without, by name; compiled where they are nowhere yet."""
        with self._adding:
            new = {name: step for name, step in steps.items() if name not in self._added}
            if new:
                cubins = _late.cubins(self._plan, new, self._kernels.architecture, self._shelf, self._device.cuda())
                for name, cubin in cubins.items():
                    self._modules.append(_modules.module(self._device, self._memory.index, cubin))
                    self._added[name] = len(self._modules) - 1
            return self._added

    def _bound(self, lane: Lane, key: Key, schedule: Schedule) -> Bound:
        start = lane.fit(self._memory, schedule.total).pointer
        constants = self._memory.pointer(self._constants)
        return lane.bound((self._replaced, key), lambda: Bound(schedule, self._device, self._find, start, constants))

    def _find(self, module: int, name: str, shared: int) -> int:
        return self._modules[module].function(name, shared)

    def _replay(
        self, lane: Lane, weights: Weights, stream: int, key: Key, schedule: Schedule,
        pointers: tuple[list[int], list[int]],
    ) -> bool:  # fmt: skip
        """Answer by a captured graph; False where there is none."""
        graphs, where = weights.graphs, (place(stream), key)
        captured = graphs.get(where)
        if captured is None:
            sizes, worth = self._costs.get(key) or self._weigh(schedule, key)
            if not worth or not graphs.due(where):
                return False
            nbytes = sum(map(sum, sizes))
            captured = graphs.add(where, lambda: self._capture(lane, weights, key, schedule, sizes), nbytes)
        if captured is None:
            return False
        try:
            return captured.run(*pointers, stream)
        except DriverError as error:  # what is wrong with more than the graph shows in the next launch
            graphs.drop(where, error)
            return False

    def _weigh(self, schedule: Schedule, key: Key) -> tuple[tuple[list[int], list[int]], bool]:
        sizes = _keys.copied(self._plan, self._names, self._read, key, schedule)
        worth, why = _graph_costs.verdict(schedule, [*sizes[0], *sizes[1]])
        with self._lock:
            self._decide("cuda graph", "", why)
            if key in self._schedules:  # which may have been forgotten meanwhile
                self._costs[key] = sizes, worth
        return sizes, worth

    def _capture(
        self, lane: Lane, weights: Weights, key: Key, schedule: Schedule, sizes: tuple[list[int], list[int]]
    ) -> Recorded:
        """Record one run as a graph, on a stream apart, between buffers that stay where they are."""
        memory, device = self._memory, self._device
        numbers = {i: data for i, _, data in _keys.numbers(self._plan, self._names, self._read, key)}
        inputs = [block(memory, max(nbytes, len(numbers.get(i, b"")))) for i, nbytes in enumerate(sizes[0])]
        outputs = [block(memory, nbytes) for nbytes in sizes[1]]
        bound = self._bound(lane, key, schedule)
        bases = [*weights.addresses, *(each.pointer for each in (*inputs, *outputs))]
        with apart(device, memory.index) as stream:

            def work() -> None:
                for i, data in numbers.items():
                    device.write(inputs[i].pointer, data, stream)
                bound.run(bases, stream)

            graph = device.capture(stream, work)
        taken, given = (
            [Buffer(each.pointer, nbytes, each.owner) for each, nbytes in zip(part, counts, strict=True)]
            for part, counts in zip((inputs, outputs), sizes, strict=True)
        )
        kept = (lane.block, bound, weights, self._constants)
        return Recorded(cast(Driver, device), graph, taken, given, kept)


def _on_host(tensor: Any) -> bool:
    import numpy as np

    return isinstance(tensor, np.ndarray)


def _let_go(captured: list[Graphs], generation: int) -> None:
    while captured and generation == _fork.generation():
        captured.pop().close()


def values_of(files: Mapping[str, bytes], name: str) -> bytes:
    """One file of a plan. Raises EngineError."""
    try:
        return files[name]
    except KeyError as error:
        raise refuse(f"its plan is not whole: {error} is missing") from error
