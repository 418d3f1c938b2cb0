"""What is on disk, what is kept off it, and calls that are answered although the disk is damaged, full or gone."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from process_support import REPOSITORY, Program

pytestmark = [pytest.mark.torch, pytest.mark.processes]

#: Calls with the warnings of the library collected instead of raised, and its log.
CALL = """
import contextlib
records = []
handler = logging.Handler()
handler.emit = lambda record: records.append((record.levelname, record.getMessage()))
logging.getLogger("hybrid_infer").addHandler(handler)
logging.getLogger("hybrid_infer").setLevel(logging.INFO)
from layers import Layer
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    layer = Layer().eval()
    for rows in (argument or (2, 2)):
        check(layer.forward, torch.randn(rows, 8))
result = {
    **counts(),
    "warnings": sorted({type(w.message).__name__ for w in caught}),
    "log": [f"{level} {text}" for level, text in records],
}
"""


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(data)


DAMAGES: dict[str, Callable[[Path], None]] = {
    "truncated": truncate, "flipped": flip, "removed": Path.unlink, "emptied": lambda path: path.write_bytes(b""),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("what", ["version", "plan", "file of the plan"])
def test_a_damaged_entry_is_built_again(program: Program, what: str, damage: str) -> None:
    program.run(CALL)
    [entry] = program.entries()
    plan = next(entry.parent.glob("plans/*/manifest.json"))
    target = {"version": entry, "plan": plan, "file of the plan": plan.with_name("bound.onnx")}[what]
    DAMAGES[damage](target)
    found = program.run(CALL)
    assert found["eager_calls"] == 0
    assert found["warnings"] == ["CacheWarning"]
    assert (found["captures"], found["builds"]) == (1 if what == "version" else 0, 1)
    again = program.run(CALL)
    assert (again["attempts"], again["builds"], again["warnings"]) == (0, 0, [])


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_graph_is_captured_again_once_it_is_needed(program: Program, damage: str) -> None:
    program.run(CALL)
    [entry] = program.entries()
    DAMAGES[damage](entry.with_name("graph.onnx"))
    # A plan is what a warm process loads, so nobody asks for the graph.
    assert program.run(CALL)["attempts"] == 0
    shutil.rmtree(entry.with_name("plans"))
    found = program.run(CALL)
    assert (found["captures"], found["builds"], found["eager_calls"]) == (1, 1, 0)
    assert found["warnings"] == ["CacheWarning"]
    assert program.run(CALL)["attempts"] == 0


def test_a_manifest_of_other_content_is_left_alone(program: Program) -> None:
    program.run(CALL)
    other = "from hybrid_infer import _version\n_version.FORMAT = 99\nfrom layers"
    found = program.run(CALL.replace("from layers", other))
    assert found["captures"] == 1 and found["warnings"] == []


def test_a_file_in_the_place_of_the_directory(program: Program) -> None:
    program.cache.write_text("mine")
    found = program.run(CALL)
    assert found["warnings"] == ["CacheWarning"] and (found["captures"], found["hits"]) == (1, 1)
    assert program.cache.read_text() == "mine"


@pytest.mark.parametrize(("call", "fault"), [("write", "ENOSPC"), ("mkdir", "EACCES"), ("rename", "EROFS")])
def test_a_disk_that_cannot_be_written(program: Program, call: str, fault: str) -> None:
    full = f"""
import errno
_real = os.{call}
def refuse(target, *arguments, **keywords):
    if "cache" in sys._getframe(1).f_globals["__name__"]:
        raise OSError(errno.{fault}, os.strerror(errno.{fault}))
    return _real(target, *arguments, **keywords)
os.{call} = refuse
"""
    found = program.run(full + CALL)
    assert found["warnings"] == ["CacheWarning"], found["log"]
    assert (found["captures"], found["hits"]) == (1, 1), found["log"]
    assert not program.entries()
    assert program.run(CALL)["captures"] == 1


def test_a_cache_that_is_deleted_while_it_is_used(program: Program) -> None:
    delete = "import shutil; shutil.rmtree(os.environ['HYBRID_INFER_CACHE_DIR'], ignore_errors=True)"
    found = program.run(CALL.replace("        check(", f"        {delete}\n        check("), [2, 3, 4, 2, 5])
    assert (found["captures"], found["eager_calls"]) == (2, 0)


def test_without_a_cache_nothing_is_left_on_disk(program: Program) -> None:
    program.edit("@inference()", "@inference(cache_static_model=False)")
    assert program.run(CALL)["captures"] == 1
    assert program.run(CALL)["captures"] == 1
    assert not list(program.files())


def test_a_failure_is_not_left_on_disk_either(program: Program) -> None:
    program.edit("@inference()", "@inference(cache_static_model=False)")
    program.edit("return ", "return torch.rand(()) * ")
    script = "from layers import Layer\nLayer().eval()(torch.randn(2, 8))\nresult = counts()['eager_calls']"
    assert program.run(script) == 1
    assert not list(program.files())


def test_a_directory_of_the_methods_own(program: Program, tmp_path: Path) -> None:
    own = tmp_path / "models"
    program.edit("@inference()", f"@inference(save_model_dir={str(own)!r})")
    assert program.run(CALL)["captures"] == 1
    assert program.run(CALL)["attempts"] == 0
    assert own.is_dir() and not list(program.files())


def test_entries_hold_no_weights_no_source_and_no_pickle(program: Program) -> None:
    program.edit("width=8", "width=256")
    script = """
from layers import Layer
layer = Layer().eval()
check(layer.forward, torch.randn(2, 256))
result = [p.numpy().tobytes()[:64].hex() for p in layer.parameters()]
"""
    weights = [bytes.fromhex(each) for each in program.run(script)]
    files = {path: path.read_bytes() for path in program.files()}
    assert sum(map(len, files.values())) < 40_000  # one weight alone takes 262,144
    for path, data in files.items():
        assert path.suffix in (".json", ".onnx", ".lock", ""), path
        assert not any(weight in data for weight in weights), path
        # Where the user's source lies and what it says are no part of an entry.
        for text in (str(program.folder), "layers.py", "site-packages", str(REPOSITORY), "torch.relu("):
            assert text.encode() not in data, (path, text)
        assert not data.startswith(b"\x80"), path  # every pickle of protocol 2 or later


LOCAL = """
    from dataclasses import dataclass
    import torch
    from torch import nn
    from hybrid_infer import inference

    def make():
        @dataclass
        class Result:
            value: torch.Tensor

        class Layer(nn.Module):
            @inference()
            def forward(self, x):
                return Result(x + 1)
        return Layer

    Layer = make()
"""


def test_a_result_of_a_local_class_stays_off_the_disk(program: Program) -> None:
    program.write(LOCAL)
    script = CALL.replace("check(layer.forward, torch.randn(rows, 8))", "layer(torch.randn(rows, 8))")
    for _ in range(2):
        found = program.run(script)
        assert (found["captures"], found["hits"], found["eager_calls"]) == (1, 1, 0)
        assert any(line.startswith("INFO") and "Result" in line for line in found["log"]), found["log"]
    assert not program.entries()


OPAQUE = {
    "a lock": "__import__('threading').Lock()",
    "an open file": "open(__file__)",
    "a socket": "__import__('socket').socket()",
}


@pytest.mark.parametrize("what", OPAQUE)
def test_an_attribute_that_cannot_be_copied_is_named(program: Program, what: str) -> None:
    program.edit("super().__init__()", f"super().__init__(); self.held = {OPAQUE[what]}")
    found = program.run(CALL)
    assert found["eager_calls"] == 2
    assert any("held" in reason for reason in found["reasons"]), found["reasons"]
    assert any(line.startswith("WARNING") and "held" in line for line in found["log"]), found["log"]
    assert program.run(CALL)["attempts"] == 0


SEALED = """
    import os
    import torch
    from torch import nn
    from hybrid_infer import inference

    class Sealed:
        '''A value without a fingerprint.'''
        __slots__ = ("handle", "value")
        def __init__(self, value):
            self.value = value
            self.handle = open(os.devnull)
        def __deepcopy__(self, memo):
            return Sealed(self.value)

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.sealed = Sealed(3.0)

        @inference(OPTIONS)
        def forward(self, x):
            return x * self.sealed.value
"""


def test_what_has_no_fingerprint_keeps_the_method_off_the_disk_and_is_named(program: Program) -> None:
    program.write(SEALED.replace("OPTIONS", ""))
    for _ in range(2):
        found = program.run(CALL)
        assert (found["captures"], found["hits"], found["eager_calls"]) == (1, 1, 0)
        assert any(line.startswith("INFO") and "sealed" in line for line in found["log"]), found["log"]
    assert not program.entries()


def test_a_cache_key_vouches_for_it(program: Program) -> None:
    program.write(SEALED.replace("OPTIONS", "cache_key='one'"))
    assert program.run(CALL)["captures"] == 1
    assert program.run(CALL)["attempts"] == 0
    program.edit("'one'", "'two'")
    assert program.run(CALL)["captures"] == 1
