"""Static-graph inference for one hot method of an eager Paddle or PyTorch program."""

from typing import TYPE_CHECKING, Any

from hybrid_infer._api import inference, is_inference_mode, release
from hybrid_infer._errors import (
    BackendError,
    CacheWarning,
    CaptureError,
    EngineError,
    FallbackWarning,
    HybridInferError,
    OptionError,
    SpecError,
    StanceError,
    StaticModelError,
)
from hybrid_infer._explain import Explanation, explain
from hybrid_infer._install import install, uninstall
from hybrid_infer._spec import InputSpec
from hybrid_infer._stance import stance
from hybrid_infer._static import load, save
from hybrid_infer._stats import reset_stats, stats
from hybrid_infer._suggest import suggest
from hybrid_infer._to_static import to_static
from hybrid_infer._warmup import Warmed, warmup

if TYPE_CHECKING:
    from hybrid_infer._static_layer import StaticLayer

__version__ = "0.1.0"

__all__ = [
    "BackendError",
    "CacheWarning",
    "CaptureError",
    "EngineError",
    "Explanation",
    "FallbackWarning",
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


def __getattr__(name: str) -> Any:
    if name == "StaticLayer":  # what it needs is imported when a static model is
        from hybrid_infer._static_layer import StaticLayer

        return StaticLayer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
