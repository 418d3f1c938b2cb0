"""What names a plan: every ingredient, both ways."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from double import World

from hybrid_infer._types import EngineOptions
from hybrid_infer.backends import engine
from hybrid_infer.backends._cuda._driver import Gpu
from hybrid_infer.backends.tensorrt import _keys, _profiles

GPU = Gpu("NVIDIA Example", 9, 0)
PROFILE = _profiles.hull([((1, 4),)], ((8, 4),))
USUAL: dict[str, Any] = {
    "version": "11.4.0.106", "gpu": GPU, "options": EngineOptions(device="cuda:0"), "profile": PROFILE,
}  # fmt: skip


def name(**changes: Any) -> str:
    return _keys.name(**{**USUAL, **changes})


def told(**changes: Any) -> EngineOptions:
    return replace(USUAL["options"], **changes)


CHANGE: dict[str, Callable[[], dict[str, Any]]] = {
    "TensorRT's version": lambda: {"version": "11.4.0.107"},
    "the GPU's name": lambda: {"gpu": GPU._replace(name="NVIDIA Other")},
    "its capability": lambda: {"gpu": GPU._replace(minor=1)},
    "precision": lambda: {"options": told(precision="float16")},
    "the builder's level": lambda: {"options": told(optimise=False)},
    "detailed names": lambda: {"options": told(extra={"debug": True})},
    "weights that are fed": lambda: {"options": told(live=True)},
    "the range": lambda: {"profile": _profiles.hull([((1, 4),)], ((9, 4),))},
    "no range": lambda: {"profile": None},
}

SAME: dict[str, Callable[[], dict[str, Any]]] = {
    "nothing": dict,
    "the number of the GPU": lambda: {"options": told(device="cuda:1")},
    "threads": lambda: {"options": told(threads=7)},
    "the framework": lambda: {"options": told(framework="paddle")},
    "the hand-over of cores": lambda: {"options": told(handover=False)},
    "where timings and progress go": lambda: {"options": told(extra={"timing": object(), "progress": print})},
    "the pool's size": lambda: {"options": told(extra={"memory_pool_init_size_mb": 7})},
    "a range of equal sizes": lambda: {"profile": _profiles.from_json(_profiles.to_json(PROFILE))},
}


@pytest.mark.parametrize("what", CHANGE)
def test_a_change_that_makes_another_plan(what: str) -> None:
    assert name(**CHANGE[what]()) != name()


@pytest.mark.parametrize("what", SAME)
def test_a_change_that_does_not(what: str) -> None:
    assert name(**SAME[what]()) == name()


def test_the_format_moves_with_what_the_engine_makes(monkeypatch: pytest.MonkeyPatch) -> None:
    before = name()
    monkeypatch.setattr(_keys, "FORMAT", _keys.FORMAT + 1)
    assert name() != before


def test_every_setting_of_the_builder_is_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    before = name()
    settings = _keys.builder_settings(USUAL["options"])
    for each in settings:
        monkeypatch.setattr(_keys, "builder_settings", lambda options, each=each: {**settings, each: "other"})
        assert name() != before, each


def test_a_name_says_what_it_is_of_and_is_a_name_of_a_file(world: World) -> None:
    found = engine("tensorrt").plan_key(replace(USUAL["options"], extra={"profile": PROFILE}))
    assert re.fullmatch(r"tensorrt-11\.4\.0\.106-float32-[0-9a-f]{32}", found)
