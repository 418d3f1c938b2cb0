"""Imports inside of functions: one capture for all processes, whatever they have imported before."""

from __future__ import annotations

import pytest
from process_support import Program

from hybrid_infer.fingerprint import _walk

pytestmark = [pytest.mark.torch, pytest.mark.processes]

PROGRAM = """
import torch
from hybrid_infer import inference

{functions}

def of_library(x):
    from wave import WAVE_FORMAT_PCM
    return x * WAVE_FORMAT_PCM

def of_its_own(x):
    from kernels import fast
    return fast(x)

def of_a_package(x):
    from package import kernels
    return kernels.fast(x)

def relative(x):
    import package
    return package.run(x)

def optional(x):
    try:
        import no_such_module_anywhere as found
    except ImportError:
        found = None
    return x * 2.0 if found is None else found.fast(x)

def hidden(x):
    try:
        from kernels import fast
    except Exception:
        return x * 5.0
    return fast(x)

def patched(x):
    import colorsys
    return x * colorsys.rgb_to_hsv(0.5, 0.25, 0.25)[-1]

def opening(x):
    from wave import WAVE_FORMAT_PCM
    with open(__file__ + ".txt") as file:
        return x * float(len(file.read()))

TABLE = {{name: value for name, value in list(globals().items()) if callable(value)}}

class Layer(torch.nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind = kind

    @inference()
    def forward(self, x):
        return TABLE[self.kind](x)
"""

CALL = """
{before}
from layers import Layer
layer = Layer({kind!r}).eval()
for n in range(2):
    check(layer.forward, torch.ones(2, 8))
result = counts()
"""

IMPORTS = {
    "of_library": "import wave",
    "of_its_own": "import kernels",
    "of_a_package": "import package.kernels",
    "relative": "import package.kernels",
    "optional": "",
    "hidden": "import kernels",
}


def _call(kind: str, before: str = "") -> str:
    return CALL.format(kind=kind, before=before)


@pytest.fixture(params=["small", "large"])
def importing(program: Program, request: pytest.FixtureRequest) -> Program:
    count = _walk.MANY + 50 if request.param == "large" else 0
    functions = "\n".join(f"def operation_{n}(x):\n    return x + {n}" for n in range(count))
    program.write(PROGRAM.format(functions=functions))
    (program.folder / "package").mkdir()
    (program.folder / "layers.py.txt").write_text("two")
    kernels = "import torch\n\nFACTOR = torch.full((8,), 3.0)\n\ndef fast(x):\n    return x * FACTOR\n"
    program.write(kernels, "kernels")
    program.write("def run(x):\n    from . import kernels\n    return kernels.fast(x)\n", "package/__init__")
    program.write(kernels, "package/kernels")
    return program


@pytest.mark.parametrize("kind", IMPORTS)
def test_it_is_captured_once(importing: Program, kind: str) -> None:
    first = importing.run(_call(kind))
    assert first["captures"] == 1 and not first["eager_calls"], first
    for before in ("", IMPORTS[kind], ""):
        found = importing.run(_call(kind, before))
        assert found["disk_loads"] == 1 and not found["attempts"] and not found["eager_calls"], found


@pytest.mark.parametrize("kind", ["of_library", "of_its_own", "of_a_package"])
def test_where_it_was_imported_before(importing: Program, kind: str) -> None:
    assert importing.run(_call(kind, IMPORTS[kind]))["captures"] == 1
    for before in ("", IMPORTS[kind]):
        found = importing.run(_call(kind, before))
        assert found["disk_loads"] == 1 and not found["attempts"] and not found["eager_calls"], found


@pytest.mark.parametrize("kind", ["of_its_own", "of_a_package", "relative", "hidden"])
def test_an_edit_is_seen(importing: Program, kind: str) -> None:
    importing.run(_call(kind))
    for old, new in (("x * FACTOR", "x + FACTOR"), ("3.0", "4.0")):
        for name in ("kernels", "package/kernels"):
            importing.edit(old, new, name)
        assert importing.run(_call(kind))["captures"] == 1  # and the answer is compared with the eager one's
        assert importing.run(_call(kind))["disk_loads"] == 1


def test_a_module_that_comes_to_be_there_is_seen(importing: Program) -> None:
    importing.run(_call("optional"))
    importing.write("def fast(x):\n    return x * 7.0\n", "no_such_module_anywhere")
    assert importing.run(_call("optional"))["captures"] == 1


def test_files_that_the_method_opens_beside_its_imports_count(importing: Program) -> None:
    found = importing.run(_call("opening"))
    assert not found["captures"] and any("opens the file" in reason for reason in found["reasons"]), found


def test_what_the_program_puts_into_a_library_counts(importing: Program) -> None:
    importing.run(_call("patched"))
    assert importing.run(_call("patched", "import colorsys"))["disk_loads"] == 1
    assert importing.run(_call("patched", "import colorsys\ncolorsys.rgb_to_hsv = lambda *x: [9.0]"))["captures"] == 1
