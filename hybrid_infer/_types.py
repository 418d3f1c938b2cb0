"""Plain data that the rooms of the library exchange. This module imports nothing of ours."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import CodeType, FunctionType
from typing import Any, NamedTuple, Protocol

#: An expression over the sizes and integers of a call, as JSON data, whose value is the one that Python computes:
#: ``7``, ``["dim", tensor, axis]``, ``["int", index]``, ``["+", a, b, ...]``, ``["*", a, b, ...]``,
#: ``["//", a, b]``, ``["%", a, b]`` (both floor), ``["min", a, b, ...]``, ``["max", a, b, ...]``; fractions: ``0.6``,
#: ``["/", a, b]``, ``["**", a, b]``, ``["sqrt", a]``, and ``["trunc", a]``, ``["floor", a]``, ``["ceil", a]`` and
#: ``["round", a]`` of them.
Expr = Any

#: A condition over such expressions: ``["==", a, b]``, ``["!=", a, b]``, ``["<", a, b]``, ``["<=", a, b]``,
#: ``["and", c, ...]``, ``["or", c, ...]``, ``["not", c]``.
Condition = Any

#: Names of element types, the same for every framework and engine.
DTYPES = (
    "bool", "uint8", "int8", "int16", "int32", "int64",
    "float16", "bfloat16", "float32", "float64", "complex64", "complex128",
)  # fmt: skip

#: An index that no table has: a graph looks it up where only eager code can answer.
NOWHERE = 2**40


def carrier(dtype: str) -> str:
    """The element type in which NumPy's arrays carry tensors of `dtype`: they have no bfloat16.

    >>> carrier("bfloat16"), carrier("int64")
    ('float32', 'int64')
    """
    return "float32" if dtype == "bfloat16" else dtype


#: Why a call is answered eagerly where a write would change more than the tensor that is written to.
OVERLAP = "it writes to a tensor that lies in the memory of another one"


@dataclass(frozen=True)
class TensorSpec:
    """Element type, sizes (None: varies) and device of one tensor of a graph."""

    dtype: str
    shape: tuple[int | None, ...]
    device: str = "cpu"


#: The output of a graph that is no result: do the method's own checks of values hold?
CHECKED = "hybrid_infer.checked"


@dataclass(frozen=True)
class Graph:
    """An ONNX graph that holds no weights, and the names that its caller binds.

    ``model`` is a serialised ModelProto. ``weights[i]`` is the name of the graph input that takes the i-th weight,
    None where the graph does not use it; ``inputs`` names the inputs for the tensors of a call, followed by its
    integer inputs (int64 scalars) and by the weights that it writes to (see ``Version.state``), None where unused;
    ``outputs`` names the results, and `CHECKED` behind them where the method checks values. Graph inputs stand in the
    order: weights, inputs. No name occurs twice.
    """

    model: bytes
    weights: tuple[str | None, ...]
    inputs: tuple[str | None, ...]
    outputs: tuple[str, ...]
    input_specs: tuple[TensorSpec, ...]
    output_specs: tuple[TensorSpec, ...]

    @property
    def checked(self) -> bool:
        return self.outputs[-1:] == (CHECKED,)


@dataclass(frozen=True)
class Captured:
    """What a frontend found out about one call.

    ``conditions``: all that the tracer assumed about the sizes and integers of the call (see ``Condition``).
    ``dynamic``: the (tensor, axis) pairs that vary in the graph; ``specialised``: those that were asked for but
    that the tracer fixed to the example's size, and ``fixed_by`` why, where that is known: a line of the program, or a
    reason. ``impure``: why the method must not be replaced by its graph
    (mutation of an input or weight, random numbers), empty if it may. ``constants``: tensors that existed before the
    trace and that the tracer took into the graph by value. ``sides``: branches on values of which the graph has the
    side that the call took, and checks that a later call takes it too (see ``Graph.checked``): lines, and the ways,
    in the order in which it came there.
    """

    graph: Graph
    conditions: tuple[Condition, ...] = ()
    dynamic: frozenset[tuple[int, int]] = frozenset()
    specialised: frozenset[tuple[int, int]] = frozenset()
    fixed_by: Mapping[tuple[int, int], str] = field(default_factory=dict)
    dynamic_ints: frozenset[int] = frozenset()
    impure: tuple[str, ...] = ()
    constants: tuple[Any, ...] = ()
    sides: tuple[tuple[str, bool], ...] = ()


class Since(Protocol):
    """What some objects held at a time."""

    def changed(self) -> str | None:
        """The name of something that is not what it was."""
        ...


class Tracee(Protocol):
    """One call prepared for tracing; made by the twin, consumed by a frontend.

    ``weights``: the live tensors of the layer, one per distinct tensor. ``tensors``: the tensors of the call.
    ``ints``: those integers of the call that may become inputs. ``labels`` say in words what each weight, then each
    tensor is. ``run`` puts traced weights into the twin's slots, calls the undecorated method on the twin with
    traced arguments and returns the computed results as a flat list of traced tensors and (traced) integers; results
    that are an input or a weight itself are not in that list.
    ``constants``: tensors that its code reaches elsewhere, as defaults of functions, which are watched for changes.
    ``convert`` is applied to the user's function first (Paddle rewrites control flow there). ``watched``: whether
    ``run`` notes which attributes are read; a tracer that cannot cope with that turns it off, and all are guarded.
    ``any_size``: dimensions that vary are to take sizes of 0 and 1 too, where the tracer can leave that open.
    ``asks_for_gradients``: the method may ask whether gradients are recorded. ``assuming``: a branch on values may be
    taken as the call takes it, and checked (see ``Captured.sides``); ``sides``: those of which what the trace found is
    true, whether or not it gave a graph.
    ``written``, ``state``: which tensors of the call, and which weights, the method is known to write to: ``run`` has
    it work on copies of these, whose content becomes a result. ``may_write`` says whether such tensors and weights can
    be served so. ``passed``: the tensors that the method is given while ``run`` is at work, such copies among them;
    ``writes``: what a trace found that the method does besides computing its results.
    Where ``run`` is called several times, ``recall`` puts back what was ``noted`` after the one that counts.
    ``since``: what the objects of the method hold while ``run`` is at work, and what the variables of functions do that
    are about to be run; it says what of it has changed.
    While ``run`` is at work, calls within ``observing(True)`` are watched for the clock and its like whether or not the
    method names any; those within ``observing(False)`` are not, of which none may be the user's. ``rewritten`` is told
    of functions that run as other code, made of theirs.
    """

    name: str
    weights: Sequence[Any]
    tensors: Sequence[Any]
    ints: Sequence[int]
    labels: Sequence[str]
    watched: bool
    any_size: bool
    asks_for_gradients: bool
    assuming: bool
    sides: tuple[tuple[str, bool], ...]
    written: frozenset[int]
    state: frozenset[int]
    passed: Sequence[Any]
    constants: Sequence[Any]
    writes: list[str]

    def may_write(self, tensors: frozenset[int], state: frozenset[int]) -> bool: ...

    def run(
        self,
        weights: Sequence[Any],
        tensors: Sequence[Any],
        ints: Sequence[Any],
        convert: Callable[[Callable[..., Any]], Callable[..., Any]] = ...,
    ) -> list[Any]: ...

    def since(self, functions: Iterable[Any]) -> Since: ...

    def noted(self) -> Any: ...

    def recall(self, noted: Any) -> None: ...

    def observing(self, on: bool) -> AbstractContextManager[None]: ...

    def rewritten(self, function: FunctionType, made: CodeType) -> None: ...


class Memory(Protocol):
    """The tensors of a framework on one device, for engines that compute on them where they lie.

    ``device``: its name ("cuda:0", "gpu:0"); ``index``: its number among the GPUs of this process.
    ``keeps_captured``: is what was asked for while the program captures a CUDA graph that graph's, for as long as it
    lives? Elsewhere it goes back to the pool for all when it is let go.
    """

    device: str
    index: int
    keeps_captured: bool

    def stream(self) -> int:
        """The handle of the caller's current stream; 0 for the default one."""
        ...

    def pointer(self, tensor: Any) -> int: ...

    def describe(self, tensor: Any) -> tuple[str, tuple[int, ...]]:
        """Element type, in this library's names, and sizes."""
        ...

    def ready(self, tensor: Any) -> Any:
        """The tensor on this device, without gaps and without a history; itself where it is so already."""
        ...

    def empty(self, shape: Sequence[int], dtype: str) -> Any:
        """A tensor in memory of the framework's pool, which gets it back in the order of the current stream."""
        ...

    def used(self, tensor: Any) -> bool:
        """Work of the current stream reads a tensor that was asked for on another: does the pool heed that?

        Elsewhere its memory is handed out again in the order of the other stream, whoever still reads it.
        """
        ...

    def view(self, tensor: Any, shape: Sequence[int], dtype: str) -> Any:
        """The first bytes of a tensor of bytes as another tensor, on the same memory."""
        ...

    def cast(self, tensor: Any, dtype: str) -> Any:
        """A tensor of another element type; itself where it has that one."""
        ...

    def permuted(self, tensor: Any, order: Sequence[int]) -> Any:
        """A tensor with its axes in another order, without gaps."""
        ...

    def upload(self, array: Any) -> Any:
        """A copy of a NumPy array on the device."""
        ...

    def spread(self, tensors: Sequence[Any]) -> Callable[[], Callable[[], bool]]:
        """Remember values spread over `tensors`, on the device, for an engine that has copied them.

        What comes back, called after work was enqueued that may have written to them, enqueues a comparison with what
        was remembered; what that gives waits for the comparison and says whether the values are the same.
        """
        ...

    def synchronize(self) -> None:
        """Wait for the work of the current stream."""
        ...

    def capturing(self) -> bool:
        """Is the program itself capturing a CUDA graph on the current stream?"""
        ...

    def scope(self) -> AbstractContextManager[Any]:
        """In which this device is the current one of the thread."""
        ...


class TF32(NamedTuple):
    """Which float32 arithmetic may be rounded to TF32, as tensor cores of NVIDIA's GPUs do: that of these operators."""

    products: bool = False
    convolutions: bool = False
    recurrent: bool = False


@dataclass(frozen=True)
class EngineOptions:
    """What an engine may need to know when it builds a program.

    ``threads``: width of its pool, from the framework's own setting. ``optimise``: False lowers the engine's own
    optimisation to its lowest. ``live``: weights are fed at each run instead of bound at load. ``handover``: hand
    the cores over between the framework's pool and the engine's. ``framework``: "torch", "paddle" or "" (whose
    pool that is). ``precision``: the type of float32 arithmetic; where the engine is not ``native`` in it, the graph
    says what is rounded. ``memory``: the framework's tensors on ``device``, for an engine that works in place.
    ``extra``: an engine's own settings, each named in its module.
    """

    threads: int = 1
    optimise: bool = True
    live: bool = False
    handover: bool = True
    framework: str = ""
    device: str = "cpu"
    precision: str = "float32"
    memory: Memory | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


class Program(Protocol):
    """A graph loaded by an engine, with its weights bound (or fed, if live). Safe to run from many threads.

    ``input_dtypes``/``output_dtypes``: the element types in which arrays are exchanged, which may differ from the
    graph's where NumPy or the engine has no such type (bfloat16 is exchanged as float32).
    One with a true attribute ``in_place`` takes the framework's tensors instead of arrays, on the device that it was
    loaded for, and gives such tensors; integers come as NumPy arrays all the same. What one has ``decided`` since its
    plan was made is told beside the engine's ``decisions``.
    """

    engine: str
    input_dtypes: tuple[str, ...]
    output_dtypes: tuple[str, ...]

    def run(self, arrays: Sequence[Any]) -> Sequence[Any]:
        """Run on arrays in the order of ``Graph.inputs`` (None-named ones included, and ignored).

        A live program takes the weights' arrays first, in the order of ``Graph.weights``. The arrays that come
        back belong to the caller. Raises EngineError.
        """
        ...

    def usable(self) -> bool:
        """False once closed, and in a process forked from the one that loaded the program: load it anew there."""
        ...

    def close(self) -> None:
        """Give memory and threads back; the program is not used afterwards. Calls in flight end as they would."""
        ...


class Engine(Protocol):
    """A way to run a graph on this machine.

    ``reservation``: in what it may differ from the eager method on other arguments than those it was verified with,
    for which it is probed before it is chosen; empty if in nothing. Of one with a true attribute ``in_place``,
    weights and arguments are tensors (see `Program`); one with a true ``ranged`` builds plans for ranges of sizes; the
    ``plan_key`` of one with a true ``names_machine`` says all of the machine that a plan depends on. One with a true
    ``loses_nans`` may find that a NaN is greater than a number.
    """

    name: str
    reservation: str

    def missing(self) -> str:
        """Why this machine cannot host the engine, with the remedy; empty if it can."""
        ...

    def version(self) -> str: ...

    def plan_key(self, options: EngineOptions) -> str:
        """Names the plan that `prepare` makes: engine, version, device, precision and the options that matter."""
        ...

    def native(self, precision: str) -> bool:
        """Does this machine have kernels of the engine for float32 arithmetic in `precision`? In "float32": always."""
        ...

    def doubts(self, files: Mapping[str, bytes]) -> str:
        """What in a graph, of which `prepare` gave `files`, bears out the reservation whatever a probe tells; or empty.

        Asked only where there is a reservation.
        """
        ...

    def wire(self, dtype: str) -> str:
        """The element type of the NumPy arrays that carry tensors and weights of `dtype`. Raises EngineError."""
        ...

    def prepare(self, graph: Graph, options: EngineOptions) -> dict[str, bytes]:
        """Files, by name, from which `load` builds faster: made once, kept as a plan. Raises EngineError."""
        ...

    def load(
        self,
        graph: Graph,
        weights: Sequence[Any],
        options: EngineOptions,
        files: Mapping[str, bytes] | None = None,
    ) -> Program:
        """Build a program with `weights` (NumPy arrays in the graph's order, None-named ones may be None).

        ``files``: what `prepare` gave for this graph under an equal `plan_key`; made here if None. If
        ``options.live``, weights may be left empty. Arrays are bound without a copy where the engine allows it, and
        are kept alive by the program. Raises EngineError.
        """
        ...
