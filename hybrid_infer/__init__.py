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
    StanceError,
    StaticModelError,
)
from hybrid_infer._spec import InputSpec
from hybrid_infer._stance import stance
from hybrid_infer._stats import reset_stats, stats
from hybrid_infer._to_static import to_static
from hybrid_infer._warmup import Warmed, warmup

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
    "StanceError",
    "StaticModelError",
    "Warmed",
    "inference",
    "is_inference_mode",
    "release",
    "reset_stats",
    "stance",
    "stats",
    "to_static",
    "warmup",
]
