"""A server that forks processes with PyTorch imported and nothing else of what is tested.

Each test of this folder is about several processes, and each of these would spend a second on `import torch` alone. A
fork of this one has what a fresh interpreter has after that line: the library is not imported here, no operator has
run and no thread was started.

Started as ``python zygote.py <socket> [module ...]``. A request is one JSON line; a child answers with its process id
on one line and, at its end, with its result on another. A connection that ends without a result is that of a child that
was killed.
"""

from __future__ import annotations

import gc
import importlib
import io
import json
import os
import signal
import socket
import sys
import traceback
from typing import Any


def run(request: dict[str, Any], connection: socket.socket) -> None:
    """Run the script of a request in this process, and end it."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    connection.sendall(f"{os.getpid()}\n".encode())
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    sys.path.insert(0, request["folder"])
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    sys.stdout = io.TextIOWrapper(io.FileIO(1, "w", closefd=False), write_through=True)
    sys.stderr = io.TextIOWrapper(io.FileIO(2, "w", closefd=False), write_through=True)
    namespace: dict[str, Any] = {"__name__": "script", "argument": request["argument"]}
    answer: dict[str, Any] = {}
    try:
        exec(compile(request["script"], "script", "exec"), namespace)
        answer["result"] = namespace.get("result")
    except BaseException:
        answer["error"] = traceback.format_exc()
    connection.sendall(json.dumps(answer).encode() + b"\n")
    # Without the interpreter's clean-up: what a script leaves behind is the operating system's business.
    os._exit(0)


def serve(path: str) -> None:
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen(32)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children are reaped by the system
    gc.freeze()
    while True:
        connection, _ = server.accept()
        line = connection.makefile("rb").readline()
        if not line:
            connection.close()
            continue
        if os.fork() == 0:
            server.close()
            run(json.loads(line), connection)
        connection.close()


if __name__ == "__main__":
    sys.dont_write_bytecode = True  # a module that was edited within a second must not be taken from a .pyc
    for name in sys.argv[2:]:
        importlib.import_module(name)
    serve(sys.argv[1])
