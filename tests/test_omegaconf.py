"""Configurations of OmegaConf, as Hydra gives them: entries that are read count one by one, by what they resolve to."""

from __future__ import annotations

import gc
import os
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support import counts, counts_of_what_is_read, layer_class

from hybrid_infer import inference
from hybrid_infer.state import _omegaconf

omegaconf = pytest.importorskip("omegaconf", reason="is about configurations of omegaconf")
OmegaConf = omegaconf.OmegaConf
STATE = {"number": 2.0}


@pytest.fixture(autouse=True)
def resolvers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("OF_A_CONFIGURATION", "2.5")
    STATE["number"] = 2.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of one name in some releases, and of the other one in others
        OmegaConf.register_new_resolver("twice", lambda value: value * 2)
        OmegaConf.register_new_resolver("state", lambda: STATE["number"])
    yield
    for name in ("twice", "state"):
        OmegaConf.clear_resolver(name)


def made(**more: Any) -> Any:
    return OmegaConf.create(
        {
            "scale": 2.0, "out": "/here", "model": {"eps": 1.0, "up": "${scale}"}, "layers": [1, 2, {"dim": 3}],
            "same": "${scale}", "deep": "${model.eps}", "part": "${model}", "twice": "${twice:${scale}}",
            "state": "${state:}", "variable": "${oc.decode:${oc.env:OF_A_CONFIGURATION}}", **more,
        }
    )  # fmt: skip


def model() -> Any:
    return made().model


def put(name: str, value: Any) -> Callable[[Any], None]:
    return lambda held: OmegaConf.update(held, name, value, force_add=True)


def above(name: str, value: Any) -> Callable[[Any], None]:
    return lambda held: OmegaConf.update(held._get_root(), name, value, force_add=True)


def variable(held: Any) -> None:
    os.environ["OF_A_CONFIGURATION"] = "3.5"


def raised(held: Any, name: str) -> float:
    try:
        return float(held[name])
    except Exception as fault:
        return float(len(type(fault).__name__))


def struct(held: Any) -> None:
    OmegaConf.set_struct(held, True)


def opened(held: Any) -> Any:
    with omegaconf.open_dict(held):
        return held.get("more", 1.0) + held.scale


#: What makes one, what reads it, what changes it, and how often it is captured then.
WAYS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any], Callable[[Any], Any], int]] = {
    "attribute": (made, lambda held: held.scale, put("scale", 3.0), 2),
    "another": (made, lambda held: held.scale, put("out", "/there"), 1),
    "item": (made, lambda held: held["scale"], put("scale", 3.0), 2),
    "nested": (made, lambda held: held.model.eps, put("model.eps", 3.0), 2),
    "another nested": (made, lambda held: held.model.eps, put("model.more", 3.0), 1),
    "nested replaced": (made, lambda held: held.model.eps, put("model", {"eps": 3.0}), 2),
    "reference": (made, lambda held: held.same, put("scale", 3.0), 2),
    "another than is referred to": (made, lambda held: held.same, put("out", "/there"), 1),
    "reference to a nested one": (made, lambda held: held.deep, put("model.eps", 3.0), 2),
    "reference to a part": (made, lambda held: held.part.eps, put("model.eps", 3.0), 2),
    "reference replaced": (made, lambda held: held.same, put("same", 3.0), 2),
    "resolver": (made, lambda held: held.twice, put("scale", 3.0), 2),
    "resolver of another thing": (made, lambda held: held.state, lambda held: STATE.update(number=3.0), 2),
    "environment": (made, lambda held: held.variable, variable, 2),
    "default": (made, lambda held: held.get("more", 1.0), put("more", 3.0), 2),
    "default beside another": (made, lambda held: held.get("more", 1.0), put("out", "/there"), 1),
    "in": (made, lambda held: float("more" in held), put("more", 3.0), 2),
    "in, deleted": (made, lambda held: float("out" in held), lambda held: held.pop("out"), 2),
    "hasattr": (made, lambda held: float(hasattr(held, "more")), put("more", 3.0), 2),
    "not given": (lambda: made(more="???"), lambda held: raised(held, "more"), put("more", 3.0), 2),
    "element": (made, lambda held: held.layers[0], put("layers.0", 5), 2),
    "iterated": (made, lambda held: sum(1 for _ in held.layers), lambda held: held.layers.append(4), 2),
    "in a list": (made, lambda held: held.layers[2].dim, put("layers.2.dim", 5), 2),
    "beside a list": (made, lambda held: held.layers[0], put("out", "/there"), 1),
    "length": (made, len, put("more", 3.0), 2),
    "keys": (made, lambda held: len([*held]), put("more", 3.0), 2),
    "values": (made, lambda held: next(iter(held.values())), put("scale", 3.0), 2),
    "converted": (made, lambda held: OmegaConf.to_container(held)["model"]["eps"], put("model.eps", 3.0), 2),
    "resolved": (model, lambda held: OmegaConf.to_container(held, resolve=True)["up"], above("scale", 3.0), 2),
    "beside what is resolved": (model, lambda held: len(OmegaConf.to_yaml(held)), above("out", "/there"), 1),
    "selected": (made, lambda held: OmegaConf.select(held, "model.eps"), put("model.eps", 3.0), 2),
    "flag": (made, lambda held: float(OmegaConf.is_struct(held.model) or 0), struct, 2),
    "flag set for a while": (made, opened, put("scale", 3.0), 2),
    "part": (model, lambda held: held.eps, put("eps", 3.0), 2),
    "above a part": (model, lambda held: held.eps, above("scale", 3.0), 1),
    "reference from a part": (model, lambda held: held.up, above("scale", 3.0), 2),
    "root": (model, lambda held: held._get_root().scale, above("scale", 3.0), 2),
    "another root": (model, lambda held: held.up, lambda held: held._set_parent(made(scale=3.0)), 2),
    "equal": (made, lambda held: float(held == made()), put("scale", 3.0), 2),
    "merged": (made, lambda held: OmegaConf.merge(held, {"more": 1}).scale, put("scale", 3.0), 2),
    "copied": (made, lambda held: held.copy().scale, put("scale", 3.0), 2),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_what_is_read_of_a_configuration_counts(framework: Any, way: str) -> None:
    *case, captures = WAYS[way]
    found = counts_of_what_is_read(framework, *case)
    assert found["captures"] == captures and found["hits"] >= 2 and not found["fallbacks"], found


def test_what_the_method_writes_is_no_secret(framework: Any) -> None:
    class Layer(layer_class(framework)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.held = made()

        def forward(self, x: Any) -> Any:
            self.held.scale += 1.0
            return x * self.held.scale

    layer, x = Layer(), framework.ones([2, 3])
    hot = inference(layer, verify="off")
    with framework.no_grad():
        assert [float(hot(x).numpy()[0, 0]) for _ in range(3)] == [3.0, 4.0, 5.0]
    assert counts()["hits"] == 0


def test_what_is_resolved_at_each_call_keeps_no_layer(framework: Any) -> None:
    class Layer(layer_class(framework)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.held = made()

        def forward(self, x: Any) -> Any:
            return x * self.held.twice * self.held.part.up

    layer = Layer()
    hot = inference(layer, verify="off")
    with framework.no_grad():
        for _ in range(3):
            hot(framework.ones([2, 3]))
    assert counts()["hits"] == 3
    gone = weakref.ref(layer)
    del hot, layer
    gc.collect()
    assert gone() is None


def test_copies_leave_the_program_s_own_alone() -> None:
    """The library's own way takes a configuration apart while it copies it, and leaves a part's copy where it was."""
    held = made()
    memo: dict[int, Any] = {}
    _omegaconf.put_in(memo, [held.model], lambda value: True)
    copied, root = memo[id(held.model)], memo[id(held)]
    assert type(copied) is not type(held) and copied.__class__ is type(held)
    assert copied._get_root() is root is not held and held.model._get_root() is held
    copied.eps = 7.0
    assert copied.eps == 7.0 and held.model.eps == 1.0 and copied.up == 2.0


@pytest.mark.parametrize(("name", "changed"), [("scale", True), ("same", True), ("out", False), ("__dict__", True)])
def test_a_change_while_it_is_traced_is_seen(name: str, changed: bool) -> None:
    class Census:
        def __init__(self, held: Any) -> None:
            self.objects, self.paths = {("self", "held"): held}, {id(held): ("self", "held")}

    held = made()
    memo: dict[int, Any] = {}
    _omegaconf.put_in(memo, [held], lambda value: True)
    names = {("self", "held"): {name}}
    assert not [*_omegaconf.moved(names, Census(held), Census(memo[id(held)]))]
    held.scale = 3.0
    found = [*_omegaconf.moved(names, Census(held), Census(memo[id(held)]))]
    assert found == ([f"self.held.{name}"] if changed else [])
