"""On a GPU with TensorRT itself: what the double can only claim. Skipped, with the reason, where there is none."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import hybrid_infer
from hybrid_infer import _background, inference
from hybrid_infer.backends import engine

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def needs_tensorrt() -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs an NVIDIA GPU that PyTorch can use")
    if missing := engine("tensorrt").missing():
        pytest.skip(f"needs an NVIDIA GPU with TensorRT: {missing}")


def encoder() -> Any:
    torch.manual_seed(0)
    return torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True).eval().cuda()


def convolution() -> Any:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3, bias=False), torch.nn.BatchNorm2d(16), torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(16, 4),
    ).eval().cuda()  # fmt: skip


def served_by(layer: Any) -> list[str]:
    (method,) = hybrid_infer.explain(layer).to_dict()["methods"]
    return sorted({name for version in method["versions"] for name in version["served_by"]})


def agree(layer: Any, plain: Any, *arguments: Any, tolerance: float = 1e-3) -> None:
    with torch.inference_mode():
        expected = plain(*arguments)
        found = layer(*arguments)
        torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance * float(expected.abs().max()))


@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-4), ("float16", 1e-2), ("bfloat16", 5e-2)])
@pytest.mark.parametrize("kind", [encoder, convolution])
def test_layers_as_eager(kind: Any, precision: str, tolerance: float) -> None:
    layer = inference(kind(), with_trt=True, trt_precision_mode=precision)
    x = torch.randn(2, 3, 16, 16).cuda() if kind is convolution else torch.randn(2, 9, 64).cuda()
    for _ in range(6):  # the last of them as a CUDA graph
        agree(layer, kind(), x, tolerance=tolerance)
    assert served_by(layer) == ["tensorrt"]


def test_weights_are_refitted() -> None:
    layer, plain, x = inference(encoder(), with_trt=True), encoder(), torch.randn(2, 9, 64).cuda()
    agree(layer, plain, x)
    with torch.no_grad():
        for each in (layer, plain):
            each.linear1.weight.mul_(2)
    agree(layer, plain, x)
    assert served_by(layer) == ["tensorrt"]


def test_a_write_that_no_counter_tells_is_seen() -> None:
    layer, plain, x = inference(encoder(), with_trt=True), encoder(), torch.randn(2, 9, 64).cuda()
    agree(layer, plain, x)
    for _ in range(3):
        for each in (layer, plain):
            each.linear1.weight.data *= 1.5
        for _ in range(6):  # the last of them as a CUDA graph
            agree(layer, plain, x)
    assert served_by(layer) == ["tensorrt"]


def test_sizes_grow() -> None:
    layer, plain = inference(encoder(), with_trt=True), encoder()
    for tokens in (8, 9, 20, 20, 70, 70, 12):
        agree(layer, plain, torch.randn(2, tokens, 64).cuda())
        _background.wait()
    assert "tensorrt" in served_by(layer)


def test_threads_on_streams_of_their_own() -> None:
    layer, plain, x = inference(encoder(), with_trt=True), encoder(), torch.randn(2, 9, 64).cuda()
    agree(layer, plain, x)

    def work(n: int) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            given = torch.full((2, 9, 64), float(n)).cuda()
            for _ in range(20):
                agree(layer, plain, given)
            torch.cuda.current_stream().synchronize()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))


def test_a_user_may_capture_it_in_a_graph_of_his_own() -> None:
    layer, plain, x = inference(encoder(), with_trt=True), encoder(), torch.randn(2, 9, 64).cuda()
    with torch.inference_mode():
        for _ in range(3):
            layer(x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = layer(x)
        x.copy_(torch.randn(2, 9, 64))
        graph.replay()
        torch.testing.assert_close(y, plain(x), rtol=1e-3, atol=1e-3)
