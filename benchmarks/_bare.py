"""The bare engine: an ONNX Runtime session on a graph exported by hand, as its users would use it."""

from __future__ import annotations

import contextlib
import io
import logging
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.models import Case, Workload, import_paddle


def export(case: Case, workload: Workload, folder: Path) -> Path:
    """Write the workload's layer, weights included, as an ONNX file with fixed shapes; return its path."""
    path = folder / "model.onnx"
    # The exporters report their progress on standard output.
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if case.framework == "torch":
            _export_torch(workload, path)
        else:
            _export_paddle(workload, path)
    return path


def _export_torch(workload: Workload, path: Path) -> None:
    import torch

    for name in ("torch.onnx", "onnxscript"):
        logging.getLogger(name).setLevel(logging.ERROR)
    torch.onnx.export(
        workload.layer,
        workload.args,
        str(path),
        kwargs=dict(workload.kwargs),
        dynamo=True,
        verbose=False,
        external_data=False,
    )


def _export_paddle(workload: Workload, path: Path) -> None:
    paddle = import_paddle()
    import paddle2onnx

    specs = [paddle.static.InputSpec(tensor.shape, tensor.dtype) for tensor in workload.tensors()]
    with tempfile.TemporaryDirectory() as folder:
        static = paddle.jit.to_static(workload.layer, input_spec=specs, full_graph=True)
        paddle.jit.save(static, f"{folder}/model")
        # Its default for optimize_tool installs packages at run time.
        files = (f"{folder}/model.json", f"{folder}/model.pdiparams", str(path))
        paddle2onnx.export(*files, opset_version=17, optimize_tool=None)


def session(path: Path, threads: int) -> Any:
    """A session with default settings, but for the number of threads; 0: as many as it takes by itself."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def feed(bare: Any, tensors: Sequence[Any]) -> dict[str, Any]:
    """The session's inputs as ready arrays, in the order of the call's tensors."""
    return {spec.name: tensor.numpy() for spec, tensor in zip(bare.get_inputs(), tensors, strict=True)}


def threads(framework: str) -> int:
    """The width of torch's own pool. Paddle's is one thread unless it is told otherwise: there the engine decides."""
    if framework == "torch":
        import torch

        return int(torch.get_num_threads())
    return 0
