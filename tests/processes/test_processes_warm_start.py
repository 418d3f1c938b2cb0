"""The next process: nothing is traced, built or imported again, and what was learnt about shapes counts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from forks import Zygote
from process_support import Program, fresh

pytestmark = [pytest.mark.torch, pytest.mark.processes]

CALL = """
from layers import Layer
layer = Layer().eval()
check(layer.forward, torch.randn(2, 8))
result = counts()
"""

#: What only a capture needs: seconds to import, and the first call of a warm process must not pay for them.
COLD_ONLY = (
    "torch.onnx", "torch.export._trace", "torch._dynamo", "torch._inductor", "torch.fx.experimental.symbolic_shapes",
    "onnxscript", "onnx", "onnx_ir", "paddle", "paddle2onnx", "sympy",
)  # fmt: skip


def test_the_next_process_captures_and_builds_nothing(program: Program) -> None:
    first = program.run(CALL)
    assert (first["captures"], first["builds"], first["disk_loads"]) == (1, 1, 0)
    second = program.run(CALL)
    assert second == {
        "captures": 0, "builds": 0, "disk_loads": 1, "bindings": 1, "hits": 1, "eager_calls": 0, "attempts": 0,
        "reasons": [],
    }  # fmt: skip
    assert len(program.entries()) == 1


def test_the_next_process_imports_none_of_what_a_capture_needs(program: Program, bare: Zygote) -> None:
    program.run(CALL)
    after = Program(bare, program.folder, program.cache)
    script = f"""
before = set(sys.modules)
from layers import Layer
layer = Layer().eval()
check(layer.forward, torch.randn(2, 8))
new = set(sys.modules) - before
result = counts()["hits"], sorted(new & set({COLD_ONLY!r}))
"""
    assert after.run(script) == [1, []]


def test_a_fresh_interpreter_starts_warm_with_the_class_in_its_main_module(tmp_path: Path) -> None:
    script = f"""
    import json, sys
    import torch
    from hybrid_infer import inference, stats

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(8, 8)

        @inference()
        def forward(self, x):
            return torch.relu(self.linear(x))

    if __name__ == "__main__":
        layer, x = Layer().eval(), torch.randn(2, 8)
        with torch.no_grad():
            assert torch.allclose(layer(x), torch.relu(layer.linear(x)), atol=1e-5)
        [found] = stats().values()
        print(json.dumps([found["captures"], found["disk_loads"], sorted(set({COLD_ONLY!r}) & set(sys.modules))]))
    """
    cold = json.loads(fresh(script, cache=tmp_path / "cache", folder=tmp_path))
    warm = json.loads(fresh(script, cache=tmp_path / "cache", folder=tmp_path))
    assert cold[:2] == [1, 0]
    assert warm == [0, 1, []]


SPAWNED = """
import collections, dataclasses, enum, json, multiprocessing, sys
import torch
from hybrid_infer import inference, stats

class Kind(enum.Enum):
    PLAIN, TWICE = "plain", "twice"

@dataclasses.dataclass
class Found:
    value: torch.Tensor

class Layer(torch.nn.Module):
    Pair = collections.namedtuple("Pair", "x kind")

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    @inference(fallback="error")
    def forward(self, pair):
        found = self.linear(pair.x)
        return Found(found * 2 if pair.kind is Kind.TWICE else found)

def called(layer):
    x = torch.ones(2, 8)
    with torch.no_grad():
        found = layer(Layer.Pair(x, Kind.TWICE))
        same = torch.allclose(found.value, layer.linear(x) * 2, atol=1e-5)
    [(name, counted)] = stats().items()
    return name, type(found) is Found and same, counted["captures"], counted["disk_loads"]

if __name__ == "__main__":
    layer = Layer().eval()
    here = [called(layer)] if sys.argv[1] == "here" else []
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        there = pool.map(called, [layer])
    print(json.dumps(here + there))
"""


def test_spawned_workers_use_what_their_parent_has_captured(tmp_path: Path) -> None:
    """They have its main module under another name."""
    found = json.loads(fresh(SPAWNED, cache=tmp_path / "cache", folder=tmp_path, arguments=["here"]))
    assert found == [["__main__.Layer.forward", True, 1, 0], ["__main__.Layer.forward", True, 0, 1]]


def test_a_parent_uses_what_its_spawned_workers_have_captured(tmp_path: Path) -> None:
    [found] = json.loads(fresh(SPAWNED, cache=tmp_path / "cache", folder=tmp_path, arguments=["there"]))
    assert found[1:] == [True, 1, 0]
    found = json.loads(fresh(SPAWNED, cache=tmp_path / "cache", folder=tmp_path, arguments=["here"]))
    assert [each[1:] for each in found] == [[True, 0, 1]] * 2


def test_a_variable_of_the_environment_counts_in_the_next_process(program: Program) -> None:
    script = """
import os
from hybrid_infer import inference

@inference(fallback="error")
def scaled(x):
    return x * float(os.environ.get("SOME_SCALE", "1"))

found = scaled(torch.ones(3)).tolist()
[counts] = __import__("hybrid_infer").stats().values()
result = found, counts["captures"], counts["disk_loads"]
"""
    assert program.run(script, SOME_SCALE="2") == [[2.0] * 3, 1, 0]
    assert program.run(script, SOME_SCALE="2") == [[2.0] * 3, 0, 1]
    assert program.run(script) == [[1.0] * 3, 1, 0]
    assert program.run(script) == [[1.0] * 3, 0, 1]


def test_dimensions_that_varied_in_one_process_vary_in_the_next(program: Program) -> None:
    script = """
from layers import Layer
layer = Layer().eval()
for length in argument:
    check(layer.forward, torch.randn(2, length, 8))
result = counts()
"""
    first = program.run(script, [5, 6, 7, 9])
    assert (first["attempts"], first["captures"]) == (2, 2)
    second = program.run(script, [11, 5, 6, 12])
    assert (second["attempts"], second["builds"], second["eager_calls"]) == (0, 0, 0)
    # What is new there is one more axis, and that axis alone is traced again.
    third = program.run("from layers import Layer\nlayer = Layer().eval()\n"
                        "check(layer.forward, torch.randn(3, 5, 8)); check(layer.forward, torch.randn(4, 6, 8))\n"
                        "result = counts()")  # fmt: skip
    assert third["attempts"] == 1
    assert program.run(script, [5, 30])["attempts"] == 0


def test_a_dimension_that_differs_between_processes_becomes_dynamic_once(program: Program) -> None:
    script = """
from layers import Layer
layer = Layer().eval()
check(layer.forward, torch.randn(argument, 8))
result = counts()["attempts"]
"""
    assert [program.run(script, size) for size in (2, 3, 4, 5)] == [1, 1, 0, 0]


def test_another_instance_with_other_weights_uses_the_entry(program: Program) -> None:
    script = """
from layers import Layer
layers = [Layer(seed=seed).eval() for seed in argument]
for layer in layers:
    check(layer.forward, torch.randn(2, 8))
result = counts()
"""
    assert program.run(script, [0])["captures"] == 1
    found = program.run(script, [1, 2, 3])
    assert (found["attempts"], found["builds"], found["bindings"], found["eager_calls"]) == (0, 0, 3, 0)
    assert len(program.entries()) == 1


def test_fine_tuned_weights_use_the_entry(program: Program) -> None:
    program.run(CALL)
    script = """
from layers import Layer
layer = Layer().eval()
x = torch.randn(2, 8)
check(layer.forward, x)
layer.load_state_dict({name: value + 1 for name, value in layer.state_dict().items()})
check(layer.forward, x)
layer.linear.weight.data += 1
check(layer.forward, x)
result = counts()
"""
    found = program.run(script)
    assert (found["attempts"], found["builds"], found["eager_calls"]) == (0, 0, 0)


def test_a_tied_instance_does_not_use_the_entry_of_an_untied_one(program: Program) -> None:
    program.write("""
        import torch
        from torch import nn
        from hybrid_infer import inference

        class Pair(nn.Module):
            def __init__(self, tied):
                super().__init__()
                self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
                if tied:
                    self.b.weight = self.a.weight

            @inference()
            def forward(self, x):
                return self.a(x) - self.b(x)
    """)
    script = """
from layers import Pair
layer = Pair(argument).eval()
check(layer.forward, torch.randn(2, 4))
result = counts()["captures"]
"""
    assert [program.run(script, tied) for tied in (False, True, False, True)] == [1, 1, 0, 0]


def test_equal_blocks_are_one_entry_for_all_processes(program: Program) -> None:
    script = """
from layers import Layer
blocks = [Layer(seed=n).eval() for n in range(12)]
x = torch.randn(2, 8)
for block in blocks:
    x = check(block.forward, x)
result = counts()
"""
    first, second = program.run(script), program.run(script)
    assert (first["captures"], first["bindings"]) == (1, 12)
    assert (second["attempts"], second["builds"], second["disk_loads"], second["bindings"]) == (0, 0, 1, 12)
    assert len(program.entries()) == 1


def test_a_changed_attribute_makes_another_version_and_both_stay(program: Program) -> None:
    program.edit("* 2.0", "* self.scale")
    program.edit("super().__init__()", "super().__init__(); self.scale = 2.0; self.label = 'unread'")
    script = """
from layers import Layer
layer = Layer().eval()
layer.scale, layer.label = argument
check(layer.forward, torch.randn(2, 8))
result = counts()["attempts"]
"""
    calls = [(2.0, "a"), (3.0, "a"), (2.0, "b"), (3.0, "c"), (2.0, "a")]
    assert [program.run(script, call) for call in calls] == [1, 1, 0, 0, 0]
    assert len(program.entries()) == 2


EDITS = {
    "the method": ("* 2.0", "* 3.0", 1),
    "a helper": ("return x + 1", "return x + 2", 1),
    "a constant": ("SHIFT = 0.5", "SHIFT = 0.75", 1),
    "an attribute of the class": ("power = 2", "power = 3", 1),
    "a default": ("gain=1.0", "gain=1.5", 1),
    "a comment": ("# first", "# second, and longer", 0),
    "a docstring": ("What it is for", "What it is for now", 0),
    "lines above": ("SHIFT = 0.5", "\n\n\nSHIFT = 0.5", 0),
    "code that it does not reach": ("return 'unrelated'", "return 'still unrelated'", 0),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_between_two_processes(program: Program, edit: str) -> None:
    program.write("""
        import torch
        from torch import nn
        from hybrid_infer import inference

        SHIFT = 0.5  # first

        def helper(x):
            return x + 1

        def stranger():
            return 'unrelated'

        class Layer(nn.Module):
            '''What it is for.'''
            power = 2

            def __init__(self):
                super().__init__()
                self.linear = nn.Linear(8, 8)

            @inference()
            def forward(self, x, gain=1.0):
                return helper(self.linear(x)) ** self.power * 2.0 + SHIFT * gain
    """)
    assert program.run(CALL)["captures"] == 1
    old, new, captures = EDITS[edit]
    program.edit(old, new)
    assert program.run(CALL)["captures"] == captures
    program.edit(new, old)
    assert program.run(CALL)["captures"] == 0


def test_the_directory_of_the_program_may_move(program: Program, tmp_path: Path, ready: Zygote) -> None:
    program.run(CALL)
    elsewhere = tmp_path / "elsewhere"
    program.folder.rename(elsewhere)
    assert Program(ready, elsewhere, program.cache).run(CALL)["attempts"] == 0


def test_another_processor_shares_the_graph_and_has_a_plan_of_its_own(program: Program) -> None:
    script = """
from hybrid_infer import _engines
_engines._machine = lambda: argument
from layers import Layer
check(Layer().eval().forward, torch.randn(2, 8))
result = counts()
"""
    for machine, captures, builds in (("one", 1, 1), ("other", 0, 1), ("one", 0, 0), ("other", 0, 0)):
        found = program.run(script, machine)
        assert (found["captures"], found["builds"], found["eager_calls"]) == (captures, builds, 0), machine
    [entry] = program.entries()
    assert len(list(entry.parent.glob("plans/*"))) == 2


def test_another_version_of_the_engine_shares_the_graph_and_has_a_plan_of_its_own(program: Program) -> None:
    script = """
from hybrid_infer.backends.onnxruntime import OnnxRuntime
version = OnnxRuntime.version
OnnxRuntime.version = lambda self: argument
from layers import Layer
check(Layer().eval().forward, torch.randn(2, 8))
result = counts()
"""
    for engine, captures, builds in (("1.90", 1, 1), ("1.91", 0, 1), ("1.90", 0, 0), ("1.91", 0, 0)):
        found = program.run(script, engine)
        assert (found["captures"], found["builds"], found["eager_calls"]) == (captures, builds, 0), (engine, found)
    [entry] = program.entries()
    assert len(list(entry.parent.glob("plans/*"))) == 2


def test_another_version_of_the_framework_shares_nothing(program: Program) -> None:
    script = """
versions = TorchFrontend.versions
TorchFrontend.versions = lambda self: {**versions(self), "torch": argument}
from layers import Layer
check(Layer().eval().forward, torch.randn(2, 8))
result = counts()["captures"]
"""
    assert [program.run(script, version) for version in ("2.99", "3.0", "2.99")] == [1, 1, 0]
    assert len(program.entries()) == 2


def test_a_function_of_a_layer_starts_warm(program: Program) -> None:
    script = """
from layers import Layer

@inference
def doubled(model, x, *, by=2):
    return model.linear(x) * by

layer, x = Layer().eval(), torch.randn(2, 8)
found = doubled(layer, x)
assert torch.allclose(found, doubled.__wrapped__(layer, x), atol=1e-5)
result = counts()
"""
    found = [program.run(script) for _ in range(2)]
    assert [(each["captures"], each["disk_loads"], each["eager_calls"]) for each in found] == [(1, 0, 0), (0, 1, 0)]


def test_what_is_to_require_a_gradient_does_in_the_next_process(program: Program) -> None:
    script = """
@inference
def tracked(x):
    x.requires_grad_()
    return x * 2

x = torch.ones(3)
tracked(x)
result = counts()["captures"], counts()["disk_loads"], counts()["hits"], x.requires_grad
"""
    assert [program.run(script) for _ in range(2)] == [[1, 0, 0, True], [0, 1, 1, True]]
