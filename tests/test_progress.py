"""The line that shows at a terminal while a method is captured: what is left of it on the screen, and elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import terminal

REPOSITORY = Path(__file__).resolve().parents[1]

PROGRAM = """
import sys, threading, time
from hybrid_infer import _progress

print("step 1: ", end="", flush=True)
with _progress.working("preparing a.Layer.forward"):
    time.sleep(1.3)
    with _progress.working("capturing a.Layer.forward"):
        time.sleep(0.5)
        print("said meanwhile", flush=True)
        sys.stderr.write("a log line\\n")
        time.sleep(0.6)
    with _progress.working("building a.Layer.forward"):
        time.sleep(0.5)
print("done")
with _progress.working("something short"):
    time.sleep(0.1)
print("end")
"""
SAID = ["step 1: said meanwhile", "a log line", "done", "end"]


class Screen:
    """As much of a VT100 as the line needs: rows that scroll, and a cursor that can be saved."""

    def __init__(self, rows: int, columns: int) -> None:
        self.rows, self.columns = rows, columns
        self.lines = [[" "] * columns for _ in range(rows)]
        self.gone: list[str] = []
        self.row = self.column = 0
        self.saved = (0, 0)

    def down(self) -> None:
        if self.row < self.rows - 1:
            self.row += 1
            return
        self.gone.append("".join(self.lines.pop(0)).rstrip())
        self.lines.append([" "] * self.columns)

    def feed(self, text: str) -> None:
        for part in re.findall(r"\x1b\[[0-9;]*[A-Za-z]|\x1b[D78]|[\s\S]", text):
            if part == "\n" or part == "\x1bD":
                self.down()
            elif part == "\r":
                self.column = 0
            elif part == "\x1b[A":
                self.row = max(0, self.row - 1)
            elif part == "\x1b7":
                self.saved = (self.row, self.column)
            elif part == "\x1b8":
                self.row, self.column = self.saved
            elif part == "\x1b[K":
                self.lines[self.row][self.column :] = [" "] * (self.columns - self.column)
            else:
                assert part[0] != "\x1b", part
                self.lines[self.row][self.column] = part
                self.column += 1

    def text(self) -> list[str]:
        rows = [*self.gone, *("".join(line).rstrip() for line in self.lines)]
        return [row for row in rows if row]


def at_a_terminal(program: str, folder: Path, rows: int = 24, columns: int = 60) -> tuple[str, list[str]]:
    """All that a program sends to a terminal, and what is left on it."""
    file = folder / "program.py"
    file.write_text(textwrap.dedent(program))
    sent = terminal.sent(file, {"PYTHONPATH": str(REPOSITORY)}, rows=rows, columns=columns)
    screen = Screen(rows, columns)
    screen.feed(sent)
    return sent, screen.text()


@pytest.mark.processes
@pytest.mark.parametrize("rows", [24, 3], ids=["a tall terminal", "one that scrolls"])
def test_the_program_s_own_output_is_left_as_it_is(tmp_path: Path, rows: int) -> None:
    sent, left = at_a_terminal(PROGRAM, tmp_path, rows)
    assert left == SAID
    assert "preparing a.Layer" in sent and "capturing a.Layer" in sent and "building a.Layer" in sent
    assert "something short" not in sent  # it took less than a second


@pytest.mark.processes
def test_a_narrow_terminal_gets_a_line_that_fits(tmp_path: Path) -> None:
    sent, left = at_a_terminal(PROGRAM, tmp_path, columns=30)
    assert left == SAID and "hybrid_infer: preparing a.Lay" in sent


@pytest.mark.processes
def test_a_bar_that_is_longer_than_the_terminal_is_wide_is_cut(tmp_path: Path) -> None:
    """As that of ``warmup()`` with the whole name of a method: a part of a broken line would stay."""
    program = """
    import time
    from hybrid_infer import _progress

    print("before")
    for _ in _progress.steps([1, 2, 3], "compiling package.of.the.program.Class.transformer_blocks"):
        time.sleep(0.01)
    print("after")
    """
    for columns in (100, 60, 30):
        sent, left = at_a_terminal(program, tmp_path, columns=columns)
        assert left == ["before", "after"], columns
        assert "2/3 [" in sent and ("compiling package" in sent) == (columns > 50)


@pytest.mark.processes
def test_nothing_is_written_where_there_is_no_terminal(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, env=environment, timeout=60)
    assert (done.stdout.splitlines(), done.stderr) == ([*SAID[:1], *SAID[2:]], "a log line\n")
    sent, left = at_a_terminal(f"import os; os.environ['TERM'] = 'dumb'\n{PROGRAM}", tmp_path)
    assert left == SAID and "\x1b" not in sent


@pytest.mark.processes
@pytest.mark.torch
def test_a_capture_is_shown(tmp_path: Path) -> None:
    program = f"""
    import os, time, torch
    os.environ["HYBRID_INFER_CACHE_DIR"] = {str(tmp_path / "cache")!r}
    from hybrid_infer import inference

    @inference
    def slow(x):
        if "Fake" in type(x).__name__:
            time.sleep(1.5)
        return x + 1

    with torch.no_grad():
        print("result", float(slow(torch.ones(2)).sum()))
    """
    sent, left = at_a_terminal(program, tmp_path, columns=100)
    assert left == ["result 4.0"] and "hybrid_infer: capturing __main__.slow" in sent


BESIDE = """
import subprocess, sys, time
from hybrid_infer import _progress

SAYING = "import time\\nfor n in range(8): time.sleep(0.3); print('said by the child', n, flush=True)"
child = subprocess.Popen([sys.executable, "-c", SAYING])
with _progress.working("preparing a.Layer.forward"):
    child.wait()
    time.sleep(0.5)
print("done")
"""


@pytest.mark.processes
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="nothing tells which processes write to a terminal")
def test_what_a_child_says_is_left_as_it_is(tmp_path: Path) -> None:
    sent, left = at_a_terminal(BESIDE, tmp_path)
    assert left == [*(f"said by the child {n}" for n in range(8)), "done"]
    assert "hybrid_infer: preparing" in sent  # once the child has ended


@pytest.mark.processes
def test_what_keeps_multiprocessing_s_books_hides_no_line(tmp_path: Path) -> None:
    program = f"from multiprocessing import resource_tracker\nresource_tracker.ensure_running()\n{PROGRAM}"
    sent, left = at_a_terminal(program, tmp_path)
    assert left == SAID and "preparing a.Layer" in sent


FORKING = """
import os, signal, sys, time, warnings
from hybrid_infer import _progress

warnings.simplefilter("ignore")  # of Python 3.12, at a fork, which would wait for the lock that is held here

with _progress.working("preparing a.Layer.forward"):
    time.sleep(1.3)
    [line] = _progress._lines
    with line._drawing, _progress._LOCK:  # as the thread that draws has them at whatever moment
        child = os.fork()
        if child == 0:
            signal.alarm(10)
    if child == 0:
        print("said by the child", flush=True)
        with _progress.working("something else"):
            assert "write" not in vars(sys.stdout)
if child == 0:
    os._exit(0)
print("ended with", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.processes
def test_a_process_that_is_forked_meanwhile_waits_for_no_thread_that_draws(tmp_path: Path) -> None:
    """What a child says while its parent draws may leave a part of the line behind: that it ends is what counts."""
    sent, left = at_a_terminal(FORKING, tmp_path)
    assert left[0] == "said by the child" and "ended with 0" in sent
