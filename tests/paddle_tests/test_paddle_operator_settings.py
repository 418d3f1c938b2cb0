"""Operators whose settings Paddle's converter overlooks, as a user meets them: served, unverified, and as eagerly.

Many operators share a method, for the sake of time; each method is called at two sizes, the second of which varies.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from types import MethodType
from typing import Any

import numpy as np
import pytest

paddle = pytest.importorskip("paddle")
onnx = pytest.importorskip("onnx")

from paddle_support import counts, eagerly, same, served  # noqa: E402

import hybrid_infer  # noqa: E402
from hybrid_infer import inference  # noqa: E402
from hybrid_infer._errors import TraceError  # noqa: E402
from hybrid_infer._types import TensorSpec  # noqa: E402
from hybrid_infer.frontends._paddle_onnx import _compare_shapes  # noqa: E402

pytestmark = pytest.mark.paddle
F, nn = paddle.nn.functional, paddle.nn


def drawn(*shape: int, seed: int = 0) -> Any:
    return paddle.to_tensor(np.random.default_rng(seed).standard_normal(shape).astype("float32"))


class Weights(nn.Layer):
    """What the operators below take beside their input."""

    def __init__(self) -> None:
        super().__init__()
        self.kernel, self.turned, self.split = drawn(6, 4, 3, 3), drawn(4, 6, 3, 3), drawn(4, 1, 3, 3)
        self.solid, self.row, self.table = drawn(4, 3, 3, 3, 3), drawn(4, 6, 3), drawn(20)
        self.cube = drawn(6, 4, 4)
        self.each, self.spread, self.bias = drawn(4), drawn(4).abs() + 0.5, drawn(6)
        self.deep, self.both = nn.LSTM(4, 3, num_layers=2), nn.GRU(4, 3, direction="bidirect")
        self.tall = nn.GRU(4, 3, num_layers=2, direction="bidirect")
        self.relu, self.flat = nn.SimpleRNN(4, 3, activation="relu"), nn.LayerNorm([5, 4])
        self.steep = nn.SimpleRNN(4, 3, num_layers=2, direction="bidirect")
        self.cell, self.cells = nn.RNN(nn.LSTMCell(4, 3)), nn.BiRNN(nn.GRUCell(4, 3), nn.GRUCell(4, 3))
        self.narrow = nn.LSTM(4, 3, proj_size=2)
        self.moved = paddle.to_tensor([[[0.8, 0.3, 0.1], [-0.2, 1.1, 0.0]]])
        self.eval()


def activations(self: Any, x: Any) -> Any:
    return [
        F.gelu(x, True), F.leaky_relu(x, 0.3), F.leaky_relu(x.astype("float64"), 1.5), F.hardtanh(x, -0.3, 0.6),
        F.celu(x, 2.0), F.softplus(x * 30), F.softplus(x, 2, 3), F.thresholded_relu(x, 0.2),
        F.thresholded_relu(x, 0.2, value=3.0), F.log_sigmoid(x * 30), F.hardsigmoid(x, 0.3, 0.4), F.elu(x, 0.3),
        F.prelu(x, self.each, data_format="NLC"), F.selu(x, 1.3, 1.4), F.softmax(x, 1, dtype="float64"),
    ]  # fmt: skip


def numbers(self: Any, x: Any) -> Any:
    whole = (x * 9).astype("int64")
    small, byte, half = whole.astype("int8") * 20, whole.abs().astype("uint8"), whole.astype("int32")
    return [
        paddle.round(x, 2), paddle.round(x * 100, -1), paddle.round(x.astype("float64"), 3),
        paddle.scale(x, 2.0, 1.0, bias_after_scale=False), paddle.scale(whole, 3, 1, bias_after_scale=False),
        paddle.scale(whole, 2.5, 1), paddle.scale(half, 2.9, 1.7), paddle.scale(small, 2), paddle.scale(byte, 3.0, 5.0),
        whole * (2**40 + 1) + 7, small * 7, paddle.dot(x[:, 0], x[:, 1]), paddle.dot(whole[:, 0], whole[:, 1]),
        paddle.addmm(paddle.ones([4, 4]), x[0].t(), x[0], 0.5, 2.0), paddle.lerp(x, x * 2, 0.3), paddle.trunc(x * 3),
        x.norm(3, 1, True), x.norm(), x.amin([0, 1]), paddle.mean(x, []), paddle.linspace(0, 1, x.shape[0]),
        F.sigmoid_focal_loss(x, (x > 0).astype("float32")), F.cross_entropy(x, whole[..., 0] % 4, ignore_index=2),
    ]  # fmt: skip


def places(self: Any, x: Any) -> Any:
    index = (x[..., :1] * 9).astype("int64").abs() % 4
    return [
        paddle.roll(x, 2), paddle.roll(x, 7, 1), paddle.roll(x, [1, -7], [1, 2]), paddle.roll(x, [1, 2], [1, 1]),
        paddle.roll(x, -3, 0), paddle.roll(x, 5, 1), paddle.topk(x, 2, 1, largest=False)[0], paddle.cumsum(x, 1),
        *[
            paddle.put_along_axis(x, index, x * 2 + 1, 2, reduce, broadcast=False)
            for reduce in ("assign", "add", "mul", "multiply", "amin", "amax")
        ],
        paddle.put_along_axis(x, index[:, :2], 9.0, 2, broadcast=False),
        paddle.repeat_interleave(x, 3, 1), paddle.repeat_interleave(x, paddle.to_tensor([1, 2, 0, 3]), 2),
        x.masked_fill(x > 0, -1.0), x[:, :1].expand_as(x), x.tile([2]), x.tile([2, 1, 1, 1]),
        x[0].tile([x.shape[0], 2, 1]), (x > 0).any(1), (x > 0).all([1, 2], True),
    ]  # fmt: skip


def norms(self: Any, x: Any) -> Any:
    image = x.transpose([0, 2, 1]).unsqueeze(-1)
    last, statistics = image.transpose([0, 2, 3, 1]), (self.each, self.spread, self.each, self.each)
    return [
        self.flat(x), F.layer_norm(x, [5, 4], self.table, None), F.layer_norm(x, [5, 4], epsilon=1e-4),
        F.layer_norm(x, 4, self.each, None), F.layer_norm(x.astype("float64"), 4), F.layer_norm(image, [5, 1]),
        F.group_norm(image, 2, 1e-5, self.each, self.each), F.group_norm(image, 2, 1e-5, self.each, None),
        F.group_norm(image, 2, 1e-5), F.group_norm(image, 2, 0.1, self.each, self.each),
        F.group_norm(last, 2, 1e-5, None, self.each, "NHWC"), F.group_norm(x, 2, 1e-5, data_format="NLC"),
        F.batch_norm(image, *statistics, epsilon=0.3), F.batch_norm(last, *statistics, data_format="NHWC"),
        F.batch_norm(x, *statistics, data_format="NLC"), F.instance_norm(image, eps=0.2),
        F.batch_norm(last.unsqueeze(1), *statistics, data_format="NDHWC"), F.normalize(x, 3, -1, 0.5),
        F.local_response_norm(last, 3, 0.1, 0.5, 2.0, data_format="NHWC"),
    ]  # fmt: skip


def convolutions(self: Any, x: Any) -> Any:
    last, row, solid = x.transpose([0, 2, 3, 1]), x[:, :, 0], x.unsqueeze(2)
    form, deep = {"data_format": "NHWC"}, solid.transpose([0, 2, 3, 4, 1])
    return [
        F.conv2d(last, self.kernel, self.bias, 2, "SAME", **form),
        F.conv2d(last, self.kernel, padding=[1, 0, 2, 1], dilation=[1, 2], **form),
        F.conv2d(last, self.split, padding=1, stride=[2, 1], groups=4, **form),
        F.conv2d(x, self.kernel, padding="SAME", dilation=2), F.conv2d(x, self.split, None, 2, "SAME", [1, 3], 4),
        F.conv2d(last, self.kernel, self.bias, 1, "SAME", 3, **form),
        F.conv1d(row.transpose([0, 2, 1]), self.row.transpose([1, 0, 2]), padding="SAME", data_format="NLC"),
        F.conv3d(deep, self.solid[:, :1].expand([-1, 4, -1, -1, -1]), padding=1, data_format="NDHWC"),
        F.conv2d_transpose(x, self.turned, self.bias, 2, 1, 1), F.conv2d_transpose(x, self.turned, None, 2, "SAME"),
        F.conv2d_transpose(x, self.turned, None, 3, "SAME"), F.conv2d_transpose(x, self.turned, None, 2, "VALID"),
        F.conv2d_transpose(x, self.turned, None, 2, output_size=[14, 16]),
        F.conv2d_transpose(x, self.turned, None, 2, [1, 0, 1, 2], output_size=[13, 13]),
        F.conv2d_transpose(last, self.turned, self.bias, 2, output_size=[14, 15], **form),
        F.conv2d_transpose(last, self.split, None, 2, groups=4, output_padding=1, **form),
        F.conv1d_transpose(row, self.row, None, 2, output_size=[16]),
        F.conv3d_transpose(deep, self.solid, None, 2, data_format="NDHWC"),
    ]  # fmt: skip


def windows(self: Any, x: Any) -> Any:
    last, form = x.transpose([0, 2, 3, 1]), {"data_format": "NHWC"}
    solid = x.unsqueeze(2).expand([-1, -1, 5, -1, -1])
    return [
        F.max_pool2d(last, 3, 2, 1, ceil_mode=True, **form), F.max_pool2d(last, 3, 2, "SAME", **form),
        F.avg_pool2d(last, 3, 2, 1, exclusive=False, **form), F.avg_pool2d(last, 3, 2, divisor_override=5, **form),
        F.avg_pool2d(x, 3, 1, "SAME", exclusive=False), F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, exclusive=False),
        F.adaptive_avg_pool2d(x, [3, 7]), F.adaptive_avg_pool2d(x, [4, 3]), F.adaptive_avg_pool2d(last, [4, 9], **form),
        F.adaptive_avg_pool2d(x, 1), F.adaptive_avg_pool2d(x, [None, 4]), F.adaptive_avg_pool1d(x[:, :, 0], 3),
        F.adaptive_max_pool2d(x, [4, 3]), F.adaptive_max_pool1d(x[:, :, 0], 3), F.adaptive_max_pool3d(solid, [3, 2, 4]),
        F.adaptive_avg_pool3d(solid, [3, 2, 4]), F.interpolate(x, [9, 10], mode="area"),
    ]  # fmt: skip


def resizing(self: Any, x: Any) -> Any:
    last, form = x.transpose([0, 2, 3, 1]), {"data_format": "NHWC"}
    solid = x.unsqueeze(2).transpose([0, 2, 3, 4, 1])
    return [
        *[F.interpolate(last, [9, 10], mode=mode, **form) for mode in ("nearest", "bilinear", "bicubic")],
        F.interpolate(last, scale_factor=1.7, mode="bilinear", align_corners=True, **form),
        F.interpolate(last, [3, 5], mode="bilinear", align_mode=1, **form),
        F.interpolate(x[:, :, 0].transpose([0, 2, 1]), [9], mode="linear", data_format="NWC"),
        F.interpolate(solid, [5, 7, 9], mode="trilinear", data_format="NDHWC"),
        F.pad(last, [1, 2, 3, 0], mode="reflect", **form), F.pad(last, [1, 2, 3, 0], value=2.0, **form),
        F.pixel_shuffle(last, 2, "NHWC"), F.pixel_shuffle(x, 2), F.temporal_shift(paddle.concat([x, x]), 2, 0.25),
        F.temporal_shift(paddle.concat([last, last]), 2, 0.25, **form), F.prelu(last, self.each, **form),
    ]  # fmt: skip


def recurrent(self: Any, x: Any) -> Any:
    deep, (hidden, cell) = self.deep(x)
    first = x[:, :1].mean(-1).transpose([1, 0]).unsqueeze(-1).expand([4, -1, 3])
    return [deep, hidden, cell, *self.both(x), *self.tall(x, first), self.deep(x)[1][0]]


def lengths(self: Any, x: Any) -> Any:
    """Recurrent layers, some of whose sequences end before others, or are empty; those without gates."""
    ends = paddle.to_tensor([4, 0, 5, 1])[: x.shape[0]]
    state = x[:, :1].mean(-1).transpose([1, 0]).unsqueeze(-1).expand([-1, -1, 3])
    wide = state.expand([4, -1, -1])
    deep, (hidden, cell) = self.deep(x, (state.expand([2, -1, -1]), state.expand([2, -1, -1]) * 2), ends)
    return [
        deep, hidden, cell, *self.both(x, wide[:2], ends), *self.tall(x, None, ends), *self.tall(x, wide, ends),
        *self.relu(x), *self.relu(x, state, ends), *self.steep(x), *self.steep(x, wide, ends), self.steep(x)[1] * 2,
    ]  # fmt: skip


def cells(self: Any, x: Any) -> Any:
    """Recurrent cells that the framework runs step by step, and a layer for which it has no kernel."""
    ends = paddle.to_tensor([4, 2, 5, 1])[: x.shape[0]]
    return flat([
        self.cell(x), self.cell(x, sequence_length=ends), self.cells(x), self.cells(x, sequence_length=ends),
        nn.RNN(self.cell.cell, is_reverse=True)(x), self.narrow(x),
    ])  # fmt: skip


def flat(results: Any) -> list[Any]:
    return [leaf for each in results for leaf in flat(each)] if isinstance(results, (list, tuple)) else [results]


def vision(self: Any, x: Any) -> Any:
    """Sampling between pixels, boxes that overlap."""
    image, places = x[:, :, :4].unsqueeze(1).tile([1, 3, 1, 1]), (x[:, :, :2] * 1.3).unsqueeze(1)
    corner = x[0, :, :2].abs()
    boxes = paddle.concat([corner, corner + x[0, :, 2:].abs() + 0.1], -1)
    turned = paddle.concat([boxes, boxes[:, [2, 3, 0, 1]], boxes[:, [2, 1, 0, 3]], boxes[:, [0, 1, 0, 1]]], 0)
    return [
        *[F.grid_sample(image, places, padding_mode=mode, align_corners=corners)
          for mode in ("zeros", "border", "reflection") for corners in (True, False)],
        F.grid_sample(image, F.affine_grid(self.moved, [1, 3, 6, 5]).expand([x.shape[0], 6, 5, 2])) + 1,
        *[paddle.vision.ops.nms(boxes, limit) for limit in (0.1, 0.5, 0.9)],
        boxes[paddle.vision.ops.nms(boxes, 0.3, x[0, :, 0])], paddle.vision.ops.nms(turned, 0.3),
    ]  # fmt: skip


def lacking(self: Any, x: Any) -> Any:
    """Operators that the converter does not have at all."""
    lengths, edges = paddle.to_tensor([2, 0, 5]), paddle.to_tensor([[0, 3, 3, 1], [2, 0, 2, 4]])
    table, rows = paddle.to_tensor([-0.5, 0.0, 0.0, 1.0]), x[0]
    odd = paddle.log(paddle.concat([table, 1 / x[:, 0, 0].abs()]) * math.inf)  # some infinities, some no numbers
    matrix = x[:, :2, :3]
    huge = paddle.to_tensor([[0.0, 1e30, 1e30, 1e-30], [1e30, 1e30, 1e-30, 1e-30]]) * x.sign().max()
    values, groups = paddle.concat([x.flatten(), odd, table]), paddle.to_tensor([0, 0, 1, 3, 3])
    return [
        F.sequence_mask(lengths), F.sequence_mask(lengths, 4, "float32"), F.sequence_mask(lengths, x.shape[1], "bool"),
        F.sequence_mask(lengths.reshape([3, 1]), paddle.max(lengths) + 1, "int32"),
        F.sequence_mask(lengths, -paddle.max(lengths)), F.sequence_mask(x[0].abs() * 3), F.sequence_mask(x[0] * 2, 3),
        paddle.bucketize(values, table), paddle.bucketize(values, table, right=True, out_int32=True),
        paddle.searchsorted(paddle.sort(x, -1), x * 2), paddle.searchsorted(edges[0].sort(), lengths),
        paddle.cumprod(x, 1), paddle.cumprod(x, -1), paddle.cumprod(x[:, :1], 1),
        paddle.cumprod((x * 3).astype("int64"), 1), paddle.cumprod(huge, 1), paddle.cumprod(huge.flip(1), 1),
        paddle.index_add(x, edges[0], 1, x[:, :4]), paddle.index_add(rows, edges[1], 0, rows[:4]),
        *[paddle.geometric.send_u_recv(rows, edges[0], edges[1], reduce) for reduce in ("sum", "mean")],
        paddle.geometric.send_u_recv(rows, edges[0], edges[1], "sum", 7),
        paddle.geometric.segment_sum(rows, groups), paddle.geometric.segment_mean(rows, groups),
        F.affine_grid(matrix[:1], [1, 3, 4, 5]), F.affine_grid(matrix[:1], [1, 3, 2, 6], align_corners=False),
        F.bilinear(x[:, 0], x[:, 1], self.cube),
        F.bilinear(x[:, 0], x[:, 1], self.cube, self.bias.unsqueeze(0)),
        F.pixel_unshuffle(x[:, :4].unsqueeze(1), 2), F.channel_shuffle(x.unsqueeze(1).tile([1, 6, 1, 1]), 3),
        paddle.incubate.nn.functional.fused_rms_norm(x, self.spread, None, 1e-6, begin_norm_axis=2)[0],
        paddle.incubate.nn.functional.fused_rms_norm(x, self.table, self.table, 1e-2, begin_norm_axis=1)[0],
    ]  # fmt: skip


def parts(self: Any, x: Any) -> Any:
    flat, twice = x.reshape([x.shape[0], -1]), paddle.concat([x, x])
    return [
        *flat.chunk(5, -1), *twice.chunk(2), *twice.unbind(2), *flat.split([3, -1], 1), *flat.split([-1, 4, 2], -1),
        *twice.split([1, -1], 0), *paddle.split(twice, [-1, 1]), *paddle.split(x, [0, 2, 3], 1),
        *paddle.split(twice, [0, -1]), *paddle.split(x, [0, -1, 3], 1), *x.split([2, 3], -2),
        *x.split([rows * columns for rows, columns in paddle.to_tensor([[1, 2], [3, 1]])], 1),
        x.unsqueeze([0, -1, -1]) * 2, x.unsqueeze([-1, 0]), x.unsqueeze([-2, -2]) + 1,
    ]  # fmt: skip


def scalars(self: Any, x: Any) -> Any:
    first, places = x.sum() * 0.0, paddle.arange(0, x.shape[0], dtype="float32")
    last = places[0] - places[-1] - 1
    return [
        paddle.arange(first + 3, last, -1, dtype="int64"), paddle.arange(places[0] + 5, last, -2.5, dtype="int64"),
        paddle.arange(first + 2.5), paddle.arange(0, first * 2 + 3, 1, dtype="int32"), x.sum() * 2 + 1,
        paddle.tile(x.sum(), [2, 3]), paddle.stack([x.sum() + 1, x.max() * 3 - 2]),
        paddle.scale(x.min(), 2.0, 1.0, bias_after_scale=False),
    ]  # fmt: skip


ROWS, IMAGE = (5, 4), (4, 6, 7)


@pytest.mark.parametrize(
    ("function", "shape"),
    [(activations, ROWS), (numbers, ROWS), (places, ROWS), (norms, ROWS), (convolutions, IMAGE), (windows, IMAGE),
     (resizing, IMAGE), (recurrent, ROWS), (lacking, ROWS),
     (lengths, ROWS), (cells, ROWS), (vision, ROWS), (parts, ROWS), (scalars, ROWS)],
    ids=lambda value: getattr(value, "__name__", ""),
)  # fmt: skip
def test_served_as_eagerly_without_verification(function: Callable[..., Any], shape: tuple[int, ...]) -> None:
    eager = MethodType(function, Weights())
    hot = inference(eager, verify="off", fallback="error")
    with paddle.no_grad():
        for seed, count in enumerate((2, 3, 1)):
            x = drawn(count, *shape, seed=seed)
            same(hot(x), eager(x), 2e-4)
    served(captures=2)


REFUSED: dict[str, Callable[[Any, Any], Any]] = {
    "order of its result open": lambda self, x: paddle.topk(x, 2, 1, sorted=False)[0],
    "takes probabilities": lambda self, x: F.cross_entropy(
        F.softmax(x), x[..., 0].astype("int64") * 0, use_softmax=False
    ),
    "leaves out an element": lambda self, x: paddle._C_ops.cumsum(x, 1, False, True, False),
    "another element type": lambda self, x: paddle.any(x, 1),
    "there are not as many": lambda self, x: F.avg_pool2d(x.unsqueeze(1), 2, 2, "SAME", exclusive=False),
    "tensor that is read again": lambda self, x: paddle.increment(x.sum(), 2.0) * 2,
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_cannot_be_spelled_out_is_left_to_eager(words: str) -> None:
    eager, x = MethodType(REFUSED[words], Weights()), drawn(2, 5, 4)
    hot = inference(eager, verify="off")
    with paddle.no_grad():
        for _ in range(2):
            same(hot(x), eager(x))
    eagerly(words, captures=counts()["captures"])


def test_a_shape_that_is_not_paddles_is_refused() -> None:
    make = onnx.helper.make_tensor_value_info
    given, made = make("x", onnx.TensorProto.FLOAT, [2, 5]), make("y", onnx.TensorProto.FLOAT, None)
    node = onnx.helper.make_node("Identity", ["x"], ["y"])
    model = onnx.helper.make_model(onnx.helper.make_graph([node], "graph", [given], [made]))
    _compare_shapes(model, [TensorSpec("float32", (2, None))])
    for wrong in (TensorSpec("float32", (2, 4)), TensorSpec("float32", (2,)), TensorSpec("complex64", (2, 5))):
        with pytest.raises(TraceError, match="makes a result of shape"):
            _compare_shapes(model, [wrong])


def test_elements_are_moved_by_computed_numbers() -> None:
    def method(x: Any, shift: Any) -> Any:
        return paddle.roll(x, shift, [0, 1]), paddle.roll(x, shift[0], 1), paddle.roll(x, shift[1])

    hot = inference(method, verify="off", fallback="error")
    for rows, shift in ((2, [1, 2]), (3, [-4, 17]), (5, [0, -1])):
        given = drawn(rows, 4), paddle.to_tensor(shift)
        same(hot(*given), method(*given))
    served(captures=2)


def test_regions_are_of_the_images_that_their_numbers_say() -> None:
    """The converter takes each to be of the first image, as it may be at the first call."""
    corner = paddle.rand([4, 2]) * 5
    regions, image = paddle.concat([corner, corner + 3.5], 1), drawn(2, 3, 9, 9)

    def aligned(x: Any, regions: Any, counts: Any) -> Any:
        other = paddle.vision.ops.roi_align(x, regions, counts, 3, 0.5, sampling_ratio=2, aligned=False)
        return paddle.vision.ops.roi_align(x, regions, counts, (2, 3)), other

    hot = inference(aligned, fallback="error")
    for of_first in (4, 2, 1, 0):
        given = paddle.to_tensor([of_first, 4 - of_first], "int32")
        same(hot(image, regions, given), aligned(image, regions, given), 2e-5)
    more = paddle.concat([regions, regions[:1]])
    counts_of = paddle.to_tensor([2, 1, 2], "int32")
    same(hot(drawn(3, 3, 9, 9), more, counts_of), aligned(drawn(3, 3, 9, 9), more, counts_of), 2e-5)
    served(captures=2)


def test_the_largest_of_regions() -> None:
    """Some of them beyond the image, of no size, or of corners between pixels."""

    def pooled(x: Any, regions: Any, counts: Any) -> Any:
        pool = paddle.vision.ops.roi_pool
        return pool(x, regions, counts, 3, 0.5), pool(x, regions, counts, (2, 3))

    hot = inference(pooled, verify="off", fallback="error", backend="onnxruntime")
    edges = paddle.to_tensor([[0.0, 0, 60, 60], [-5, -3, 2, 2], [5, 5, 5, 5], [2.5, 3.5, 8.5, 9.5]])
    for count in (4, 4, 6, 9):
        corner = paddle.rand([count - 4, 2]) * 5
        regions = paddle.concat([edges, paddle.concat([corner, corner + 3.5], 1)])
        given = drawn(2, 3, 9, 9), regions, paddle.to_tensor([1, count - 1], "int32")
        same(hot(*given), pooled(*given))
    served(captures=2)


def test_the_largest_of_regions_passes_by_what_is_no_number() -> None:
    def pooled(x: Any) -> Any:
        regions = paddle.to_tensor([[0.0, 0, 3, 3], [1, 1, 6, 7]])
        return paddle.vision.ops.roi_pool(x, regions, paddle.to_tensor([2], "int32"), 2)

    hot = inference(pooled, fallback="error", backend="onnxruntime")
    drawn_once = drawn(1, 2, 8, 8)
    hot(drawn_once)
    for value in (float("nan"), float("-inf"), float("inf"), -3e38):
        for at in range(0, 64, 3):
            x = drawn_once.clone()
            x[0, 0, at // 8, at % 8] = value
            same(hot(x), pooled(x))
        whole = paddle.full([1, 2, 8, 8], value)
        same(hot(whole), pooled(whole))
    assert counts()["eager_calls"] == 0


def test_adaptive_pooling_of_images_of_all_sizes() -> None:
    """A pyramid of pools, as segmentation puts one over what it found, whatever the size of the image."""

    def pyramid(x: Any) -> Any:
        last = x.transpose([0, 2, 3, 1])
        return [
            *[F.adaptive_avg_pool2d(x, bins) for bins in (1, 2, 3, [4, 1], [2, 6])], F.adaptive_max_pool2d(x, [2, 3]),
            F.adaptive_avg_pool2d(last, [3, 2], "NHWC"), F.adaptive_avg_pool1d(x[:, :, 0], 4),
        ]  # fmt: skip

    hot = inference(pyramid, verify="off", fallback="error")
    with paddle.no_grad():
        for height, width in ((6, 7), (9, 5), (12, 12), (6, 7), (13, 4), (2, 3), (17, 30)):
            x = drawn(2, 3, height, width)
            same(hot(x), pyramid(x), 2e-5)
    served(captures=2)


def test_axes_that_a_transposition_leaves_out_stay_where_they_are() -> None:
    @inference(verify="off", fallback="error")
    def turned(x: Any) -> Any:
        deep = x.reshape([2, 3, 1, -1, 2])
        return deep.transpose([2, 0, 1]), deep.transpose([1, 0]), deep.transpose([0, 4, 2, 3, -4])

    for n in (4, 6, 8):
        x = drawn(6, 2 * n)
        with paddle.no_grad():
            same(turned(x), turned.__hybrid_infer__.function(x))
    served(captures=2)


def test_vectors_of_one_element_are_stacked_to_a_matrix() -> None:
    """The pooled output of a text encoder: what stands at the last token of each text, for one text and for more."""

    def pooled(hidden: Any, tokens: Any) -> Any:
        last = tokens.argmax(-1, dtype="int32")
        rows = paddle.arange(hidden.shape[0], dtype="int32")
        both = [paddle.stack([last, last + 1], axis) for axis in (0, 1, -1, -2)]
        return hidden.gather_nd(paddle.stack([rows, last], axis=-1)), paddle.stack([last]), *both

    mine = inference(pooled, verify="off")
    with paddle.no_grad():
        for texts in (1, 1, 2, 3):
            given = drawn(texts, 7, 8), drawn(texts, 7, seed=texts)
            same(mine(*given), pooled(*given))
    served(captures=2)


def _marked(x: Any) -> Any:
    y = x * 2
    y[:, 0] = 1.0
    return y + 1, y


def test_elements_written_by_code_that_the_tracer_does_not_rewrite_are_left_to_eager() -> None:
    hot, x = inference(lambda x: _marked(x), verify="off"), drawn(2, 5)
    with paddle.no_grad():
        same(hot(x), _marked(x))
    eagerly("in place", "read again")
    hybrid_infer.reset_stats()
    hot = inference(_marked, verify="off", fallback="error")
    with paddle.no_grad():
        same(hot(x), _marked(x))
    served(captures=1)


@pytest.mark.parametrize("mode", ["wrap", "clip"])
def test_a_size_that_paddles_own_code_takes_for_a_number_is_fixed(mode: str) -> None:
    def taken(x: Any) -> Any:
        return paddle.take(x, paddle.to_tensor([-3, 50]), mode=mode)

    hot = inference(taken, verify="off", fallback="error")
    with paddle.no_grad():
        for count in (2, 3, 1, 3):
            same(hot(drawn(count, 5)), taken(drawn(count, 5)))
    served(captures=3)


def test_a_method_that_warns_is_captured() -> None:
    def warned(x: Any) -> Any:
        warnings.warn("an old form", stacklevel=1)
        return x * 2

    hot, x = inference(warned, verify="off", fallback="error"), drawn(2, 5)
    with paddle.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        same(hot(x), warned(x))
    served(captures=1)


class Started(nn.Layer):
    """Recurrent layers that are made ready anew at each call, from states whose batch is computed."""

    def __init__(self) -> None:
        super().__init__()
        self.gru, self.lstm = nn.GRU(4, 3, num_layers=2), nn.LSTM(4, 3, time_major=True)

    def forward(self, x: Any) -> Any:
        self.gru.flatten_parameters()
        zeros = paddle.zeros([2, paddle.shape(x)[0], 3])
        turned = x.transpose([1, 0, 2])
        return self.gru(x, zeros + 0.5), self.lstm(turned, (zeros[:1], zeros[1:] - 0.5))


def test_recurrent_layers_that_start_from_states_of_a_computed_batch() -> None:
    layer = Started()
    layer.eval()
    hot = inference(Started.forward.__get__(layer), fallback="error")
    with paddle.no_grad():
        for batch, length in ((2, 5), (2, 5), (3, 5), (4, 7), (1, 5)):
            x = paddle.randn([batch, length, 4])
            same(hot(x), Started.forward(layer, x))
    assert counts()["eager_calls"] == 0
