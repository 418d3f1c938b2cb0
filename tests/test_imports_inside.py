"""Modules that a method imports as it runs: one that takes the place of another is looked at anew."""

from __future__ import annotations

import sys
import types
from typing import Any

import numpy as np
import pytest

from hybrid_infer import inference, stats


def put(scale: int) -> None:
    module = types.ModuleType("imported_inside")
    module.scale = scale  # type: ignore[attr-defined]
    sys.modules[module.__name__] = module


@pytest.mark.parametrize("verify", ["build", "off"])
@pytest.mark.parametrize("form", ["module", "name"])
def test_a_module_takes_the_place_of_another(
    framework: Any, form: str, verify: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "imported_inside", types.ModuleType("imported_inside"))

    def by_module(x: Any) -> Any:
        import imported_inside

        return x * imported_inside.scale

    def by_name(x: Any) -> Any:
        from imported_inside import scale

        return x * scale

    put(2)
    hot = inference(by_module if form == "module" else by_name, verify=verify)
    for scale in (2, 5, 2, 7):
        put(scale)
        for _ in range(2):
            np.testing.assert_allclose(hot(framework.ones([2])).numpy(), [scale, scale])
    sys.modules["imported_inside"].scale = 9  # type: ignore[attr-defined]
    np.testing.assert_allclose(hot(framework.ones([2])).numpy(), [9, 9])
    assert sum(found["hits"] for found in stats().values()) >= 2
