"""How fast a GPU can be at all: the time that moving each byte once takes, and that of the arithmetic.

A call has to read every weight and argument and write every result, and to compute its products of matrices and its
convolutions; nothing else is counted. Whichever takes longer is the floor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple


class Roof(NamedTuple):
    """Of one GPU, from its vendor's data sheet: bytes a second, and half-precision operations a second, dense."""

    bandwidth: float
    arithmetic: float


#: By the whole name that the driver gives: what only begins alike is another chip, or a slice of one (MIG). Source:
#: NVIDIA's data sheets of the H200, H100, A100, L40S, L40 and L4, without sparsity.
ROOFS: Mapping[str, Roof] = {
    "NVIDIA H200": Roof(4.8e12, 989e12),
    "NVIDIA H200 NVL": Roof(4.8e12, 835e12),
    "NVIDIA H100 80GB HBM3": Roof(3.35e12, 989e12),
    "NVIDIA H100 PCIe": Roof(2.0e12, 756e12),
    "NVIDIA H100 NVL": Roof(3.9e12, 835e12),
    "NVIDIA A100-SXM4-80GB": Roof(2.039e12, 312e12),
    "NVIDIA A100 80GB PCIe": Roof(1.935e12, 312e12),
    "NVIDIA A100-SXM4-40GB": Roof(1.555e12, 312e12),
    "NVIDIA A100-PCIE-40GB": Roof(1.555e12, 312e12),
    "NVIDIA L40S": Roof(0.864e12, 362e12),
    "NVIDIA L40": Roof(0.864e12, 181e12),
    "NVIDIA L4": Roof(0.3e12, 121e12),
}


def roof(device: str) -> Roof | None:
    """Of the GPU of that name; None where it is not known here, so that no floor can be told."""
    return ROOFS.get(device)


class Work(NamedTuple):
    """Of one call: bytes that are moved at least, and operations (a multiplication and an addition are two)."""

    nbytes: int
    operations: int


def work(layer: Any, arguments: Sequence[Any]) -> Work:
    """Of a call of a torch layer, in the element types that it and its arguments have. Nothing is computed.

    Raises RuntimeError where the layer computes what cannot be followed without values.
    """
    import copy

    import torch
    from torch.utils.flop_counter import FlopCounterMode

    def nowhere(tensor: Any) -> Any:
        return torch.empty_like(tensor, device="meta")

    ghost = copy.deepcopy(layer).to("meta")
    given = [nowhere(each) for each in arguments]
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        result = ghost(*given)
    moved = [*_distinct(layer), *arguments, *_tensors(result)]
    return Work(sum(each.numel() * each.element_size() for each in moved), int(counter.get_total_flops()))


def _distinct(layer: Any) -> Iterable[Any]:
    """Its parameters and buffers, each once."""
    return {id(each): each for each in (*layer.parameters(), *layer.buffers())}.values()


def _tensors(result: Any) -> list[Any]:
    if isinstance(result, (list, tuple)):
        return [each for item in result for each in _tensors(item)]
    return [result] if hasattr(result, "numel") else []


def floors(done: Work, ceiling: Roof) -> dict[str, float]:
    """Milliseconds: ``bytes``, ``arithmetic``, and ``floor``, the larger of the two."""
    found = {"bytes": done.nbytes / ceiling.bandwidth * 1e3, "arithmetic": done.operations / ceiling.arithmetic * 1e3}
    return {**found, "floor": max(found.values())}
