"""Truths of torch whose bytes are neither 0 nor 1, as masks of bytes that are seen as truths have."""

from __future__ import annotations

from typing import Any

import pytest
from support import served

from hybrid_infer import inference

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


@pytest.mark.parametrize("verify", ["build", "off"])
def test_bytes_that_are_seen_as_truths(verify: str) -> None:
    class Layer(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("kept", torch.tensor([255, 0, 3], dtype=torch.uint8).view(torch.bool))

        def forward(self, mask: Any) -> Any:
            return mask.float() * 2, mask.sum(), (mask & self.kept).float(), self.kept.float()

    layer = Layer()
    hot = inference(layer.forward, verify=verify)
    for values in ([1, 0, 1], [255, 0, 1], [0, 0, 0], [255, 128, 7]):
        mask = torch.tensor(values, dtype=torch.uint8).view(torch.bool)
        for _ in range(2):
            torch.testing.assert_close(hot(mask), layer(mask))
        turned = mask.flip(0)[::1]
        torch.testing.assert_close(hot(turned), layer(turned))
    served(captures=1)
