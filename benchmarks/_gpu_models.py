"""What is measured on a GPU: architectures of common sizes with random weights, all that time and error need."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple


class Model(NamedTuple):
    """``layer``: a fresh one in float32; ``arguments``: of a call of so many items, other ones each time.

    ``products``: is its time that of products of matrices, so that a floor says how fast it can be at a large batch?
    """

    layer: Callable[[], Any]
    arguments: Callable[[int], list[Any]]
    products: bool = False


def _dit() -> Any:
    from benchmarks._dit import DiTBlocks

    return DiTBlocks(28, 1152, 16)


def _dit_arguments(batch: int) -> list[Any]:
    import torch

    return [torch.randn(batch, 256, 1152), torch.randn(batch, 1152)]


def _bert() -> Any:
    import torch
    from transformers import BertConfig, BertModel

    class Encoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = BertModel(BertConfig(), add_pooling_layer=False)

        def forward(self, ids: Any) -> Any:
            return self.model(input_ids=ids).last_hidden_state

    return Encoder()


def _tokens(count: int) -> Callable[[int], list[Any]]:
    def draw(batch: int) -> list[Any]:
        import torch

        return [torch.randint(0, 30000, (batch, count))]

    return draw


def _pixels(batch: int) -> list[Any]:
    import torch

    return [torch.randn(batch, 3, 224, 224)]


def _on_pixels(made: Any) -> Any:
    import torch

    class Encoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = made

        def forward(self, pixels: Any) -> Any:
            return self.model(pixel_values=pixels).last_hidden_state

    return Encoder()


def _vit() -> Any:
    from transformers import ViTConfig, ViTModel

    return _on_pixels(ViTModel(ViTConfig(), add_pooling_layer=False))


def _resnet50() -> Any:
    from transformers import ResNetConfig, ResNetModel

    return _on_pixels(ResNetModel(ResNetConfig()))


def _unet_block(channels: int = 640) -> Any:
    """A residual block of a latent diffusion UNet with its attention."""
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2, self.norm3 = (nn.GroupNorm(32, channels) for _ in range(3))
            self.conv1, self.conv2 = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))
            self.time, self.qkv = nn.Linear(1280, channels), nn.Linear(channels, 3 * channels)
            self.out = nn.Linear(channels, channels)

        def forward(self, x: Any, t: Any) -> Any:
            silu = nn.functional.silu
            h = self.conv1(silu(self.norm1(x))) + self.time(silu(t))[:, :, None, None]
            x = x + self.conv2(silu(self.norm2(h)))
            b, c, high, wide = x.shape
            tokens = self.norm3(x).reshape(b, c, -1).transpose(1, 2)
            q, k, v = self.qkv(tokens).reshape(b, high * wide, 3, 8, c // 8).permute(2, 0, 3, 1, 4).unbind(0)
            mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2)
            return x + self.out(mixed.reshape(b, high * wide, c)).transpose(1, 2).reshape(b, c, high, wide)

    return Block()


def _latents(batch: int) -> list[Any]:
    import torch

    return [torch.randn(batch, 640, 32, 32), torch.randn(batch, 1280)]


MODELS: Mapping[str, Model] = {
    "DiT blocks 28x1152, 256 tokens": Model(_dit, _dit_arguments, products=True),
    "BERT-base, 128 tokens": Model(_bert, _tokens(128), products=True),
    "BERT-base, 512 tokens": Model(_bert, _tokens(512), products=True),
    "ViT-B": Model(_vit, _pixels, products=True),
    "ResNet-50": Model(_resnet50, _pixels),
    "UNet block 640x32x32": Model(_unet_block, _latents),
}


def drawn(name: str, device: str = "cuda") -> Any:
    """A layer of that model in float32, its weights drawn where it lies: a GPU is done at once, "meta" draws none."""
    import torch

    torch.manual_seed(0)
    with torch.device(device):
        return MODELS[name].layer().eval()


def of_a_row(description: str) -> argparse.ArgumentParser:
    """The arguments of a process that measures a part of a row."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--model", choices=MODELS, required=True)
    parser.add_argument("--dtype", required=True)
    parser.add_argument("--batch", type=int, required=True)
    return parser
