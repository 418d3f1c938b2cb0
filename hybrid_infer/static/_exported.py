"""A program of ``torch.export`` in a file (``.pt2``) as a static model, through the capture that the decorator uses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hybrid_infer._errors import HybridInferError, StaticModelError
from hybrid_infer._parameters import Parameters
from hybrid_infer._signature import Signatures
from hybrid_infer._types import TensorSpec
from hybrid_infer.static import _pt2_archive, _save
from hybrid_infer.static._model import FORWARD, Model
from hybrid_infer.static._saved_target import Case, Target
from hybrid_infer.static._static_layer import frontend


def read(path: str) -> Model:
    """Raises StaticModelError."""
    _pt2_archive.check(path)
    torch = frontend("torch")
    module, signature, values, shapes = torch.open_program(path)

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        return type(self).forward(self, *args, **kwargs)

    forward.__signature__ = signature  # type: ignore[attr-defined]
    forward.__module__, forward.__qualname__ = type(module).__module__, path
    parameters = Parameters(forward, owner=True)
    layout = Signatures(torch).layout(values, parameters.names)
    names = [place.removeprefix("argument ").replace("`", "") for place in layout.places]
    tensors = [
        TensorSpec(torch.describe(tensor)[0], shape) for tensor, shape in zip(layout.tensors, shapes, strict=True)
    ]
    case = Case(
        layout.tree, tensors, list(layout.ints), names, [None] * len(tensors), [], list(layout.places), exact=True,
        hint=tuple(tuple(tensor.shape) for tensor in layout.tensors),
    )  # fmt: skip
    target = Target(FORWARD, forward, module, torch, parameters, [case])
    try:
        model = _save.model_of_targets([target], trainable=False)
    except StaticModelError:
        raise
    except HybridInferError as fault:
        raise StaticModelError(path, str(fault)) from fault
    return replace(model, path=path, untrainable="it was read from a program of torch.export, which is kept as it is")
