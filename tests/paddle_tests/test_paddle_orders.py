"""A set of texts, whose order is another one in each process, where a Paddle method goes through it or only asks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("paddle")

from forks import forked

pytestmark = [pytest.mark.paddle, pytest.mark.processes]

PROGRAM = """
import json
import paddle
from hybrid_infer import inference, stats

WEIGHTS = {"east": 1.0, "north": 10.0, "south": 100.0, "west": 1000.0}

class Base(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.names = {"north", "south", "east", "west"}
        self.listed = [*WEIGHTS]

class Through(Base):
    def forward(self, x):
        return paddle.stack([x * WEIGHTS[name] for name in self.names])

class Made(Base):
    def forward(self, x):
        return paddle.stack([x * WEIGHTS[name] for name in set(self.listed)])

class Sorted(Base):
    def forward(self, x):
        return paddle.stack([x * WEIGHTS[name] for name in sorted(set(self.listed))])

class Asked(Base):
    def forward(self, x):
        return x * 2 if "north" in self.names and len(self.names) == 4 else x

x, alike = paddle.arange(3.0) + 1, []
for kind in (Through, Made, Sorted, Asked):
    layer = kind()
    layer.eval()
    with paddle.no_grad():
        expected = layer(x).numpy().tolist()
        hot = inference(layer, verify="off", backend="onnxruntime")
        alike += [hot(x).numpy().tolist() == expected for _ in range(2)]
captures = {name.split(".")[-2]: counts["captures"] for name, counts in stats().items()}
print(json.dumps([alike, captures, list(Base().names)]))
"""


def test_each_order_has_a_static_model_where_the_method_goes_through_it(tmp_path: Path) -> None:
    program = tmp_path / "main.py"
    program.write_text(PROGRAM)
    cache = str(tmp_path / "cache")
    first, other, again = (
        json.loads(forked("paddle", program, folder=tmp_path, HYBRID_INFER_CACHE_DIR=cache)) for _ in range(3)
    )
    assert first[2] != other[2] and first[2] == again[2]
    assert all(first[0]) and all(other[0]) and all(again[0])
    assert first[1] == {"Through": 1, "Made": 1, "Sorted": 1, "Asked": 1}
    assert other[1] == {"Through": 1, "Made": 1, "Sorted": 0, "Asked": 0}
    assert again[1] == {"Through": 0, "Made": 0, "Sorted": 0, "Asked": 0}
