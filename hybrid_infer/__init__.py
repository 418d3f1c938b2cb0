"""Static-graph inference for one hot method of an eager Paddle or PyTorch program.

What happens to a method is logged by the logger ``hybrid_infer``, with fields for programs that write their logs as
JSON: ``record.event`` ("eager", "captured", "built", "loaded", "verified", "chosen", ...), ``record.method``, and
``seconds``, ``engine``, ``reason``, ``remedy``, ``error``, ``figures`` or ``version`` as the event has them. What needs
attention is a WARNING, a choice is INFO, the steps of a compilation are DEBUG; `hybrid_infer._log` has the table.
"""

from typing import TYPE_CHECKING, Any

from hybrid_infer._api import inference, is_inference_mode, release
from hybrid_infer._errors import (
    BackendError,
    CacheWarning,
    CaptureError,
    EngineError,
    HybridInferError,
    OptionError,
    SpecError,
    StanceError,
    StaticModelError,
)
from hybrid_infer._stance import stance
from hybrid_infer._stats import reset_stats, stats

if TYPE_CHECKING:
    from hybrid_infer._install import install, uninstall
    from hybrid_infer._spec import InputSpec
    from hybrid_infer._to_static import to_static
    from hybrid_infer._warmup import Warmed, warmup
    from hybrid_infer.reports._explain import Explanation, explain
    from hybrid_infer.reports._suggest import suggest
    from hybrid_infer.static._static import load, save
    from hybrid_infer.static._static_layer import StaticLayer

__version__ = "0.1.0"

__all__ = [
    "BackendError",
    "CacheWarning",
    "CaptureError",
    "EngineError",
    "Explanation",
    "HybridInferError",
    "InputSpec",
    "OptionError",
    "SpecError",
    "StanceError",
    "StaticLayer",
    "StaticModelError",
    "Warmed",
    "explain",
    "inference",
    "install",
    "is_inference_mode",
    "load",
    "release",
    "reset_stats",
    "save",
    "stance",
    "stats",
    "suggest",
    "to_static",
    "uninstall",
    "warmup",
]


#: What is imported when it is first asked for, so that a program which only decorates starts sooner.
_LATER = {
    "Explanation": "reports._explain", "explain": "reports._explain", "suggest": "reports._suggest",
    "load": "static._static", "save": "static._static", "StaticLayer": "static._static_layer",
    "install": "_install", "uninstall": "_install", "to_static": "_to_static", "Warmed": "_warmup", "warmup": "_warmup",
    "InputSpec": "_spec",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    found = getattr(importlib.import_module(f"{__name__}.{_LATER[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
