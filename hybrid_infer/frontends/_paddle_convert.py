"""Child process that turns a serialised Paddle program into ONNX.

paddle2onnx answers an operator or attribute that it does not know with ``abort()``, which no caller survives; here
only this process ends. It runs without site-packages and imports the two native modules alone, in a third of the
time that ``import paddle2onnx`` takes.

Called as ``python -I -S _paddle_convert.py REQUEST``: a JSON file with ``paddle`` and ``paddle2onnx`` (package
folders), ``program`` and ``weights`` (paths in, the second may be empty), ``onnx`` and ``supported`` (paths out: the
model, the operators that the converter knows), ``opset`` and ``path`` (the parent's sys.path). Succeeds with exit
code 0 and the ONNX file; otherwise what it printed says why.
"""

from __future__ import annotations

import ctypes
import glob
import importlib.machinery
import importlib.util
import json
import os
import sys
from types import ModuleType
from typing import Any, NoReturn


def _native(name: str, pattern: str) -> ModuleType:
    files = glob.glob(pattern)
    if not files:
        raise ImportError(f"no file {pattern}")
    loader = importlib.machinery.ExtensionFileLoader(name, files[0])
    spec = importlib.util.spec_from_loader(name, loader)
    if spec is None:
        raise ImportError(f"no module in {files[0]}")
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def _converter(request: dict[str, Any]) -> Any:
    if hasattr(sys, "setdlopenflags"):
        # Few functions of the library of the framework are called: to look all of them up takes a quarter of the time.
        sys.setdlopenflags(os.RTLD_LAZY)
    try:
        # The converter's run path names the machine on which it was built: it finds the framework's library only
        # if that is loaded already.
        _native("libpaddle", os.path.join(request["paddle"], "base", "libpaddle*.so"))
        return _native("paddle2onnx_cpp2py_export", os.path.join(request["paddle2onnx"], "paddle2onnx_cpp2py_export*"))
    except ImportError:
        # Builds for other devices need libraries that only the framework's own start-up code finds.
        sys.path[:] = request["path"]
        return importlib.import_module("paddle2onnx.paddle2onnx_cpp2py_export")


def main(path: str) -> None:
    with open(path, encoding="utf-8") as file:
        request = json.load(file)
    convert(_converter(request), request)


def convert(converter: Any, request: dict[str, Any]) -> NoReturn:
    """Do what a request asks for, with the converter's module, and end the process."""
    # Unbuffered, so that what the converter says before it aborts is read by the parent.
    libc = ctypes.CDLL(None)
    libc.setvbuf(ctypes.c_void_p.in_dll(libc, "stdout"), None, 2, 0)
    with open(request["supported"], "w", encoding="utf-8") as file:
        json.dump(list(converter.get_all_supported_operators_pir()), file)
    model = converter.export(
        request["program"], request["weights"], request["opset"], True, False, False, True, True, {}, "onnxruntime",
        "", "", False,
    )  # fmt: skip
    with open(request["onnx"], "wb") as out:
        out.write(model)
    # Native static destructors of two libraries that were never fully initialised have nothing to add.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
