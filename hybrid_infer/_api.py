"""The public functions: validate, wrap, bind."""

from __future__ import annotations

import functools
import inspect
import sys
import types
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, cast

from hybrid_infer import _frontends, _method, _options
from hybrid_infer._errors import HybridInferError
from hybrid_infer._method import Bound, HotMethod
from hybrid_infer._typed import Decorator
from hybrid_infer.objects import _callables

_Options = ParamSpec("_Options")


def _as_given(function: Callable[Concatenate[Any, _Options], Any]) -> Decorator[_Options]:
    """``inference()`` as far as it depends on what was given rather than on values: names, and whether any option."""

    @functools.wraps(function)
    def given(*args: Any, **kwargs: Any) -> Any:
        names = [name for name in kwargs if name != "function"]
        _options.check_names(names)
        if names or len(args) > 1:
            return function(*args, **kwargs)
        decorator = function()  # type: ignore[call-arg]
        target = args[0] if args else kwargs.get("function")

        def decorate(target: Any) -> Any:
            return target if is_inference_mode(target) else decorator(target)

        return _of_one(decorate) if target is None else decorate(target)

    return cast("Decorator[_Options]", given)


def _of_one(decorate: Callable[[Any], Any]) -> Callable[..., Any]:
    """A decorator that says itself what it takes: Python would name what is written here, of which nobody knows."""

    def decorator(*args: Any, **kwargs: Any) -> Any:
        if len(args) != 1 or kwargs:
            more = "" if not kwargs else f" and {', '.join(map(repr, kwargs))}"
            raise TypeError(
                f"What inference() made of its options was given {len(args)} arguments{more}; it takes one: a function "
                "written in Python, a bound method, a torch.nn.Module or a paddle.nn.Layer, as in `inference()(layer)`"
                + _OF_NONE
            )
        return decorate(args[0])

    return decorator


@_as_given
def inference(
    function: Any = None,
    cache_static_model: bool = True,
    save_model_dir: str | None = None,
    memory_pool_init_size_mb: int = 1000,
    precision_mode: str = "float32",
    switch_ir_optim: bool = True,
    switch_ir_debug: bool = False,
    enable_cinn: bool = False,
    with_trt: bool = False,
    trt_precision_mode: str = "float32",
    trt_use_static: bool = False,
    collect_shape: bool = False,
    enable_new_ir: bool = False,
    exp_enable_use_cutlass: bool = False,
    delete_pass_lists: list[str] | None = None,
    skip_prune_program: bool = False,
    *,
    backend: str | list[str] = "auto",
    device: Any = None,
    input_spec: list[Any] | None = None,
    weights: str = "auto",
    fallback: str = "eager",
    verify: str = "build",
    rtol: float | None = None,
    atol: float | None = None,
    background: bool = False,
    core_handover: bool = True,
    max_versions: int = 8,
    cache_key: str | None = None,
) -> Any:
    """Serve a hot method, a function or a whole layer from a static graph; the rest of the program stays eager.

    The first call traces the method into a graph, builds a plan with an engine, compares its result with the eager
    one and keeps the graph on disk; the next process starts from there. What the method returns is what it returns
    eagerly. A method that cannot be captured or built runs eagerly, with one logged reason.

    Forms: ``@inference()`` or ``@inference`` above a method of a layer's class, or above a function of tensors;
    ``layer = inference(layer)``, which gives back the same layer with its ``forward`` replaced; ``layer.f =
    inference(layer.f)`` for one bound method. A function whose first argument is a layer, or an object with layers
    among its attributes, is served for each of these with its own weights, as a method of it would be. What is wrapped
    already is returned as it is; where options are given, these hold from then on, in place of all that were given
    before.

    Parameters
    ----------
    function : a function, a bound method, a ``torch.nn.Module`` or a ``paddle.nn.Layer``. Without it, or with None: a
        decorator.
    cache_static_model : keep static models on disk and reuse them. False: nothing is read from or left there.
    save_model_dir : root of the store. Default: ``HYBRID_INFER_CACHE_DIR``, else the user's cache directory.
    memory_pool_init_size_mb : MB, first reservation of the GPU arena (of no effect on a CPU).
    precision_mode : "float32": types as the graph has them. "bfloat16", "float16": the float32 operands of products are
        rounded to that type and summed in float32; arguments, results, normalisations and reductions stay in float32.
        OpenVINO computes in bfloat16 where the processor has instructions for it. Elsewhere ONNX Runtime rounds and
        computes in float32: no faster than float32, which the log says (INFO). Compared with eager by the tolerance of
        that type.
    switch_ir_optim : False: none of our passes but those that another option demands, and the engine's own optimisation
        at its lowest.
    switch_ir_debug : write the graph after every pass to ``v1/debug`` of the store; the log says where (INFO).
    enable_cinn : take the native engine, with its fusing compiler, for tensors on a GPU without measuring; one warning
        where it cannot be had. Without it, it is measured there like any other.
    with_trt, trt_precision_mode, trt_use_static, collect_shape : TensorRT, its precision, its profiles.
    enable_new_ir, exp_enable_use_cutlass : accepted for programs written for Paddle; without effect.
    delete_pass_lists : names of passes to leave out, of "identity", "fold", "prune" and "precision".
    skip_prune_program : leave the pass "prune" out: weights that no result needs are watched for changes too.
    backend : "onnxruntime", "openvino" (the extra ``[openvino]``), or a list of names in the order to try them.
        "native" runs the plan of our own executor step by step with NumPy: slow, for tests and debugging.
        "auto": ``HYBRID_INFER_BACKEND``, else what is measured to be fastest when the method is first called with
        tensors of about that size, the eager method among it; OpenVINO, which loses NaNs in some of its operations,
        only for graphs without these, and where NaNs and infinities put into the arguments come out as they do of the
        eager method.
    device : "cpu", "gpu", "gpu:<index>", or "cuda" for "gpu"; or a ``torch.device`` or a place of Paddle. Default:
        where the tensors of the call are.
    input_spec : specs of the inputs (or example tensors), to compile ahead of the first call: at once for a layer or a
        bound method, else before the first call of each instance. Sizes that are None vary from the start.
    weights : "bound": packed by the engine, watched for changes at every call. "live": fed at every call, so that
        any change is seen, at the cost of a tenth of the speed. "auto": bound, and live once they have changed several
        times, except on a GPU.
    fallback : "eager", or "error" to raise CaptureError or BackendError instead of running eagerly.
    verify : compare with the eager method: "build" (once for each plan and machine), "first" (once per process and
        instance), "always", "off".
    rtol, atol : tolerances of that comparison, in place of those of the element type.
    background : answer calls eagerly while the static model is loaded or compiled by another thread, which has a child
        process trace where it can (on Linux, while no GPU is in use). The instance lives at least until that is done.
    core_handover : hand the cores over between the framework's threads and the engine's around each call.
    max_versions : how many static models one instance may have; calls that need more run eagerly.
    cache_key : vouches for what cannot be fingerprinted, so that the method may be kept on disk all the same.

    Raises
    ------
    OptionError
        a value is not allowed. TypeError: an unknown option, or something that is no function or layer.

    Examples
    --------
    >>> import torch
    >>> from hybrid_infer import inference
    >>> class Block(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.linear = torch.nn.Linear(4, 4)
    ...     @inference(cache_static_model=False)
    ...     def forward(self, x):
    ...         return torch.relu(self.linear(x))
    >>> block, x = Block().eval(), torch.ones(2, 4)
    >>> with torch.no_grad():
    ...     first, second = block(x), block(x)
    >>> bool(torch.allclose(first, second)), first.shape
    (True, torch.Size([2, 4]))
    """
    given = {name: value for name, value in locals().items() if name != "function"}
    options = _options.make(given)
    if function is None:
        return _of_one(lambda target: wrap(target, options))
    return wrap(function, options)


def wrap(target: Any, options: _options.Options, asked: str = "inference") -> Any:
    """`asked`: the function that was given the target, for what is said of it."""
    refuse_odd(target, asked)
    if isinstance(target, staticmethod):
        return staticmethod(_method.decorate_function(_method.undecorated(target.__func__), options))
    found = getattr(target, "__hybrid_infer__", None)
    if found is not None and (found.options == options or _method.undecorated(target) is target):
        return target
    if isinstance(target, (types.MethodType, Bound)):
        return _ready(Bound(HotMethod(_method.undecorated(target.__func__), options, has_owner=True), target.__self__))
    if isinstance(target, types.FunctionType):
        return _decorate(_method.undecorated(target), options)
    if _frontends.of(target) is not None and hasattr(target, "forward"):
        return _wrap_layer(target, options)
    raise TypeError(
        f"{asked}() was given {_described(target)}; it takes a function written in Python, a bound method, a "
        "torch.nn.Module or a paddle.nn.Layer" + (_one_by_one(target, asked) or _hint(target))
    )


_ODD = (
    (inspect.iscoroutinefunction, "is a coroutine function", "computes, and await what is around it"),
    (inspect.isasyncgenfunction, "is an asynchronous generator", "computes one step"),
    (inspect.isgeneratorfunction, "is a generator, which computes nothing when it is called", "computes one step"),
)


def refuse_odd(target: Any, asked: str) -> None:
    """Raise TypeError for functions whose calls give no results that a static graph could give."""
    bound = isinstance(target, types.MethodType) and isinstance(target.__self__, type)
    if bound or isinstance(target, classmethod):
        raise TypeError(
            f"{asked}() was given the class method {target.__func__.__qualname__}: a class has no weights that could "
            "be served. Decorate a method of its instances, a static method or a function"
        )
    function = getattr(target, "__func__", target)
    if isinstance(function, types.FunctionType) and (maker := _callables.made_by(function)):
        raise TypeError(
            f"{asked}() was given {function.__qualname__}, which is what {maker} made of a function: give it the "
            f"function itself. Only one of the two can compile it, and {maker} goes through ours"
        )
    for is_odd, what, part in _ODD:
        if is_odd(function):
            name = function.__qualname__
            raise TypeError(f"{asked}() was given {name}, which {what}. Decorate the part that {part}")


def _described(target: Any) -> str:
    if target is None:
        return "None"
    kind = target if isinstance(target, type) else type(target)
    what = "the class" if isinstance(target, type) else "an object of class"
    return f"{what} {kind.__module__}.{kind.__qualname__}"


def _one_by_one(target: Any, asked: str) -> str:
    """What to do with several layers that were given at once."""
    if isinstance(target, dict) and target:
        return f". Go through its values: `for each in layers.values(): {asked}(each)`"
    if isinstance(target, (list, tuple, set, frozenset)) and target:
        return f". Go through it: `for each in layers: {asked}(each)`"
    return ""


#: A call of `inference(made())`, where `made` forgot to return its layer, is one of the decorator.
_OF_NONE = ". inference(None) is a decorator too: where a layer was meant to be called, it was None"


def _hint(target: Any) -> str:
    if hasattr(target, "shape") and hasattr(target, "dtype"):
        return _OF_NONE
    if isinstance(target, type):
        return ". Put the decorator on the class's method, or wrap an instance"
    if isinstance(target, (str, bool)):
        return ". Options are given by name, such as `inference(backend=\"onnxruntime\")`"
    if isinstance(target, (property, functools.cached_property)):
        return f". Put it below @{type(target).__name__}, on the function"
    if hasattr(target, "forward") and not {"torch", "paddle"} & sys.modules.keys():
        return ". Neither torch nor paddle is imported, so it is a layer of a framework that is not known here"
    return _callables.remedy(target)


def _decorate(function: types.FunctionType, options: _options.Options) -> Callable[..., Any]:
    """A function in a class body has an instance for its first argument; any other is a function of tensors."""
    parent = function.__qualname__.rpartition(".")[0]
    if parent and not parent.endswith("<locals>"):
        return _method.decorate(function, options)
    return _method.decorate_function(function, options)


def _wrap_layer(layer: Any, options: _options.Options) -> Any:
    forward = layer.forward
    if is_inference_mode(forward):
        again = wrap(forward, options)
        if again is not forward:
            forward.__hybrid_infer__.release({id(layer)})
            layer.forward = again
        return layer
    layer.forward = Bound(HotMethod(method_of(layer).__func__, options, has_owner=True), layer)
    _ready(layer.forward)
    return layer


def method_of(layer: Any, asked: str = "inference") -> Any:
    """The method that a layer's ``forward`` is.

    Raises HybridInferError where it is nothing that could be replaced, TypeError for no layer.
    """
    method = layer.forward
    if isinstance(method, types.MethodType):
        refuse_odd(method, asked)
    base = getattr(_frontends.of(layer), "layer_type", None)
    if base is not None and getattr(method, "__func__", None) is base.forward:
        raise TypeError(
            f"{asked}() was given {_described(layer)}, which has no forward that could be served: wrap the layers that "
            "it holds, or decorate the method that calls them"
        )
    if not isinstance(method, (types.MethodType, Bound)):
        method = _callables.as_method(method, layer)
    if method is not None:
        return method
    maker = _callables.made_by(layer) or _callables.made_by(layer.forward)
    if maker:
        raise TypeError(
            f"{asked}() was given {_described(layer)}, which is what {maker} made of a layer; it takes the layer "
            f"itself, without {maker}"
        )
    raise HybridInferError(
        f"forward of {_described(layer)} is {_described(layer.forward)}, not a method of the layer; "
        "decorate the method that it calls"
    )


def _ready(bound: Bound) -> Bound:
    if bound.__hybrid_infer__.options.input_spec is not None:
        from hybrid_infer import _warmup

        _warmup.ahead(bound)
    return bound


#: What no decorated method has for its instance.
_NO_OWNERS = (
    type, types.FunctionType, types.MethodType, types.BuiltinFunctionType, types.ModuleType, functools.partial,
    bytes, set, frozenset,
)  # fmt: skip


def release(target: Any) -> None:
    """Give back the sessions, and the memory that engines hold, of a layer or of a decorated method.

    Nothing on disk is removed, and a later call is served again: it looks its static model up as the first call of a
    new process does. Calls that other threads are in the middle of end as they would.

    Parameters
    ----------
    target : a layer (with all its sublayers) or any other instance, for each of its decorated methods; a decorated
        method bound to one; or a decorated function or ``Class.method``, for every instance.

    Raises
    ------
    TypeError
        `target` is a function or a class that is not decorated, or a value, such as None, a list or a tensor: nothing
        that could have been served.

    Examples
    --------
    >>> import hybrid_infer
    >>> @hybrid_infer.inference
    ... def double(x):
    ...     return x + x
    >>> hybrid_infer.release(double)
    """
    method = getattr(target, "__hybrid_infer__", None)
    if method is not None:
        owner = getattr(target, "__self__", None)
        (method if owner is None else method.owned).release(None if owner is None else {id(owner)})
        _trim()
        return
    if isinstance(target, _NO_OWNERS) or not HotMethod.can_own(target):
        taken = "it takes a layer or what inference() returned" + _one_by_one(target, "release")
        raise TypeError(f"release() was given {_described(target)}; {taken}")
    frontend = _frontends.of(target)
    owners = {id(target)}
    if frontend is not None:
        from hybrid_infer.state import _census

        owners |= {id(layer) for _, layer in _census.take({"layer": target}, frontend).layers}
    _method.release(owners)
    _trim()


def _trim() -> None:
    """Give back what engines keep for calls to come, where any was used."""
    if "hybrid_infer.backends" in sys.modules:
        from hybrid_infer import backends

        backends.trim()


def is_inference_mode(function: Any) -> bool:
    """Is a function, method or layer served by ``inference()``?

    >>> from hybrid_infer import inference, is_inference_mode
    >>> def double(x):
    ...     return x + x
    >>> is_inference_mode(double), is_inference_mode(inference(double))
    (False, True)
    """
    if hasattr(function, "__hybrid_infer__"):
        return not _callables.made_by(function)  # which compiles the undecorated function, and keeps attributes
    forward = getattr(function, "forward", None) if not isinstance(function, type) else None
    return hasattr(forward, "__hybrid_infer__")
