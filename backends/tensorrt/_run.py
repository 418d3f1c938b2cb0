"""A plan at work: on the caller's stream, on the caller's tensors, with scratch memory from the framework's pool.

An execution context is used by one thread and one stream at a time, so a program has as many as are needed at once. The
scratch memory of a run is taken for that run and given back in the stream's order, so that all programs share it.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from hybrid_infer import _fork_safe
from hybrid_infer._errors import EngineError, PassingFault, summary
from hybrid_infer._types import Graph, Memory
from hybrid_infer.backends import _fork
from hybrid_infer.backends._cuda import _aside, _checks, _driver, _graphs, _memory
from hybrid_infer.backends.tensorrt import _profiles
from hybrid_infer.backends.tensorrt._load import Loaded
from hybrid_infer.backends.tensorrt._logger import ERRORS
from hybrid_infer.backends.tensorrt._model import bytes_of
from hybrid_infer.backends.tensorrt._outputs import Allocated, allocator
from hybrid_infer.backends.tensorrt._profiles import Profile, Row, Rows

if TYPE_CHECKING:
    import tensorrt as trt

NAME = "tensorrt"

#: Idle contexts that are kept for each stream, and streams for which they are kept.
_IDLE, _STREAMS = 4, 8


class Argument(NamedTuple):
    """What one input is given: its address, its sizes, and what keeps the address valid.

    ``row``: what decides the sizes of the run, see `_profiles`. ``dtype``: of what lies there.
    """

    name: str
    pointer: int
    shape: Row
    row: Row
    dtype: str
    host: bool
    owner: Any


class Result(NamedTuple):
    """An output whose sizes are known before the run; None among them where only the run tells."""

    name: str
    dtype: str
    shape: Row | None
    host: bool


class Lane:
    """An execution context, told sizes and addresses. Of one thread at a time.

    It goes after its last run, and before its engine, whoever lets go of it.
    """

    context: trt.IExecutionContext

    def __init__(self, module: Any, loaded: Loaded, stream: int) -> None:
        engine: trt.ICudaEngine = loaded.engine
        self._loaded, self._event, self.generation = loaded, 0, _fork.generation()
        strategy = module.ExecutionContextAllocationStrategy.USER_MANAGED
        with _driver.relaxed():
            self.context = engine.create_execution_context(strategy)
        if self.context is None:
            raise EngineError(NAME, "it has no memory for an execution context")
        if not self.context.set_optimization_profile_async(0, stream):
            raise EngineError(NAME, "it does not take its own profile")
        self.rows: Rows | None = None
        self.shapes: list[Row | None] = []
        self.scratch = 0

    def bind(self, arguments: Sequence[Argument], rows: Rows, outputs: Sequence[str]) -> None:
        """Tell addresses and, where they are others than last time, sizes. Raises EngineError."""
        again = rows != self.rows
        self.rows = None
        for each in arguments:
            if again and not each.host and not self.context.set_input_shape(each.name, each.shape):
                raise EngineError(NAME, f"it refuses the sizes {list(each.shape)} of {each.name!r}")
            if not self.context.set_tensor_address(each.name, each.pointer):
                raise EngineError(NAME, f"it refuses the address of {each.name!r}")
        if again:
            if lacking := self.context.infer_shapes():
                raise EngineError(NAME, f"it misses {', '.join(lacking)}")
            shapes = [tuple(self.context.get_tensor_shape(name)) for name in outputs]
            self.shapes = [None if min(shape, default=0) < 0 else shape for shape in shapes]
            self.scratch = int(self.context.update_device_memory_size_for_shapes())
        self.rows = rows

    def place(self, name: str, pointer: int) -> None:
        if not self.context.set_tensor_address(name, pointer):
            raise EngineError(NAME, f"it refuses the address of {name!r}")

    def allocate(self, name: str, using: trt.IOutputAllocator) -> None:
        if not self.context.set_output_allocator(name, using):
            raise EngineError(NAME, f"it refuses to allocate {name!r}")

    def execute(self, scratch: _memory.Block, stream: int) -> None:
        self.context.set_device_memory(scratch.pointer, scratch.nbytes)
        if not self.context.execute_async_v3(stream):
            raise EngineError(NAME, "its run could not be started")

    def enqueued(self, stream: int) -> None:
        """Note where its last run ends. Raises DriverError."""
        driver = _driver.driver()
        self._event = self._event or driver.event()
        driver.record(self._event, stream)

    def __del__(self) -> None:
        _driver.let_go(self, "context", "_loaded", event=getattr(self, "_event", 0))


class Program:
    """See `hybrid_infer._types.Program`; it takes and gives tensors of the framework.

    Parameters
    ----------
    loaded : the engine with its weights in it.
    names : of the inputs in the order in which they are given, None for those that the graph does not use.
    fed : weights that the engine reads as inputs, where they lie, by name.
    profile : the sizes that it serves, of the inputs alone.
    compare : asks whether weights that were copied are as they were then, see ``Memory.spread``; None if none were.

    ``outdated``: a run has found that they are not; the program is to be loaded anew.
    """

    engine = NAME
    in_place = True
    shared = False

    def __init__(
        self, module: Any, loaded: Loaded, graph: Graph, names: Sequence[str | None], fed: Mapping[str, Any],
        profile: Profile, memory: Memory, captures: bool, compare: Callable[[], Callable[[], bool]] | None = None,
    ) -> None:  # fmt: skip
        self._specs = graph.input_specs
        self.input_dtypes = tuple(spec.dtype for spec in graph.input_specs)
        self.output_dtypes = tuple(spec.dtype for spec in graph.output_specs)
        self.profile, self._compare, self.outdated = profile, compare, False
        self.generation = _fork.generation()
        self._module, self._memory = module, memory
        self._names, self._outputs, self._checked = tuple(names), tuple(graph.outputs), graph.checked
        self._weights = len(names) - len(graph.inputs)
        self._loaded: Loaded | None = loaded
        engine: trt.ICudaEngine = loaded.engine
        self._host = {
            name for name in (*filter(None, names), *fed, *graph.outputs)
            if engine.get_tensor_location(name) == module.TensorLocation.HOST
        }  # fmt: skip
        if odd := sorted(self._host.intersection(fed)):
            raise EngineError(NAME, f"weights decide sizes, and TensorRT reads those on the host: {', '.join(odd)}")
        self._fed = [self._of_device(name, tensor) for name, tensor in fed.items()]
        self._lock = _fork_safe.Lock()
        self._idle: OrderedDict[int, deque[Lane]] = OrderedDict()
        self._graphs = _graphs.Graphs(NAME) if captures else None
        _fork.protect(self)

    # What the rest of the library asks

    def usable(self) -> bool:
        return self._loaded is not None and not self.outdated and self.generation == _fork.generation()

    def serves(self, rows: Rows) -> bool:
        """Is the plan valid for these sizes?"""
        return _profiles.covers(self.profile, rows)

    def report(self) -> str:
        """TensorRT's own account of the engine, as JSON."""
        return "" if self._loaded is None else self._loaded.report(self._module)

    def inherit(self) -> object:
        return self._loaded, list(self._idle.values()), self._graphs

    def close(self) -> None:
        """Calls in flight have their own references, and end as they would."""
        graphs, self._graphs = self._graphs, None
        if graphs is not None and self.generation == _fork.generation():
            with self._memory.scope():
                graphs.close()
        with self._lock, _driver.relaxed():  # what they hold is destroyed here
            self._loaded = None
            self._idle = OrderedDict()

    def run(self, arrays: Sequence[Any]) -> Sequence[Any]:
        """See `hybrid_infer._types.Program.run`; results are new tensors, ready in the order of the current stream."""
        loaded = self._loaded
        if loaded is None or self.generation != _fork.generation():
            raise EngineError(NAME, "the program is closed, or was loaded by the process that this one was forked from")
        if len(arrays) != len(self._names):
            raise EngineError(NAME, f"{len(arrays)} arrays given to a program that takes {len(self._names)}")
        try:
            with self._memory.scope():
                if self._checked:
                    _checks.possible(NAME, self._memory)
                found = self._compared(loaded, arrays)
                if self._checked:
                    _checks.hold(NAME, found)
                return found
        except EngineError:
            raise
        except Exception as error:  # of the framework: out of memory
            raise PassingFault(NAME, summary(error)) from error

    def _compared(self, loaded: Loaded, arrays: Sequence[Any]) -> list[Any]:
        capturing = self._memory.capturing()
        if self._compare is None or capturing:  # where nothing may be waited for
            return self._run(loaded, arrays, capturing)
        unchanged = self._compare()
        # Enqueued before the answer is waited for, so that the GPU has work.
        found = self._run(loaded, arrays, capturing)
        if not unchanged():
            self.outdated = True
            raise EngineError(NAME, "weights that it has copied were written to where no counter tells")
        return found

    def _run(self, loaded: Loaded, arrays: Sequence[Any], capturing: bool) -> list[Any]:
        arguments = [
            self._argument(i, name, array)
            for i, (name, array) in enumerate(zip(self._names, arrays, strict=True)) if name is not None
        ]  # fmt: skip
        rows = tuple(each.row for each in arguments)
        stream = self._memory.stream()
        found = None if capturing else self._captured(loaded, arguments, rows, stream)
        return self._plain(loaded, arguments, rows, stream, capturing) if found is None else found

    # One run

    def _of_device(self, name: str, tensor: Any) -> Argument:
        tensor = self._memory.ready(tensor)
        dtype, shape = self._memory.describe(tensor)
        # Without elements there may be no address, and TensorRT takes none that is zero.
        pointer = self._memory.pointer(tensor) or _memory.ALIGNMENT
        return Argument(name, pointer, shape, shape, dtype, False, tensor)

    def _argument(self, i: int, name: str, array: Any) -> Argument:
        """A tensor of the framework, or an integer in a NumPy array; the one for the i-th of the program's names."""
        if type(array).__module__.partition(".")[0] != "numpy":
            if name in self._host:
                raise EngineError(NAME, f"the values of {name!r} decide sizes, and it lies on the device")
            found = self._of_device(name, array)
            if i >= self._weights:
                spec = self._specs[i - self._weights]
                # TensorRT takes an address, and would read whatever lies there.
                if found.dtype != spec.dtype:
                    raise EngineError(NAME, f"{name!r} has the data type {found.dtype}, where {spec.dtype} is taken")
                if len(found.shape) != len(spec.shape):
                    raise EngineError(NAME, f"{name!r} has rank {len(found.shape)}, where {len(spec.shape)} is taken")
            return found
        row = (int(array),)
        if name in self._host:
            return Argument(name, int(array.ctypes.data), (), row, "int64", True, array)
        return self._of_device(name, self._memory.upload(array))._replace(row=row)

    def _plain(
        self, loaded: Loaded, arguments: Sequence[Argument], rows: Rows, stream: int, capturing: bool
    ) -> list[Any]:
        """A run whose kernels are launched one by one, or go into a graph of the program's own."""
        with ERRORS.since() as said:
            lane = self._take(loaded, stream, capturing)
            try:
                lane.bind([*arguments, *self._fed], rows, self._outputs)
                places = [self._result(lane, i) for i in range(len(self._outputs))]
                scratch = _memory.block(self._memory, lane.scratch)
                self._execute(lane, scratch, stream, capturing)
            except EngineError as error:  # and the lane is let go
                raise EngineError(NAME, f"{error.reason}: {said}" if str(said) else error.reason) from error
            except RuntimeError as error:  # of TensorRT's own inference of sizes
                raise EngineError(NAME, f"{error}") from error
            if capturing:
                # Nobody says when that graph goes. It may be launched after the weights have changed, and this program
                # has gone with them.
                memory = () if self._memory.keeps_captured else (scratch, [each.owner for each in arguments], places)
                _fork.keep((loaded, lane, *memory))
            else:
                self._give(stream, lane)
        return [place() for place in places]

    def _execute(self, lane: Lane, scratch: _memory.Block, stream: int, capturing: bool) -> None:
        """In the order of `stream`: on the default one, TensorRT would wait for its own work at every run.

        All memory was taken before, in that order. Where it is taken in the run itself, it has to be the same stream.
        """
        try:
            try:
                if stream != _aside.USUAL or None in lane.shapes:
                    lane.execute(scratch, stream)
                else:
                    with _aside.aside(_driver.driver(), self._memory.index).following() as beside:
                        lane.execute(scratch, beside)
            finally:  # what failed may have begun
                if not capturing:
                    lane.enqueued(stream)
        except _driver.DriverError as error:
            raise EngineError(NAME, str(error)) from error

    def _result(self, lane: Lane, i: int) -> Callable[[], Any]:
        """Have an output written somewhere; gives what makes a tensor of it once the run is enqueued."""
        name, dtype, shape = self._outputs[i], self.output_dtypes[i], lane.shapes[i]
        if shape is None:
            place = Allocated(self._memory)
            using: trt.IOutputAllocator = allocator(self._module, place)
            lane.allocate(name, using)
            return lambda: place.tensor(name, dtype, using)
        if name in self._host:
            import numpy as np

            array: Any = np.empty(shape, dtype)
            lane.place(name, int(array.ctypes.data))

            def uploaded() -> Any:
                self._memory.synchronize()
                return self._memory.upload(array)

            return uploaded
        tensor = self._memory.empty(shape, dtype)
        lane.place(name, self._memory.pointer(tensor) or _memory.ALIGNMENT)
        return lambda: tensor

    def _take(self, loaded: Loaded, stream: int, capturing: bool) -> Lane:
        with self._lock:
            places = [stream, *reversed(self._idle)] if capturing else [stream]  # a new one would take memory
            for place in places:
                if waiting := self._idle.get(place):
                    return waiting.pop()
        return Lane(self._module, loaded, stream)

    def _give(self, stream: int, lane: Lane) -> None:
        with self._lock:
            if self._loaded is None:
                return
            waiting = self._idle.setdefault(stream, deque())
            self._idle.move_to_end(stream)
            if len(waiting) < _IDLE:
                waiting.append(lane)
            while len(self._idle) > _STREAMS:
                self._idle.popitem(last=False)

    # Graphs

    def _captured(
        self, loaded: Loaded, arguments: Sequence[Argument], rows: Rows, stream: int
    ) -> list[Any] | None:
        """A run that is one launch, where these sizes were captured; None where they were not."""
        graphs, memory = self._graphs, self._memory
        if graphs is None:
            return None
        key = stream, rows
        graph = graphs.get(key)
        if graph is None:
            if not graphs.due(key):
                return None
            graph = graphs.add(key, lambda: self._capture(loaded, arguments, rows, stream))
        if graph is None:
            return None
        shapes: Sequence[Row] = graph.note
        results = [memory.empty(shape, dtype) for shape, dtype in zip(shapes, self.output_dtypes, strict=True)]
        try:
            done = graph.run([each.pointer for each in arguments], list(map(memory.pointer, results)), stream)
        except _driver.DriverError as error:
            raise EngineError(NAME, str(error)) from error
        return results if done else None

    def _capture(
        self, loaded: Loaded, arguments: Sequence[Argument], rows: Rows, stream: int
    ) -> _graphs.Captured | None:
        """These sizes as a graph; None where they cannot be one, or it would not pay. Raises where that fails."""
        driver = _driver.driver()
        inputs = [self._buffer(each.dtype, each.shape) for each in arguments]
        fixed = [
            each._replace(pointer=buffer.pointer, owner=buffer.owner)
            for each, buffer in zip(arguments, inputs, strict=True)
        ]
        apart = driver.stream()
        try:
            lane = Lane(self._module, loaded, apart)
            lane.bind([*fixed, *self._fed], rows, self._outputs)
            shapes = [shape for shape in lane.shapes if shape is not None]
            nbytes = sum(bytes_of(d, s) for d, s in zip(self.output_dtypes, shapes, strict=False))
            nbytes += sum(buffer.nbytes for buffer in inputs)
            if self._host or len(shapes) < len(self._outputs) or nbytes > _graphs.LARGEST:
                return None
            outputs = [self._buffer(d, s) for d, s in zip(self.output_dtypes, shapes, strict=True)]
            for name, buffer in zip(self._outputs, outputs, strict=True):
                lane.place(name, buffer.pointer)
            scratch = _memory.block(self._memory, lane.scratch)
            for argument, buffer in zip(arguments, inputs, strict=True):
                if buffer.nbytes:
                    driver.copy(buffer.pointer, argument.pointer, buffer.nbytes, stream)
            driver.synchronize(stream)
            with driver.relaxed():
                lane.execute(scratch, apart)  # once for real: what is made at the first run is not captured
            driver.synchronize(apart)
            graph = driver.capture(apart, lambda: lane.execute(scratch, apart))
        finally:
            driver.release(apart)
        return _graphs.Captured(driver, graph, inputs, outputs, (loaded, lane, scratch), note=shapes)

    def _buffer(self, dtype: str, shape: Row) -> _graphs.Buffer:
        nbytes = bytes_of(dtype, shape)
        block = _memory.block(self._memory, nbytes)
        return _graphs.Buffer(block.pointer, nbytes, block.owner)
