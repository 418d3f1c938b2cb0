"""A program of more functions than are looked at: only what runs of it counts, in every process."""

from __future__ import annotations

import pytest
from process_support import Program

from hybrid_infer.fingerprint import _walk

pytestmark = [pytest.mark.torch, pytest.mark.processes]

OPERATIONS = """
import importlib

def plug_in(name):
    return importlib.import_module("plug" + "in_" + name).run

def fallback(x):
    return plug_in("fast")(x)

{functions}

TABLE = {{name: value for name, value in list(globals().items()) if name.startswith("operation_")}}
"""

LARGE = """
import collections
import functools
import threading
import torch
import operations
from hybrid_infer import inference

SCALE = 2.0
KNOWN = set()

def scaled(x):
    return torch.relu(x) * SCALE

def other(x):
    return torch.tanh(x)

def factor():
    return SCALE

def table():
    return factor()

def by_default(x, scale=SCALE):
    raise AssertionError("only its default is asked for")

Point = collections.namedtuple("Point", "scale", defaults=[SCALE])
cached = functools.lru_cache(table)

def in_a_thread():
    found = []
    thread = threading.Thread(target=lambda: found.append(factor()))
    thread.start()
    thread.join()
    return found[0]

def asked_and_emptied():
    found = cached()
    cached.cache_clear()
    return found

KINDS = {
    "thread": in_a_thread, "emptied": asked_and_emptied, "tuple": lambda: Point().scale,
    "default": lambda: by_default.__defaults__[0],
}

class Layer(torch.nn.Module):
    def __init__(self, kind="scaled"):
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.kind = torch.nn.Linear(8, 8), kind
        self.held = {"table": functools.lru_cache(table)}
        self.held["table"](), cached()

    @inference()
    def forward(self, x):
        x = self.linear(x)
        if self.kind == "held":
            return x * self.held["table"]()
        if self.kind in KINDS:
            cached()
            return x * KINDS[self.kind]()
        if self.kind == "table":
            return operations.TABLE["operation_7"](x)
        if self.kind == "import":
            import extension
            return extension.run(x)
        return scaled(x) if self.kind == "scaled" else other(x)
"""

CALL = """
from layers import Layer
layer = Layer({kind!r}).eval()
check(layer.forward, torch.ones(2, 8))
result = counts()
"""


def _call(kind: str = "scaled") -> str:
    return CALL.format(kind=kind)


@pytest.fixture
def large(program: Program) -> Program:
    functions = (
        f"def operation_{n}(x):\n    return fallback(x) if x is None else x + {n}\n" for n in range(_walk.MANY)
    )
    program.write(OPERATIONS.format(functions="\n".join(functions)), "operations")
    program.write(
        "import layers\n\nlayers.KNOWN.add('extension')\n\ndef run(x):\n    return x + len(layers.KNOWN)\n", "extension"
    )
    program.write(LARGE)
    return program


def _came_from_disk(found: dict[str, int]) -> bool:
    assert found["eager_calls"] == 0 and found["captures"] + found["disk_loads"] == 1, found
    return found["disk_loads"] == 1


@pytest.mark.parametrize("kind", ["scaled", "table", "import"])
def test_the_next_process_finds_it(large: Program, kind: str) -> None:
    assert not _came_from_disk(large.run(_call(kind)))
    assert _came_from_disk(large.run(_call(kind)))
    assert _came_from_disk(large.run(_call(kind)))


def test_an_edit_of_what_runs_is_seen_and_one_of_what_does_not_is_none(large: Program) -> None:
    large.run(_call())
    large.edit("fallback(x) if x is None else x + 300", "fallback(x) if x is None else x + 3000", "operations")
    large.edit('"plug" + "in_"', '"plug" + "out_"', "operations")
    assert _came_from_disk(large.run(_call()))
    large.edit("torch.relu(x) * SCALE", "torch.relu(x) + SCALE")
    assert not _came_from_disk(large.run(_call()))
    assert _came_from_disk(large.run(_call()))
    large.edit("SCALE = 2.0", "SCALE = 3.0")
    assert not _came_from_disk(large.run(_call()))
    large.edit("SCALE = 3.0", "SCALE = 2.0")
    assert _came_from_disk(large.run(_call()))


@pytest.mark.parametrize("kind", ["thread", "emptied", "tuple", "default", "held"])
def test_code_that_is_not_seen_to_run_counts(large: Program, kind: str) -> None:
    """On another thread, or before the trace; functions that are looked into, and made by Python."""
    large.run(_call(kind))
    large.edit("SCALE = 2.0", "SCALE = 3.0")
    assert large.run(_call(kind))["captures"] == 1  # and the answer is compared with the eager one's


def test_instances_that_run_other_code_have_static_models_beside_each_other(large: Program) -> None:
    assert not _came_from_disk(large.run(_call("scaled")))
    assert not _came_from_disk(large.run(_call("other")))
    assert _came_from_disk(large.run(_call("scaled")))
    assert _came_from_disk(large.run(_call("other")))
    large.edit("torch.tanh(x)", "torch.sigmoid(x)")
    assert _came_from_disk(large.run(_call("scaled")))
    assert not _came_from_disk(large.run(_call("other")))


def test_two_processes_at_once_capture_it_once(large: Program) -> None:
    both = [large.start(_call(), slow="1.0") for _ in range(2)]
    found = [process.result(150) for process in both]
    assert sum(each["captures"] for each in found) == 1, found
    assert _came_from_disk(large.run(_call()))
