"""What names a plan: all that decides whether it can be loaded, whether it is right, and whether it is fast."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from hybrid_infer._types import EngineOptions
from hybrid_infer.backends._cuda._driver import Gpu
from hybrid_infer.backends.tensorrt import _profiles
from hybrid_infer.backends.tensorrt._profiles import Profile

#: Moves whenever the graph that TensorRT is given, or what is kept beside its plan, changes for the same input.
FORMAT = 2

#: Bytes that a kernel may use as scratch memory while TensorRT tries it.
WORKSPACE = 4 << 30
#: TensorRT's own levels of optimisation: its default, and the lowest.
USUAL, LOWEST = 3, 0


def builder_settings(options: EngineOptions) -> dict[str, Any]:
    """What the builder is told beside the graph and the profile."""
    return {
        "level": USUAL if options.optimise else LOWEST,
        "workspace": WORKSPACE,
        # Rounds operands to ten bits of mantissa: a precision that nobody has asked for.
        "tf32": False,
        "detailed": bool(options.extra.get("debug")),
    }


def name(version: str, gpu: Gpu, options: EngineOptions, profile: Profile | None) -> str:
    """The key of a plan; without a profile, of all plans that differ in that alone."""
    parts: Mapping[str, Any] = {
        "format": FORMAT,
        "tensorrt": version,
        "gpu": list(gpu),
        "precision": options.precision,
        "weights": "fed" if options.live else "refitted",
        "builder": builder_settings(options),
        "profile": None if profile is None else _profiles.to_json(profile),
    }
    digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]
    return f"tensorrt-{version}-{options.precision}-{digest}"
