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


NOWHERE = "/dev/null/hybrid_infer"  # where not even root can make a directory


def test_where_nothing_can_be_written_it_serves_without_a_word(program: Program, base: Path) -> None:
    """A container with a read-only root, and no directory of its own: warnings are errors in these processes."""
    both = {"HYBRID_INFER_CACHE_READONLY": str(base), "HYBRID_INFER_CACHE_DIR": NOWHERE}
    found = program.run(CALL, **both)
    assert (found["attempts"], found["builds"], found["disk_loads"], found["hits"]) == (0, 0, 1, 2)
    assert found["log"] == []


def test_what_it_lacks_there_is_captured_with_one_warning(program: Program, base: Path) -> None:
    before = tree(base)
    script = "seen = []\nwarnings.showwarning = lambda message, *_: seen.append(str(message))\n"
    script += 'warnings.simplefilter("always")\n' + CALL + '\nresult["seen"] = seen\n'
    both = {"HYBRID_INFER_CACHE_READONLY": str(base), "HYBRID_INFER_CACHE_DIR": NOWHERE}
    found = program.run(script, [2, 3, 5, 7], **both)
    assert (found["disk_loads"], found["captures"], found["eager_calls"]) == (1, 1, 0)
    assert len(found["seen"]) == 1 and "nothing was stored" in found["seen"][0]
    assert tree(base) == before


#: Every way to change something below a directory fails as it does on a file system that is mounted read-only.
MOUNTED = """
import errno
_baked = os.environ["HYBRID_INFER_CACHE_DIR"]

def _refused(call, writes):
    def wrapped(path, *args, **kwargs):
        below = str(path).startswith(_baked) or kwargs.get("dir_fd") is not None
        if below and writes(*args, **kwargs):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        return call(path, *args, **kwargs)
    return wrapped

_changes = os.O_WRONLY | os.O_RDWR | os.O_CREAT
os.open = _refused(os.open, lambda flags=0, *args, **kwargs: flags & _changes)
for _name in ("mkdir", "rename", "replace", "unlink", "rmdir", "utime", "chmod", "link", "symlink"):
    setattr(os, _name, _refused(getattr(os, _name), lambda *args, **kwargs: True))
seen = []
warnings.showwarning = lambda message, *_: seen.append(str(message))
warnings.simplefilter("always")
"""


def test_the_cache_itself_on_a_read_only_file_system(program: Program, base: Path) -> None:
    before = tree(base)
    script = MOUNTED + CALL + '\nresult["seen"] = seen\n'
    found = program.run(script, HYBRID_INFER_CACHE_DIR=str(base))
    assert (found["attempts"], found["builds"], found["disk_loads"], found["hits"]) == (0, 0, 1, 2), str(found)
    assert len(found["seen"]) <= 1
    found = program.run(script, [2, 3], HYBRID_INFER_CACHE_DIR=str(base))
    assert (found["captures"], found["eager_calls"]) == (1, 0) and len(found["seen"]) == 1
    assert tree(base) == before


def test_the_program_of_the_container_starts_warm(tmp_path: Path) -> None:
    """The steps of examples/container/Dockerfile, without a container."""
    import subprocess
    import sys

    repository = Path(__file__).resolve().parents[2]
    app, baked = repository / "examples" / "container" / "app.py", tmp_path / "static-models"
    environment = {**os.environ, "PYTHONPATH": str(repository), "HYBRID_INFER_CACHE_DIR": NOWHERE}
    environment["HYBRID_INFER_BACKEND"] = "onnxruntime"
    warm = [sys.executable, "-m", "hybrid_infer", "warm", "--cache-dir", str(baked), str(app), "--steps", "1"]
    done = subprocess.run(warm, capture_output=True, text=True, timeout=200, env=environment, cwd=tmp_path)
    assert done.returncode == 0 and "1 static model stored" in done.stdout, done.stdout + done.stderr
    environment["HYBRID_INFER_CACHE_READONLY"] = str(baked)
    run = [sys.executable, str(app), "--steps", "3"]
    done = subprocess.run(run, capture_output=True, text=True, timeout=200, env=environment, cwd=tmp_path)
    assert done.stdout == "captures 0, disk_loads 1, hits 3, eager_calls 0\n" and done.stderr == "", done.stderr
