"""Attention in half precision and convolutions by cuDNN, through its frontend's Python binding.

A graph of one operation, with what a convolution takes up behind it, is built for each kind of step and sizes, or had
back as an earlier process kept it. Whatever the library refuses, our own kernels compute. Its plan must be one of the
library's own, built in: the frontend's Python engines compile by other packages.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from hybrid_infer import _fork_safe
from hybrid_infer._errors import of_the_moment, summary
from hybrid_infer._types import TF32
from hybrid_infer.backends.native import _cudnn_plans, _cudnn_pointwise, _nvrtc, _size
from hybrid_infer.backends.native._plan import NAME, Plan, Step, encode
from hybrid_infer.backends.native._shelf import Shelf
from hybrid_infer.backends.native._size import Atom
from hybrid_infer.backends.native._window import whole, windows

_log = logging.getLogger("hybrid_infer")

#: Moves whenever a step is described to the library, or a plan chosen, in another way: what was kept is of no use then.
_FORMAT = 2

#: The steps that it computes.
OPS = ("attention", "Conv", "ConvTranspose")

_TYPES = {"float16": "HALF", "bfloat16": "BFLOAT16", "float32": "FLOAT"}

#: Bytes of workspace that the library may choose algorithms for: all programs of a stream share it, and it counts
#: against the promise that a method takes no more memory than the eager one.
WORKSPACE = 256 << 20

#: Sizes of heads that its attention takes.
_HEAD, _MULTIPLE = 256, 8

#: The engine that computes convolutions with what stands behind them, which of its kernels has tiles of 64x64 as of
#: cuDNN 9.19, whose heuristics propose 128x128 for a Hopper whatever the size, and of how many tiles results are small.
#: Where another release declines the number, its proposals are taken; where it means another kernel, that is timed.
_ENGINE, _TILES_OF_64, _FEW = 7, 24, 128

#: Which operand of attention is its mask.
_MASK = 3

_EXACT = TF32()

Run = Callable[[Sequence[int], int, int], None]


def missing() -> str:
    """Why the library cannot be used, with the remedy; empty if it can."""
    if importlib.util.find_spec("cudnn") is None:
        return "the package nvidia-cudnn-frontend is not installed: pip install --no-deps nvidia-cudnn-frontend"
    try:
        _binding().backend_version()
    except Exception as error:
        return f"cuDNN cannot be loaded: {summary(error)}"
    return ""


@cache
def _binding() -> Any:
    import cudnn

    return cudnn


def _strides(shape: Sequence[int]) -> list[int]:
    found, step = [], 1
    for size in reversed(shape):
        found.append(step)
        step *= size
    return found[::-1]


def _turned(shape: Sequence[int], order: Sequence[int] | None) -> tuple[list[int], list[int]]:
    """Sizes and strides of an array of that shape, its axes taken in `order`."""
    strides, axes = _strides(shape), range(len(shape)) if order is None else order
    return [shape[axis] for axis in axes], [strides[axis] for axis in axes]


def _tiles(shape: Sequence[int]) -> int:
    """How many tiles of 128x128 a result has, its channels last."""
    return -(-math.prod(shape[:-1]) // 128) * -(-shape[-1] // 128)


class Graphs:
    """The library on one GPU, which is current when this is made. Raises the binding's errors."""

    def __init__(self) -> None:
        self._cudnn = _binding()
        self._handle = self._cudnn.create_handle()
        self._lock = _fork_safe.Lock()  # of the handle: one thread at a time may use it
        self._declines = (self._cudnn.cudnnGraphNotSupportedError, RuntimeError, ValueError, NotImplementedError)
        self._kept: _cudnn_plans.Kept | None = None
        self._shelf: Shelf | None = None
        # Convolutions that take up the same are computed by one kernel for all sizes, compiled once.
        make = getattr(self._cudnn, "create_kernel_cache", None)
        self._sized = {} if make is None else {"is_dynamic_shape_enabled": True, "kernel_cache": make()}

    def keep(self, shelf: Shelf, gpu: str) -> None:
        """Plans are had back from that shelf, and put there by `flush`, from now on. `gpu`: for which, with its driver.
        """
        if shelf != self._shelf:
            self.flush()
            releases = f"cuDNN {self._cudnn.backend_version()}, {getattr(self._cudnn, '__version__', '')}"
            self._shelf, self._kept = shelf, _cudnn_plans.Kept(shelf, f"{releases}, {gpu}")

    def flush(self) -> None:
        if self._kept is not None:
            self._kept.flush()

    def recall(self, what: object) -> bytes | None:
        """What `remember` kept, of this GPU and these releases; None where nothing is known."""
        return None if self._kept is None else self._kept.get(self._kept.key(what))

    def remember(self, what: object, data: bytes) -> None:
        """Keep that beside the plans."""
        if self._kept is not None:
            self._kept.put(self._kept.key(what), data)

    def offer(
        self, plan: Plan, step: Step, symbols: Mapping[Atom, int], tf32: TF32 = _EXACT
    ) -> tuple[Run, int] | None:
        """See `hybrid_infer.backends.native._schedule.Offer`."""
        describe = {"attention": _attention, "Conv": _convolution, "ConvTranspose": _transposed}.get(step.op)
        names = [name for name in (*step.inputs, *step.outputs) if name]
        values = [plan.values[name] for name in names]
        dtype = values[-1].dtype
        if describe is None or dtype not in _TYPES or any(value.shape is None for value in values):
            return None
        if any(step.outputs[1:]) or "" in step.inputs or (step.op == "attention" and dtype == "float32"):
            return None
        # What is added to scores may be in the type in which they are summed; whether it takes that, the library says.
        more = step.attributes.get("epilogue", {}).get("first", len(values))
        free = [i == _MASK if step.op == "attention" else more <= i < len(values) - 1 for i in range(len(values))]
        wide = [each and value.dtype == "float32" for each, value in zip(free, values, strict=True)]
        if any(value.dtype != dtype and not each for value, each in zip(values, wide, strict=True)):
            return None
        held = [each or whole(value.shape or ()) for each, value in zip(windows(step), values, strict=True)]
        shapes, strides = (
            [[_size.evaluate(size, symbols) for size in part] for part in parts]
            for parts in ([each.sizes for each in held], [each.strides for each in held])
        )
        if any(0 in shape for shape in shapes):
            return None
        kept = self._kept
        what = [_FORMAT, step.op, dtype, wide, encode(dict(step.attributes)), shapes, strides, tf32.convolutions]
        key = "" if kept is None else kept.key(what)

        def build() -> Any:
            return self._build(describe, dtype, wide, step.attributes, shapes, strides, tf32.convolutions)

        def forget() -> None:
            if kept is not None:
                kept.put(key, b"")

        with self._lock:
            data = None if kept is None else kept.get(key)
            graph, _ = self._restored(dtype, data) if data else (None, True)
            back = graph is not None
            if graph is None:
                try:
                    graph = build()
                except self._declines as error:
                    if of_the_moment(str(error)):
                        raise
                    _log.info("%s: cuDNN has no %s of %s for %s: %s", NAME, step.op, dtype, shapes, summary(error))
                    return None
                if graph is None:
                    return None
                if kept is not None and data != b"":
                    data = _cudnn_plans.serialised(graph)
                    again, settled = self._restored(dtype, data) if data else (None, True)
                    if settled:
                        kept.put(key, b"" if again is None else data)
                    graph, back = (graph, False) if again is None else (again, True)
            found = _Built(self._cudnn, self._handle, self._lock, graph, len(names), (build, forget) if back else None)
        return found.run, found.workspace

    def _restored(self, dtype: str, data: bytes) -> tuple[Any, bool]:
        """See `_cudnn_plans.restored`: a graph that an earlier process, or this one, built."""
        return _cudnn_plans.restored(self._cudnn, self._handle, self._empty(dtype), data, WORKSPACE)

    def _empty(self, dtype: str, **more: Any) -> Any:
        _nvrtc.preload()  # the library compiles attention by it, and does not look for what it needs for that
        kinds = self._cudnn.data_type
        return self._cudnn.pygraph(
            io_data_type=getattr(kinds, _TYPES[dtype]), intermediate_data_type=kinds.FLOAT,
            compute_data_type=kinds.FLOAT, handle=self._handle, **more,
        )  # fmt: skip

    def _build(
        self, describe: Callable[..., bool], dtype: str, wide: Sequence[bool], at: Mapping[str, Any],
        shapes: list[list[int]], strides: list[list[int]], tf32: bool,
    ) -> Any:  # fmt: skip
        """The library's graph of one step; None for what is not asked of it. Raises what it declines with."""
        if "epilogue" in at and _tiles(shapes[-1]) < _FEW:
            with contextlib.suppress(*self._declines, AttributeError, TypeError):  # the last two of other frontends
                return self._planned(describe, dtype, wide, at, shapes, strides, tf32, _TILES_OF_64)
        return self._planned(describe, dtype, wide, at, shapes, strides, tf32)

    def _planned(
        self, describe: Callable[..., bool], dtype: str, wide: Sequence[bool], at: Mapping[str, Any],
        shapes: list[list[int]], strides: list[list[int]], tf32: bool, kernel: int | None = None,
    ) -> Any:  # fmt: skip
        """The same, by that kernel of `_ENGINE`, or as the library proposes."""
        cudnn = self._cudnn
        kinds = cudnn.data_type
        graph = self._empty(dtype, **(self._sized if "epilogue" in at else {}))
        held = [kinds.FLOAT if each else getattr(kinds, _TYPES[dtype]) for each in wide]
        if not describe(_Description(graph, held, kinds.FLOAT), at, shapes, strides):
            return None
        graph.validate()
        graph.build_operation_graph()
        if kernel is None:
            graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
        else:
            graph.create_execution_plan(_ENGINE, {cudnn.knob_type.KERNEL_CFG: kernel})
        graph.deselect_workspace_greater_than(WORKSPACE)
        if dtype == "float32":
            notes = cudnn.numerical_note
            graph.deselect_numeric_notes([notes.DOWN_CONVERT_INPUTS, *([] if tf32 else [notes.TENSOR_CORE])])
        if getattr(graph, "selected_engine", None) is None:
            graph.check_support()
            graph.build_plans()
            if getattr(graph, "selected_engine", None) is None:
                return graph
        # An engine of the frontend's would serve: the first of the library's own that can be built is wanted.
        for index in range(len(graph.plans)):
            graph.select_plan(index)
            if graph.selected_engine is None:
                with contextlib.suppress(*self._declines):
                    graph.check_support()
                    graph.build_plans()
                    return graph
        raise NotImplementedError("only engines of its frontend's serve")


class _Built:
    """A graph of the library, ready to run; ``workspace``: the bytes that it wants.

    `otherwise`: what builds it anew, and what has it kept no more. One that was had back, and does not run, is built;
    where that does no better, it is not the plan that is at fault.
    """

    def __init__(
        self, cudnn: Any, handle: Any, lock: _fork_safe.Lock, graph: Any, count: int,
        otherwise: tuple[Callable[[], Any], Callable[[], None]] | None,
    ) -> None:  # fmt: skip
        self._cudnn, self._handle, self._lock, self._graph, self._count = cudnn, handle, lock, graph, count
        self._otherwise = otherwise
        self.workspace = int(graph.get_workspace_size())

    def run(self, pointers: Sequence[int], workspace: int, stream: int) -> None:
        """``pointers``: of the tensors, in the order of their numbers."""
        with self._lock:  # the stream is the handle's
            self._cudnn.set_stream(handle=self._handle, stream=stream)
            given = {i + 1: pointers[i] for i in range(self._count)}
            try:
                self._graph.execute(given, workspace, handle=self._handle)
            except Exception as error:
                if self._otherwise is None:
                    raise
                _log.info("%s: a plan that cuDNN took back does not run, and is built: %s", NAME, error)
                (build, forget), self._otherwise = self._otherwise, None
                graph = build()
                if int(graph.get_workspace_size()) > self.workspace:  # there is room for the other's
                    forget()
                    raise
                graph.execute(given, workspace, handle=self._handle)
                forget()
                self._graph = graph
            self._otherwise = None


class _Description(NamedTuple):
    """A graph of the library in the making; ``kinds``: its types of the tensors, in order, ``wide`` that of sums."""

    graph: Any
    kinds: Sequence[Any]
    wide: Any

    def tensor(self, number: int, dim: Sequence[int], stride: Sequence[int]) -> Any:
        kind = self.kinds[number - 1]
        return self.graph.tensor(dim=list(dim), stride=list(stride), data_type=kind, uid=number, name=f"t{number}")

    def result(self, tensor: Any, number: int, dim: Sequence[int], stride: Sequence[int]) -> None:
        kind = self.kinds[number - 1]
        tensor.set_output(True).set_dim(list(dim)).set_stride(list(stride)).set_data_type(kind).set_uid(number)


def _attention(of: _Description, at: Mapping[str, Any], shapes: list[list[int]], strides: list[list[int]]) -> bool:
    masked = len(shapes) > 4
    # What it gives for a row that is masked whole is its own affair, and a fill is no sum.
    if at["k_turned"] or at.get("fill") is not None or (masked and at["zero_nan"]) or len(shapes[-1]) != 4:
        return False
    q, k, v = ((shapes[i], strides[i]) for i in range(3))
    order = at.get("order")
    result = _turned(shapes[-1], None if order is None else [list(order).index(axis) for axis in range(4)])
    heads = (q[0][1], k[0][1], v[0][1])
    fits = q[0][0] == k[0][0] == v[0][0] and heads[1] == heads[2] and not heads[0] % heads[1]
    if not fits or any(size % _MULTIPLE or size > _HEAD for size in (q[0][3], v[0][3])):
        return False
    given = {
        "q": of.tensor(1, *q), "k": of.tensor(2, *k), "v": of.tensor(3, *v),
    }  # fmt: skip
    if masked:
        shape, whole = [*([1] * (4 - len(shapes[3]))), *shapes[3]], [q[0][2], k[0][2]]
        if any(size not in (1, full) for size, full in zip(shape[2:], whole, strict=True)):
            return False
        full = [*shape[:2], *whole]
        steps = [by if size == n else 0 for size, n, by in zip(shape, full, _strides(shape), strict=True)]
        given["bias"] = of.tensor(4, full, steps)
    output, _ = of.graph.sdpa(name="attention", attn_scale=at["scale"], generate_stats=False, **given)
    of.result(output, 5 if masked else 4, *result)
    return True


def _transposed(of: _Description, at: Mapping[str, Any], shapes: list[list[int]], strides: list[list[int]]) -> bool:
    """The gradient of an image, by the convolution that would give this one's operand from its result."""
    at, shapes = _images(at, shapes)
    order = _order(at, shapes[0])
    (x, x_step), (w, w_step), (y, y_step) = (_turned(shape, order) for shape in shapes)
    count = len(x) - 2
    ones, pads = [1] * count, list(at.get("pads") or [0] * (2 * count))
    by, apart = list(at.get("strides") or ones), list(at.get("dilations") or ones)
    if count not in (2, 3) or at.get("group", 1) != 1 or min(pads) < 0:
        return False
    rooms = [y[2 + i] + pads[i] + pads[i + count] - (w[2 + i] - 1) * apart[i] - 1 for i in range(count)]
    if any(room < 0 or room // by[i] + 1 != x[2 + i] for i, room in enumerate(rooms)):
        return False
    made = of.graph.conv_dgrad(
        loss=of.tensor(1, x, x_step), filter=of.tensor(2, w, w_step), pre_padding=pads[:count],
        post_padding=pads[count:], stride=by, dilation=apart, compute_data_type=of.wide,
    )  # fmt: skip
    of.result(made, len(shapes), y, y_step)
    return True


def _images(at: Mapping[str, Any], shapes: list[list[int]]) -> tuple[Mapping[str, Any], list[list[int]]]:
    """Lines as images of one row, which the library knows; as they are where something stands behind them."""
    if len(shapes[0]) != 3 or "code" in at.get("epilogue", {}):
        return at, shapes
    (pad, *rest), by, apart = at.get("pads") or [0, 0], at.get("strides") or [1], at.get("dilations") or [1]
    at = {**at, "pads": [0, pad, 0, *rest], "strides": [1, *by], "dilations": [1, *apart]}
    return at, [[*shape[:2], 1, shape[2]] if len(shape) == 3 else shape for shape in shapes]


def _order(at: Mapping[str, Any], shape: Sequence[int]) -> list[int] | None:
    """The library names the axes in one order, and is told by strides how they are held."""
    return [0, len(shape) - 1, *range(1, len(shape) - 1)] if at.get("channels_last") else None


def _convolution(of: _Description, at: Mapping[str, Any], shapes: list[list[int]], strides: list[list[int]]) -> bool:
    at, shapes = _images(at, shapes)
    order = _order(at, shapes[0])
    (x, x_step), (w, w_step), (y, y_step) = (_turned(shapes[i], order) for i in (0, 1, -1))
    count = len(x) - 2
    if count not in (2, 3) or at.get("group", 1) != 1 or at.get("auto_pad", "NOTSET") != "NOTSET":
        return False
    ones, pads = [1] * count, at.get("pads") or [0] * (2 * count)
    made = of.graph.conv_fprop(
        image=of.tensor(1, x, x_step), weight=of.tensor(2, w, w_step),
        pre_padding=list(pads[:count]), post_padding=list(pads[count:]), stride=list(at.get("strides") or ones),
        dilation=list(at.get("dilations") or ones), compute_data_type=of.wide,
    )  # fmt: skip
    body = at.get("epilogue") or {"first": len(shapes) - 1}
    if body["first"] == 3:
        bias = of.tensor(3, [1, y[1], *ones], _strides([1, y[1], *ones]))
        made = of.graph.bias(name="bias", input=made, bias=bias)
    if "code" in body:
        padded = [[*([1] * (len(y) - len(view))), *view] for view in body["views"]]
        operands = [of.tensor(body["first"] + i, *_turned(view, order)) for i, view in enumerate(padded, 1)]
        made = _cudnn_pointwise.describe(of.graph, of.wide, body, [made, *operands])
    of.result(made, len(shapes), y, y_step)
    return True
