"""What could not be captured or built is not tried again by the next process, until something that matters changes."""

from __future__ import annotations

import pytest
from process_support import Program

pytestmark = [pytest.mark.torch, pytest.mark.processes]

IMPURE = """
import torch
from torch import nn
from hybrid_infer import inference

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = []

    @inference(FALLBACK)
    def forward(self, x):
        self.calls.append(1)
        return x * 2
"""

BRANCHING = """
import torch
from torch import nn
from hybrid_infer import inference

class Layer(nn.Module):
    @inference(FALLBACK)
    def forward(self, x):
        if float(x.sum()) > 0:
            return x + 1
        return x - 1
"""

CALL = """
from layers import Layer
layer = Layer().eval()
x = torch.ones(2, 8)
expected = Layer.forward.__wrapped__(Layer().eval(), x)
for _ in range(2):
    assert torch.equal(layer(x), expected)
result = counts()
"""


@pytest.mark.parametrize("source", [IMPURE, BRANCHING], ids=["impure", "branching"])
def test_a_failed_capture_is_not_tried_by_the_next_process(program: Program, source: str) -> None:
    program.write(source.replace("FALLBACK", ""))
    first, second = program.run(CALL), program.run(CALL)
    assert first["attempts"] >= 1 and first["captures"] == 0
    assert second["attempts"] == 0 and second["eager_calls"] == 2
    assert first["reasons"] == second["reasons"] != []
    assert not program.entries()


def test_an_edit_makes_the_next_process_try_again(program: Program) -> None:
    program.write(IMPURE.replace("FALLBACK", ""))
    program.run(CALL)
    program.edit("        self.calls.append(1)\n", "")
    assert program.run(CALL)["captures"] == 1


def test_another_version_of_the_framework_makes_it_try_again(program: Program) -> None:
    program.write(BRANCHING.replace("FALLBACK", ""))
    program.run(CALL)
    newer = "versions = TorchFrontend.versions\n" \
            "TorchFrontend.versions = lambda self: {**versions(self), 'torch': '99.0'}\n"  # fmt: skip
    assert program.run(newer + CALL)["attempts"] >= 1
    assert program.run(newer + CALL)["attempts"] == 0
    assert program.run(CALL)["attempts"] == 0


def test_a_week_later_it_is_tried_again(program: Program) -> None:
    program.write(BRANCHING.replace("FALLBACK", ""))
    program.run(CALL)
    later = "now = time.time\ntime.time = lambda: now() + 8 * 86400\n"
    assert program.run(later + CALL)["attempts"] >= 1


@pytest.mark.parametrize("source", [IMPURE, BRANCHING], ids=["impure", "branching"])
def test_a_remembered_failure_raises_where_eager_is_not_wanted(program: Program, source: str) -> None:
    program.write(source.replace("FALLBACK", "fallback='error'"))
    script = """
from layers import Layer
layer = Layer().eval()
try:
    layer(torch.ones(2, 8))
except hybrid_infer.CaptureError as error:
    result = len(ATTEMPTS), error.reason
"""
    (tried, reason), (again, same) = program.run(script), program.run(script)
    assert tried >= 1 and again == 0
    assert reason == same != ""


#: An engine that fails at one step, in place of the real one; how often it was asked.
FAULTY = """
from hybrid_infer._errors import EngineError
from hybrid_infer.backends.onnxruntime import OnnxRuntime
os.environ["HYBRID_INFER_BACKEND"] = "onnxruntime"  # and no other in its place
ASKED = []

def fail(self, *arguments):
    ASKED.append(1)
    raise EngineError("onnxruntime", "an operator is not implemented")

def off_by_one(self, *arguments):
    program = load(self, *arguments)
    run = program.run
    program.run = lambda arrays: ASKED.append(1) or [array + 1 for array in run(arrays)]
    return program

load = OnnxRuntime.load
"""


@pytest.mark.parametrize("fault", ["prepare = fail", "load = fail", "load = off_by_one"])
def test_a_failed_build_or_verification_is_not_tried_by_the_next_process(program: Program, fault: str) -> None:
    script = f"""{FAULTY}
OnnxRuntime.{fault}
from layers import Layer
layer, x = Layer().eval(), torch.randn(2, 8)
for _ in range(2):
    check(layer.forward, x)
result = {{**counts(), "asked": len(ASKED)}}
"""
    first, second = program.run(script), program.run(script)
    assert first["asked"] == 1
    assert (second["attempts"], second["asked"], second["eager_calls"]) == (0, 0, 2), second
    assert first["reasons"] == second["reasons"] != []


def test_another_version_of_the_engine_makes_it_try_again(program: Program) -> None:
    script = f"""{FAULTY}
if argument == "fails":
    OnnxRuntime.prepare = fail
elif argument == "newer":
    OnnxRuntime.version = lambda self: "99.0"
from layers import Layer
check(Layer().eval().forward, torch.randn(2, 8))
result = counts()["builds"], counts()["eager_calls"]
"""
    assert program.run(script, "fails") == [0, 1]
    assert program.run(script, "mended") == [0, 1]  # as far as this machine knows
    assert program.run(script, "newer")[0] == 1


def test_an_entry_that_a_newer_engine_cannot_serve_is_not_built_again_and_again(program: Program) -> None:
    script = f"""{FAULTY}
if argument == "newer":
    OnnxRuntime.version = lambda self: "99.0"
    OnnxRuntime.prepare = fail
from layers import Layer
check(Layer().eval().forward, torch.randn(2, 8))
result = counts()["hits"], counts()["eager_calls"], len(ASKED), len(ATTEMPTS)
"""
    program.run(script, "older")
    assert program.run(script, "newer") == [0, 1, 1, 0]
    assert program.run(script, "newer") == [0, 1, 0, 0]
    assert program.run(script, "older") == [1, 0, 0, 0]


def test_a_method_without_an_engine_is_served_once_there_is_one(program: Program) -> None:
    script = """
from layers import Layer
check(Layer().eval().forward, torch.randn(2, 8))
result = counts()["eager_calls"]
"""
    assert program.run(script, HYBRID_INFER_BACKEND="null") == 1
    assert program.run(script) == 0
    assert program.run(script, HYBRID_INFER_BACKEND="null") == 1


FULL = """
import torch
from torch import nn
from hybrid_infer import inference

class Layer(nn.Module):
    @inference(max_versions=MOST)
    def forward(self, x):
        return x * 2 if x.shape[0] < 4 else x * 3
"""

SIZES = """
from layers import Layer
layer = Layer().eval()
for rows in ROWS:
    x = torch.ones(rows, 8)
    assert torch.equal(layer(x), x * (2 if rows < 4 else 3))
result = counts()
"""


def test_a_capture_that_made_no_room_is_not_made_again(program: Program) -> None:
    program.write(FULL.replace("MOST", "1"))
    script = SIZES.replace("ROWS", "(3, 5, 6)")
    first, second = program.run(script), program.run(script)
    assert first["attempts"] == 2 and first["captures"] == 1  # the second one serves no call with 3 rows
    assert second["attempts"] == 0 and second["eager_calls"] == 2 and second["hits"] == 1
    assert first["reasons"] == second["reasons"]
    other = program.run(SIZES.replace("ROWS", "(5, 6, 7)"))  # a process that has none yet
    assert other["captures"] == 1 and other["eager_calls"] == 0


def test_where_there_is_room_it_is_made(program: Program) -> None:
    script = SIZES.replace("ROWS", "(3, 5, 6)")
    program.write(FULL.replace("MOST", "1"))
    program.run(script)
    program.write(FULL.replace("MOST", "2"))
    found = program.run(script)
    assert found["captures"] == 1 and found["eager_calls"] == 0


FIXED = """
import torch
from torch import nn
from hybrid_infer import inference

class Layer(nn.Module):
    @inference(max_versions=3)
    def forward(self, x):
        return x * sum(0.5 for _ in range(x.shape[1]))
"""

SHAPES = """
from layers import Layer
layer = Layer().eval()
import torch
for rows, columns in SHAPES:
    assert torch.equal(layer(torch.ones(rows, columns)), torch.ones(rows, columns) * 0.5 * columns)
result = counts()
"""


def test_a_call_that_would_make_room_is_captured_after_others_that_made_none(program: Program) -> None:
    """The tracer fixes the columns: rows that vary make room among graphs for as many columns alone."""
    program.write(FIXED)
    made, others, more = "(3, 5), (3, 6), (3, 7)", "(4, 8), (6, 9), (7, 10)", "(4, 5), (9, 5), (8, 6)"
    first = program.run(SHAPES.replace("SHAPES", f"({made}, {others})"))
    assert first["captures"] == 3 and first["eager_calls"] == 3
    second = program.run(SHAPES.replace("SHAPES", f"({made}, {others})"))
    assert second["attempts"] == 0 and second["eager_calls"] == 3
    third = program.run(SHAPES.replace("SHAPES", f"({made}, {others}, {more})"))
    assert third["captures"] == 2 and third["eager_calls"] == 3


def test_on_the_other_side_of_a_branch_a_capture_may_make_room_after_all(program: Program) -> None:
    program.write(FULL.replace("MOST", "1"))
    found = program.run(SIZES.replace("ROWS", "(3, 5, 6, 2, 3)"))
    assert found["attempts"] == 3 and found["captures"] == 2 and found["eager_calls"] == 2
