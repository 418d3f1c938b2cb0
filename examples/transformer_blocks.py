"""A diffusion sampler in Paddle: the loop stays eager, its twelve transformer blocks run as a static graph.

The program is the one that the reference was made for: blocks with two streams (image tokens `x`, text tokens `y`), a
conditioning vector `c` and an attention mask. The sampler takes 20 steps; after half of them it doubles the width and
height of the latent, so that the number of image tokens changes once. The weights are random (with a fixed seed):
what is shown is speed and agreement, not pictures.
"""

from __future__ import annotations

import math

import _table

options = _table.arguments(__doc__)

import paddle  # noqa: E402
from paddle import nn  # noqa: E402
from paddle.nn import functional as F  # noqa: E402

from hybrid_infer import inference  # noqa: E402

BLOCKS, WIDTH, HEADS, CHANNELS = 12, 256, 4, 4
TEXT_TOKENS, TEXT_LENGTHS = 16, (16, 5)  # the second prompt of the batch is shorter: the mask hides its padding
STEPS, SIDE = 20, 8


def modulate(x, shift, scale):
    return x * (1 + scale) + shift


class Stream(nn.Layer):
    """What a block holds for one of its two streams."""

    def __init__(self):
        super().__init__()
        self.modulation = nn.Linear(WIDTH, 6 * WIDTH)
        self.norm1 = nn.LayerNorm(WIDTH, weight_attr=False, bias_attr=False)
        self.norm2 = nn.LayerNorm(WIDTH, weight_attr=False, bias_attr=False)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(approximate=True), nn.Linear(4 * WIDTH, WIDTH))

    def before(self, tokens, c):
        """Queries, keys and values (batch, tokens, 3, heads, size), and what `after` needs of the conditioning."""
        shift, scale, *rest = self.modulation(F.silu(c)).unsqueeze(1).chunk(6, axis=-1)
        qkv = self.qkv(modulate(self.norm1(tokens), shift, scale))
        return qkv.reshape([0, 0, 3, HEADS, WIDTH // HEADS]), rest

    def after(self, tokens, attended, rest):
        gate, shift, scale, mlp_gate = rest
        tokens = tokens + gate * self.out(attended)
        return tokens + mlp_gate * self.mlp(modulate(self.norm2(tokens), shift, scale))


class Block(nn.Layer):
    """Joint attention over both streams, as in diffusion transformers of the MM-DiT kind."""

    def __init__(self):
        super().__init__()
        self.image = Stream()
        self.text = Stream()

    def forward(self, x, y, c, mask):
        of_x, rest_x = self.image.before(x, c)
        of_y, rest_y = self.text.before(y, c)
        q, k, v = paddle.concat([of_y, of_x], axis=1).transpose([2, 0, 3, 1, 4]).unbind(0)
        scores = paddle.matmul(q, k, transpose_y=True) / math.sqrt(WIDTH // HEADS) + mask
        joint = paddle.matmul(F.softmax(scores, axis=-1), v).transpose([0, 2, 1, 3]).flatten(2)
        return self.image.after(x, joint[:, TEXT_TOKENS:], rest_x), self.text.after(y, joint[:, :TEXT_TOKENS], rest_y)


class Denoiser(nn.Layer):
    """The program before: everything eager."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(CHANNELS, WIDTH)
        self.time = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Silu(), nn.Linear(WIDTH, WIDTH))
        self.blocks = nn.LayerList([Block() for _ in range(BLOCKS)])
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, CHANNELS)

    def transformer_blocks(self, x, y, c, mask):
        for block in self.blocks:
            x, y = block(x, y, c, mask)
        return x, y

    def forward(self, latent, y, t, mask):
        """Velocity of `latent` (batch, side, side, channels) at time `t`, given text tokens and the joint mask."""
        batch, side = latent.shape[0], latent.shape[1]
        x = self.embed(latent.reshape([batch, side * side, CHANNELS])) + positions(side)
        c = self.time(sinusoid(t.reshape([1]) * 1000, WIDTH)).expand([batch, WIDTH]) + y.mean(axis=1)
        x, y = self.transformer_blocks(x, y, c, mask)
        return self.head(self.norm(x)).reshape(latent.shape)


class HybridDenoiser(Denoiser):
    """The program after: one line more."""

    @inference()
    def transformer_blocks(self, x, y, c, mask):
        for block in self.blocks:
            x, y = block(x, y, c, mask)
        return x, y


def sinusoid(values, width):
    """Sines and cosines of `values` (n,) at `width` / 2 frequencies: (n, width)."""
    frequencies = paddle.exp(paddle.arange(width // 2, dtype="float32") * (-math.log(10000.0) / (width // 2)))
    angles = values.unsqueeze(1) * frequencies
    return paddle.concat([paddle.sin(angles), paddle.cos(angles)], axis=1)


def positions(side):
    """Embedding of the positions of a square of tokens, (1, side * side, WIDTH)."""
    axis = sinusoid(paddle.arange(side, dtype="float32") / side * 64, WIDTH // 2)
    rows = axis.unsqueeze(1).expand([side, side, WIDTH // 2])
    return paddle.concat([rows, rows.transpose([1, 0, 2])], axis=2).reshape([1, side * side, WIDTH])


def joint_mask(image_tokens):
    """Added to the scores: 0 where a key may be attended to, -1e4 where it is padding. (batch, 1, 1, keys)."""
    text = paddle.arange(TEXT_TOKENS).unsqueeze(0) < paddle.to_tensor(TEXT_LENGTHS).unsqueeze(1)
    keys = paddle.concat([text, paddle.ones([len(TEXT_LENGTHS), image_tokens], dtype="bool")], axis=1)
    return ((1.0 - keys.cast("float32")) * -1e4).reshape([len(TEXT_LENGTHS), 1, 1, -1])


def sample(model, noise, text):
    """Twenty Euler steps from noise; the latent doubles its side after ten."""
    latent = noise
    for step in range(STEPS):
        if step == STEPS // 2:
            latent = F.interpolate(latent, scale_factor=2, mode="nearest", data_format="NHWC")
        mask = joint_mask(latent.shape[1] * latent.shape[2])
        velocity = model(latent, text, paddle.to_tensor(1 - step / STEPS), mask)
        latent = latent - velocity / STEPS
    return latent


@paddle.no_grad()
def main() -> None:
    paddle.seed(0)
    eager, hybrid = Denoiser(), HybridDenoiser()
    hybrid.set_state_dict(eager.state_dict())
    eager.eval()
    hybrid.eval()
    noise = paddle.randn([len(TEXT_LENGTHS), SIDE, SIDE, CHANNELS])
    text = paddle.randn([len(TEXT_LENGTHS), TEXT_TOKENS, WIDTH])
    tokens, c = paddle.randn([len(TEXT_LENGTHS), SIDE * SIDE, WIDTH]), paddle.randn([len(TEXT_LENGTHS), WIDTH])
    call = (tokens, text, c, joint_mask(SIDE * SIDE))

    eager_times, times, expected, found = _table.compare(
        (lambda: eager.transformer_blocks(*call), lambda: hybrid.transformer_blocks(*call)),
        (lambda: sample(eager, noise, text), lambda: sample(hybrid, noise, text)),
        options.seconds,
    )
    difference = float((expected - found).abs().max())
    if not difference <= 1e-3:
        raise SystemExit(f"the decorated program differs from the eager one by {difference:.1e}")
    title = f"{STEPS}-step sampler, {BLOCKS} blocks of width {WIDTH}, {SIDE**2} then {4 * SIDE**2} image tokens, Paddle"
    _table.show(title, eager_times, times, difference, _table.served("HybridDenoiser.transformer_blocks"))


if __name__ == "__main__":
    main()
