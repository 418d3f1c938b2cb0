"""What runs in the container: a denoiser whose transformer blocks are served from the static models of the image."""

from __future__ import annotations

import argparse

import torch

from hybrid_infer import inference, stats


class Denoiser(torch.nn.Module):
    """Blocks of a width, one after the other; weights are random, with a fixed seed."""

    def __init__(self, blocks: int = 4, width: int = 128) -> None:
        super().__init__()
        torch.manual_seed(0)
        layers = [torch.nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True) for _ in range(blocks)]
        self.blocks = torch.nn.ModuleList(layers)

    @inference()
    def transformer_blocks(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20)
    steps = parser.parse_args().steps
    model = Denoiser().eval()
    x = torch.randn(1, 64, 128)
    with torch.no_grad():
        for _ in range(steps):
            x = x - 0.1 * model.transformer_blocks(x)
    (counts,) = stats().values()
    told = {name: counts[name] for name in ("captures", "disk_loads", "hits", "eager_calls")}
    print(", ".join(f"{name} {count}" for name, count in told.items()))


if __name__ == "__main__":
    main()
