"""A read-only store below the writable one: an image baked with models, used by many."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from process_support import Program

pytestmark = [pytest.mark.torch, pytest.mark.processes]

CALL = """
records = []
handler = logging.Handler()
handler.emit = lambda record: records.append(record.getMessage())
logging.getLogger("hybrid_infer").addHandler(handler)
if "engine" in os.environ:
    from hybrid_infer.backends.onnxruntime import OnnxRuntime
    OnnxRuntime.version = lambda self: os.environ["engine"]
from layers import Layer
layer = Layer().eval()
for rows in argument or (2, 2):
    check(layer.forward, torch.randn(rows, 8))
result = {**counts(), "log": records}
"""


@pytest.fixture
def base(program: Program) -> Path:
    """The cache of a process that ran before, put aside as an image would have it."""
    program.run(CALL)
    return Path(shutil.move(program.cache, program.cache.with_name("baked")))


def tree(path: Path) -> dict[str, tuple[int, int]]:
    return {str(item): (item.stat().st_mtime_ns, item.stat().st_size) for item in [path, *path.rglob("*")]}


def test_a_process_starts_warm_from_it_and_writes_nothing(program: Program, base: Path) -> None:
    before = tree(base)
    found = program.run(CALL, HYBRID_INFER_CACHE_READONLY=str(base))
    assert (found["attempts"], found["builds"], found["disk_loads"], found["hits"]) == (0, 0, 1, 2)
    assert tree(base) == before
    assert not program.cache.exists()


def test_a_plan_that_it_lacks_is_built_and_kept_in_the_writable_one(program: Program, base: Path) -> None:
    before = tree(base)
    both = {"HYBRID_INFER_CACHE_READONLY": str(base), "engine": "99.0"}
    found = program.run(CALL, **both)
    assert (found["attempts"], found["builds"], found["eager_calls"]) == (0, 1, 0)
    assert len(program.entries()) == 1
    found = program.run(CALL, **both)
    assert (found["attempts"], found["builds"], found["disk_loads"]) == (0, 0, 1)
    # The plan that was baked is used again by who has that engine, though its version lies in both stores now.
    found = program.run(CALL, HYBRID_INFER_CACHE_READONLY=str(base))
    assert (found["attempts"], found["builds"], found["disk_loads"]) == (0, 0, 1)
    assert tree(base) == before


def test_a_version_that_it_lacks_is_captured_and_kept_in_the_writable_one(program: Program, base: Path) -> None:
    before = tree(base)
    found = program.run(CALL, [2, 3], HYBRID_INFER_CACHE_READONLY=str(base))
    assert (found["captures"], found["disk_loads"]) == (1, 1)
    assert len(program.entries()) == 1
    found = program.run(CALL, [2, 3], HYBRID_INFER_CACHE_READONLY=str(base))
    assert found["attempts"] == 0
    assert tree(base) == before


def test_several_are_searched_and_one_that_is_missing_is_named_once(program: Program, base: Path) -> None:
    paths = os.pathsep.join([str(base.parent / "missing"), "", str(base), str(base), str(program.cache)])
    found = program.run(CALL, HYBRID_INFER_CACHE_READONLY=paths)
    assert (found["attempts"], found["disk_loads"]) == (0, 1)
    (line,) = [line for line in found["log"] if "READONLY" in line]
    assert "missing" in line and "no directory" in line


def test_what_is_damaged_there_is_made_again_elsewhere(program: Program, base: Path) -> None:
    for plan in base.rglob("bound.onnx"):
        plan.write_bytes(b"")
    before = tree(base)
    script = 'warnings.simplefilter("ignore")\n' + CALL
    found = program.run(script, HYBRID_INFER_CACHE_READONLY=str(base))
    assert (found["attempts"], found["builds"], found["eager_calls"]) == (0, 1, 0)
    found = program.run(CALL, HYBRID_INFER_CACHE_READONLY=str(base))
    assert (found["attempts"], found["builds"]) == (0, 0)
    assert tree(base) == before
