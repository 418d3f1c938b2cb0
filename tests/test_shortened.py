"""What the command line shows of a large model fits on a screen; `--all` shows the whole."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from test_cli import KEY, SECOND, VERSION, put

from hybrid_infer import _differences, _frontends, cli
from hybrid_infer._keys import digest
from hybrid_infer._types import TensorSpec
from hybrid_infer._version import Weight
from hybrid_infer.cache import Store
from hybrid_infer.reports import _shortened
from hybrid_infer.state._attributes import Read
from hybrid_infer.state._census import take
from hybrid_infer.state._values import Values

WEIGHTS = tuple(Weight(f"self.{n}.weight", (f"self.{n}.weight",), "float32", (8, 8)) for n in range(300))
READS = tuple(
    Read(("self", str(n)), name, "value", digest(value))
    for n in range(300)
    for name, value in (("scale", 0.25), ("heads", 4 + n % 2), ("rank", n))
)
BLOCKS = tuple(Read(("self",), str(n), "layer", f"app:Block self.{n}") for n in range(300))
MANY: dict[str, Any] = {"weights": WEIGHTS, "reads": READS + BLOCKS}
CODE = [[f"code function app.f{n}", "cc" * 16] for n in range(60)]


@pytest.fixture
def cache(cache_directory: Any) -> Store:
    return Store(cache_directory, sync=False)


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert cli.main(["cache", *arguments]) == 0
    return capsys.readouterr().out


def test_a_large_model_fits_on_a_screen(capsys: pytest.CaptureFixture[str], cache: Store) -> None:
    key = put(cache, key=[*KEY, *CODE], **MANY)
    out = shown(capsys, "show", key)
    assert len(out.splitlines()) <= 24
    assert "300 weights" in out and "self.0.weight" in out and "and 297 more" in out
    assert "1200 attributes" in out and "scale 0.25, heads 4 or 5, rank (300 values)" in out
    assert out.endswith("1505 guards and 63 ingredients of its method key: `--all` shows each\n")
    whole = shown(capsys, "show", key, "--all")
    assert len(whole.splitlines()) > 1505 + 63 and "code function app.f59" in whole and "--all" not in whole


def test_many_tensors_that_are_alike_are_one_row() -> None:
    rows = [[f"tensor cache[{n}]", "float32 (1, any, 64)"] for n in range(48)]
    assert _shortened.guards(rows) == [["48 tensors", "48x float32 (1, any, 64)"]]


def test_what_differs_in_many_places_is_shown_in_a_few(capsys: pytest.CaptureFixture[str], cache: Store) -> None:
    first = put(cache, **MANY)
    smaller = tuple(dataclasses.replace(w, shape=(4, 4)) for w in WEIGHTS)
    second = put(cache, SECOND, weights=smaller, reads=MANY["reads"])
    out = shown(capsys, "why", first, second)
    assert out.count("(8, 8)") == 6 and "and 294 more: weight" in out and "`--all` shows everything" in out
    assert shown(capsys, "why", first, second, "--all").count("(8, 8)") == 300


def test_guards_of_two_methods_are_compared_only_where_that_is_asked_for(
    capsys: pytest.CaptureFixture[str], cache: Store
) -> None:
    first = put(cache)
    given = (TensorSpec("float32", (3, 8)),)
    second = put(cache, SECOND, [["weights", "bd" * 16]], name="app.Layer.encode", tensors=given)
    assert "float32 (3, 8)" not in shown(capsys, "why", first, second)
    assert "float32 (3, 8)" in shown(capsys, "why", first, second, "--all")


@pytest.mark.parametrize("value", [3.5, 0.75, 1e-5, "zeros", 768, (1, 1), [2, 2], (64,), [320], ()])
def test_values_that_attributes_have_often_are_told(framework: Any, value: Any) -> None:
    layer = framework.nn.Linear(2, 2)
    frontend = _frontends.of(layer)
    layer.told = value
    read = Read(("self",), "told", "value", Values(frontend).describe(value, "told", take({"self": layer}, frontend)))
    of_class = read._replace(kind="class")
    told = [_differences.guards(dataclasses.replace(VERSION, reads=(each,))) for each in (read, of_class)]
    assert [each["attribute self.told"] for each in told] == [repr(value), f"{value!r} (of its class)"]


def test_a_digest_is_no_value() -> None:
    rows = [[f"attribute self.{n}.{name}", text] for n in range(4) for name, text in (("kind", "class 0a1b2c3d4e5f"),
            ("mode", "value 0a1b2c3d4e5f"), ("rank", "2 (of its class)"))]  # fmt: skip
    assert _shortened.guards(rows) == [["12 attributes", "values among them: kind, mode, rank 2 (of its class)"]]
