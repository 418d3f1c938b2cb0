"""Switches of torch's backends that its tracer turns off, put back where it fails to do so itself.

``torch.export`` turns off oneDNN, then cuDNN, while it traces. Where the second raises, as it does after settings of
TF32 that the older interface cannot tell, the first stays off (seen with torch 2.13): later eager calls of the program
would be slower, and round otherwise.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """A context after which oneDNN and cuDNN are as they were before it."""
    onednn, cudnn = torch._C._get_mkldnn_enabled(), torch._C._get_cudnn_enabled()
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(onednn)
        torch._C._set_cudnn_enabled(cudnn)
