"""Precision, passes and the engine's own optimisation, as a user of `inference()` asks for them."""

from __future__ import annotations

import copy
import json
import logging
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_support import Block, counts, same, served, twice

import hybrid_infer
from hybrid_infer import _engines, _options, _rewriting, _router, inference
from hybrid_infer.backends import engine

onnx = pytest.importorskip("onnx")
pytestmark = pytest.mark.torch

ENGINES = ("onnxruntime", "openvino")
LOWER = ("bfloat16", "float16")


class Attention(torch.nn.Module):
    """A normalisation, products with weights and among each other, a softmax, a reduction; an idle weight."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.qkv = torch.nn.Linear(width, 3 * width)
        self.out = torch.nn.Linear(width, width)
        self.spare = torch.nn.Parameter(torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        unused = self.spare * 2  # noqa: F841
        return self.out((q @ k.transpose(-1, -2) * 0.2).softmax(-1) @ v) + x.mean(-1, keepdim=True)


@pytest.fixture
def layer() -> Attention:
    torch.manual_seed(0)
    return Attention().eval()


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(2, 9, 32, generator=torch.Generator().manual_seed(1))


def served_as(layer: torch.nn.Module, x: torch.Tensor, **options: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """The eager result, and that of a decorated copy at its second call."""
    hot = inference(copy.deepcopy(layer), fallback="error", **options)
    with torch.no_grad():
        expected = layer(x)
        same(hot(x), expected, 5e-2)
        found = hot(x)
    assert found.dtype == expected.dtype
    return expected, found


def plans(store: Path) -> list[Path]:
    return sorted(store.glob("v1/methods/*/*/*/plans/*"))


def refuses(name: str, precision: str) -> bool:
    return name == "openvino" and not engine(name).native(precision)


@pytest.mark.parametrize("precision", LOWER)
@pytest.mark.parametrize("backend", ENGINES)
def test_arithmetic_in_a_lower_precision(layer: Attention, x: torch.Tensor, backend: str, precision: str) -> None:
    if refuses(backend, precision):
        hot = inference(copy.deepcopy(layer), backend=backend, precision_mode=precision)
        twice(hot, layer, x)
        assert f"openvino has no arithmetic in {precision}" in next(iter(counts()["fallbacks"]))
        return
    expected, found = served_as(layer, x, backend=backend, precision_mode=precision)
    largest = (found - expected).abs().max().item()
    assert 1e-5 < largest < (3e-2 if precision == "bfloat16" else 4e-3)
    served(captures=1)


def test_one_capture_serves_every_precision(layer: Attention, x: torch.Tensor, store: Path) -> None:
    results = [served_as(layer, x, backend="onnxruntime", precision_mode=p)[1] for p in ("float32", *LOWER)]
    found = counts()
    assert (found["captures"], found["builds"], len(plans(store))) == (1, 3, 3)
    assert len({tuple(result.flatten().tolist()) for result in results}) == 3
    again = [served_as(layer, x, backend="onnxruntime", precision_mode=p)[1] for p in ("float32", *LOWER)]
    assert counts()["builds"] == 3
    for one, other in zip(results, again, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_sizes_that_vary_and_weights_that_change(layer: Attention, x: torch.Tensor) -> None:
    hot = inference(copy.deepcopy(layer), fallback="error", precision_mode="bfloat16")
    with torch.no_grad():
        for rows in (2, 3, 5):
            more = x[:1].repeat(rows, 1, 1)
            same(hot(more), layer(more), 5e-2)
        for each in (hot, layer):
            each.out.weight.mul_(-3)
        same(hot(x), layer(x), 5e-2)
        same(hot(x), layer(x), 5e-2)
    served(captures=2)


@pytest.mark.parametrize("backend", ENGINES)
def test_weights_that_are_fed_at_each_call(layer: Attention, x: torch.Tensor, backend: str) -> None:
    if not refuses(backend, "bfloat16"):
        served_as(layer, x, backend=backend, precision_mode="bfloat16", weights="live")
        served(captures=1)


@pytest.mark.parametrize("backend", ENGINES)
def test_a_weight_beyond_float16_does_not_become_infinite(backend: str) -> None:
    layer = torch.nn.Linear(4, 4).eval()
    with torch.no_grad():
        layer.weight[1, 2] = 1e6
    hot = inference(copy.deepcopy(layer), backend=backend, precision_mode="float16")
    x = torch.linspace(-1, 1, 8).reshape(2, 4)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(hot(x), layer(x), rtol=1e-2, atol=1e-2)
    assert backend == "openvino" or not counts()["eager_calls"]


@pytest.mark.parametrize("backend", ENGINES)
def test_a_mask_of_the_most_negative_number(backend: str) -> None:
    """It is an infinity in bfloat16, and a row of nothing else must not become NaN."""
    if refuses(backend, "bfloat16"):
        return
    torch.manual_seed(0)

    @inference(backend=backend, precision_mode="bfloat16", fallback="error")
    def attend(q: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return (q @ q.transpose(-1, -2) + mask).softmax(-1) @ q

    mask = torch.zeros(2, 8, 8)
    with torch.no_grad():
        for rows in (0, 8, 3, 8):
            mask[:, :rows] = torch.finfo(torch.float32).min
            q = torch.randn(2, 8, 16)
            same(attend(q, mask), attend.__wrapped__(q, mask), 5e-2)  # type: ignore[attr-defined]
    served(captures=1)


@pytest.mark.parametrize("place", ["argument", "buffer", "constant"])
@pytest.mark.parametrize("weights", ["bound", "live"])
def test_a_mask_that_hides_every_key(weights: str, place: str) -> None:
    """The first call, which is verified, has no such row."""
    if refuses("openvino", "bfloat16"):
        return
    torch.manual_seed(0)
    lowest = torch.finfo(torch.float32).min

    class Masked(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("lowest", torch.full((1, 1, 1, 1), lowest))

        def forward(self, q: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
            if place == "argument":
                mask = hidden
            else:
                mask = torch.where(hidden < 0, self.lowest if place == "buffer" else lowest, 0.0)
            return torch.nn.functional.scaled_dot_product_attention(q, q, q, attn_mask=mask)

    layer = Masked()
    options = {"backend": "openvino", "precision_mode": "bfloat16", "fallback": "error", "weights": weights}
    hot = inference(copy.deepcopy(layer), **options)
    hidden = torch.zeros(2, 1, 16, 16)
    with torch.no_grad():
        for rows in (0, 5, 16):
            hidden[:, :, :rows] = lowest
            q = torch.randn(2, 4, 16, 32)
            same(hot(q, hidden), layer(q, hidden), 5e-2)
    served(captures=1)


def test_what_a_precision_cannot_do_is_found_by_verification() -> None:
    """The difference of two large products: bfloat16 has no digit of it right."""

    @inference(precision_mode="bfloat16")
    def cancel(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return x @ w - (x * 1.001) @ w

    torch.manual_seed(0)
    x, w = torch.rand(8, 64), torch.rand(64, 8)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(cancel(x, w), cancel.__wrapped__(x, w))  # type: ignore[attr-defined]
    (reason,) = counts()["fallbacks"]
    assert "float32 computed in bfloat16, tolerance" in reason and counts()["hits"] == 0


def test_tolerances_of_the_users_own_come_first(layer: Attention, x: torch.Tensor) -> None:
    hot = inference(copy.deepcopy(layer), precision_mode="bfloat16", rtol=1e-6, atol=1e-6)
    twice(hot, layer, x)
    assert counts()["hits"] == 0 and counts()["fallbacks"]


@pytest.mark.parametrize("weights", ["bound", "live"])
@pytest.mark.parametrize("backend", ENGINES)
def test_half_precision_models_stay_what_they_are(x: torch.Tensor, backend: str, weights: str) -> None:
    if refuses(backend, "bfloat16"):
        return
    layer = Block(32).eval().half()
    expected, found = served_as(layer, x.half(), precision_mode="bfloat16", backend=backend, weights=weights)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("native", [True, False])
def test_engines_with_kernels_come_first_and_are_measured_alone(native: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("openvino")
    monkeypatch.delenv("HYBRID_INFER_BACKEND")
    monkeypatch.setattr(type(engine("openvino")), "native", lambda self, precision: native or precision == "float32")
    orders = []
    for options in ({}, {"precision_mode": "bfloat16"}, {"precision_mode": "bfloat16", "backend": list(ENGINES)}):
        request: Any = types.SimpleNamespace(options=_options.make(options), call=types.SimpleNamespace(tensors=()))
        orders.append([[each.name for each in found(request)] for found in (_engines.engines, _router.measured)])
    ort, ov = ENGINES
    first, alone = ([ov, ort], [ov]) if native else ([ort, ov], [ort, ov])
    assert orders == [[[ort, ov], [ort, ov]], [first, alone], [[ort, ov], alone]]


def test_an_engine_without_kernels_says_so_once(
    layer: Attention, x: torch.Tensor, caplog: pytest.LogCaptureFixture
) -> None:
    _rewriting._say_rounded.cache_clear()
    with caplog.at_level(logging.INFO, "hybrid_infer"):
        for precision in ("float32", "bfloat16", "bfloat16"):
            served_as(layer, x, backend="onnxruntime", precision_mode=precision)
    (line,) = [r.getMessage() for r in caplog.records if "precision_mode" in r.getMessage()]
    assert "'bfloat16': onnxruntime has no kernels for it" in line and "no faster than float32" in line


# Passes


def test_without_optimisation_only_what_was_asked_for_is_done(layer: Attention, x: torch.Tensor, store: Path) -> None:
    for optimise in (True, False):
        expected, found = served_as(layer, x, backend="onnxruntime", switch_ir_optim=optimise)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    served(captures=1)
    fused = {
        tuple(json.loads((path / "manifest.json").read_text())["meta"]["passes"]): any(
            node.op_type == "FusedMatMul" for node in onnx.load(str(path / "live.onnx")).graph.node
        )
        for path in plans(store)
    }
    assert fused == {("identity", "fold", "prune"): True, (): False}
    lower = served_as(layer, x, backend="onnxruntime", switch_ir_optim=False, precision_mode="bfloat16")[1]
    assert (lower - expected).abs().max() > 1e-5


@pytest.mark.parametrize("backend", ENGINES)
def test_without_optimisation_of_the_engine(layer: Attention, x: torch.Tensor, backend: str) -> None:
    expected, found = served_as(layer, x, backend=backend, switch_ir_optim=False)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    served(captures=1)


@pytest.mark.parametrize(
    ("options", "bindings"),
    [({}, 1), ({"skip_prune_program": True}, 2), ({"delete_pass_lists": ["prune"]}, 2)],
    ids=lambda each: next(iter(each), "pruned") if isinstance(each, dict) else "",
)
def test_a_weight_that_no_result_needs_is_watched_unless_it_is_pruned(
    layer: Attention, x: torch.Tensor, options: dict[str, Any], bindings: int
) -> None:
    eager = copy.deepcopy(layer)
    hot = inference(layer, fallback="error", **options)
    twice(hot, eager, x)
    with torch.no_grad():
        layer.spare.add_(1)
    twice(hot, eager, x)
    served(captures=1, bindings=bindings)


def test_a_plan_from_disk_has_the_weights_that_it_was_made_with(layer: Attention, x: torch.Tensor) -> None:
    for _ in range(2):
        hot = inference(copy.deepcopy(layer), fallback="error")
        twice(hot, layer, x)
        with torch.no_grad():
            hot.spare.add_(1)
        twice(hot, layer, x)
        hybrid_infer.release(hot)
    found = counts()
    assert (found["captures"], found["builds"], found["bindings"]) == (1, 1, 2)


def test_the_pass_for_the_precision_can_be_left_out(layer: Attention, x: torch.Tensor) -> None:
    expected, found = served_as(layer, x, precision_mode="bfloat16", delete_pass_lists=["precision"])
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def folder(caplog: pytest.LogCaptureFixture) -> Path:
    lines = [r.getMessage() for r in caplog.records if "is written after each pass to" in r.getMessage()]
    return Path(lines[-1].rpartition(" to ")[2])


def test_the_graph_is_written_after_every_pass(
    layer: Attention, x: torch.Tensor, store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "hybrid_infer"):
        served_as(layer, x, backend="onnxruntime", switch_ir_debug=True, precision_mode="bfloat16")
    written = folder(caplog)
    assert written.is_relative_to(store / "v1" / "debug")
    names = ["0-captured.onnx", "1-identity.onnx", "2-fold.onnx", "3-prune.onnx", "4-precision.onnx"]
    assert sorted(path.name for path in written.iterdir()) == names
    graphs = [onnx.load(str(written / name)).graph for name in names]
    assert [len(graph.input) for graph in graphs] == [8, 8, 8, 7, 7]
    assert [sum(node.op_type == "Cast" for node in graph.node) > 0 for graph in graphs] == [False] * 4 + [True]
    # It changes no plan, and the graphs of a plan from disk are written too.
    for path in written.iterdir():
        path.unlink()
    served_as(layer, x, backend="onnxruntime", switch_ir_debug=True, precision_mode="bfloat16")
    assert sorted(path.name for path in written.iterdir()) == names
    assert counts()["builds"] == len(plans(store)) == 1


def test_the_graph_of_what_is_kept_off_the_disk_is_written_elsewhere(
    layer: Attention, x: torch.Tensor, store: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with caplog.at_level(logging.INFO, "hybrid_infer"):
        served_as(layer, x, cache_static_model=False, switch_ir_debug=True)
    assert (folder(caplog) / "0-captured.onnx").is_file() and not store.exists()


def test_graphs_that_cannot_be_written_cost_a_warning(layer: Attention, x: torch.Tensor, store: Path) -> None:
    (store / "v1").mkdir(parents=True, mode=0o700)
    (store / "v1" / "debug").symlink_to(store)
    with pytest.warns(hybrid_infer.CacheWarning, match=r"0-captured.onnx was not written.*link") as caught:
        served_as(layer, x, switch_ir_debug=True)
    assert len(caught) == 1 and sorted(path.name for path in store.iterdir()) == ["v1"]
    served(captures=1)


@pytest.mark.parametrize("wide", [torch.float32, torch.float64, torch.float16, torch.int64], ids=str)
@pytest.mark.parametrize("narrow", [torch.bfloat16, torch.float16], ids=str)
def test_what_is_cast_to_a_narrow_type_and_on_is_rounded(narrow: torch.dtype, wide: torch.dtype) -> None:
    """An engine without bfloat16 kept the digits, unless the next type was float32."""

    def method(x: torch.Tensor) -> Any:
        rounded = x.to(narrow)
        return rounded.double() + 1, rounded.long() + 1

    hot = inference(method, backend="onnxruntime", fallback="error")
    with torch.no_grad():
        for x in (torch.arange(6), torch.arange(6) * 257.37, torch.arange(6) * -1001.1):
            same(hot(x.to(wide)), method(x.to(wide)), 0.0)
