"""``save()`` and ``load()``: static models as files."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from hybrid_infer import _options

if TYPE_CHECKING:
    from hybrid_infer.static._static_layer import StaticLayer


_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def _by_name(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """The same function, which answers a misspelled option as ``inference()`` does."""
    known = tuple(inspect.signature(function).parameters)

    @functools.wraps(function)
    def checked(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        _options.check_names(kwargs, known, f"{function.__name__}()")
        return function(*args, **kwargs)

    return checked


@_by_name
def save(
    target: Any,
    path: str | os.PathLike[str],
    input_spec: list[Any] | None = None,
    *,
    trainable: bool = True,
    plans: bool = False,
) -> None:
    """Write a layer or function as a static model: graphs, weights and, for training, the framework's own programs.

    The graph is captured in evaluation mode, whatever the mode of the layer, and compared with the eager method. The
    program for training is captured in training mode. Neither the layer nor its mode is touched. Weights are written
    once each, in safetensors.

    Without `input_spec`, the model takes calls like those that the decorated method has seen: sizes that differed
    between them vary, and so does the first axis of each tensor where the graph allows it. A layer that was run at
    batch 16 can be loaded and run at batch 1 and 10,000.

    Parameters
    ----------
    target : a ``torch.nn.Module`` or ``paddle.nn.Layer``: each of its decorated methods is saved, ``forward`` as what
        a call of the loaded model runs (where its class defines none, the only one), and its forward if none is
        decorated; a bound method; a function, with the weights that it reaches; or what ``load()`` or ``as_layer()``
        gave, whose graphs stay as they are.
    path : the folder to write, which may hold an older static model.
    input_spec : an entry for each argument: InputSpec, an example tensor (which fixes its sizes), a plain value, or a
        list, tuple or dict of these; arguments left out take their defaults. Must be None where several methods are
        saved: each brings its own by ``inference(input_spec=...)``, or what it has seen. Of a function that takes a
        layer first: ``[layer, ...]``, or ``[layer]`` for what was seen of that one; None will do where there is one.
    trainable : carry the programs that ``as_layer()`` and ``train()`` need.
    plans : carry what the engine prepares for this machine, so that no process does that loads it.

    Raises
    ------
    SpecError
        the specs do not fit the arguments, or there are none and nothing was seen; a method is decorated beside a
        forward that is not.
    TypeError
        `target` is none of these, or `path` is no path; an option that there is not.
    CaptureError, BackendError
        the method has no static graph, or no engine computes it as the eager method does.
    StaticModelError
        `path` holds something that is no static model, or cannot be written.

    Examples
    --------
    >>> import tempfile, torch
    >>> from hybrid_infer import InputSpec, load, save
    >>> layer, path = torch.nn.Linear(4, 2), tempfile.mkdtemp()
    >>> save(layer, path, [InputSpec([None, 4], name="x")])
    >>> static = load(path)
    >>> static.input_spec
    [InputSpec(shape=(-1, 4), dtype=float32, name=x)]
    >>> x = torch.ones(3, 4)
    >>> bool(torch.allclose(static(x), layer(x), atol=1e-6))
    True
    """
    from hybrid_infer.static import _artefact, _model, _save, _save_again

    place = _path("save", path, "; the layer or function comes first, then the path" if _is_path(target) else "")
    _artefact.check(place)
    found = getattr(target, "hybrid_infer_model", None)
    model = found() if callable(found) else _save.model_of(target, input_spec, trainable=trainable)
    if callable(found):
        _save_again.check_again(model, input_spec)
        if not trainable:
            model = _save_again.without_programs(model)
    if plans:
        _save_again.add_plans(model)
    _model.write(model, place)


@_by_name
def load(
    path: str | os.PathLike[str],
    backend: str | list[str] = "auto",
    device: Any = None,
    precision_mode: str = "float32",
    with_trt: bool = False,
    *,
    trt_precision_mode: str = "float32",
    trt_use_static: bool = False,
    cache_static_model: bool = True,
    save_model_dir: str | os.PathLike[str] | None = None,
    switch_ir_optim: bool = True,
    core_handover: bool = True,
) -> StaticLayer:
    """Read a static model. None of the code that made it is needed; called with arrays, neither is its framework.

    It computes where the tensors of a call are: those of a GPU, CuPy's arrays among them, stay there. Loading runs no
    code from the file, and imports nothing that the file names.

    Parameters
    ----------
    path : what ``save()`` wrote; a static model of Paddle (``.json`` or ``.pdmodel`` with ``.pdiparams``, or their
        common stem); an ONNX file; a program of ``torch.export`` (``.pt2``).
    backend, device, precision_mode, with_trt, trt_precision_mode, trt_use_static, switch_ir_optim, core_handover : as
        of ``inference()``.
    cache_static_model, save_model_dir : whether what an engine prepares at the first call is kept in the store, for the
        next process, and where that is, likewise. Nothing is written beside the model.

    Raises
    ------
    StaticModelError
        it is not there, damaged, of a newer release, or of no form that is known; nothing is half-loaded.
    OptionError
        an option has a value that is not allowed. TypeError: `path` is no path; an option that there is not.

    Examples
    --------
    >>> import numpy as np, tempfile, torch
    >>> from hybrid_infer import InputSpec, load, save
    >>> path = tempfile.mkdtemp()
    >>> save(torch.nn.ReLU(), path, [InputSpec([None, 2], name="x")])
    >>> load(path)(np.float32([[-1, 2]]))
    array([[0., 2.]], dtype=float32)
    """
    from hybrid_infer import _trt
    from hybrid_infer.static import _artefact, _model
    from hybrid_infer.static._static_layer import StaticLayer

    options = _options.make(
        {
            "backend": backend, "device": device, "precision_mode": precision_mode, "with_trt": with_trt,
            "trt_precision_mode": trt_precision_mode, "trt_use_static": trt_use_static,
            "cache_static_model": cache_static_model, "save_model_dir": save_model_dir,
            "switch_ir_optim": switch_ir_optim, "core_handover": core_handover,
        }
    )  # fmt: skip
    options = _trt.static(options)
    place = _path("load", path)
    if _artefact.is_model(place):
        return StaticLayer(_model.read(place), options)
    from hybrid_infer.static import _foreign

    return StaticLayer(_foreign.read(place), options)


def _is_path(value: Any) -> bool:
    return isinstance(value, (str, os.PathLike))


def _path(function: str, path: Any, hint: str = "") -> str:
    """Raises TypeError, which names the parameter, for what is no path."""
    if _is_path(path):
        place = os.fspath(path)
        if isinstance(place, str):
            return place
    from hybrid_infer import _meant

    takes = f"it takes a string or an os.PathLike of one{hint}"
    raise TypeError(f"{function}() was given {_meant.given(path)} for `path`; {takes}")
