"""Normalisations in training, which write to the statistics that they are given: they run eagerly."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from support import SERVED, answered
from torch_support import eagerly, same

from hybrid_infer import inference

F = torch.nn.functional


def own(x: Any, mean: Any, spread: Any) -> Any:
    mean, spread = mean + 1, spread * 2
    return F.batch_norm(x, mean, spread, training=True), mean, spread


def own_of_each(x: Any, mean: Any, spread: Any) -> Any:
    mean, spread = mean + 1, spread * 2
    return F.instance_norm(x, mean, spread), mean, spread


METHODS: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "of the batch": (lambda x, m, v: F.batch_norm(x, m, v, training=True, momentum=0.5), ("argument `m`", "`v`")),
    "of each": (lambda x, m, v: F.instance_norm(x, m, v, momentum=0.5), ("argument `m` in place",)),
    "of their own": (own, ("statistics that it makes",)),
    "of their own of each": (own_of_each, ("statistics that it makes",)),
    "none": (lambda x, m, v: F.batch_norm(x, None, None, m, v, training=True) + F.instance_norm(x), SERVED),
    "not in training": (lambda x, m, v: F.batch_norm(x, m, v) + F.instance_norm(x, m, v, None, None, False), SERVED),
}


@pytest.mark.parametrize("name", METHODS)
def test_statistics_that_are_arguments(name: str) -> None:
    method, words = METHODS[name]
    hot = inference(method, backend="onnxruntime", verify="off")
    torch.manual_seed(5)
    mine = torch.randn(4), torch.rand(4)
    eager = copy.deepcopy(mine)
    for _ in range(2):
        x = torch.randn(5, 4, 6)
        with torch.no_grad():
            same(hot(x, *mine), method(x, *eager))
        same(mine, eager)
    answered(words, calls=2)


def test_a_layer_that_keeps_statistics_of_each() -> None:
    eager = torch.nn.InstanceNorm1d(4, track_running_stats=True)
    mine = inference(copy.deepcopy(eager))
    for _ in range(2):
        x = torch.randn(5, 4, 6)
        with torch.no_grad():
            same(mine(x), eager(x))
        same(mine.running_mean, eager.running_mean)
    eagerly("self.running_mean in place")
