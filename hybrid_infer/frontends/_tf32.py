"""Which float32 arithmetic a framework rounds to TF32 (10 bits of mantissa) on an NVIDIA GPU, by its own settings.

PyTorch and Paddle do so for convolutions and recurrent layers, unless they are told not to; for products of matrices
where they are told to.
"""

from __future__ import annotations

import os

from hybrid_infer._types import TF32

#: NVIDIA's own switch, which its libraries read when they start, keeps all of them to float32.
_FORBIDDEN = os.environ.get("NVIDIA_TF32_OVERRIDE") == "0"


def of_torch() -> TF32:
    """Whichever of its two interfaces the settings were made through: the older one may not be read after the newer."""
    import torch

    if _FORBIDDEN:
        return TF32()
    asked = torch._C._get_fp32_precision_getter
    return TF32(asked("cuda", "matmul") == "tf32", asked("cuda", "conv") == "tf32", asked("cuda", "rnn") == "tf32")


def of_paddle() -> TF32:
    import paddle

    core = paddle.base.core
    convolutions = bool(core.get_cudnn_switch())
    return TF32() if _FORBIDDEN else TF32(bool(core.get_cublas_switch()), convolutions, convolutions)
