"""How many GPUs the frameworks see that this process has imported."""

from __future__ import annotations

import sys
from typing import Any


def seen() -> dict[str, int]:
    """By framework; of those alone that say so without more being imported."""
    found: dict[str, int] = {}
    torch: Any = sys.modules.get("torch")
    paddle: Any = sys.modules.get("paddle")
    if hasattr(torch, "cuda"):
        found["torch"] = int(torch.cuda.device_count())
    if hasattr(paddle, "device"):
        found["paddle"] = int(paddle.device.cuda.device_count())
    return found
