"""Static models that others wrote: of Paddle, ONNX and ``torch.export``."""

from __future__ import annotations

import logging
import os

from hybrid_infer._errors import StaticModelError
from hybrid_infer.static._model import Model

_log = logging.getLogger("hybrid_infer")

_WEIGHTS = (".pt", ".pth", ".ckpt", ".bin", ".pdparams", ".safetensors")
_WITHOUT_GRAPH = (
    "files of this name hold weights, pickled objects or TorchScript, which it does not take. Load it by the "
    "framework's own load(), weights into their layer, and give the layer to inference() or save()"
)
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
        from hybrid_infer.static import _onnx_file

        return _onnx_file.read(path)
    if suffix == ".pt2" and os.path.exists(path):
        from hybrid_infer.static import _exported

        return _exported.read(path)
    if suffix == ".pdiparams":
        path = stem
    found = _paddle(path)
    if found:
        return _of_paddle(*found)
    if os.path.exists(path) and suffix in _WEIGHTS:
        raise StaticModelError(path, _WITHOUT_GRAPH)
    if os.path.exists(path):
        raise StaticModelError(path, "it is in no form that is known here", _KNOWN)
    raise StaticModelError(path, "there is no such file or folder", _KNOWN)


def _of_paddle(program: str, weights: str) -> Model:
    """Converted, and compared with what Paddle itself computes: the converter overlooks some attributes."""
    from hybrid_infer._errors import EngineError
    from hybrid_infer._options import Options
    from hybrid_infer.checks import _verify
    from hybrid_infer.frontends._paddle_files import convert_files, reference
    from hybrid_infer.static import _onnx_file, _static_call, _static_programs
    from hybrid_infer.static._saved_target import example

    model = _onnx_file.model_of(convert_files(program, weights), program, "paddle")
    saved = model.methods["forward"].versions[0]
    version, frontend = saved.version, _static_call.arrays()
    assert version.graph is not None
    choices = []
    for size in (32, 224, 8, 2, 1):
        arrays = []
        for tensor in version.tensors:
            shape = [(size if axis else 2) if n is None else n for axis, n in enumerate(tensor.shape)]
            arrays.append(example(frontend, tensor.dtype, shape, 1))
        choices.append(arrays)
    named = [dict(zip(saved.names, arrays, strict=True)) for arrays in choices]
    found = reference(program, weights, named)
    if found is None:
        _log.warning("%s: what it was converted to could not be compared with Paddle's own results", program)
        return model
    try:
        programs = _static_programs.Programs(model, Options(backend=("onnxruntime",), cache_static_model=False))
        own = programs.of(saved, frontend).program.run(choices[found[0]])
        dtypes = [spec.dtype for spec in version.graph.output_specs]
        _verify.compare(found[1], own, dtypes, from_floats=True)
    except _verify.Inconclusive as fault:
        _log.debug("%s: %s", program, fault)
    except (_verify.Disagreement, EngineError) as fault:
        raise StaticModelError(program, f"it cannot be converted faithfully: {fault}") from fault
    return model


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
