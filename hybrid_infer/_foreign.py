"""Static models that others wrote: of Paddle, ONNX and ``torch.export``."""

from __future__ import annotations

import os

from hybrid_infer._errors import StaticModelError
from hybrid_infer._model import Model

_KNOWN = (
    "It takes what save() wrote, Paddle's .json or .pdmodel with .pdiparams beside it (or their common stem), .onnx, "
    "and .pt2"
)


def read(path: str) -> Model:
    """The static model in a file, by the file's suffix. Raises StaticModelError."""
    stem, suffix = os.path.splitext(path)
    if os.path.isdir(path):
        raise StaticModelError(path, "this folder holds no static model", _KNOWN)
    if suffix == ".onnx" and os.path.exists(path):
        from hybrid_infer import _onnx_file

        return _onnx_file.read(path)
    if suffix == ".pt2" and os.path.exists(path):
        from hybrid_infer import _exported

        return _exported.read(path)
    if suffix == ".pdiparams":
        path = stem
    found = _paddle(path)
    if found:
        from hybrid_infer import _onnx_file
        from hybrid_infer.frontends._paddle_onnx import convert_files

        return _onnx_file.model_of(convert_files(*found), found[0], "paddle")
    if os.path.exists(path):
        raise StaticModelError(path, "it is in no form that is known here", _KNOWN)
    raise StaticModelError(path, "there is no such file or folder", _KNOWN)


def _paddle(path: str) -> tuple[str, str] | None:
    """The program and the parameters of Paddle's static model at a path or with a stem."""
    stem, suffix = os.path.splitext(path)
    choices = [path] if suffix in (".json", ".pdmodel") else [f"{path}.json", f"{path}.pdmodel"]
    stem = stem if suffix in (".json", ".pdmodel") else path
    program = next((each for each in choices if os.path.isfile(each)), None)
    if program is None:
        return None
    weights = f"{stem}.pdiparams"
    if not os.path.isfile(weights):
        raise StaticModelError(program, f"its weights are not beside it: there is no {os.path.basename(weights)}")
    return program, weights
