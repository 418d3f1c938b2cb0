"""In a process of its own: without the model's code, and without its framework."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from static_support import BOTH, kit, points, run

from hybrid_infer import InputSpec, save

pytestmark = pytest.mark.processes

SAVING = {
    "torch": """
import sys, torch
from typing import NamedTuple
from hybrid_infer import InputSpec, save
class Out(NamedTuple):
    logits: torch.Tensor
    more: dict
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 3).to(torch.float32)
    def forward(self, x, dtype=torch.float32):
        return Out(self.linear(x).to(dtype), {"sum": x.sum()})
""",
    "paddle": """
import sys, paddle
from typing import NamedTuple
from hybrid_infer import InputSpec, save
class Out(NamedTuple):
    logits: paddle.Tensor
    more: dict
class Net(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.linear = paddle.nn.Linear(8, 3)
    def forward(self, x, dtype=paddle.float32):
        return Out(self.linear(x).cast(dtype), {"sum": x.sum()})
""",
}

SAVE = """
save(Net(), "model", [InputSpec([None, 8])], trainable=False, plans=len(sys.argv) > 1)
"""

LOAD = """
import sys, numpy as np
from hybrid_infer import load
static = load("model")
x = np.random.default_rng(0).standard_normal((5, 8)).astype(np.float32)
found = static(x)
logits, more = found
state = static.state_dict()
weight, bias = state["linear.weight"], state["linear.bias"]
expected = x @ (weight.T if weight.shape == (3, 8) else weight) + bias
assert np.abs(found.logits - expected).max() < 1e-5
assert np.abs(found[0] - expected).max() < 1e-5 and abs(found.more["sum"] - x.sum()) < 1e-4
print(type(found).__name__, sorted({"torch", "paddle"} & {name for name in sys.modules if sys.modules[name]}))
try:
    static.as_layer()
except Exception as fault:
    print(type(fault).__name__)
"""


@pytest.mark.torch
def test_a_model_with_its_plan_runs_where_torch_and_onnx_are_not_installed(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    run(SAVING["torch"] + SAVE, tmp_path, "with plans")
    told = run(LOAD, tmp_path, without=("torch", "paddle", "paddle2onnx", "onnxscript", "onnx"))
    assert told.split() == ["FieldTuple", "[]", "StaticModelError"]


@pytest.mark.paddle
def test_a_model_is_built_where_no_framework_is_installed(tmp_path: Path) -> None:
    pytest.importorskip("paddle")
    run(SAVING["paddle"] + SAVE, tmp_path)
    told = run(LOAD, tmp_path, without=("torch", "paddle", "paddle2onnx", "onnxscript"))
    assert told.split() == ["FieldTuple", "[]", "StaticModelError"]


@pytest.mark.parametrize("framework", BOTH)
def test_a_model_of_one_framework_is_called_by_the_other(framework: str, tmp_path: Path) -> None:
    own, other = kit(framework), kit("paddle" if framework == "torch" else "torch")
    layer = own.Classifier()
    save(layer, tmp_path / "model", [InputSpec([None, 8])], trainable=False)
    program = f"""
import numpy as np
from hybrid_infer import load
import {other.name}
static = load("model")
x = np.ones((2, 8), np.float32)
tensor = {other.name}.{"from_numpy" if other.name == "torch" else "to_tensor"}(x)
found = static(tensor)
assert isinstance(found, {other.name}.Tensor)
assert np.abs(found.numpy() - static(x)).max() < 1e-6
print(type(static.state_dict()["linear.bias"]).__name__, static.state_dict("{other.name}")["linear.bias"].shape)
"""
    assert run(program, tmp_path).startswith("ndarray")


def test_calls_from_threads_and_forked_children(tmp_path: Path) -> None:
    own = kit("torch")
    save(own.Classifier(), tmp_path / "model", [InputSpec([None, 8])], trainable=False)
    program = """
import os, threading
import numpy as np
from hybrid_infer import load
static = load("model")
x = np.ones((2, 8), np.float32)
expected = static(x)
wrong = []
def many(seed):
    for i in range(100):
        given = np.full((1 + i % 5, 8), 1, np.float32)
        if not np.allclose(static(given), expected[0], atol=1e-5):
            wrong.append(seed)
threads = [threading.Thread(target=many, args=(n,)) for n in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert not wrong
child = os.fork()
if child == 0:
    os._exit(0 if np.allclose(static(x), expected, atol=1e-6) else 1)
assert os.waitpid(child, 0)[1] == 0
print("done")
"""
    assert run(program, tmp_path).strip() == "done"


def test_half_precision_arrays(tmp_path: Path) -> None:
    """NumPy has no bfloat16: float32 arrays stand for it, rounded as a tensor of that type would be."""
    own = kit("torch")

    class Rounding(own.Layer):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return x * 2

    save(Rounding(), tmp_path / "model", [InputSpec([None], "bfloat16")], trainable=False)
    from hybrid_infer import load

    static = load(tmp_path / "model")
    x = points(1, 64)[0]
    expected = (own.narrow(own.tensor(x)) * 2).float().numpy()
    assert np.array_equal(static(x), expected)
    ml_dtypes = pytest.importorskip("ml_dtypes")
    assert np.array_equal(static(x.astype(ml_dtypes.bfloat16)), expected)
