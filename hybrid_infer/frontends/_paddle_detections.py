"""Detections: boxes by their differences from others, and the choice among overlapping ones, of which paddle2onnx has
one form, and that of one image alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hybrid_infer._errors import TraceError
from hybrid_infer.frontends._paddle_terms import number

_NONE = -1e30
_SMALL = 1e-15  # whose square is no denormal number
_ANY_OVERLAP = 1e-35  # to OpenVINO, an overlap of the threshold is one too
_ANY_NUMBER = 2**31 - 1


def _multiclass_nms(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """Of each image by itself, whose boxes are counted on from those before.

    ``nms_top_k`` limits the boxes of a class that are compared; to the converter, those that are left. The converter
    leaves out no class where ``background_label`` is the first, and no box where there is no limit; it mixes classes up
    where the number of boxes varies.
    """
    import paddle

    boxes, scores, counts = inputs
    images, top, background = scores.shape[0], attributes["nms_top_k"], attributes["background_label"]
    if counts.initialized() or len(scores.shape) != 3 or boxes.shape[-1] != 4:
        raise TraceError(f"{op.name()} of boxes with a number for each image, or with other than four corners")
    count = boxes.shape[1]
    if min(*boxes.shape, *scores.shape) < 0:
        raise TraceError(f"{op.name()} of a number of images, or of boxes, that varies")
    if attributes["nms_eta"] < 1 or top == 0:
        raise TraceError(f"{op.name()} with a threshold that changes (nms_eta), or of no box at all (nms_top_k)")
    threshold, keep, overlap = (attributes[name] for name in ("score_threshold", "keep_top_k", "nms_threshold"))
    if keep == 0 or not threshold > _NONE or not 0 <= overlap <= 1:
        raise TraceError(f"{op.name()} of no box at all (keep_top_k), or with a threshold that leaves nothing out")
    lowest = paddle.full([], _NONE, scores.dtype)
    if 0 <= background < scores.shape[1]:
        classes = paddle.reshape(paddle.arange(scores.shape[1]), [1, -1, 1])
        scores = paddle.where(classes == background, lowest, scores)
    if 0 < top < count:
        scores = paddle.where(_best(scores, top), scores, lowest)
    settings = (threshold, _ANY_NUMBER, max(keep, -1), overlap, attributes["normalized"], 1.0, -1)
    each = []
    for place in range(images):
        these, their = (paddle.slice(value, [0], [place], [place + 1]) for value in (boxes, scores))
        if attributes["normalized"]:
            their = _without_flat(these, their, threshold)
        found, places, number = paddle._C_ops.multiclass_nms3(these, their, None, *settings)
        each.append((found, places + count * place, number))
    made = [values[0] if images == 1 else paddle.concat(list(values), 0) for values in zip(*each, strict=True)]
    for old, value in zip(op.results()[1:], made[1:], strict=True):
        old.replace_all_uses_with(value)
    return made[0]


def _best(scores: Any, top: int) -> Any:
    """Which are the best along the last axis: of equal ones those that come first, whichever an engine's topk takes."""
    import paddle

    last = paddle.topk(scores, top, axis=-1)[0][:, :, -1:]
    better, equal = scores > last, scores == last
    left = top - paddle.sum(paddle.cast(better, "int64"), axis=-1, keepdim=True)
    return paddle.logical_or(
        better, paddle.logical_and(equal, paddle.cumsum(paddle.cast(equal, "int64"), axis=-1) <= left)
    )


def _without_flat(boxes: Any, scores: Any, threshold: float) -> Any:
    """Scores of the boxes of one image, the lowest for those without area that meet a better one without area.

    Of two such boxes eager divides nothing by nothing, and takes that for an overlap; engines take it for none.
    """
    import paddle

    low, high = paddle.split(boxes, 2, axis=-1)
    flat = paddle.logical_and(paddle.any(low == high, axis=-1), paddle.all(low <= high, axis=-1))
    flat = paddle.unsqueeze(flat, 1)
    return paddle.static.nn.cond(
        paddle.any(flat), lambda: _of_flat(low, high, flat, scores, threshold), lambda: paddle.assign(scores)
    )


def _of_flat(low: Any, high: Any, flat: Any, scores: Any, threshold: float) -> Any:
    """The same, where there are such boxes.

    With any other box they have an overlap of 0, so that the choice among them is one by itself: of boxes that are as
    much larger as lets them overlap where they met.
    """
    import paddle

    _, classes, count = scores.shape
    lowest = paddle.full([], _NONE, scores.dtype)
    wide = paddle.concat([low, high + paddle.clip(paddle.abs(high) * 2.0**-23, min=_SMALL)], -1)
    settings = (threshold, _ANY_NUMBER, -1, _ANY_OVERLAP, True, 1.0, -1)
    found, places, _ = paddle._C_ops.multiclass_nms3(wide, paddle.where(flat, scores, lowest), None, *settings)
    index = paddle.cast(found[:, :1], "int64") * count + paddle.cast(places, "int64")
    kept = paddle.zeros([classes * count], scores.dtype)
    kept = paddle.scatter_nd_add(kept, index, paddle.ones_like(found[:, 0]))
    gone = paddle.logical_and(flat, paddle.reshape(kept, [1, classes, count]) == 0)
    return paddle.where(gone, lowest, scores)


def _box_coder(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """Boxes as the difference of middles and the logarithm of sizes from those of others, and back.

    S. Ren et al., Faster R-CNN: Towards Real-Time Object Detection with Region Proposal Networks, 2015.
    """
    import paddle

    prior, spread, target = inputs
    decodes, axis = attributes["code_type"] == "decode_center_size", attributes["axis"]
    more = 0.0 if attributes["box_normalized"] else 1.0  # a box of whole pixels holds its last one
    across, down, width, height = (_of_prior(each, decodes, axis) for each in _middles(prior, more))
    if spread.initialized():
        spreads = [_of_prior(each, decodes, axis) for each in _columns(spread)]
    else:
        spreads = [number(each, prior) for each in list(attributes["variance"]) or [1.0] * 4]
    if not decodes:
        x, y, wide, high = (paddle.unsqueeze(each, 1) for each in _middles(target, more, ends=True))
        found = [(x - across) / width, (y - down) / height]
        found += [paddle.log(paddle.abs(each)) for each in (wide / width, high / height)]
        return paddle.stack([each / by for each, by in zip(found, spreads, strict=True)], -1)
    moved = [each * by for each, by in zip(_columns(target), spreads, strict=True)]
    two, end = number(2.0, prior), number(more, prior)
    x, y = moved[0] * width + across, moved[1] * height + down
    wide, high = paddle.exp(moved[2]) * width / two, paddle.exp(moved[3]) * height / two
    return paddle.stack([x - wide, y - high, x + wide - end, y + high - end], -1)


def _columns(boxes: Any) -> list[Any]:
    import paddle

    return [paddle.squeeze(each, [-1]) for each in paddle.split(boxes, 4, -1)]


def _middles(boxes: Any, more: float, ends: bool = False) -> tuple[Any, Any, Any, Any]:
    """The middle, width and height of each box; the middle between its ends where that is asked for."""
    left, top, right, bottom = _columns(boxes)
    two, end = number(2.0, boxes), number(more, boxes)
    width, height = right - left + end, bottom - top + end
    if ends:
        return (right + left) / two, (bottom + top) / two, width, height
    return left + width / two, top + height / two, width, height


def _of_prior(value: Any, decodes: bool, axis: int) -> Any:
    import paddle

    return paddle.unsqueeze(value, 1 if decodes and axis == 1 else 0)


RULES: dict[str, Callable[[Any, list[Any], dict[str, Any]], Any]] = {
    "multiclass_nms3": _multiclass_nms,
    "box_coder": _box_coder,
}
