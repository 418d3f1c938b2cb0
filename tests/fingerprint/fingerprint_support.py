"""What the tests of the fingerprint share: cases with an edit each, run in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hybrid_infer
from hybrid_infer.fingerprint._fingerprint import Fingerprint, fingerprint

FAKE = """
class Tensor: pass
class Layer: pass
"""

#: Classes of a layer tree, with a number in each part of them.
LAYER = """
import functools
import fake
SCALE = 5
class Base(fake.Layer):
    kind = "base"
    def shared(self, x): return x + 11
    @property
    def width(self): return 13
    def save(self, path): return 17
class Block(Base):
    '''A block.'''
    depth = 19
    hooks = [lambda x: x + 23]
    def __init__(self):
        super().__init__()
        self.size = 29
    @staticmethod
    def scale(x): return x * 31
    @classmethod
    def make(cls): return 37
    @functools.cached_property
    def table(self): return 41
    def _inner(self, x): return x + 43
    def forward(self, x): return self._inner(x)
    def __getitem__(self, i): return 47
    def __repr__(self): return "53"
    def unused(self): return 59
class Model(Base):
    def __init__(self):
        self.block = Block()
        self.after = 61
    def blocks(self, x):
        x = super().shared(x) * self.width * SCALE
        x = self.block(x) + self.block.depth + self.block.hooks[0](x) + self.block[0]
        return self.block.scale(x) * self.block.make() * self.block.table
    def forward(self, x): return self.blocks(x) + 67
FUNCTIONS = [Model.blocks]
CLASSES = [Model, Block]
OWNER = Model
"""

#: Imports every case in one process and prints what the fingerprint of each says.
RUNNER = """
import importlib, json, sys
import fake
from hybrid_infer.fingerprint._fingerprint import fingerprint
found = {}
for name in sys.argv[1].split():
    module = importlib.import_module(f"case_{name}.main")
    result = fingerprint(
        module.FUNCTIONS if hasattr(module, "FUNCTIONS") else [module.f],
        getattr(module, "CLASSES", ()),
        is_tensor=lambda value: isinstance(value, fake.Tensor),
        is_layer=lambda value: isinstance(value, fake.Layer),
        owner=getattr(module, "OWNER", None),
    )
    found[name] = {
        "digest": result.digest,
        "ingredients": dict(result.ingredients),
        "opaque": list(result.opaque),
        "externals": [[e.kind, e.holder, e.name, type(e.object).__name__] for e in result.externals],
    }
print(json.dumps(found))
"""


_ROOT = str(Path(hybrid_infer.__file__).parents[1])


@dataclass(frozen=True)
class Case:
    """A package of modules and one edit to them."""

    name: str
    files: Mapping[str, str]
    old: str
    new: str
    changes: bool


class Cases(list[Case]):
    """The cases of one file."""

    def add(self, name: str, source: str, old: str, new: str, changes: bool = True, **others: str) -> None:
        files = {"main.py": source, **{f"{module}.py": text for module, text in others.items()}}
        files = {path: textwrap.dedent(text) for path, text in files.items()}
        assert sum(text.count(old) for text in files.values()) == 1, (name, old)
        self.append(Case(name, files, old, new, changes))


def write(folder: Path, cases: list[Case], edited: bool) -> Path:
    folder.mkdir()
    (folder / "fake.py").write_text(FAKE)
    for each in cases:
        package = folder / f"case_{each.name}"
        package.mkdir()
        (package / "__init__.py").write_text("")
        for path, text in each.files.items():
            (package / path).write_text(text.replace(each.old, each.new) if edited else text)
    return folder


def run(folder: Path, names: list[str], seed: str = "0", runner: str = RUNNER, **environment: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", runner, " ".join(names)],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([_ROOT, *filter(None, [os.environ.get("PYTHONPATH")])]),
            "PYTHONHASHSEED": seed,
            "PYTHONDONTWRITEBYTECODE": "1",
            **environment,
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def compared(root: Path, cases: list[Case]) -> dict[str, Any]:
    """What is found before and after the edits, and once more without them elsewhere."""
    names = [each.name for each in cases]
    return {
        "before": run(write(root / "a", cases, False), names),
        "after": run(write(root / "b", cases, True), names),
        # Another process, another hash seed, another folder, and the cases in the opposite order.
        "again": run(write(root / "moved", cases, False), names[::-1], seed="4711"),
    }


def check(each: Case, results: dict[str, Any]) -> None:
    before, after, again = (results[when][each.name] for when in ("before", "after", "again"))
    assert before["opaque"] == after["opaque"] == []
    assert before["digest"] == again["digest"], differing(before, again)
    assert (before["digest"] != after["digest"]) == each.changes, differing(before, after)
    assert (before["ingredients"] != after["ingredients"]) == each.changes


def differing(a: Any, b: Any) -> list[str]:
    a, b = a["ingredients"], b["ingredients"]
    return [label for label in {**a, **b} if a.get(label) != b.get(label)]


def run_sources(folder: Path, sources: Mapping[str, str], **environment: str) -> Any:
    (folder / "fake.py").write_text(FAKE)
    for name, source in sources.items():
        (folder / f"case_{name}").mkdir()
        (folder / f"case_{name}" / "main.py").write_text(textwrap.dedent(source))
    return run(folder, list(sources), **environment)


def of(*functions: Any, classes: Any = (), **options: Any) -> Fingerprint:
    options = {"is_tensor": lambda value: False, "is_layer": lambda value: False, **options}
    return fingerprint(functions, classes, **options)


def define(source: str, **names: Any) -> dict[str, Any]:
    scope: dict[str, Any] = {"__name__": "user_module", **names}
    exec(compile(textwrap.dedent(source), "user_module.py", "exec"), scope)
    return scope
