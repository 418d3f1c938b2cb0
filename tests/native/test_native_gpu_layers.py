"""Layers of PyTorch on the double of a GPU, launched, captured and replayed: against eager."""

from __future__ import annotations

from typing import Any

import pytest
from fake_cuda import FakeCuda
from gpu_layers import Convolutions, Encoder, check

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


@pytest.mark.parametrize("layer", [torch.nn.Softmax(1), torch.nn.LogSoftmax(0), torch.nn.Softmax2d()])
def test_a_softmax_over_an_axis_that_is_not_the_last(layer: Any, captured: list[Any], cuda: FakeCuda) -> None:
    """As heads of segmentation and detection have it: it was refused, and with it the whole program."""
    check(torch.nn.Sequential(layer), captured, torch.randn(2, 5, 3, 4))


def test_a_decoder_of_images(captured: list[Any], cuda: FakeCuda) -> None:
    """It doubles, surrounds and folds images, of which each was refused."""
    layers = torch.nn.Upsample(scale_factor=2), torch.nn.ZeroPad2d((0, 1, 0, 1)), torch.nn.Conv2d(4, 6, 3, stride=2)
    check(torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3, padding=1), *layers), captured, torch.randn(2, 3, 6, 5))


_LARGER: dict[str, tuple[list[torch.nn.Module], tuple[int, ...]]] = {
    "image": ([torch.nn.ConvTranspose2d(4, 6, 3, 2, 1, 1), torch.nn.ReLU(), torch.nn.ConvTranspose2d(6, 4, 2, 2)],
              (2, 4, 5, 3)),
    "in groups": ([torch.nn.ConvTranspose2d(4, 6, (3, 2), (1, 3), (2, 0), (0, 1), 2, False, (2, 1))], (1, 4, 4, 5)),
    "sound": ([torch.nn.ConvTranspose1d(4, 3, 8, 4, 2), torch.nn.Tanh(), torch.nn.Conv1d(3, 1, 3)], (1, 4, 6)),
}  # fmt: skip


@pytest.mark.parametrize("name", _LARGER)
def test_what_is_made_larger_by_weights(name: str, captured: list[Any], cuda: FakeCuda) -> None:
    """As segmentation, decoders of images and vocoders do: transposed convolutions had the whole program refused."""
    layers, shape = _LARGER[name]
    check(torch.nn.Sequential(*layers), captured, torch.randn(shape))


_RESIZED: dict[str, list[torch.nn.Module]] = {
    "surrounded": [torch.nn.ReflectionPad2d((1, 2, 2, 1)), torch.nn.ReplicationPad2d(2), torch.nn.CircularPad2d(1)],
    "bilinear": [torch.nn.Upsample(scale_factor=2, mode="bilinear"),
                 torch.nn.Upsample(size=(7, 9), mode="bilinear", align_corners=True)],
    "bicubic": [torch.nn.Upsample(scale_factor=1.5, mode="bicubic"), torch.nn.Upsample(size=(5, 8), mode="bicubic")],
    "by 1.7": [torch.nn.Upsample(scale_factor=1.7, mode="bilinear")],
}  # fmt: skip


@pytest.mark.parametrize("name", _RESIZED)
def test_images_that_are_resized_and_surrounded(name: str, captured: list[Any], cuda: FakeCuda) -> None:
    check(torch.nn.Sequential(*_RESIZED[name]), captured, torch.randn(2, 3, 6, 5))


class _Recognizer(torch.nn.Module):
    """As recognisers of text and of speech: windows to columns, and recurrent layers along them."""

    def __init__(self) -> None:
        super().__init__()
        self.image = torch.nn.Conv2d(1, 4, 3, 2, 1)
        self.along = torch.nn.LSTM(16, 6, 2, bidirectional=True)
        self.then = torch.nn.GRU(12, 5, batch_first=True)
        self.head = torch.nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        columns = self.image(x).relu().flatten(1, 2).permute(2, 0, 1)
        found, _ = self.along(columns)
        found, last = self.then(found.transpose(0, 1))
        return self.head(found + last.transpose(0, 1)).log_softmax(-1)


def test_recurrent_layers_along_an_image(captured: list[Any], cuda: FakeCuda) -> None:
    check(_Recognizer(), captured, torch.randn(2, 1, 8, 10))


def test_layers_that_are_written_in_equations(captured: list[Any], cuda: FakeCuda) -> None:
    class Mixed(torch.nn.Module):
        def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            weights = torch.einsum("bihd,bjhd->bhij", q, k).softmax(-1)
            return torch.einsum("bhij,bjhd->bihd", weights, v).repeat(1, 2, 1, 1)

    check(Mixed(), captured, *(torch.randn(2, 5, 3, 4) for _ in range(3)))


def test_an_image_that_is_pooled_beyond_its_end_and_shuffled(captured: list[Any], cuda: FakeCuda) -> None:
    layers = torch.nn.MaxPool2d(3, 2, ceil_mode=True), torch.nn.AvgPool2d(2, 2, ceil_mode=True)
    check(torch.nn.Sequential(*layers, torch.nn.PixelShuffle(2)), captured, torch.randn(2, 8, 12, 10))


class _Pooled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(9, 6)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.table(ids)[torch.arange(ids.shape[0]), ids.to(torch.int).argmax(-1)]


def test_a_text_is_pooled_where_its_last_token_stands(captured: list[Any], cuda: FakeCuda) -> None:
    check(_Pooled(), captured, torch.tensor([[1, 2, 8, 0], [3, 8, 8, 0]]))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_an_encoder_layer(dtype: str, cuda: FakeCuda, captured: list[Any]) -> None:
    torch.manual_seed(0)
    kind = getattr(torch, dtype)
    mask = torch.ones(2, 1, 1, 9, dtype=torch.bool)
    mask[1, ..., 5:] = False
    layer = Encoder(48, 4).to(kind)
    program, _ = check(
        layer, captured, torch.randn(2, 9, 48, dtype=kind), mask, tolerance=3e-5 if dtype == "float32" else 1e-2
    )
    assert cuda.count["cuGraphLaunch"] == 2
    eager = 4 * 2 * 9 * 48 * (4 + 2) * 4  # what eager holds at its peak: the wide layer, its activation, the rest
    assert program._arenas.nbytes() < eager


def test_a_convolutional_block(cuda: FakeCuda, captured: list[Any]) -> None:
    torch.manual_seed(0)
    layer = Convolutions()
    layer.norm.running_mean.normal_()
    check(layer, captured, torch.randn(2, 3, 16, 16))


def test_a_layer_of_a_sentence_encoder_with_its_embeddings(cuda: FakeCuda, captured: list[Any]) -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        hidden_size=96, num_hidden_layers=1, num_attention_heads=12, intermediate_size=384, vocab_size=100
    )
    model = transformers.BertModel(config, add_pooling_layer=False).eval()

    class First(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, ids: Any, mask: Any) -> Any:
            return self.model(input_ids=ids, attention_mask=mask).last_hidden_state

    mask = torch.ones(1, 6, dtype=torch.int64)
    mask[0, 4:] = 0
    check(First(), captured, torch.randint(0, 100, (1, 6)), mask, tolerance=1e-4)
