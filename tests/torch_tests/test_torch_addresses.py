"""Where objects lie in memory: served where that only tells them apart for the time of the call, else not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch_support import eagerly, served

from hybrid_infer import inference

pytestmark = pytest.mark.torch

ONE, OTHER = {"scale": 2.0}, {"scale": 3.0}
ADDRESSES = {1, 2}


def once_each(x: Any) -> Any:
    seen = set()
    for each in (ONE, OTHER, ONE):
        if id(each) in seen:
            continue
        seen.add(id(each))
        x = x * 2
    return x


def kept_by_address(x: Any) -> Any:
    known = {}
    for each in (ONE, OTHER, ONE):
        place = id(each)
        if place not in known:
            known[place] = x
            x = x + known[id(each)]
    return x


def the_same(x: Any) -> Any:
    one, other = ONE, ONE
    return x * 4 if id(one) == id(other) else x


@pytest.mark.parametrize("function", [once_each, kept_by_address, the_same])
def test_addresses_that_only_tell_objects_apart_are_served(function: Callable[[Any], Any]) -> None:
    hot, x = inference(function, verify="off"), torch.ones([2])
    for _ in range(2):
        assert hot(x).numpy().tolist() == [4.0, 4.0]
    served(1)


def summed_up(x: Any) -> Any:
    seen = set()
    seen.add(id(ONE))
    return x * (sum(seen) % 7)


def last_key(x: Any) -> Any:
    known = {}
    known[id(ONE)] = 1
    for each in known:
        x = x * (each % 7)
    return x


def compared_by_size(x: Any) -> Any:
    return x * 2 if id(ONE) < id(OTHER) else x


def told_elsewhere(x: Any) -> Any:
    place = id(ONE)
    return x * (place % 7) if place != 0 else x


def in_another_s_set(x: Any) -> Any:
    seen = ADDRESSES
    return x * 2 if id(ONE) in seen else x


def value_of_a_key(x: Any) -> Any:
    known = {}
    known["held"] = id(ONE)
    return x * (known["held"] % 7)


@pytest.mark.parametrize(
    "function", [summed_up, last_key, compared_by_size, told_elsewhere, in_another_s_set, value_of_a_key]
)
def test_addresses_that_decide_more_are_not(function: Callable[[Any], Any]) -> None:
    hot = inference(function, verify="off")
    for _ in range(2):
        hot(torch.ones([2]))
    eagerly("where an object lies")
