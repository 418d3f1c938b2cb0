"""What the engine uses of TensorRT is there, in every release that it serves: held against the real bindings.

Nothing of TensorRT runs here: its libraries are not needed, nor a GPU. See ``surface.py`` for how the names are found.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import real_bindings
import surface
from real_bindings import RELEASES

FOUND = surface.uses()
LISTED: dict[str, Any] = json.loads(real_bindings.LISTED.read_text(encoding="utf-8"))

#: Names that objects of TensorRT have as well as ours. Each use of one was looked at: it is of an object of ours.
OURS = frozenset({
    "allocate", "append", "count", "data", "dtype", "engine", "max", "metadata", "min", "name", "nbytes", "node", "opt",
    "pop", "release", "shape", "start",
})  # fmt: skip

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, Any]]:
    """What the bindings of a release offer of the names that the engine uses; asked once for all tests here."""
    known: dict[str, Any] = {}

    def ask(release: str) -> dict[str, Any]:
        if release not in known:
            folder: Path = tmp_path_factory.mktemp("bindings") / release
            try:
                environment = real_bindings.install(release, folder)
            except real_bindings.Unavailable as fault:
                known[release] = fault
            else:
                known[release] = real_bindings.listing(folder, environment, surface.wanted())
        if isinstance(known[release], real_bindings.Unavailable):
            pytest.skip(f"TensorRT's bindings are not to be had: {known[release]}")
        return known[release]  # type: ignore[no-any-return]

    return ask


EACH = pytest.mark.parametrize("release", RELEASES)


@EACH
def test_the_bindings_are_as_they_are_listed(release: str, real: Callable[[str], dict[str, Any]]) -> None:
    """The double that stands in for TensorRT in the other tests is made from the list."""
    found = real(release)
    assert found["version"].startswith(f"{release}.") and not found["missing"]
    assert {"version": found["version"], "subclassed": found["subclassed"]} == LISTED[release]["facts"]
    assert found["classes"] == LISTED[release]["classes"], "run tests/tensorrt_tests/real_bindings.py"
    assert found["subclassed"] == {"ILogger": True, "IOutputAllocator": True, "IProgressMonitor": True}


@EACH
def test_nothing_is_used_that_is_not_listed(release: str) -> None:
    classes = LISTED[release]["classes"]
    for use in FOUND.uses:
        assert use.kind in classes, f"{use.where}: {use.kind} is not listed"
        known = classes[use.kind]
        if use.how == "override":
            parameters = known["documented"].get(use.name) or [
                each["name"] for each in known["methods"].get(use.name, [{"arguments": []}])[0]["arguments"]
            ]
            assert tuple(parameters) == use.keywords, f"{use.where}: {use.kind}.{use.name} takes {parameters}"
        elif use.how == "set":
            assert known["properties"].get(use.name), f"{use.where}: {use.kind}.{use.name} cannot be set"
        elif use.how == "get":
            there = {*known["properties"], *known["members"], *known["classes"]}
            assert use.name in there, f"{use.where}: {use.kind} has no {use.name}"
        else:
            assert use.name in known["methods"], f"{use.where}: {use.kind} has no method {use.name}"
            assert any(takes(each, use) for each in known["methods"][use.name]), (
                f"{use.where}: {use.kind}.{use.name} takes {known['methods'][use.name]}"
            )


def takes(overload: dict[str, Any], use: surface.Use) -> bool:
    """Does a method take as many arguments, by these names?"""
    names = [each["name"] for each in overload["arguments"]]
    needed = [each["name"] for each in overload["arguments"][use.count :] if not each["optional"]]
    return use.count <= len(names) and set(use.keywords) <= set(names[use.count :]) and set(needed) <= set(use.keywords)


@EACH
def test_no_object_of_tensorrts_is_used_without_its_class(release: str, real: Callable[[str], dict[str, Any]]) -> None:
    """Else a name could be used that no list knows."""
    names = set(real(release)["names"])
    odd = [f"{where} .{name}" for name, where in FOUND.untyped if name in names and name not in OURS]
    assert not odd, f"say which class of TensorRT's these are of: {odd}"


def test_flags_are_looked_up_by_name_since_their_numbers_differ() -> None:
    numbers = {release: LISTED[release]["classes"] for release in RELEASES}
    network = {r: c["NetworkDefinitionCreationFlag"]["members"]["STRONGLY_TYPED"] for r, c in numbers.items()}
    strip = {r: c["BuilderFlag"]["members"]["STRIP_PLAN"] for r, c in numbers.items()}
    assert network == {"10.13": 1, "10.16": 1, "11.4": 0} and strip == {"10.13": 19, "10.16": 19, "11.4": 18}


@pytest.mark.parametrize(
    ("kind", "name", "how", "count", "keywords"),
    [
        ("ICudaEngine", "device_memory_size", "get", 0, ()),  # gone in 11
        ("BuilderFlag", "FP16", "get", 0, ()),
        ("Builder", "create_network", "call", 3, ()),
        ("IOptimizationProfile", "set_shape", "call", 1, ("low", "opt", "max")),
        ("IProgressMonitor", "phase_start", "override", 2, ("phase_name", "steps")),
        ("ICudaEngine", "num_io_tensors", "set", 0, ()),
    ],
)
def test_a_use_that_the_bindings_lack_is_found(
    kind: str, name: str, how: str, count: int, keywords: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check itself would fail."""
    use = surface.Use(kind, name, how, count, keywords, "x.py:1")
    monkeypatch.setitem(globals(), "FOUND", surface.Found([use], []))
    with pytest.raises(AssertionError, match=r"x\.py:1"):
        test_nothing_is_used_that_is_not_listed("11.4")
