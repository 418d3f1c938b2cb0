"""What a process of tests leaves behind that ends without notice, as by a fault of a framework's or a time limit."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

SCRIPT = """
import sys, time
import forks
zygote = forks.Zygote("json")
print(*zygote._servers, flush=True)
time.sleep(300)
"""


def test_the_servers_of_forks_end_with_it() -> None:
    tests = Path(__file__).resolve().parents[1]
    with subprocess.Popen([sys.executable, "-c", SCRIPT], cwd=tests, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            places = process.stdout.readline().split()
            began = [*map(os.path.exists, places)]
        finally:
            process.kill()
    assert began == [True, True]
    end = time.monotonic() + 60
    while any(map(os.path.exists, places)) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(map(os.path.exists, places))
