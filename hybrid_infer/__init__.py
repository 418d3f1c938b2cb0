"""Static-graph inference for one hot method of an eager Paddle or PyTorch program."""

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
    StaticModelError,
)
from hybrid_infer._spec import InputSpec
from hybrid_infer._stats import reset_stats, stats

__version__ = "0.1.0"

__all__ = [
    "BackendError",
    "CacheWarning",
    "CaptureError",
    "EngineError",
    "FallbackWarning",
    "HybridInferError",
    "InputSpec",
    "OptionError",
    "SpecError",
    "StaticModelError",
    "inference",
    "is_inference_mode",
    "release",
    "reset_stats",
    "stats",
]
