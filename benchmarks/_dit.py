"""A stack of diffusion transformer blocks in PyTorch, with adaptive normalisation."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


class DiTBlock(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.modulation = nn.Linear(width, 6 * width)
        self.norm1 = nn.LayerNorm(width, elementwise_affine=False)
        self.norm2 = nn.LayerNorm(width, elementwise_affine=False)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        shift, scale, gate, shift2, scale2, gate2 = self.modulation(F.silu(c)).unsqueeze(1).chunk(6, dim=-1)
        batch, tokens, width = x.shape
        qkv = self.qkv(self.norm1(x) * (1 + scale) + shift)
        q, k, v = qkv.reshape(batch, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        attended = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, tokens, width)
        x = x + gate * self.out(attended)
        return x + gate2 * self.mlp(self.norm2(x) * (1 + scale2) + shift2)


class DiTBlocks(nn.Module):
    """`blocks` blocks: tokens (batch, n, width) and conditioning (batch, width) to tokens."""

    def __init__(self, blocks: int, width: int, heads: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(DiTBlock(width, heads) for _ in range(blocks))

    def forward(self, x: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x, c)
        return x
