"""What is decorated in a script goes to other processes by value, as Ray, Dask and joblib send it, and starts warm."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from process_support import fresh

pytestmark = [pytest.mark.torch, pytest.mark.processes]

SENDER = """
import json, sys
import cloudpickle
import torch
from hybrid_infer import inference, stats, to_static

SCALE = 3.0
torch.manual_seed(0)
torch.set_grad_enabled(False)

class Plain(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        return torch.tanh(self.linear(x)) * SCALE

class Block(Plain):
    @inference(fallback="error")
    def forward(self, x):
        return super().forward(x) + self.twice(x)

    @staticmethod
    @inference(fallback="error")
    def twice(x):
        return x * 2

class Trained(Plain):
    @to_static(fallback="error")
    def forward(self, x):
        return super().forward(x) - 1

class Pipeline:
    def __init__(self):
        self.model = Plain().eval()

    @inference(fallback="error")
    def predict(self, x):
        return self.model(x).softmax(-1)

@inference(fallback="error")
def scaled(x, by=2.0):
    return x * by + SCALE

@inference(fallback="error")
def repeated(x, times=2):
    return x if times == 0 else repeated(x, times - 1) + 1

THINGS = {
    "a class": lambda: Block,
    "an instance": lambda: Block().eval(),
    "what to_static decorates": lambda: Trained().eval(),
    "a function": lambda: scaled,
    "one that calls itself": lambda: repeated,
    "a function that calls one": lambda: lambda x: scaled(x) + 1,
    "a bound method": lambda: Pipeline().predict,
    "inference() of a layer": lambda: inference(Plain().eval(), fallback="error"),
    "inference() of a bound method": lambda: inference(Pipeline().predict, fallback="error"),
    "to_static() of a layer": lambda: to_static(Plain().eval(), fallback="error"),
}

if __name__ == "__main__":
    called, parcels, x = sys.argv[1] == "called", {}, torch.randn(2, 4)
    for name, make in THINGS.items():
        made = make()
        call, sent = made().eval() if isinstance(made, type) else made, cloudpickle.dumps(made)
        expected = call(x)
        weights = call.state_dict() if isinstance(made, type) else {}
        parcels[name] = cloudpickle.dumps(made) if called else sent, weights, expected
    with open("sent", "wb") as file:
        file.write(cloudpickle.dumps((parcels, x)))
"""

RECEIVER = """
import gc
import json
import cloudpickle
import torch
from hybrid_infer import reset_stats, stats

with open("sent", "rb") as file:
    parcels, x = cloudpickle.loads(file.read())
counts = {}
for name, (sent, weights, expected) in parcels.items():
    gc.collect()  # else the static model of the one before, where it is the same, may still be there
    reset_stats()
    made = cloudpickle.loads(sent)
    call = made().eval() if isinstance(made, type) else made
    if weights:
        call.load_state_dict(weights)
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(call(x), expected)
    found = stats().values()
    counts[name] = {of: sum(each[of] for each in found) for of in ("captures", "disk_loads", "eager_calls")}
print(json.dumps(counts))
"""


@pytest.mark.parametrize("when", ["untouched", "called"])
def test_by_value(when: str, tmp_path: Path) -> None:
    fresh(SENDER, cache=tmp_path / "cache", folder=tmp_path, arguments=(when,))
    found = json.loads(fresh(RECEIVER, cache=tmp_path / "cache", folder=tmp_path))
    assert len(found) == 10
    for name, counts in found.items():
        assert counts["captures"] == counts["eager_calls"] == 0 and counts["disk_loads"] >= 1, (name, counts)
