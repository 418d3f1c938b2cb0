"""Programs that are run at a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
from pathlib import Path


def sent(
    file: Path, environment: dict[str, str], *, rows: int = 0, columns: int = 0, interrupted_at: str = ""
) -> str:
    """All that a program sends to its terminal, at which somebody types Ctrl-C once a text has been drawn."""
    ours, theirs = pty.openpty()
    if rows:
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    process = subprocess.Popen(
        [sys.executable, str(file)], stdin=theirs, stdout=theirs, stderr=theirs, cwd=file.parent,
        env={**os.environ, "TERM": "xterm", **environment},
    )  # fmt: skip
    os.close(theirs)
    found = b""
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        found += part
        if interrupted_at and interrupted_at.encode() in found:
            process.send_signal(signal.SIGINT)
            interrupted_at = ""
    os.close(ours)
    assert process.wait(60) == 0, found
    return found.decode()
