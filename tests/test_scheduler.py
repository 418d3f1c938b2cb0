"""How `make test` deals with a worker that dies: it costs the test that the worker was at, and the run ends."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

#: A program's tests with the project's scheduler: what the project's conftest does, and no more.
CONFTEST = """
import scheduler

def pytest_xdist_make_scheduler(config, log):
    return scheduler.FilesOnWorkers(config, log)
"""
DIE = '__import__("os")._exit(1)'


@pytest.mark.processes
@pytest.mark.parametrize(
    ("sizes", "deadly"),
    [
        pytest.param([5] * 6, {(3, 2)}, id="inside-a-file"),
        pytest.param([1, 1, 1, 1, 1, 1, 1], {(3, 0)}, id="files-of-one-test"),
        pytest.param([4, 1, 4, 1, 4, 1], {(0, 0), (2, 3), (5, 0)}, id="first-last-and-only"),
        pytest.param([3, 1], {(0, 2)}, id="as-many-files-as-workers"),
    ],
)
def test_a_dead_worker_costs_one_test(sizes: list[int], deadly: set[tuple[int, int]], tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST, encoding="utf-8")
    for file, size in enumerate(sizes):
        source = "".join(
            f"def test_{test}():\n    {DIE if (file, test) in deadly else 'pass'}\n" for test in range(size)
        )
        (tmp_path / f"test_{file}.py").write_text(source, encoding="utf-8")
    report = tmp_path / "junit.xml"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n2", "--dist=loadfile", f"--junitxml={report}", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    cases = ElementTree.parse(report).getroot().iter("testcase")
    ran = {f"{case.get('classname')}.{case.get('name')}": len(case) > 0 for case in cases}
    wanted = {
        f"test_{file}.test_{test}": (file, test) in deadly for file, size in enumerate(sizes) for test in range(size)
    }
    assert ran == wanted, done.stdout
