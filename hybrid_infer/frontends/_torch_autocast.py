"""``torch.autocast`` in a method.

The tracer notes where a block of it begins and ends, and the types of results as autocast makes them. The conversions
themselves are made when operators are decomposed: what begins and ends a block is done again there. torch puts what
stands between them into a module of its own, which nothing looks into that asks what a graph does; here it stays in
place.

Blocks that switch off what is off do nothing, and are not noted. Models protect numerically delicate parts by them
(tables of positions, losses, quantisers).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from hybrid_infer._own_thread import replaced


@contextlib.contextmanager
def off_where_off() -> Iterator[None]:
    """On this thread, the tracer is not told of blocks that switch off what is off."""
    untold: list[bool] = []  # of the blocks that this thread is in

    def entered(enter: Any, block: Any) -> Any:
        idle = not block._enabled and not torch.is_autocast_enabled(block.device)
        with _unheard(idle):
            found = enter(block)
        untold.append(idle)
        return found

    def left(leave: Any, block: Any, *fault: Any) -> Any:
        with _unheard(untold.pop() if untold else False):
            return leave(block, *fault)

    with replaced(torch.autocast, "__enter__", entered), replaced(torch.autocast, "__exit__", left):
        yield


@contextlib.contextmanager
def in_place() -> Iterator[None]:
    """Programs that are exported on this thread have what stands in a block in the place where it stands."""
    from torch._export.passes import replace_autocast_with_hop_pass as apart

    with replaced(apart, "replace_autocast_with_hop_pass", lambda _, module, signature: (module, signature)):
        yield


def composite(program: Any) -> frozenset[Any]:
    """Operators that autocast leaves alone, but not what they are made of, where it is on anywhere in a program."""
    graphs = (each.graph for each in program.graph_module.modules() if isinstance(each, torch.fx.GraphModule))
    enters = any(node.target is torch.amp.autocast_mode._enter_autocast for graph in graphs for node in graph.nodes)
    on = enters or torch._C._is_any_autocast_enabled()
    return frozenset((torch.ops.aten.einsum.default,)) if on else frozenset()


@contextlib.contextmanager
def once() -> Iterator[None]:
    """Exports on this thread compute what types results have without autocast: it has made its conversions by then."""
    from torch.onnx._internal.exporter import _fx_passes

    def plainly(promote: Any, module: Any) -> Any:
        with contextlib.ExitStack() as off:
            for kind in {torch.device(tensor.device).type for tensor in _tensors(module)}:
                off.enter_context(torch.autocast(kind, enabled=False))
            return promote(module)

    with replaced(_fx_passes, "insert_type_promotion_nodes", plainly):
        yield


def _tensors(module: Any) -> Iterator[Any]:
    for node in module.graph.nodes:
        if isinstance(value := node.meta.get("val"), torch.Tensor):
            yield value


def _unheard(idle: bool) -> Any:
    """autocast tells the tracer of itself where function modes are on, which the tracer's is."""
    return torch._C.DisableTorchFunction() if idle else contextlib.nullcontext()
