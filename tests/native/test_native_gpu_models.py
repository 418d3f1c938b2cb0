"""The models of ``make bench-gpu``, small, on the double of a GPU: every step has a kernel, and results are eager's."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from fake_cuda import FakeCuda, HostMemory
from support import served

import hybrid_infer
from benchmarks import _gpu_models
from benchmarks._dit import DiTBlocks

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.torch


def dit() -> tuple[Any, list[Any]]:
    return DiTBlocks(2, 48, 3), [torch.randn(2, 8, 48), torch.randn(2, 48)]


def bert() -> tuple[Any, list[Any]]:
    config = transformers.BertConfig(
        hidden_size=48, num_hidden_layers=2, num_attention_heads=3, intermediate_size=96, vocab_size=50
    )
    model = transformers.BertModel(config, add_pooling_layer=False)

    class Encoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, ids: Any) -> Any:
            return self.model(input_ids=ids).last_hidden_state

    return Encoder(), [torch.randint(0, 50, (2, 7))]


def vit() -> tuple[Any, list[Any]]:
    config = transformers.ViTConfig(
        hidden_size=48, num_hidden_layers=2, num_attention_heads=3, intermediate_size=96, image_size=16, patch_size=8
    )
    model = transformers.ViTModel(config, add_pooling_layer=False)
    return _gpu_models._on_pixels(model), [torch.randn(2, 3, 16, 16)]


def resnet() -> tuple[Any, list[Any]]:
    config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[16, 32], depths=[1, 2])
    return _gpu_models._on_pixels(transformers.ResNetModel(config)), [torch.randn(2, 3, 32, 32)]


def unet() -> tuple[Any, list[Any]]:
    return _gpu_models._unet_block(32), [torch.randn(2, 32, 4, 4), torch.randn(2, 1280)]


@pytest.mark.parametrize(("make", "attentions"), [(dit, 2), (bert, 2), (vit, 2), (resnet, 0), (unet, 1)])
def test_a_benchmarked_model_in_half_precision(
    make: Any, attentions: int, on_a_gpu: HostMemory, cuda: FakeCuda
) -> None:
    torch.manual_seed(0)
    layer, given = make()
    exact = copy.deepcopy(layer).eval().double()
    layer = layer.eval().half()
    halves = [each.half() if each.is_floating_point() else each for each in given]
    with torch.no_grad():
        truth = exact(*(each.double() if each.is_floating_point() else each for each in halves))
        eager = (layer(*halves).double() - truth).abs().max()
        fast = hybrid_infer.inference(layer)
        for _ in range(3):
            found = fast(*halves)
    served(captures=1)
    assert found.dtype == torch.float16 and (found.double() - truth).abs().max() <= 2 * eager
    assert cuda.count["cuGraphLaunch"]
    (version,) = hybrid_infer.explain(fast).to_dict()["methods"][0]["versions"]
    fused = [each for each in version["decisions"]["native"] if "@ v is one step" in each["why"]]
    assert len(fused) == attentions


def test_an_encoder_of_texts_of_all_lengths_and_numbers(on_a_gpu: HostMemory, cuda: FakeCuda) -> None:
    """Positions, masks and tables that are cut to the length are no reason to answer eagerly; too long a text is."""
    torch.manual_seed(0)
    layer, _ = bert()
    layer = layer.eval()
    fast = hybrid_infer.inference(copy.deepcopy(layer))
    with torch.no_grad():
        for shape in ((1, 7), (1, 9), (1, 1), (2, 9), (3, 512), (2, 1), (1, 7)):
            ids = torch.randint(0, 50, shape)
            torch.testing.assert_close(fast(ids), layer(ids), rtol=1e-4, atol=2e-5)
        (counted,) = hybrid_infer.stats().values()
        assert not counted["eager_calls"] and not counted["fallbacks"], counted
        for _ in range(2):
            with pytest.raises(RuntimeError, match=r"must match|expanded size"):
                fast(torch.randint(0, 50, (1, 600)))
        (before,) = hybrid_infer.stats().values()
        torch.testing.assert_close(fast(ids), layer(ids), rtol=1e-4, atol=2e-5)
    (counted,) = hybrid_infer.stats().values()
    assert counted["eager_calls"] == before["eager_calls"] and counted["fallbacks"] == before["fallbacks"], counted
