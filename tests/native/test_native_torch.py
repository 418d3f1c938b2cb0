"""Layers of PyTorch served by the native engine: the plan that is made of them, and its results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from native_support import ops
from support import served

import hybrid_infer
from hybrid_infer.backends.native import _plan, engine

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[_plan.Plan]:
    """The plans that were made in this test."""
    found: list[_plan.Plan] = []
    prepare = engine.Native.prepare

    def noted(self: Any, *arguments: Any) -> Mapping[str, bytes]:
        files = prepare(self, *arguments)
        found.append(_plan.restore(files[engine.PLAN], files[engine.CONSTANTS]))
        return files

    monkeypatch.setattr(engine.Native, "prepare", noted)
    return found


def check(layer: Any, *tensors: Any, tolerance: float = 2e-5) -> None:
    layer.eval()
    with torch.no_grad():
        expected = layer(*tensors)
        fast = hybrid_infer.inference(layer, backend="native")
        for _ in range(2):
            found = fast(*tensors)
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=tolerance, atol=tolerance)
    served(captures=1)


class Block(torch.nn.Module):
    """A diffusion transformer's block."""

    def __init__(self, width: int = 16, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.modulation = torch.nn.Linear(width, 3 * width)
        self.norm = torch.nn.LayerNorm(width, elementwise_affine=False)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.mlp = torch.nn.Sequential(
            torch.nn.Linear(width, 4 * width), torch.nn.GELU(approximate="tanh"), torch.nn.Linear(4 * width, width)
        )

    def forward(self, x: Any, c: Any) -> Any:
        shift, scale, gate = self.modulation(torch.nn.functional.silu(c)).unsqueeze(1).chunk(3, dim=-1)
        b, t, w = x.shape
        qkv = self.qkv(self.norm(x) * (1 + scale) + shift).reshape(b, t, 3, self.heads, w // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, w)
        x = x + gate * self.out(mixed)
        return x + self.mlp(self.norm(x))


def test_a_transformer_block(plans: list[_plan.Plan]) -> None:
    torch.manual_seed(0)
    check(Block(), torch.randn(2, 8, 16), torch.randn(2, 16))
    (plan,) = plans
    found = ops(plan)
    assert (found["attention"], found["gemm"], found["row"]) == (1, 5, 2), found
    rows = [step for step in plan.steps if step.op == "row"]
    assert [len(step.attributes["code"]) for step in rows] == [3, 0]  # 1 + scale, times, plus shift
    assert rows[1].attributes["before"] and len(rows[1].outputs) == 2  # the sum, which the last product adds
    last = [step for step in plan.steps if step.op == "gemm"][-1]
    assert "bias" in last.attributes and "addend" in last.attributes
    assert any(step.attributes.get("activation") == "gelu_tanh" for step in plan.steps)
    assert plan.memory is not None and not plan.memory["apart"]


def test_a_new_length_is_served_by_one_plan_with_a_symbolic_size(plans: list[_plan.Plan]) -> None:
    torch.manual_seed(0)
    layer = Block().eval()
    lengths = (4, 6, 5, 9)
    with torch.no_grad():
        expected = [layer(torch.ones(2, n, 16), torch.ones(2, 16)) for n in lengths]
        fast = hybrid_infer.inference(layer, backend="native")
        found = [fast(torch.ones(2, n, 16), torch.ones(2, 16)) for n in lengths]
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=2e-5, atol=2e-5)
    served(captures=2)
    fixed, symbolic = plans
    assert ops(symbolic) == ops(fixed)
    assert symbolic.memory is not None and not symbolic.memory["apart"]


def test_an_encoder_layer_with_a_mask_and_a_convolutional_block(plans: list[_plan.Plan]) -> None:
    torch.manual_seed(0)
    convolutions = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.GroupNorm(2, 8), torch.nn.SiLU(),
        torch.nn.Conv2d(8, 8, 3, stride=2, padding=1, bias=False), torch.nn.BatchNorm2d(8), torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(8, 4),
    )  # fmt: skip
    check(convolutions, torch.randn(2, 3, 8, 8))
    assert ops(plans[0])["row"] == 1
    (row,) = [step for step in plans[0].steps if step.op == "row"]
    assert [line[0] for line in row.attributes["code"]] == ["Mul", "Add", "Sigmoid", "Mul"]


def test_the_interpreter_explains_its_plan() -> None:
    layer = hybrid_infer.inference(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()).eval(), backend="native")
    with torch.no_grad():
        layer(torch.ones(2, 4))
    (version,) = hybrid_infer.explain(layer).to_dict()["methods"][0]["versions"]
    assert {"gemm", "memory"} <= {each["rule"] for each in version["decisions"]["native"]}


def test_unasked_it_is_chosen_on_a_gpu_alone() -> None:
    from hybrid_infer import backends
    from hybrid_infer.backends.native import gpu

    assert "native" not in [each.name for each in backends.candidates("cpu")]
    for device in ("gpu:0", "cuda:1"):  # as Paddle and as torch call them
        assert backends.candidates(device) == (gpu.ENGINE,)
        assert backends.engine("native", device) is gpu.ENGINE
    assert "tests and debugging" in backends.engine("native").reservation


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_corners_are_aligned_at_the_whole_length_that_a_factor_gives(mode: str) -> None:
    """1.7 times 8 is 13 places: the last of them is the last of the input, and not 13.6 places away."""
    resize = torch.nn.Upsample(scale_factor=1.7, mode=mode, align_corners=True)
    check(resize, torch.rand(1, 2, 8, 7) * 255, tolerance=1e-4)
