"""Writers in place (``y.add_(x)``), which the tracer runs as if they made another tensor: as writes to the one they are
given, so that its names stand for what was written from then on.

Those that give a tensor another shape or element type make its names stand for another value, which lies in the same
memory or in none that is shared.
"""

from __future__ import annotations

import builtins
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from hybrid_infer._errors import TraceError
from hybrid_infer._own_thread import exchanged
from hybrid_infer.frontends._paddle_aliases import Aliases, viewed

if TYPE_CHECKING:
    from hybrid_infer.frontends._paddle_watch import Watch

#: Writers after which a tensor has another shape or element type, by the names of what they compute.
_RESHAPING = frozenset({"cast", "flatten", "reshape", "squeeze", "t", "transpose", "unsqueeze"})
_SUMS = frozenset({"cumsum", "cumprod"})  # those after which it may be flat, and which keep its element type
_TAKING = frozenset({"set", "resize"})  # those that take another one's memory, or leave open what is in it
_SECOND = frozenset({"where"})  # those that write to their second argument


class Reshaped:
    """Tensors of a trace that are of another shape or element type after a writer."""

    def __init__(self) -> None:
        #: By name of the writer, target, what read that before, and place. No target: it is none of the trace.
        self._writes: list[tuple[str, Any, frozenset[int], str]] = []

    def note(self, name: str, target: Any, readers: frozenset[int] = frozenset()) -> None:
        import paddle

        from hybrid_infer.frontends import _paddle_reasons, _places

        place = _places.of_frame(sys._getframe(1), paddle, _paddle_reasons.origin)
        self._writes.append((name, target, readers, place))

    def refusals(self, program: Any, inputs: Sequence[Any], labels: Sequence[str], results: Sequence[Any]) -> list[str]:
        """Of those that are an argument or weight, or that something reads again by a name which does not tell."""
        from hybrid_infer.frontends._paddle_reasons import named

        found = []
        aliases = Aliases(program, results) if self._writes else None
        for name, target, before, place in self._writes:
            known = [n for v, n in zip(inputs, labels, strict=True) if target is not None and v.is_same(target)]
            if target is None or known:
                what = known[0] if known else "an argument or weight"
                found.append(named(f"it writes to {what} in place, by {name}", place))
                continue
            # The operator that stands for the write is the first one since then.
            later = sorted((op for op in target.all_used_ops() if op.id() not in before), key=lambda op: op.id())
            if later and aliases is not None and aliases.read_again(later[0], [target]):
                found.append(named(f"it writes in place, by {name}, to a tensor that is read again", place))
        return found


@contextmanager
def followed(watch: Watch) -> Iterator[None]:
    """On the thread of a trace."""
    from paddle.utils import inplace_utils

    tools: Any = inplace_utils
    warnings, is_view = tools.warnings, tools.check_view_value

    def evaluate(name: str) -> Any:
        """What a writer computes, by its name in the framework, as the writer."""
        function = builtins.eval(name, vars(tools))
        return _writer(name.rpartition(".")[2], function, watch) if threading.get_ident() == watch.thread else function

    class Warnings:
        """Stands for the module of that name where the framework tells of a writer that will not write."""

        def __getattr__(self, name: str) -> Any:
            return getattr(warnings, name)

        def warn(self, *args: Any, **kwargs: Any) -> None:
            if threading.get_ident() != watch.thread:
                warnings.warn(*args, **kwargs)

    def of_others(value: Any) -> Any:
        """A write to a view is one to what it is a view of, which is looked for in the program."""
        return not watch.on() and is_view(value)

    with exchanged((tools, "warnings", Warnings()), (tools, "eval", evaluate), (tools, "check_view_value", of_others)):
        yield


def from_now_on(target: Any, value: Any) -> None:
    """What stands for a tensor in the trace under way, once it was written to."""
    import paddle
    from paddle.jit.dy2static.parameter_recorder import _global_inplace_map

    _global_inplace_map.add(paddle.static.default_main_program(), target, value)


def _writer(name: str, function: Callable[..., Any], watch: Watch) -> Callable[..., Any]:
    import paddle

    def run(*args: Any, **kwargs: Any) -> Any:
        place = int(name in _SECOND)
        target = args[place] if len(args) > place else kwargs.get("x", kwargs.get("input"))
        if not isinstance(target, paddle.pir.Value):  # an eager tensor, of which some operators end the process
            raise TraceError(f"it writes, by {name}_, to a tensor that is neither an argument nor held by the layer")
        if name in _TAKING:
            watch.reshaped.note(f"{name}_", None)
            return function(*args, **kwargs)
        readers = frozenset(op.id() for op in target.all_used_ops())
        result = function(*args, **kwargs)
        if result.is_same(target):
            return result
        kept, fits = result.dtype == target.dtype, watch.asked.recorded(result) == watch.asked.recorded(target)
        sums = name in _SUMS and kept and not fits
        if name in _RESHAPING or sums or (fits and not kept and name not in _SUMS):
            watch.reshaped.note(f"{name}_", target, readers)
            if any(value.is_same(target) for value in watch.values.values()):
                return result  # which is refused: a caller's tensor has another shape then
            for value in watch.values.values():
                if value.is_same(viewed(target)):  # of which eager code counts a write: to what it holds
                    from_now_on(value, value.detach())
                    break
        elif kept and fits:
            result = paddle._C_ops.assign_out_(result, target)
        else:
            raise TraceError(f"it writes, by {name}_, what is of another shape or element type than the tensor")
        from_now_on(target, result)
        return result

    return run
