"""The paths that torch's attention layers take eagerly, taken in a trace too.

Where no gradient is recorded, ``MultiheadAttention``, ``TransformerEncoderLayer`` and ``TransformerEncoder`` call fused
kernels, under a tracer they do not; and the two answer differently: the kernels say NaN where a query may look at no
key, take any number but 0 in a mask for "not to be looked at", and an encoder leaves 0 where a sequence is padded.

So torch's own methods run with a few of the names that they look up replaced: they ask what they ask eagerly, and get
the answers of the eager call. In place of a kernel they find what it computes, in operators that a graph can hold.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import math
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from hybrid_infer import _own_thread
from hybrid_infer._errors import TraceError
from hybrid_infer._own_thread import before, redirected, replaced

_LAYERS = (nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerEncoder, nn.TransformerDecoder)


class Gradients:
    """Where the eager call would record gradients: `on` as it begins, and what it is given or holds requires one."""

    def __init__(self, on: bool, traced: Sequence[Any], live: Sequence[Any]) -> None:
        self._modes, self._kept = [on], [*traced]  # which keeps their ids theirs
        self._requires = {id(mine): bool(given.requires_grad) for mine, given in zip(traced, live, strict=True)}
        #: With frozen weights alone, it matters whether the input of a layer requires a gradient.
        self._frozen = any(isinstance(given, nn.Parameter) and not given.requires_grad for given in live)

    def recorded(self, arguments: Sequence[Any]) -> bool:
        """Is a gradient recorded of a computation on these? Raises TraceError where that cannot be told."""
        if not self._modes[-1] or not any(self._requires.values()):
            return False
        found = [self._requires.get(id(each)) for each in arguments if each is not None]
        if None in found and True not in found:
            raise TraceError(
                "an attention layer with frozen weights computes something else where its input requires a gradient, "
                "which is not known while it is traced",
                "Call it under torch.no_grad()",
            )
        return True in found

    def passed_on(self, function: Any, given: Any, result: Any) -> None:
        """Note that a function was given something, and what it returned."""
        name = str(getattr(function, "__name__", ""))
        cut = not self._modes[-1] or name.startswith(("detach", "new_")) or name.endswith("_like")
        requires = not cut and any(self._requires.get(id(each), False) for each in tree_leaves(given))
        if name == "__setitem__":
            result = given[0][0]
            requires |= self._requires.get(id(result), False)
        for each in tree_leaves(result):
            if isinstance(each, torch.Tensor):
                self._kept.append(each)
                self._requires[id(each)] = requires and each.is_floating_point()

    @contextlib.contextmanager
    def followed(self) -> Iterator[None]:
        """Notes the gradient modes that the traced code enters, and keeps them out of the graph."""
        if not self._modes[-1]:
            yield
            return
        modes: dict[type, Callable[[Any], bool]] = {
            torch.no_grad: lambda _: False,
            torch.enable_grad: lambda _: True,
            torch.set_grad_enabled: lambda context: bool(context.mode),
            torch.inference_mode: lambda context: not context.mode,
        }
        with contextlib.ExitStack() as stack:
            if self._frozen and any(self._requires.values()):
                stack.enter_context(_Followed(self))
            stack.enter_context(replaced(torch.set_grad_enabled, "__init__", _unseen))  # which enters it as well
            for kind, mode in modes.items():
                stack.enter_context(replaced(kind, "__enter__", functools.partial(self._entered, mode)))
                stack.enter_context(replaced(kind, "__exit__", self._left))
            yield

    def _entered(self, mode: Callable[[Any], bool], enter: Callable[..., Any], context: Any) -> Any:
        self._modes.append(mode(context))
        return _unseen(enter, context)

    def _left(self, leave: Callable[..., Any], context: Any, *fault: Any) -> Any:
        if len(self._modes) > 1:
            self._modes.pop()
        return _unseen(leave, context, *fault)


def _unseen(function: Callable[..., Any], *given: Any) -> Any:
    """Calls a function so that a tracer does not see what it sets."""
    with torch._C.DisableTorchFunction():
        return function(*given)


class _Followed(TorchFunctionMode):
    """Tells `Gradients` of each function of torch that is called."""

    def __init__(self, gradients: Gradients) -> None:
        super().__init__()
        self._gradients = gradients

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        self._gradients.passed_on(function, (args, kwargs), result)
        return result


@contextlib.contextmanager
def as_eagerly(gradients: Gradients) -> Iterator[None]:
    """On this thread, torch's attention layers take the paths of the eager call, decorated ones too."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(replaced(_own_thread, "found", lambda _, function: before(function)))
        stack.enter_context(gradients.followed())
        for method in _own(nn.MultiheadAttention, "merge_masks"):
            stack.enter_context(redirected(method, lambda _, *given: _merged(*given)))
        for method in (method for kind in _LAYERS for method in _own(kind, "forward")):
            stack.enter_context(redirected(method, functools.partial(_forward, gradients)))
        yield


def _own(kind: type, name: str) -> list[Any]:
    """Torch's own method of a class, which a program that has put another one there may call from that one.

    Raises TraceError where it may be there and cannot be found.
    """
    for method in (vars(kind).get(name), _AT_FIRST.get((kind, name))):
        if _is_own(kind, name, method):
            return [method]
    frozen = gc.get_freeze_count() > 0  # so that all objects are not among those that the collector tells
    held = _held(vars(kind).get(name)) if frozen else gc.get_objects()
    found = [each for each in held if _is_own(kind, name, each)]
    if frozen and not found:
        raise TraceError(
            f"{kind.__name__}.{name} is no more torch's, and what calls torch's own from there is not known",
            "Import hybrid_infer, and decorate a method, before another one is put into the class",
        )
    return found


def _held(function: Any) -> list[Any]:
    """What a function leads to in a few steps: by its closure, its globals, what it wraps."""
    found = reached = [function]
    for _ in range(4):
        known = {*map(id, found)}
        reached = [each for each in gc.get_referents(*reached) if isinstance(each, _LEADING) and id(each) not in known]
        found = [*found, *reached]
    return found


def _is_own(kind: type, name: str, value: Any) -> bool:
    if type(value) is not types.FunctionType or value.__qualname__ != f"{kind.__qualname__}.{name}":
        return False
    module = sys.modules[kind.__module__]
    return value.__globals__ is vars(module) and value.__code__.co_filename == module.__file__


_LEADING = (types.FunctionType, types.CellType, types.MethodType, functools.partial, tuple, dict)
#: The methods that were there when this module was imported, with their classes and names.
_AT_FIRST = {
    (kind, name): vars(kind)[name] for kind in _LAYERS for name in ("forward", "merge_masks")
    if _is_own(kind, name, vars(kind).get(name))
}  # fmt: skip


def _forward(gradients: Gradients, method: Any, layer: Any, *args: Any, **kwargs: Any) -> Any:
    """A layer's own forward, which finds what it would find eagerly."""
    seen = {
        "torch": _Over(
            torch,
            overrides=_Over(torch.overrides, has_torch_function=gradients.recorded),  # asked before it looks itself
            compiler=_Over(torch.compiler, is_compiling=lambda: False),
            _nested_tensor_from_mask_left_aligned=lambda *_: True,  # `_nested` finds out
            _nested_tensor_from_mask=_nest,
            _native_multi_head_attention=_native_attention,
            _transformer_encoder_layer_fwd=_native_layer,
        ),
        "_is_make_fx_tracing": lambda: False,
        "_detect_is_causal_mask": _declared_causal,
    }
    spaces = {**method.__globals__, **{name: value for name, value in seen.items() if name in method.__globals__}}
    body = types.FunctionType(method.__code__, spaces, method.__name__, method.__defaults__, method.__closure__)
    body.__kwdefaults__ = method.__kwdefaults__
    try:
        return body(layer, *args, **kwargs)
    except _Nested as asked:
        return _nested(layer, asked.source, asked.seen)


class _Over:
    """A module of which some names stand for something else."""

    def __init__(self, module: Any, **names: Any) -> None:
        vars(self).update(names, _module=module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def _declared_causal(mask: Any, is_causal: bool | None = None, size: Any = None) -> bool:
    """Without a look at the mask: found causal, it would be applied in another way and give the same."""
    return is_causal is True


class _Nested(Exception):
    """The encoder goes on with sequences of their own lengths."""

    def __init__(self, source: Any, seen: Any) -> None:
        self.source, self.seen = source, seen


def _nest(source: Any, seen: Any, mask_check: bool = True) -> Any:
    raise _Nested(source, seen)


def _nested(encoder: Any, source: Any, seen: Any) -> Any:
    """The encoder on nested tensors; `seen` (N, S) says what is no padding.

    It nests sequences that are padded at their ends alone, all or none; without ``mask_check``, as if they all were.
    Where all are nothing but padding it raises, and so does an engine here that checks its indices: the second element
    of one. Others find the nearest element, or 0.
    """
    size = seen.shape[1]
    nothing = torch.index_select(torch.zeros(1, dtype=torch.int64, device=seen.device), 0, (~seen.any()).long().view(1))
    kept = torch.arange(size, device=seen.device) < seen.sum(dim=1, keepdim=True) + nothing
    if getattr(encoder, "mask_check", True):
        cleared = torch.logical_and(~seen, (kept == seen).all())
    else:
        seen, cleared = kept, ~kept
    cleared = cleared.unsqueeze(-1)
    output = source.masked_fill(cleared, 0.0)  # nothing that is padding counts, not even a NaN
    for layer in encoder.layers:
        output = layer(output, src_key_padding_mask=~seen)
    output = output.masked_fill(cleared, 0.0)
    return output if encoder.norm is None else encoder.norm(output)


def _merged(attention: Any, attn_mask: Any, key_padding_mask: Any, query: Any) -> tuple[Any, int | None]:
    """``merge_masks`` with one mask for all heads and sequences where there is one."""
    batch, length, _ = query.shape
    merged = None
    if attn_mask is not None:
        merged = attn_mask.view(batch, -1, length, length) if attn_mask.dim() == 3 else attn_mask[None, None]
    if key_padding_mask is not None:
        padded = key_padding_mask[:, None, None, :]
        merged = padded if merged is None else merged + padded
    return merged, None


def _native_attention(
    query: Any, key: Any, value: Any, width: int, heads: int, qkv_weight: Any, qkv_bias: Any, weight: Any, bias: Any,
    mask: Any = None, need_weights: bool = True, average_attn_weights: bool = True, mask_type: Any = None,
) -> tuple[Any, Any]:  # fmt: skip
    """``torch._native_multi_head_attention`` of one tensor (N, L, E) with itself; the mask is `_merged`'s."""
    hidden = None if mask is None else mask if mask.dtype is torch.bool else mask != 0
    q, k, v = (
        each.unflatten(-1, (heads, width // heads)).transpose(1, 2)
        for each in functional.linear(query, qkv_weight, qkv_bias).chunk(3, dim=-1)
    )
    weights = None
    if need_weights:
        scores = (q / math.sqrt(width // heads)) @ k.transpose(-2, -1)
        if hidden is not None:
            scores = scores.masked_fill(hidden, -math.inf)
        weights = scores.softmax(dim=-1)
        found = weights @ v
        if average_attn_weights:
            weights = weights.mean(dim=1)
    else:
        found = functional.scaled_dot_product_attention(q, k, v, None if hidden is None else ~hidden)
    found = functional.linear(found.transpose(1, 2).flatten(-2), weight, bias)
    if hidden is not None and not need_weights:
        blind = hidden.all(dim=-1).any(dim=1).unsqueeze(-1)  # (N or 1, L or 1, 1): one head's NaN is in all of E
        found = found.masked_fill(blind, math.nan)
    return found, weights


def _native_layer(
    source: Any, width: int, heads: int, qkv_weight: Any, qkv_bias: Any, weight: Any, bias: Any, gelu: bool,
    norm_first: bool, eps: float, norm1_weight: Any, norm1_bias: Any, norm2_weight: Any, norm2_bias: Any,
    weight1: Any, bias1: Any, weight2: Any, bias2: Any, mask: Any = None, mask_type: Any = None,
) -> Any:  # fmt: skip
    """``torch._transformer_encoder_layer_fwd`` of a dense tensor (N, L, E); the mask is `_merged`'s."""

    def normed(x: Any, weight: Any, bias: Any) -> Any:
        return functional.layer_norm(x, (width,), weight, bias, eps).to(x.dtype)

    def attended(x: Any) -> Any:
        return _native_attention(x, x, x, width, heads, qkv_weight, qkv_bias, weight, bias, mask, False)[0]

    def fed(x: Any) -> Any:
        inner = functional.linear(x, weight1, bias1)
        return functional.linear(functional.gelu(inner) if gelu else functional.relu(inner), weight2, bias2)

    def added(x: Any, y: Any) -> Any:
        return (x + y).to(y.dtype)  # in place, so in autocast's type

    if norm_first:
        x = added(source, attended(normed(source, norm1_weight, norm1_bias)))
        return added(x, fed(normed(x, norm2_weight, norm2_bias)))
    x = normed(added(source, attended(source)), norm1_weight, norm1_bias)
    return normed(added(x, fed(x)), norm2_weight, norm2_bias)
