"""Branches on values in the next process: the checks come with the graph, and the other side is found where it is."""

from __future__ import annotations

import pytest
from process_support import Program

pytestmark = [pytest.mark.torch, pytest.mark.processes]

LAYERS = """
import torch
from hybrid_infer import inference

class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(8, 8)
        self.register_buffer("ready", torch.tensor([False]))

    @inference
    def forward(self, x, mask=None):
        if not self.ready:
            x = x * 2
        if mask is not None and mask.all():
            mask = None
        assert x.isfinite().all(), "not finite"
        y = self.linear(x)
        return y if mask is None else y.masked_fill(~mask[:, None], 0.0)
"""

SCRIPT = """
from layers import Layer
layer = Layer().eval()
full, part = torch.ones(2, dtype=torch.bool), torch.tensor([True, False])
for mask in (full, full, full, part, full):
    check(layer.forward, torch.randn(2, 8), mask)
try:
    layer(torch.full((2, 8), torch.nan), full)
except AssertionError as fault:
    assert str(fault) == "not finite"
else:
    raise RuntimeError("nothing was raised")
result = counts()
"""


def test_the_next_process_captures_nothing_and_checks_as_much(program: Program) -> None:
    program.write(LAYERS)
    first = program.run(SCRIPT)
    assert (first["captures"], first["hits"], first["eager_calls"]) == (1, 3, 1), first
    second = program.run(SCRIPT)
    assert (second["captures"], second["attempts"], second["hits"], second["eager_calls"]) == (0, 0, 4, 1), second
    (reason,) = second["reasons"]
    assert "went another way" in reason and "layers.py:" in reason


FLAGS = """
from layers import Layer
layer = Layer().eval()
state = {**layer.state_dict(), "ready": torch.tensor([True])}
for n in range(16):
    if n == argument:
        layer.load_state_dict(state)
    check(layer.forward, torch.randn(2, 8))
result = counts()
"""


def test_a_flag_that_was_set_later_is_captured_once(program: Program) -> None:
    program.write(LAYERS)
    first = program.run(FLAGS, 4)
    assert first["captures"] == 2 and first["hits"] >= 10, first
    for at in (0, 4, 8):
        later = program.run(FLAGS, at)
        assert (later["captures"], later["attempts"]) == (0, 0), (at, later)
        # The one that is tried first may hold the other side.
        assert later["eager_calls"] <= 6 and later["hits"] >= 9, (at, later)
