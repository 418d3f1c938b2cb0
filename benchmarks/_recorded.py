"""The very graph that the library stored, run by the engine alone: what the library gave to it is recorded.

The bare session reads its weights in place, as the library's does, so that both do the same work.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MODEL, WEIGHTS = "bound.onnx", "weights.npz"


@contextmanager
def recorded(folder: Path) -> Iterator[None]:
    """Write the model and the weights of every program that the engine loads in the block to `folder`."""
    from hybrid_infer.backends.onnxruntime import OnnxRuntime

    load = OnnxRuntime.load

    def recording(
        self: OnnxRuntime, graph: Any, weights: Sequence[Any], options: Any, files: Mapping[str, bytes] | None = None
    ) -> Any:
        import numpy as np

        files = files or self.prepare(graph, options)
        arrays = {name: array for name, array in zip(graph.weights, weights, strict=True) if name is not None}
        (folder / MODEL).write_bytes(files[MODEL])
        np.savez(folder / WEIGHTS, **arrays)
        return load(self, graph, weights, options, files)

    OnnxRuntime.load = recording  # type: ignore[method-assign]
    try:
        yield
    finally:
        OnnxRuntime.load = load  # type: ignore[method-assign]


def weights(folder: Path) -> dict[str, Any]:
    """The recorded weights, by the names of the graph, in memory of this process."""
    import numpy as np

    with np.load(folder / WEIGHTS) as stored:
        return {name: stored[name] for name in stored.files}


def session(folder: Path, arrays: Mapping[str, Any], threads: int) -> Any:
    """A session on the recorded model that reads `arrays` in place: both calls together share, one alone copies."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    values = [onnxruntime.OrtValue.ortvalue_from_numpy(array) for array in arrays.values()]
    options.add_external_initializers(list(arrays), values)
    for name, value in zip(arrays, values, strict=True):
        options.add_initializer(name, value)
    return onnxruntime.InferenceSession(str(folder / MODEL), options, providers=["CPUExecutionProvider"])
