"""What torch makes that can be called, and is neither a function written in Python nor a layer of one's own."""

from __future__ import annotations

import warnings

import pytest
import torch

from hybrid_infer import inference


def test_functions_of_torch_that_are_objects_say_what_to_decorate() -> None:
    layer = torch.nn.Linear(4, 4).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        method = torch.jit.script(layer).forward
    exported = torch.export.export(layer, (torch.ones(2, 4),))
    for target, words in (
        (torch.ops.aten.tanh.default, "Call it in a function of your own"),
        (method, "what torch.jit.script made of a function"), (exported, r"A layer is what its module\(\) gives"),
    ):  # fmt: skip
        with pytest.raises(TypeError, match=words) as raised:
            inference(target)
        assert "inference(it.__call__)" not in str(raised.value)
    inference(exported.module())
