"""One trace of a prepared call into a Paddle program, with what makes a program right kept under watch.

The program is built directly (static mode of this thread, no ``paddle.jit.save``): every weight and tensor is a named
data operator, so that nothing can be folded into the graph.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from hybrid_infer._errors import TraceError
from hybrid_infer._own_thread import replaced
from hybrid_infer._types import Condition, Tracee
from hybrid_infer.frontends import _paddle_autocast, _paddle_complex_numbers, _paddle_constants
from hybrid_infer.frontends._paddle_digits import none_rounded, with_all_digits
from hybrid_infer.frontends._paddle_eager import Mode, forwards_alone
from hybrid_infer.frontends._paddle_growing import changing
from hybrid_infer.frontends._paddle_images import of_any_size
from hybrid_infer.frontends._paddle_in_place import followed
from hybrid_infer.frontends._paddle_inferred import put_right
from hybrid_infer.frontends._paddle_literals import of_any_type
from hybrid_infer.frontends._paddle_loops import program_key, watched
from hybrid_infer.frontends._paddle_mode import recording
from hybrid_infer.frontends._paddle_padded import by_computed_widths
from hybrid_infer.frontends._paddle_quiet import quiet
from hybrid_infer.frontends._paddle_recurrent import as_traced
from hybrid_infer.frontends._paddle_sides import Sides, escaped
from hybrid_infer.frontends._paddle_sizes import Sizes
from hybrid_infer.frontends._paddle_swallowed import refused
from hybrid_infer.frontends._paddle_triangles import by_computed_diagonals
from hybrid_infer.frontends._paddle_unshuffled import of_any_image
from hybrid_infer.frontends._paddle_watch import FOREIGN, FOREIGN_REMEDY, Watch, is_number

_ESCAPED_REMEDY = "Assign it to a variable in the branch or loop itself"
#: Programs that live as long as the calls that they were traced from.
_PROGRAMS: weakref.WeakKeyDictionary[Any, list[Any]] = weakref.WeakKeyDictionary()
#: Calls of which a trace for sizes that are not 0 is known to be needed.
_SOME: weakref.WeakSet[Any] = weakref.WeakSet()
#: Calls that are traced with the ways out of their functions put apart, or not.
_APART: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()


@dataclass
class Trace:
    """A program with its inputs (weights, tensors, integers; what each is in words) and results; what was seen.

    ``conditions``: what was taken for granted of sizes and integers that were left open; ``numbers``: which of the
    results are integers that depend on them; ``written``, ``state``: the tensors of the call, and the weights, to whose
    elements it writes; ``check``: what has to be true of a call, besides.
    """

    program: Any
    inputs: list[Any]
    names: list[str]
    labels: list[str]
    results: list[Any]
    impure: list[str] = field(default_factory=list)
    conditions: tuple[Condition, ...] = ()
    numbers: frozenset[int] = frozenset()
    written: frozenset[int] = frozenset()
    state: frozenset[int] = frozenset()
    check: Any = None

    @property
    def outputs(self) -> list[Any]:
        """The results, and the check behind them."""
        return self.results if self.check is None else [*self.results, self.check]


def trace(
    tracee: Tracee,
    dynamic: frozenset[tuple[int, int]],
    dynamic_ints: frozenset[int],
    *,
    gradients: bool = False,
    every_side: bool = False,
) -> Trace:
    """Build the program of one call; with `gradients`, they flow to its floating-point inputs. Raises TraceError.

    `every_side`: of a branch on a size that varies all sides are traced, instead of that of the example. Where a branch
    on whether a size is 0 that values decide has sides that do not fit together, it is taken not to be, and checked.
    Where the method asks for the mode, and cannot be traced as it goes on eagerly, it is as it does in a trace. Where
    its functions have ways out in branches and loops, and it cannot be traced as they stand, these are put apart.
    """
    mode, apart = Mode(eager=True), _APART.get(tracee, False)
    left: list[bool] = []
    try:
        return _trace(tracee, dynamic, dynamic_ints, gradients, every_side, mode, apart, left)
    except TraceError as fault:
        told, others = fault, [(Mode(eager=False), apart)] if mode.asked else []
        if any(left) and tracee not in _APART:
            others.append((Mode(eager=True), True))
        for each, parted in others:
            try:
                found = _trace(tracee, dynamic, dynamic_ints, gradients, every_side, each, parted, [])
            except TraceError as another:
                told = another if parted else told
                continue
            if parted:
                _APART[tracee] = True
            return found
        raise told from told.__cause__


def _trace(
    tracee: Tracee, dynamic: frozenset[tuple[int, int]], dynamic_ints: frozenset[int], gradients: bool,
    every_side: bool, mode: Mode, apart: bool, left: list[bool],
) -> Trace:  # fmt: skip
    """`left`: see ``_traced``."""
    asked: list[bool] = []
    some = not gradients and tracee in _SOME
    settled = changing(tracee).settled
    try:
        return settled(
            lambda: _traced(tracee, dynamic, dynamic_ints, gradients, every_side, asked, some, mode, apart, left)
        )
    except TraceError as fault:
        if gradients or some or not any(asked):
            raise
        with suppress(TraceError):
            found = settled(
                lambda: _traced(tracee, dynamic, dynamic_ints, gradients, every_side, asked, True, mode, apart, [])
            )
            with suppress(TypeError):
                _SOME.add(tracee)
            return found
        raise fault from fault.__cause__


def _traced(
    tracee: Tracee, dynamic: frozenset[tuple[int, int]], dynamic_ints: frozenset[int], gradients: bool,
    every_side: bool, asked_for_some: list[bool], some: bool, mode: Mode, apart: bool, left: list[bool],
) -> Trace:  # fmt: skip
    """`asked_for_some`: see ``Watch``; `apart`: see ``Rewrites``; `left`: gets whether that helps, if it fails."""
    import paddle
    from paddle.jit.dy2static.parameter_recorder import _global_inplace_map, _global_parameter_recorder

    from hybrid_infer.frontends import (
        _paddle_fractions,
        _paddle_history,
        _paddle_methods,
        _paddle_reasons,
        _paddle_squeeze,
    )
    from hybrid_infer.frontends._paddle_source import Rewrites

    program = paddle.static.Program()
    program.random_seed = paddle.static.default_main_program().random_seed
    # The framework's own traces leave their records behind where they fail, by addresses that are given out again.
    _global_parameter_recorder.pop(program)
    _global_inplace_map.pop(program)
    autocast = _paddle_autocast.state()
    # The integers of a call that it is traced for are those that vary, in order.
    numbers = list(zip(sorted(dynamic_ints), tracee.ints, strict=True)) if dynamic_ints else []
    example = _example(tracee, dynamic, len(numbers))
    labels = [*tracee.labels, *(f"integer {i}" for i, _ in numbers)]
    with ExitStack() as stack:
        stack.enter_context(quiet())
        stack.enter_context(_paddle_autocast.as_eagerly())
        stack.callback(escaped, program)
        stack.enter_context(recording(program))
        stack.enter_context(_paddle_autocast.within(autocast))
        values = [paddle.static.data(name, shape, dtype) for name, shape, dtype in example]
        for i, value in enumerate(values if gradients else ()):
            frozen = i < len(tracee.weights) and tracee.weights[i].stop_gradient
            value.stop_gradient = frozen or "float" not in str(value.dtype).lower()
        weights_end, split = len(tracee.weights), len(tracee.weights) + len(tracee.tensors)
        ints = values[split:] if numbers else list(tracee.ints)
        # A program that is trained is not given back where a condition does not hold.
        asked = Sizes([list(t.shape) for t in tracee.tensors], numbers, sorted(dynamic), assume=not gradients)
        watch = Watch(
            {id(t): v for t, v in zip([*tracee.weights, *tracee.tensors], values, strict=False)}, asked, every_side,
            tracee.asks_for_gradients and not gradients, tracee.constants, some,
        )  # fmt: skip
        stack.callback(lambda: asked_for_some.append(watch.asked_for_some))
        stack.enter_context(as_traced())
        stack.enter_context(_paddle_complex_numbers.as_eagerly())
        stack.enter_context(watch.active())
        stack.enter_context(followed(watch))
        stack.enter_context(watched(asked, changing(tracee)))
        stack.enter_context(_paddle_methods.added())
        stack.enter_context(_paddle_fractions.noted())
        if tracee.asks_for_gradients and not gradients:
            live = [*zip(values, [*tracee.weights, *tracee.tensors], strict=False)]
            stack.enter_context(_paddle_history.told(live))
        rewrites = Rewrites(tracee.observing, tracee.rewritten, watch.standing_for, mode, gradients, apart)
        sides = Sides(tracee, rewrites.assigned)
        stack.enter_context(sides.active())
        for each in _AS_EAGERLY:
            stack.enter_context(each())
        if not gradients:
            stack.enter_context(forwards_alone())
        stack.enter_context(rewrites.active())
        none_swallowed = stack.enter_context(refused())
        results, written = _run(tracee, values, ints, program, watch, rewrites, left)
        elements = frozenset(place - weights_end for place in written if weights_end <= place < split)
        state = frozenset(place for place in written if place < weights_end)
        impure = [f"it writes to elements of {labels[place]} in place" for place in written[:1]]
        sides.refuse_numbers(results)
        counted = _numbers(results, watch)
        taken = watch.taken
        impure += [_paddle_constants.WRITTEN] if _paddle_constants.written(taken) else []
        held = ["a tensor that its code holds"] * len(taken)
        impure += watch.reshaped.refusals(program, [*values, *taken], [*labels, *held], results)
        impure += [f"it assigns the global {name}" for name in rewrites.assigned()]
        # A result of its own for each entry, also where the method returns one tensor twice.
        results = [paddle.assign(result) for result in results]
        if not gradients:
            watch.checks += _asserted(program)
        check = None
        if watch.checks:
            check = paddle.assign(reduce(paddle.logical_and, [paddle.reshape(each, []) for each in watch.checks]))
        sides.check()
        none_swallowed()
        outside = escaped(program)
        if outside is not None:
            reason = "a branch or loop depends on the values of a tensor, and what it computes is used elsewhere"
            raise TraceError(_paddle_reasons.named(reason, outside), _ESCAPED_REMEDY)
        _paddle_squeeze.ask(program, asked)
        with suppress(TypeError):
            # A result keeps no hold of its program, and crashes the process that asks it for its shape afterwards.
            _PROGRAMS.setdefault(tracee, []).append(program)
        names = [name for name, _, _ in example]
        conditions = tuple(asked.conditions)
        return Trace(program, values, names, labels, results, impure, conditions, counted, elements, state, check)


def _example(tracee: Tracee, dynamic: frozenset[tuple[int, int]], ints: int) -> list[tuple[str, list[int], Any]]:
    """The inputs of a program: name, shape and type of its weights, its tensors and integers that vary."""
    import paddle

    found = [(f"w{i}", list(tensor.shape), tensor.dtype) for i, tensor in enumerate(tracee.weights)]
    for i, tensor in enumerate(tracee.tensors):
        shape = [-1 if (i, axis) in dynamic else size for axis, size in enumerate(tensor.shape)]
        found.append((f"x{i}", shape, tensor.dtype))
    return [*found, *((f"n{k}", [], paddle.int64) for k in range(ints))]


def _run(
    tracee: Tracee, values: list[Any], ints: list[Any], program: Any, watch: Watch, rewrites: Any, left: list[bool],
) -> tuple[list[Any], list[int]]:  # fmt: skip
    """What the method gives of the values of a program, and the places of those to whose elements it writes."""
    from paddle.jit.dy2static.parameter_recorder import _global_inplace_map, _global_parameter_recorder

    from hybrid_infer.frontends import _paddle_reasons
    from hybrid_infer.frontends._paddle_source import convert

    weights, tensors = values[: len(tracee.weights)], values[len(tracee.weights) :][: len(tracee.tensors)]
    try:
        results = list(tracee.run(weights, tensors, ints, convert))
        keys = list(_global_inplace_map.params_dict.get(program_key(program), ()))
        written = [place for place, value in enumerate(values) if any(value.is_same(key) for key in keys)]
    except TraceError:
        left.append(rewrites.left_in_branches())
        raise
    except Exception as error:
        left.append(rewrites.left_in_branches())
        if watch.refused or "but got Tensor" in str(error):
            raise TraceError(FOREIGN, FOREIGN_REMEDY) from error
        raise TraceError(*_paddle_reasons.explained(error)) from error
    finally:
        foreign, parameters = _global_parameter_recorder.pop(program)
        _global_inplace_map.pop(program)
    for tensor, parameter in zip(foreign, parameters, strict=True):
        parameter.replace_all_uses_with(watch.cast_hook(tensor))
    return [_as_value(result) for result in results], written


def _numbers(results: list[Any], watch: Watch) -> frozenset[int]:
    """Which results are integers that depend on sizes. Raises TraceError for one that may be a number or a tensor."""
    found = frozenset(k for k, result in enumerate(results) if is_number(result))
    if any(watch.is_size(result) for k, result in enumerate(results) if k not in found):
        raise TraceError("a size that varies is one of its results", "Return tensors, and take sizes from them")
    if any(result.is_same(each) for result in results for each in watch.counted):
        raise TraceError("a number of elements (`size`) is one of its results", "Return it as a number: x.size + 0")
    return found


def _asserted(program: Any) -> list[Any]:
    """What a program asserts, which becomes a condition of its calls: eager code answers others, and raises."""
    block = program.global_block()
    found = [op for op in block.ops if op.name() == "pd_op.assert"]
    truths = [op.operand_source(0) for op in found]
    for op in found:
        block.remove_op(op)
    return truths


@contextmanager
def _buffers_replaced() -> Iterator[None]:
    """``self.state = ...`` of a buffer puts another one in its place, as it does eagerly, where Paddle writes to it."""
    import paddle

    def set_attribute(assign: Callable[..., None], self: Any, name: str, value: Any) -> None:
        buffers = self.__dict__.get("_buffers")
        if isinstance(value, paddle.pir.Value) and buffers is not None and name in buffers:
            buffers[name] = value
        else:
            assign(self, name, value)

    with replaced(paddle.nn.Layer, "__setattr__", set_attribute):
        yield


#: What Paddle has otherwise in a program than eagerly, besides what `Watch` and those before it see to.
_AS_EAGERLY: tuple[Callable[[], AbstractContextManager[Any]], ...] = (
    _buffers_replaced, of_any_size, of_any_type, by_computed_widths, by_computed_diagonals, put_right, of_any_image,
    none_rounded, with_all_digits,
)  # fmt: skip


def _as_value(result: Any) -> Any:
    import paddle

    if isinstance(result, paddle.pir.Value):
        return result
    if isinstance(result, (bool, int)):
        return paddle.full([], int(result), "int64")
    raise TraceError(
        f"it returns a {type(result).__name__} that was not computed from its arguments",
        "Return tensors that the method computes",
    )
