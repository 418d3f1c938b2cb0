"""Static models that are not to be on disk are made once for all instances that are alike, and go with them."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest
from support import layer_class

from hybrid_infer import _miss, inference, stats


def block_of(framework: Any) -> Any:
    class Block(layer_class(framework)):  # type: ignore[misc]
        def __init__(self, value: float) -> None:
            super().__init__()
            self.linear = framework.nn.Linear(4, 4)
            self.value = value

        def forward(self, x: Any) -> Any:
            return self.linear(x) + self.value

    return Block


def decorated(framework: Any) -> Any:
    Block = block_of(framework)
    Block.forward = inference(Block.forward, cache_static_model=False)
    return Block


def wrapped(framework: Any) -> Any:
    Block = block_of(framework)
    return lambda value: inference(Block(value), cache_static_model=False)


@pytest.mark.parametrize("way", [decorated, wrapped])
def test_equal_blocks_are_captured_once(framework: Any, way: Any, cache_directory: Path) -> None:
    make = way(framework)
    blocks = [make(1.0) for _ in range(4)] + [make(2.0)]
    with framework.no_grad():
        for block in blocks:
            for _ in range(2):
                found = block(framework.ones([2, 4]))
                expected = block.linear(framework.ones([2, 4])) + block.value
                assert abs(found.numpy() - expected.numpy()).max() < 1e-5
    assert sum(found["captures"] for found in stats().values()) == 2
    assert not cache_directory.exists()


def test_they_go_with_the_last_instance(framework: Any) -> None:
    make = wrapped(framework)
    blocks = [make(1.0) for _ in range(2)]
    with framework.no_grad():
        for block in blocks:
            block(framework.ones([2, 4]))
    assert len(_miss._IN_MEMORY) == 1
    del block, blocks
    gc.collect()
    assert not _miss._IN_MEMORY
