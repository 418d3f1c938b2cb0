"""What is compared on a GPU: the makers of what answers calls of a layer, by their names in the tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks import _gpu_turns
from benchmarks._gpu_measure import Peer

#: What every one of the goals is measured against.
COMPILED, BEST, NATIVE = "torch.compile", "max-autotune", "native"


def native(layer: Any, given: Sequence[Any]) -> Any:
    import hybrid_infer

    _gpu_turns.choose_alone()
    return hybrid_infer.inference(layer, backend="native", verify="off")


def compiled(mode: str | None) -> Peer:
    """torch's compiler in a mode; in its best one it replays CUDA graphs too."""

    def make(layer: Any, given: Sequence[Any]) -> Any:
        import torch

        _gpu_turns.tune_alone()
        return torch.compile(layer, mode=mode)

    return make


PEERS: Mapping[str, Peer] = {COMPILED: compiled(None), BEST: compiled("max-autotune"), NATIVE: native}
