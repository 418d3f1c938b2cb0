"""A server that forks processes with a framework imported and nothing else of what is tested.

A test of several processes would spend seconds on `import torch` in each of them. A fork of this one has what a fresh
interpreter has after that line: the library is not imported here, no operator has run and no thread was started.

Started as ``python zygote.py <socket> [module ...]``. A request is one JSON line; a child answers with its process id
on one line and, at its end, with its result on another. A connection that ends without a result is that of a child that
was killed. A request with "arguments" is for a program that runs, and ends, as one of ``python`` does: its result is
its exit status. The server ends when its standard input does.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import io
import json
import os
import select
import signal
import socket
import sys
import threading
import traceback
import types
from typing import Any


def redirect(out: str, errors: str) -> None:
    """Standard output and error to two files, which may be one."""
    for number, path in ((1, out), (2, errors)):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(file, number)
        os.close(file)
    sys.stdout = io.TextIOWrapper(io.FileIO(1, "w", closefd=False), write_through=True)
    sys.stderr = io.TextIOWrapper(io.FileIO(2, "w", closefd=False), write_through=True)


def redirect_input() -> None:
    """Standard input to nothing."""
    file = os.open(os.devnull, os.O_RDONLY)
    os.dup2(file, 0)
    os.close(file)


def main(request: dict[str, Any]) -> int:
    """Run a program as ``__main__``, its file or, without one, its text, to its end; its exit status."""
    arguments = request["arguments"]
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    redirect(request["out"], request["log"])
    file, module = request["file"], types.ModuleType("__main__")
    sys.argv[:] = [file or "-c", *arguments]
    path = [entry for entry in request["environment"].get("PYTHONPATH", "").split(os.pathsep) if entry]
    sys.path[:] = [os.path.dirname(file) if file else "", *path, *_PATH]
    sys.modules["__main__"] = module
    if file:
        module.__file__ = file
    try:
        exec(compile(request["script"], file or "<string>", "exec"), vars(module))
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        status = 1
    # As an interpreter ends: threads are joined, and what was registered is run.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    return status


def waited_for(request: dict[str, Any], connection: socket.socket) -> None:
    """Run a program in a child of this process, and answer with its exit status once it has ended."""
    child = os.fork()
    if child == 0:
        connection.close()
        # Without what C++ does at the end of a process: the threads of the frameworks' pools are not in a fork.
        os._exit(main(request))
    connection.sendall(f"{child}\n".encode())
    _, status = os.waitpid(child, 0)
    connection.sendall(json.dumps({"result": os.waitstatus_to_exitcode(status)}).encode() + b"\n")
    os._exit(0)


def run(request: dict[str, Any], connection: socket.socket) -> None:
    """Run the script of a request in this process, and end it."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if "arguments" in request:
        waited_for(request, connection)
    connection.sendall(f"{os.getpid()}\n".encode())
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    sys.path.insert(0, request["folder"])
    redirect(request["log"], request["log"])
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
    asked = os.dup(0)  # which ends with the process that started this one, however that ends
    redirect_input()
    gc.freeze()
    while asked not in select.select([server, asked], [], [])[0]:
        connection, _ = server.accept()
        line = connection.makefile("rb").readline()
        if not line:
            connection.close()
            continue
        if os.fork() == 0:
            server.close()
            run(json.loads(line), connection)
        connection.close()
    os.unlink(path)
    with contextlib.suppress(OSError):  # of another server too
        os.rmdir(os.path.dirname(path))


#: Of the interpreter, without the folder of this file and what PYTHONPATH names.
_PATH = sys.path[1 + len([entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]) :]

if __name__ == "__main__":
    sys.dont_write_bytecode = True  # a module that was edited within a second must not be taken from a .pyc
    for name in sys.argv[2:]:
        importlib.import_module(name)
    serve(sys.argv[1])
