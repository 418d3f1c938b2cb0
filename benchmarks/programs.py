"""A realistic program around each kind of model: an eager loop of 20 steps with the method inside.

Each function takes the method, as a function of the tensors of one call that gives the main tensor of the result, and
the tensors of one call; it gives the program, to be timed as a whole. What is around the method is what such programs
do around it: they decode and scale images, draw tokens, pool, rank, integrate. Shapes stay the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

STEPS = 20

Method = Callable[..., Any]
Run = Callable[[], Any]


def repeat(method: Method, tensors: Sequence[Any]) -> Run:
    """20 calls, one after the other."""

    def run() -> Any:
        return [method(*tensors) for _ in range(STEPS)][-1]

    return run


def search_images(method: Method, tensors: Sequence[Any]) -> Run:
    """20 photographs: scaled, normalised, embedded, and the five nearest of 1000 known ones."""
    import torch
    from torch.nn import functional

    pixels = torch.randint(0, 256, (STEPS, 3, 256, 320), dtype=torch.uint8)
    mean, spread = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1), torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)
    features = method(*tensors)
    known = functional.normalize(torch.randn(1000, _pooled(features).shape[-1]), dim=-1)

    def run() -> Any:
        nearest = []
        for image in pixels:
            scaled = functional.interpolate(image[None].float() / 255, tensors[0].shape[-2:], mode="bilinear")
            found = functional.normalize(_pooled(method((scaled - mean) / spread)), dim=-1)
            nearest.append((found @ known.T).topk(5).indices)
        return torch.cat(nearest)

    return run


def _pooled(features: Any) -> Any:
    """(batch, channels) of a map (batch, channels, height, width) or of tokens (batch, n, channels)."""
    return features.mean((2, 3)) if features.dim() == 4 else features.mean(1)


def search_sentences(method: Method, tensors: Sequence[Any]) -> Run:
    """20 sentences: embedded, pooled over what is no padding, and the five nearest of 10,000 known ones."""
    import torch
    from torch.nn import functional

    ids, mask = tensors
    sentences = [torch.randint(1000, 20000, ids.shape) for _ in range(STEPS)]
    known = functional.normalize(torch.randn(10000, method(ids, mask).shape[-1]), dim=-1)

    def run() -> Any:
        nearest = []
        for sentence in sentences:
            words = mask[..., None].float()
            pooled = (method(sentence, mask) * words).sum(1) / words.sum(1)
            nearest.append((functional.normalize(pooled, dim=-1) @ known.T).topk(5).indices)
        return torch.cat(nearest)

    return run


def write_text(method: Method, tensors: Sequence[Any]) -> Run:
    """20 tokens, each drawn from the 50 likeliest after a window of the last tokens."""
    import torch

    def run() -> Any:
        (window,) = tensors
        draw = torch.Generator().manual_seed(0)
        for _ in range(STEPS):
            likeliest = (method(window)[:, -1] / 0.8).topk(50)
            drawn = torch.multinomial(likeliest.values.softmax(-1), 1, generator=draw)
            window = torch.cat([window[:, 1:], likeliest.indices.gather(1, drawn)], dim=1)
        return window

    return run


def denoise(method: Method, tensors: Sequence[Any]) -> Run:
    """20 steps of a sampler with classifier-free guidance: patches embedded, blocks, patches put together, one step."""
    import math

    import torch
    from torch import nn
    from torch.nn import functional

    tokens, width = tensors[0].shape[1:]
    side, patch, channels = math.isqrt(tokens), 4, 4
    embed = nn.Conv2d(channels, width, patch, patch)
    out = nn.Linear(width, patch * patch * channels)
    times = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
    labels = nn.Embedding(11, width)
    kinds = torch.tensor([3, 10])  # what is wanted, and anything
    frequencies = torch.exp(-math.log(10000) * torch.arange(width // 2) / (width // 2))
    start = torch.randn(1, channels, side * patch, side * patch)

    def run() -> Any:
        x = start
        for step in range(STEPS):
            angles = torch.full((2, 1), 1 - step / STEPS) * frequencies
            condition = times(torch.cat([angles.cos(), angles.sin()], 1)) + labels(kinds)
            patches = embed(x.expand(2, -1, -1, -1)).flatten(2).transpose(1, 2)
            patches = out(functional.layer_norm(method(patches, condition), (width,)))
            grid = patches.view(2, side, side, patch, patch, channels).permute(0, 5, 1, 3, 2, 4)
            wanted, free = grid.reshape(2, channels, side * patch, side * patch).chunk(2)
            x = x - (free + 4.0 * (wanted - free)) / STEPS
        return x

    return run


def classify_images(method: Method, tensors: Sequence[Any]) -> Run:
    """20 photographs in Paddle: scaled, normalised, classified, and the five likeliest classes."""
    import paddle
    from paddle.nn import functional

    pixels = paddle.randint(0, 256, [STEPS, 3, 256, 320]).astype("uint8")
    mean = paddle.to_tensor([0.485, 0.456, 0.406]).reshape([3, 1, 1])
    spread = paddle.to_tensor([0.229, 0.224, 0.225]).reshape([3, 1, 1])

    def run() -> Any:
        classes = []
        for image in pixels:
            batch = image.unsqueeze(0).astype("float32") / 255
            scaled = functional.interpolate(batch, size=tensors[0].shape[-2:], mode="bilinear")
            scores = functional.softmax(method((scaled - mean) / spread))
            classes.append(paddle.topk(scores, 5)[1])
        return paddle.concat(classes)

    return run


def refine_tokens(method: Method, tensors: Sequence[Any]) -> Run:
    """20 steps of filling in masked tokens in Paddle: embedded, encoded, scored, the surest ones kept."""
    import paddle
    from paddle import nn

    batch, count, width = tensors[0].shape
    embed, head = nn.Embedding(2048, width), nn.Linear(width, 2048)
    places = paddle.randn([1, count, width]) * 0.02

    def run() -> Any:
        ids = paddle.zeros([batch, count], "int64")
        for step in range(STEPS):
            scores = nn.functional.softmax(head(method(embed(ids) + places)))
            sure, best = scores.max(-1), scores.argmax(-1)
            keep = max(1, count * (step + 1) // STEPS)
            limit = paddle.topk(sure, keep)[0][:, -1:]
            ids = paddle.where(sure >= limit, best, paddle.zeros_like(best))
        return ids

    return run
