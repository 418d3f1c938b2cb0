"""What the tests of the choice among engines share: figures, and an engine whose results are spoiled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_support import Block

from hybrid_infer import _choice, _others, _provisional, backends
from hybrid_infer.checks import _agreement

X = torch.linspace(-1, 1, 8).reshape(2, 4)


def decided(
    monkeypatch: pytest.MonkeyPatch, *, steady: bool = True, crowded: bool = False, **seconds: float
) -> list[int]:
    """Figures that a measurement shall give; returns a list that grows by one at each.

    `crowded`: do others want the cores at the time of the calls?
    """
    times: list[int] = []
    monkeypatch.setattr(_others, "crowded", lambda: crowded)

    def measure(work: Callable[[], Any], runs: Mapping[str, Callable[[], Any]]) -> _choice.Figures:
        work()
        for run in runs.values():
            run()
        times.append(1)
        return _choice.Figures({name: seconds.get(name, 99.0) for name in ("eager", *runs)}, steady)

    monkeypatch.setattr(_choice, "measure", measure)
    return times


def undecided(store: Path) -> None:
    """Of the choices that were kept for a while, none is left."""
    for note in store.rglob(_provisional._NOTE):
        note.unlink()


def spoil(monkeypatch: pytest.MonkeyPatch, spoiled: Callable[[Any], Any], name: str = "openvino") -> list[int]:
    """What an engine computes goes through `spoiled`; returns a list that grows by one at each program of it."""
    if name == "openvino":
        pytest.importorskip("openvino")
    engine = type(backends.engine(name))
    load = engine.load
    loads: list[int] = []

    def loaded(*args: Any) -> Any:
        loads.append(1)
        program = load(*args)
        run = program.run
        program.run = lambda arrays: spoiled(run(arrays))
        return program

    monkeypatch.setattr(engine, "load", loaded)
    return loads


def comparisons(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A list that grows by the name of the engine at each comparison with the eager method."""
    found: list[str] = []
    real = _agreement.check

    def check(frontend: Any, route: Any, *args: Any) -> None:
        found.append(route.program.engine)
        real(frontend, route, *args)

    monkeypatch.setattr(_agreement, "check", check)
    return found


def routes(layer: Any) -> list[Any]:
    return list(type(layer).forward.__hybrid_infer__.states[id(layer)][1].routes.values())


class Affine(Block):
    """What OpenVINO computes as the eager method does, NaNs and infinities included."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x)
