"""cuDNN without a GPU, as its frontend binds it: sizes and strides on the host's memory, for attention, and for
convolutions with elementwise operations behind them.

It computes from the description alone. What the library is known to refuse, it refuses.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
from fake_cublaslt import tf32


class cudnnGraphNotSupportedError(Exception):
    """Named as the binding names it."""


class _Tensor:
    def __init__(
        self, dim: Any = None, stride: Any = None, data_type: Any = None, uid: int = 0, name: str = ""
    ) -> None:
        self.dim, self.stride, self.data_type, self.uid, self.output = dim, stride, data_type, uid, False
        self.value: Any = None  # of one that is virtual

    def set_output(self, output: bool) -> _Tensor:
        self.output = output
        return self

    def _setter(name: str) -> Any:  # type: ignore[misc]
        def put(self: _Tensor, value: Any) -> _Tensor:
            setattr(self, name, value)
            return self

        return put

    set_dim, set_stride, set_data_type, set_uid = map(_setter, ("dim", "stride", "data_type", "uid"))

    def at(self, pointer: int) -> Any:
        """The array at an address, as the strides say."""
        held = np.dtype({"HALF": np.float16, "BFLOAT16": np.uint16, "FLOAT": np.float32}[self.data_type])
        span = 1 + sum((size - 1) * step for size, step in zip(self.dim, self.stride, strict=True))
        flat = np.ctypeslib.as_array((ctypes.c_uint8 * (span * held.itemsize)).from_address(pointer)).view(held)
        return np.lib.stride_tricks.as_strided(flat, self.dim, [step * held.itemsize for step in self.stride])


class _Graph:
    def __init__(self, library: FakeCudnn, cache: set[tuple[str, ...]] | None = None) -> None:
        self.cache, self.names = cache, list[str]()
        self.library, self.tensors, self.work, self.stage = library, {}, [], 0
        self.chosen, self.without, self.back, self.pointwise = 0, set[str](), False, 0

    def tensor(self, **about: Any) -> _Tensor:
        made = _Tensor(**about)
        assert made.uid not in self.tensors and len(made.dim) == len(made.stride)
        self.tensors[made.uid] = made
        return made

    def sdpa(self, name: str, q: Any, k: Any, v: Any, attn_scale: float, generate_stats: bool, bias: Any = None) -> Any:
        if q.dim[3] % 8 or q.stride[3] != 1 or k.stride[3] != 1 or v.stride[3] != 1:
            raise cudnnGraphNotSupportedError("head size or strides")
        out = _Tensor()

        def compute(at: Any) -> None:
            keys, values = (np.repeat(_wide(at(x)), q.dim[1] // x.dim[1], axis=1) for x in (k, v))
            scores = attn_scale * (_wide(at(q)) @ keys.swapaxes(-1, -2))
            scores = scores + (0 if bias is None else _wide(at(bias)))
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            _put(at(out), weights / weights.sum(-1, keepdims=True) @ values)

        self.work.append(compute)
        return out, None

    def conv_fprop(self, image: Any, weight: Any, pre_padding: Any, post_padding: Any, stride: Any, dilation: Any,
                   compute_data_type: Any) -> _Tensor:  # fmt: skip
        import torch

        out = _Tensor()

        def compute(at: Any) -> None:
            pads = [n for pair in zip(pre_padding[::-1], post_padding[::-1], strict=True) for n in pair]
            single = image.data_type == "FLOAT" and "TENSOR_CORE" not in self.without
            given, filters = (tf32(each) if single else each for each in (_wide(at(image)), _wide(at(weight))))
            x = torch.nn.functional.pad(torch.tensor(given), pads)
            run = (torch.conv2d, torch.conv3d)[len(stride) - 2]
            self._give(at, out, run(x, torch.tensor(filters), None, stride, 0, dilation).numpy())
            self.library.spend(self.library.seconds[self.pointwise > 0])

        self.work.append(compute)
        return out

    def conv_dgrad(self, loss: Any, filter: Any, pre_padding: Any, post_padding: Any, stride: Any, dilation: Any,
                   compute_data_type: Any) -> _Tensor:  # fmt: skip
        import torch

        out = _Tensor()

        def compute(at: Any) -> None:
            single = loss.data_type == "FLOAT" and "TENSOR_CORE" not in self.without
            given, filters = (tf32(each) if single else each for each in (_wide(at(loss)), _wide(at(filter))))
            padded = [n + a + b for n, a, b in zip(out.dim[2:], pre_padding, post_padding, strict=True)]
            spans = [(n - 1) * by + 1 for n, by in zip(filter.dim[2:], dilation, strict=True)]
            assert [(n - span) // by + 1 for n, span, by in zip(padded, spans, stride, strict=True)] == loss.dim[2:]
            run = (torch.nn.functional.conv_transpose2d, torch.nn.functional.conv_transpose3d)[len(stride) - 2]
            found = run(torch.tensor(given), torch.tensor(filters), None, stride, 0, 0, 1, dilation).numpy()
            whole = np.zeros((*found.shape[:2], *padded), np.float32)
            whole[(..., *(slice(n) for n in found.shape[2:]))] = found
            cut = [slice(a, a + n) for n, a in zip(out.dim[2:], pre_padding, strict=True)]
            self._give(at, out, whole[(..., *cut)])

        self.work.append(compute)
        return out

    def _give(self, at: Any, out: _Tensor, value: Any) -> None:
        """What is virtual is kept in float32."""
        assert value.dtype == np.float32
        out.value = value
        if out.output:
            _put(at(out), value)

    def _elementwise(self, function: Any, *operands: _Tensor) -> _Tensor:
        out = _Tensor()
        assert all(each.dim is None or len(each.dim) >= 4 for each in operands)  # it takes no views

        def compute(at: Any) -> None:
            values = [_wide(at(each)) if each.uid in self.tensors else each.value for each in operands]
            with np.errstate(all="ignore"):
                self._give(at, out, np.asarray(function(*values), np.float32))

        self.work.append(compute)
        return out

    def bias(self, name: str, input: Any, bias: Any) -> _Tensor:
        return self._elementwise(np.add, input, bias)

    def __getattr__(self, name: str) -> Any:
        if name not in _POINTWISE:
            raise AttributeError(name)

        def describe(compute_data_type: str, **operands: _Tensor) -> _Tensor:
            assert compute_data_type == "FLOAT" and [*operands] in (["input"], ["a", "b"])
            self.pointwise += 1
            self.names.append(name)
            return self._elementwise(_POINTWISE[name], *operands.values())

        return describe

    def _next(self, stage: int) -> None:
        assert self.stage == stage
        self.stage += 1

    @property
    def plans(self) -> list[Any]:
        assert self.stage >= 3
        return list(self.library.engines)

    def select_plan(self, index: int) -> None:
        self.chosen = index

    @property
    def selected_engine(self) -> Any:
        return self.plans[self.chosen]

    def validate(self) -> None:
        self._next(0)

    def build_operation_graph(self) -> None:
        self._next(1)

    def create_execution_plans(self, heuristics: Any) -> None:
        assert heuristics == ["A", "FALLBACK"]
        self._next(2)

    def create_execution_plan(self, engine: int, knobs: dict[str, int]) -> None:
        self._next(2)
        if not self.library.knows_kernels:
            raise cudnnGraphNotSupportedError("no such kernel")
        self.library.asked.append((engine, knobs))

    def deselect_workspace_greater_than(self, limit: int) -> None:
        assert self.stage == 3
        self.limit = limit

    def deselect_numeric_notes(self, notes: list[str]) -> None:
        assert self.stage == 3
        self.without |= set(notes)

    def check_support(self) -> None:
        self._next(3)
        assert self.library.handle.stream not in self.library.destroyed
        assert self.selected_engine is None
        if self.library.wants > self.limit:
            raise cudnnGraphNotSupportedError("no engine with so little workspace")
        if self.library.refuses or (self.pointwise and self.library.refuses_more):
            raise cudnnGraphNotSupportedError("no engine")

    def build_plans(self) -> None:
        self._next(4)
        self.library.count["built"] += 1
        self.library.count["built with more"] += self.pointwise > 0
        if self.pointwise and (self.cache is None or tuple(self.names) not in self.cache):
            self.library.count["compiled"] += 1
            None if self.cache is None else self.cache.add(tuple(self.names))

    def serialize(self, as_bytes: bool) -> bytes:
        assert self.stage == 5 and as_bytes
        if not self.library.writes:
            raise cudnnGraphNotSupportedError("no plan of this engine is written")
        self.library.written.append((self.tensors, self.work, self.pointwise, self.library.backend_version()))
        return f"plan {len(self.library.written) - 1}".encode()

    def deserialize(self, handle: Any, data: bytes) -> None:
        assert handle is self.library.handle and self.stage == 0 and not self.tensors
        number = int(data.removeprefix(b"plan "))
        self.tensors, self.work, self.pointwise, release = self.library.written[number]
        if not self.library.takes_back or release != self.library.backend_version():
            raise RuntimeError("a plan of another release")
        self.stage, self.back = 5, True
        self.library.count["taken back"] += 1

    def get_workspace_size(self) -> int:
        return self.library.wants

    def execute(self, pack: dict[int, int], workspace: int, handle: Any) -> None:
        assert self.stage == 5 and not workspace % 256 and handle is self.library.handle
        if self.back and not self.library.runs_taken_back:
            raise RuntimeError("CUDNN_STATUS_EXECUTION_FAILED")
        self.library.count["execute"] += 1
        self.library.count["execute with more"] += self.pointwise > 0

        def at(tensor: _Tensor) -> Any:
            return tensor.at(pack[tensor.uid])

        self.library.enqueue(handle.stream, lambda: [work(at) for work in self.work] and None)


def _gelu(x: Any) -> Any:
    import torch

    return torch.nn.functional.gelu(torch.tensor(x)).numpy()


_POINTWISE: dict[str, Any] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "sqrt": np.sqrt,
    "reciprocal": lambda x: 1 / x, "neg": np.negative, "abs": np.abs, "exp": np.exp, "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "relu": lambda x: np.maximum(x, 0), "gelu": _gelu,
    "swish": lambda x: x / (1 + np.exp(-x)),
}  # fmt: skip


class FakeCudnn:
    """One instance stands for the module ``cudnn``; ``refuses`` makes it support nothing; ``wants``: its workspace.

    ``engines``: those that would serve, None for the library itself, else one that the frontend compiles;
    ``destroyed``: streams, on none of which the handle may be when it is asked. ``writes``, ``takes_back`` and
    ``runs_taken_back``: what it does with plans that are to be kept, those ``written``. ``refuses_more``: elementwise
    operations behind a convolution; ``seconds``: what convolutions take without and with such, told to ``spend``;
    ``knows_kernels``: can kernels be asked for by their numbers, as those ``asked``?
    """

    data_type = SimpleNamespace(HALF="HALF", BFLOAT16="BFLOAT16", FLOAT="FLOAT")
    numerical_note = SimpleNamespace(TENSOR_CORE="TENSOR_CORE", DOWN_CONVERT_INPUTS="DOWN_CONVERT_INPUTS")
    knob_type = SimpleNamespace(KERNEL_CFG="KERNEL_CFG")
    heur_mode = SimpleNamespace(A="A", FALLBACK="FALLBACK")
    cudnnGraphNotSupportedError = cudnnGraphNotSupportedError

    def __init__(self, enqueue: Any, destroyed: Any = (), spend: Any = lambda seconds: None) -> None:
        self.knows_kernels, self.asked = True, list[tuple[int, dict[str, int]]]()
        self.destroyed, self.spend, self.seconds, self.refuses_more = destroyed, spend, [0.0, 0.0], False
        self.enqueue, self.refuses, self.count = enqueue, False, Counter[str]()
        self.engines: list[Any] = [None]
        self.wants = 512
        self.handle = SimpleNamespace(stream=0)
        self.writes = self.takes_back = self.runs_taken_back = True
        self.written: list[Any] = []
        self.release = 92000

    def backend_version(self) -> int:
        return self.release

    def create_handle(self) -> Any:
        return self.handle

    def set_stream(self, handle: Any, stream: int) -> None:
        handle.stream = stream

    def create_kernel_cache(self) -> set[tuple[str, ...]]:
        return set()

    def pygraph(
        self, io_data_type: Any, intermediate_data_type: Any, compute_data_type: Any, handle: Any,
        is_dynamic_shape_enabled: bool = False, kernel_cache: set[tuple[str, ...]] | None = None,
    ) -> _Graph:  # fmt: skip
        assert is_dynamic_shape_enabled == (kernel_cache is not None)
        assert (intermediate_data_type, compute_data_type) == ("FLOAT", "FLOAT") and handle is self.handle
        self.count["pygraph"] += 1
        return _Graph(self, kernel_cache)


def _wide(array: Any) -> Any:
    array = np.ascontiguousarray(array)
    if array.dtype == np.float32:
        return array
    return array.astype(np.float32) if array.dtype == np.float16 else (array.astype(np.uint32) << 16).view(np.float32)


def _put(place: Any, value: Any) -> None:
    if place.dtype in (np.float16, np.float32):
        place[...] = value
    else:
        bits = np.ascontiguousarray(value, np.float32).view(np.uint32)
        place[...] = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
