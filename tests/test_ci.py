"""The check that follows the tests in continuous integration: no framework's and no engine's may have been skipped."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CHECK = Path(__file__).resolve().parent.parent / ".ci" / "frameworks_tested.py"
RAN = (
    '<testcase classname="tests.test_a" name="test_x[torch]"/><testcase classname="tests.test_paddle" name="test_y"/>'
    '<testcase classname="tests.test_b" name="test_z[openvino]"/><testcase classname="tests.tensorrt" name="test_t"/>'
)


def skipped(name: str, reason: str) -> str:
    return f'<testcase classname="" name="{name}"><skipped message="{reason}"/></testcase>'


@pytest.mark.parametrize(
    ("cases", "status"),
    [
        pytest.param(RAN, 0, id="all-ran"),
        pytest.param(RAN + skipped("tests.test_b", "could not import 'torch'"), 1, id="module-skipped"),
        pytest.param(RAN + skipped("test_z[paddle]", "not today"), 1, id="test-skipped"),
        pytest.param(RAN + skipped("test_z[torch]", "needs an NVIDIA GPU"), 0, id="no-gpu"),
        pytest.param(RAN + skipped("test_links", "no symbolic links here"), 0, id="other-skip"),
        pytest.param(RAN.partition("/>")[0] + "/>", 1, id="one-framework-alone"),
    ],
)
def test_a_skipped_framework_fails_the_run(cases: str, status: int, tmp_path: Path) -> None:
    report = tmp_path / "junit.xml"
    report.write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>", encoding="utf-8")
    done = subprocess.run([sys.executable, str(CHECK), str(report)], capture_output=True, text=True)
    assert done.returncode == status, done.stdout + done.stderr
