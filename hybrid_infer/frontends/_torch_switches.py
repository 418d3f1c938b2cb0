"""What torch's tracer and its exporter turn off or leave behind, put back where they fail to do so themselves.

``torch.export`` turns off oneDNN, then cuDNN, while it traces. Where the second raises, as it does after settings of
TF32 that the older interface cannot tell, the first stays off (seen with torch 2.13): later eager calls of the program
would be slower, and round otherwise. A trace that ends inside of `torch.vmap` may leave its level behind: later eager
calls on that thread would draw no numbers, and make no weights.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """A context after which oneDNN, cuDNN and the thread's transforms are as they were before it."""
    onednn, cudnn = torch._C._get_mkldnn_enabled(), torch._C._get_cudnn_enabled()
    transforms = torch._C._functorch.get_dynamic_layer_stack_depth()
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(onednn)
        torch._C._set_cudnn_enabled(cudnn)
        if torch._C._functorch.get_dynamic_layer_stack_depth() > transforms:
            torch._C._functorch.pop_dynamic_layer_stack_and_undo_to_depth(transforms)
