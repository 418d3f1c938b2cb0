"""What has no fingerprint is named, and so are tensors and layers outside of the layer."""

from __future__ import annotations

from typing import Any

import pytest
from fingerprint_support import run_sources

pytestmark = pytest.mark.processes

OPAQUE = {
    "file": ("HANDLE = open(__file__)\ndef f(x): return HANDLE.read()", "global HANDLE", "TextIOWrapper"),
    "socket": ("import socket\nS = socket.socket()\ndef f(x): return S", "global S", "socket"),
    "generator": ("G = (i for i in range(3))\ndef f(x): return next(G)", "global G", "generator"),
    "thread_local": ("import threading\nT = threading.local()\ndef f(x): return T.x", "global T", "_thread._local"),
    "nested": ("S = {'a': [1, open(__file__)]}\ndef f(x): return S", "`S['a'][1]`", "TextIOWrapper"),
    "attribute": ("class C: pass\nc = C()\nc.h = open(__file__)\ndef f(x): return c.h", "`c.h`", "TextIOWrapper"),
    "closure": ("def make(h):\n def f(x): return h\n return f\nf = make(open(__file__))", "closure `h`", "TextIO"),
    "default": ("def f(x, h=open(__file__)): return h", "default `h`", "TextIOWrapper"),
    "class_attribute": (
        "class C:\n h = open(__file__)\nCLASSES = [C]\ndef f(self, x): return self.h",
        "attribute `h`",
        "TextIOWrapper",
    ),
    "computed_import": ("import importlib\ndef f(x): return importlib.import_module(x)", "function", "computed names"),
    "refusing": (
        "import ctypes\nP = ctypes.pointer(ctypes.c_int(1))\ndef f(x): return P",
        "global P",
        "cannot be read",
    ),
    "wrapper": (
        "import contextlib\n@contextlib.contextmanager\ndef mode(a): yield\n"
        "@mode(open(__file__))\ndef f(x): return x",
        "closure `self.args[0]` of wrapper of",
        "TextIOWrapper",
    ),
    "second_of_two": ("A = [open(__file__)]\nB = [open(__file__)]\ndef f(x): return A, B", "global `B[0]`", "TextIO"),
}  # fmt: skip


@pytest.fixture(scope="module")
def opaque(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return run_sources(tmp_path_factory.mktemp("opaque"), {name: row[0] for name, row in OPAQUE.items()})


@pytest.mark.parametrize("name", OPAQUE)
def test_what_has_no_fingerprint_is_named(name: str, opaque: Any) -> None:
    _, where, why = OPAQUE[name]
    where = where if "`" in where or where == "function" else f"{where.split()[0]} `{where.split()[1]}`"
    assert any(where in line and why in line for line in opaque[name]["opaque"]), opaque[name]["opaque"]


EXTERNALS = {
    "closure": (
        "def make(w):\n def f(x): return x @ w\n return f\nf = make(fake.Tensor())",
        ["closure", "w", "Tensor"],
    ),
    "global": ("W = fake.Tensor()\ndef f(x): return x @ W", ["global", "W", "Tensor"]),
    "nested": ("W = {'a': [fake.Tensor()]}\ndef f(x): return x @ W['a'][0]", ["global", "W['a'][0]", "Tensor"]),
    "default": ("def f(x, w=fake.Tensor()): return x @ w", ["default", "w", "Tensor"]),
    "of_instance": ("class C: pass\nc = C()\nc.w = fake.Tensor()\ndef f(x): return c.w", ["global", "c.w", "Tensor"]),
    "layer": ("m = fake.Layer()\ndef f(x): return m(x)", ["global", "m", "Layer"]),
    "array": ("import numpy as np\nT = np.ones(3)\ndef f(x): return x * T", ["global", "T", "ndarray"]),
    "class": ("class C:\n w = fake.Tensor()\nCLASSES = [C]\ndef f(s, x): return s.w", ["attribute", "w", "Tensor"]),
    "helper": ("W = fake.Tensor()\ndef g(x): return x @ W\ndef f(x): return g(x)", ["global", "W", "Tensor"]),
    "bound": ("class C(fake.Layer):\n def m(s, x): return x\nf = C().m", ["argument", "function", "C"]),
}


@pytest.fixture(scope="module")
def externals(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return run_sources(
        tmp_path_factory.mktemp("externals"), {name: "import fake\n" + row[0] for name, row in EXTERNALS.items()}
    )


@pytest.mark.parametrize("name", EXTERNALS)
def test_tensors_and_layers_outside_are_reported(name: str, externals: Any) -> None:
    found = [[kind, path, type_name] for kind, _, path, type_name in externals[name]["externals"]]
    assert found == [EXTERNALS[name][1]]
    assert externals[name]["opaque"] == []
