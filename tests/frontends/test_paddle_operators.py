"""Operators of Paddle, converted and compared with eager at several sizes of the two dims that vary.

They are captured in groups, for the sake of time. Those that the converter lacks or gets wrong are here because this
library replaces them.
"""

from __future__ import annotations

import math

import pytest

paddle = pytest.importorskip("paddle")

from paddle_calls import Call, check, layer  # noqa: E402

from hybrid_infer.frontends import _paddle_inferred  # noqa: E402

F, nn = paddle.nn.functional, paddle.nn
pytestmark = pytest.mark.paddle


def image(x):
    """(batch, length, 4) as (batch, 4, length, 1)."""
    return x.transpose([0, 2, 1]).unsqueeze(-1)


def activations(self, x):
    return [
        F.gelu(x), F.gelu(x, True), F.silu(x), F.relu6(x * 9), F.leaky_relu(x, 0.2), F.elu(x, 0.5), F.celu(x, 0.5),
        F.softplus(x), F.softplus(x, 2, 3), F.hardswish(x), F.hardsigmoid(x, 0.3, 0.2), F.mish(x), F.selu(x, 1.2, 1.3),
        F.hardtanh(x, -0.3, 0.4), F.thresholded_relu(x, 0.3), F.softshrink(x, 0.2), F.hardshrink(x, 0.3),
        F.log_sigmoid(x * 20), F.log_softmax(x, -1), F.softmax(x, 1), F.tanhshrink(x), F.swish(x), F.glu(x),
    ]  # fmt: skip


def reductions(self, x):
    return [
        x.mean(), x.mean(keepdim=True), x.mean(1), x.max(), x.min(1), x.amax(), x.amin([1, 2]), x.sum(), x.prod(1),
        x.var(), x.std(-1, unbiased=False), x.logsumexp(-1), (x > 0).any(1), (x > 0).all(), x.argmax(1), x.cumsum(1),
        (x * 5).astype("int64").max(1), (x * 5).astype("int32").sum(),
    ]  # fmt: skip


def norms(self, x):
    return [
        x.norm(), x.norm(1, -1), x.norm(2, -1), x.norm(3, -1), x.norm(0, -1), x.norm(math.inf, -1),
        paddle.linalg.norm(x, "fro", axis=[1, 2]), F.normalize(x, epsilon=3.0), F.layer_norm(x, [4], epsilon=9e-4),
        F.instance_norm(x.transpose([0, 2, 1]), eps=0.3), F.cosine_similarity(x, x * 2 + 1, -1),
        self.default(image(x)), self.small(image(x)), self.row(x.transpose([0, 2, 1])),
    ]  # fmt: skip


def arithmetic(self, x):
    whole = (x * 10).astype("int64")
    return [
        whole // 3, whole % 3, whole / 3, (x * 10) // 3, (x * 10) % 3, x.abs() ** 1.5, paddle.trunc(x * 3),
        paddle.round(x * 3), paddle.lerp(x, x * 2, 0.5), paddle.addmm(paddle.ones([4, 4]), x[0].t(), x[0], 0.5, 2.0),
        1 / (x.abs() + 1), 2.0**x, 3 // (x.abs() + 1),
        paddle.scale(x, 2.5, 0.3), x.clip(-0.1, 0.2), x.size + x, x.astype("float64"), x == x, (x > 0) & (x < 1),
        paddle.maximum(x, x.mean(1, keepdim=True)), paddle.where(x > 0, x, 0.0), x.masked_fill(x > 0, -1.0),
    ]  # fmt: skip


def shapes(self, x):
    batch, length, width = x.shape
    return [
        x.flatten(), x.flatten(0, 1), x.reshape([0, 0, 2, 2]), x.reshape([batch, -1]), x.reshape([*x.shape[:2], 2, -1]),
        x.reshape([batch * length, width]), x.mean(1, keepdim=True).expand_as(x), x[:, :1].broadcast_to(x.shape),
        x.mean(1, keepdim=True).expand([-1, x.shape[1], -1]), x.tile([1, 2, 1]), x.repeat_interleave(2, 1),
        paddle.concat([x, x], 1), paddle.stack([x, x], 1), *x.unbind(-1), *x.chunk(2, -1), x.roll(1, 1),
        paddle.ones([batch, length]) + x.sum(-1), paddle.arange(x.shape[1]), paddle.zeros_like(x),
        x.flip(1), x.flip([0, -1]), paddle.eye(length), paddle.eye(length, 3, dtype="int64"),
    ]  # fmt: skip


def indexing(self, x):
    return [
        x[:, 0, 1:3], x[..., -1], x[:, None], x[:, -2:], x[:, : x.shape[1] - 1], x[:, ::2], x[0], x[:, [0, 1]],
        x[:, paddle.to_tensor([0, 1])], x[x[:, 0, 0] > 0], x.index_select(paddle.to_tensor([0, 1]), axis=1),
        paddle.gather(x, paddle.to_tensor([[1], [0]]), 1), paddle.gather(x[0], paddle.to_tensor([[1], [0], [1]])),
        paddle.take_along_axis(x, paddle.argsort(x, 1), 1), paddle.topk(x, 2, axis=1)[0], paddle.sort(x, 1),
        paddle.nonzero(x > 0), paddle.masked_select(x, x > 0),
    ]  # fmt: skip


def images(self, x):
    one = x.unsqueeze(1)
    return [
        self.conv(one), F.avg_pool2d(one, 2, 1, 1), F.avg_pool2d(one, 2, 1, 1, exclusive=False),
        F.max_pool2d(one, 3, 2, 1, ceil_mode=True), F.adaptive_avg_pool2d(one, 1), F.pad(one, [1, 2, 0, 1], value=2.5),
        F.pad(x, [1, 2], value=1.5, data_format="NLC"), F.interpolate(one, scale_factor=2),
        F.interpolate(one, scale_factor=2.0, mode="bilinear"), F.interpolate(one, size=[8, 6], mode="bilinear"),
        F.interpolate(one, size=[8, 6], mode="bilinear", align_corners=True), F.unfold(one, [2, 2]),
    ]  # fmt: skip


def losses(self, x):
    return [
        F.mse_loss(x, x * 2), F.binary_cross_entropy_with_logits(x, (x > 0).astype("float32")),
        F.dropout(x, 0.4, training=False, mode="downscale_in_infer"),
    ]  # fmt: skip


def attention(self, x):
    batch, length, width = x.shape
    heads = x.reshape([batch, length, 2, width // 2]).transpose([0, 2, 1, 3])
    scores = paddle.matmul(heads, heads, transpose_y=True) / math.sqrt(width // 2)
    scores = F.softmax(scores + paddle.triu(paddle.full([length, length], -1e9), 1), -1)
    mixed = paddle.matmul(scores, heads).transpose([0, 2, 1, 3]).reshape([batch, length, width])
    angles = paddle.arange(length).astype("float32").unsqueeze(-1) * paddle.to_tensor([1.0, 0.1]).unsqueeze(0)
    left, right = mixed[..., :2], mixed[..., 2:]
    rotated = paddle.concat(
        [left * angles.cos() - right * angles.sin(), left * angles.sin() + right * angles.cos()], -1
    )
    keys = x.unsqueeze(2)
    return [
        rotated, F.scaled_dot_product_attention(keys, keys, keys, is_causal=True), x + self.table[:, : x.shape[1]],
        paddle.einsum("bic,bjc->bij", x, x), self.embedding(paddle.arange(length)),
        self.decoder(x, x), self.many(x, x, x),
    ]  # fmt: skip


def recurrent(self, x):
    return [self.lstm(x)[0], self.gru(x)[0]]


def loop(self, x):
    total = paddle.zeros([x.shape[0], x.shape[2]])
    for i in range(x.shape[1]):
        total = total + x[:, i] * i
    return total


def gates(self, x):
    scores, table = x.unsqueeze(1), x[:, :2]
    return [
        F.swiglu(x), F.swiglu(x, x * 2), paddle.incubate.softmax_mask_fuse(scores, scores * 2), paddle.stanh(x),
        paddle.expm1(x), paddle.expm1(x * 1e-5), paddle.expm1(x * 200), F.maxout(image(x), 2),
        F.maxout(image(x).transpose([0, 2, 3, 1]), 2, axis=-1), paddle.cross(table[..., :3], table[..., 1:], axis=2),
        paddle.baddbmm(x @ x.transpose([0, 2, 1]), x, x.transpose([0, 2, 1]), beta=0.5, alpha=2.0),
        paddle.crop(x[0, :2], [1, 3], [1, 1]),
    ]  # fmt: skip


def truths(self, x):
    whole, odd = (x * 3).astype("int64"), paddle.where(x > 0.5, paddle.full([], math.nan), x * 0.0)
    return [
        paddle.logical_and(x, odd), paddle.logical_or(odd, x * -0.0), paddle.logical_xor(whole, whole * 0),
        paddle.logical_not(odd), paddle.logical_not(whole), paddle.logical_not(x > 0), paddle.logical_and(whole, whole),
    ]  # fmt: skip


def places(self, x):
    square = x.unsqueeze(-1) * x.unsqueeze(-2)
    upper, lower = paddle.triu_indices(4, 4, 1), paddle.tril_indices(4, 3, -1)
    batch, length, width = x.shape
    return [
        square[:, 0, upper[0], upper[1]], lower, paddle.trace(square, 0, 2, 3), paddle.diag_embed(x),
        *(paddle.diagonal(square, offset, 2, 3) for offset in (0, 1, -2)), paddle.diagonal(square[:, 0], 1, 2, 1),
        paddle.diag(x[0, 0]), paddle.diag(square[0, 0], 1), paddle.diag(x[:, 0, 0], padding_value=2.0),
        *paddle.broadcast_tensors([x, x[:1, :, :1], x[:, :1]]), *paddle.broadcast_tensors([x[0, 0], x[0, 0, :1]]),
        (x * 2).view(batch, length, 2, -1), (x * 2).view([-1]), (x * 2).view(-1), (x * 2).view(size=[-1, width]),
        (x * 2).view_as(x.reshape([batch, length, 2, 2])),
    ]  # fmt: skip


def frames(self, x):
    wide = x.tile([1, 8, 1]).transpose([0, 2, 1])
    return [
        paddle.signal.frame(wide, 6, 4), paddle.signal.frame(x[0].tile([8, 1]), 6, 4, axis=0),
        paddle.signal.frame(x, 4, 3),
    ]  # fmt: skip


def masks(self, x):
    length = x.shape[1]
    rows = paddle.ones([length, length], "bool")
    rows[:, 0], rows[1:, 1:3] = x[0, :, 0] > 0, False
    return [rows, self.steps[:, :, length : length + 2, :length], rows]


GROUPS = {
    "activations": layer(activations),
    "reductions": layer(reductions),
    "norms": layer(norms, default=nn.GroupNorm(2, 4), small=nn.GroupNorm(2, 4, 0.3), row=nn.GroupNorm(2, 4)),
    "arithmetic": layer(arithmetic),
    "shapes": layer(shapes),
    "indexing": layer(indexing),
    "images": layer(images, conv=nn.Conv2D(1, 4, 3, stride=2, padding=1)),
    "losses": layer(losses),
    "attention": layer(
        attention, table=paddle.randn([1, 64, 4]), embedding=nn.Embedding(64, 4), many=nn.MultiHeadAttention(4, 2),
        decoder=nn.TransformerDecoderLayer(4, 2, 8, normalize_before=True),
    ),
    "recurrent": layer(recurrent, lstm=nn.LSTM(4, 3), gru=nn.GRU(4, 3)),
    "loop": layer(loop),
    "gates": layer(gates),
    "truths": layer(truths),
    "places": layer(places),
    "frames": layer(frames),
    "masks": layer(masks, steps=paddle.tril(paddle.ones([1, 1, 32, 32]))),
}  # fmt: skip


@pytest.mark.parametrize("name", GROUPS)
def test_group(name):
    paddle.seed(11)
    call = Call(GROUPS[name], paddle.randn([2, 5, 4]))
    others = [[paddle.randn([n, m, 4])] for n, m in ((3, 6), (1, 3), (4, 8))]
    captured = check(call, *others, dynamic={(0, 0), (0, 1)}, tolerance=1e-4)
    assert captured.specialised == frozenset()


def test_size_that_paddle_miscalculates_is_fixed(monkeypatch):
    """Where it is not put right: this one is, so that its rule is taken away here."""
    monkeypatch.delitem(_paddle_inferred._RULES, "conv2d_transpose")
    made = layer(lambda self, x: self.up(x.unsqueeze(1)), up=nn.Conv2DTranspose(1, 2, 3, 2, 1, 1))
    call = Call(made, paddle.randn([2, 5, 4]))
    captured = check(call, [paddle.randn([3, 5, 4])], dynamic={(0, 0), (0, 1)}, tolerance=1e-4)
    assert captured.specialised == {(0, 1)}
