"""Trace one call with ``torch.export`` and write it as an ONNX graph whose weights are inputs."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.export import Dim

from hybrid_infer._errors import TraceError
from hybrid_infer._own_thread import before, replaced
from hybrid_infer._types import CHECKED, Captured, Expr, Graph, TensorSpec, Tracee
from hybrid_infer._unwarned import unwarned
from hybrid_infer.frontends import (
    _torch_aliases,
    _torch_arithmetic,
    _torch_attention,
    _torch_autocast,
    _torch_bits,
    _torch_branches,
    _torch_builtins,
    _torch_bytes,
    _torch_casts,
    _torch_checks,
    _torch_collectors,
    _torch_compiling,
    _torch_composites,
    _torch_conversions,
    _torch_decompositions,
    _torch_default_types,
    _torch_distributions,
    _torch_effects,
    _torch_experts,
    _torch_fastpath,
    _torch_fixed,
    _torch_groups,
    _torch_guards,
    _torch_images,
    _torch_kinds,
    _torch_layouts,
    _torch_lengths,
    _torch_lookup,
    _torch_mixed_types,
    _torch_numbers,
    _torch_quotients,
    _torch_recurrent,
    _torch_registry,
    _torch_repeat,
    _torch_result_types,
    _torch_rules,
    _torch_spaced,
    _torch_special,
    _torch_swallowed,
    _torch_switches,
    _torch_texts,
    _torch_views,
    _torch_writes,
    _torch_written_out,
)
from hybrid_infer.frontends._scopes import distinct
from hybrid_infer.frontends._torch_reasons import NO_FORM, by_values, called_at, explained

OPSET = 20  # the last one that the onnx release required by paddle2onnx knows


_log = logging.getLogger("hybrid_infer")


class _Stopped(Exception):
    """Stands for what ended a trace: torch would hang the graph so far on the exception itself, and print that."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "partial_fx_graph":
            super().__setattr__(name, value)


class _Call(torch.nn.Module):
    """The traced call as a module without parameters: weights, tensors and integers are its arguments.

    `recording`: does the eager call record gradients? With None, layers take the paths that a tracer is shown.
    `branches`: see `_torch_branches`.
    """

    def __init__(self, tracee: Tracee, recording: bool | None = None, branches: Any = None) -> None:
        super().__init__()
        object.__setattr__(self, "tracee", tracee)  # not a submodule, whatever it holds
        self.recording, self.branches = recording, branches
        #: Weights that are constants of the trace, which may write to them; ONNX has no form of them.
        self.own = [None if _torch_layouts.plain(weight) else weight.detach().clone() for weight in tracee.weights]

    def forward(self, weights: list[Any], tensors: list[Any], ints: list[Any]) -> list[Any]:
        tracee = self.tracee
        weights = [w if own is None else own for w, own in zip(weights, self.own, strict=True)]
        if self.branches is not None:
            self.branches.begin(sys._getframe())
        try:
            with contextlib.ExitStack() as paths:
                paths.enter_context(_torch_autocast.off_where_off())
                live = [*tracee.weights, *tracee.tensors]
                if self.recording is not None:
                    gradients = _torch_fastpath.Gradients(self.recording, [*weights, *tensors], live)
                    paths.enter_context(_torch_fastpath.as_eagerly(gradients))
                    paths.enter_context(_torch_recurrent.open_lengths())
                paths.enter_context(_torch_distributions.without_modes([*weights, *tensors], live))
                paths.enter_context(_torch_bytes.as_truths())
                paths.enter_context(_torch_aliases.seen(tracee, [*weights, *tensors]))
                paths.enter_context(_torch_writes.counting([*weights, *tensors]))
                paths.enter_context(_torch_swallowed.refused())
                paths.enter_context(replaced(torch.Tensor, "register_hook", _hooked))
                return tracee.run(weights, tensors, ints, before)  # it may be a layer's own forward
        except Exception as fault:
            raise _Stopped from fault


def _hooked(register: Any, *given: Any) -> None:
    raise TraceError("it registers a hook on a tensor", "Do that outside of the method")


class _Unheard(logging.Filter):
    """Drops what the tracer and the exporter say on one thread; other threads may be busy with torch as well.

    DEBUG passes: whoever asked for it wants it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._thread = threading.get_ident()

    def filter(self, record: logging.LogRecord) -> bool:
        mine = threading.get_ident() == self._thread and record.levelno >= logging.INFO
        return not (mine and record.name.partition(".")[0] in _TALKATIVE)


_TALKATIVE = ("torch", "onnxscript", "onnx_ir")


def _handlers() -> list[logging.Handler]:
    """Those that may print what the loggers in question are told, here or in the middle of a trace."""
    found = [*logging.root.handlers, *([logging.lastResort] if logging.lastResort else [])]
    for name, logger in list(logging.root.manager.loggerDict.items()):
        if isinstance(logger, logging.Logger) and name.partition(".")[0] in _TALKATIVE:
            found += logger.handlers
    return list(dict.fromkeys(found))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep the tracer's and the exporter's own remarks out of the user's log."""
    handlers, unheard = _handlers(), _Unheard()
    try:
        for handler in handlers:
            handler.addFilter(unheard)
        with unwarned():
            yield
    finally:
        for handler in handlers:
            handler.removeFilter(unheard)


def capture(tracee: Tracee, dynamic: frozenset[tuple[int, int]], dynamic_ints: frozenset[int]) -> Captured:
    """See ``Frontend.capture``."""
    _torch_groups.import_without_keeping()
    if tracee.any_size and dynamic:
        try:
            with any_size():
                return _capture(tracee, dynamic, dynamic_ints)
        except TraceError as fault:
            _log.debug("%s: sizes of 0 and 1 are not left open: %s", tracee.name, fault)
    return _capture(tracee, dynamic, dynamic_ints)


def any_size() -> Any:
    """A context in which the tracer takes a dimension for what it is, not for one of 2 or more.

    Where code asks whether a size is 0 or 1, the answer for the example becomes a guard.
    """
    return torch.fx.experimental._config.patch(backed_size_oblivious=True)


def given(tracee: Tracee, dynamic: frozenset[tuple[int, int]]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """What a call is traced with: weights, tensors and integers, and which of their sizes and values vary."""
    auto, static = Dim.AUTO, Dim.STATIC
    # A sparse or quantised one is in no graph: a method may hold it that does not use it.
    weights = [w.detach() if _torch_layouts.plain(w) else torch.empty(0) for w in tracee.weights]
    tensors = _in_memory_of_their_own([t.detach() for t in tracee.tensors], weights)
    if tracee.asks_for_gradients:
        weights = list(map(_recorded, tracee.weights, weights))
        tensors = list(map(_recorded, tracee.tensors, tensors))
    shapes = (
        [dict.fromkeys(range(w.dim()), static) for w in weights],
        [{a: auto if (i, a) in dynamic else static for a in range(t.dim())} for i, t in enumerate(tensors)],
        [auto] * len(tracee.ints),  # those that vary, and no others
    )
    return (weights, tensors, list(tracee.ints)), shapes


def _recorded(live: Any, detached: Any) -> Any:
    """What tells of its gradients what the live tensor does, of which nothing is recorded in a trace."""
    if not live.requires_grad:
        return detached
    leaf = detached.requires_grad_()
    if live.is_leaf:
        return leaf
    with torch.inference_mode(False), torch.enable_grad():
        return leaf.view_as(leaf)


def _in_memory_of_their_own(tensors: Sequence[Any], weights: Sequence[Any]) -> list[Any]:
    """Tensors, and copies of those whose memory others have too: the tracer fails where one of these is written to."""
    taken = set(map(_memory, weights))
    found = []
    for tensor in tensors:
        memory = _memory(tensor)
        found.append(_torch_layouts.copied(tensor) if memory in taken else tensor)
        taken.add(memory)
    return found


def _memory(tensor: Any) -> Any:
    return _torch_layouts.storage(tensor) or object()


def _capture(
    tracee: Tracee, dynamic: frozenset[tuple[int, int]], dynamic_ints: frozenset[int],
    lengths: bool = True, fixed: frozenset[tuple[int, int]] | None = None,
) -> Captured:  # fmt: skip
    """`lengths`: is a ``len()`` or ``int()`` that fixes a size to be looked into? `fixed`: the sizes that may be."""
    arguments, shapes = given(tracee, dynamic)
    if not any(arguments):  # which the tracer has no words for
        raise TraceError("it computes nothing from its arguments")
    recording = torch.is_grad_enabled()
    # No gradient is traced: the mode makes a difference to what a method is told alone.
    mode = torch.enable_grad() if recording and tracee.asks_for_gradients else torch.no_grad()
    with (
        _quiet(), mode, _torch_compiling.here(), _torch_builtins.here(), _torch_switches.kept(),
        _torch_composites.quick(), _torch_views.by_shape(), _torch_conversions.here(),
        _torch_spaced.of_any_count(), _torch_writes.noted() as counted, _torch_lengths.noted() as numbers,
        _torch_casts.noted() as casts, _torch_texts.as_numbers(), _torch_kinds.as_eagerly(), _torch_quotients.divided(),
    ):  # fmt: skip
        try:
            with _torch_collectors.by_context(), _torch_fixed.noted() as lines, _torch_checks.noted() as made:
                program, sides = _exported(tracee, arguments, shapes, recording)
            lost = _torch_checks.lost(program, made)
            impure, written, state = _torch_effects.found(program, tracee, counted)
        except Exception as error:
            fault = error.__cause__ if isinstance(error, _Stopped) and error.__cause__ is not None else error
            if isinstance(fault, TraceError):
                raise fault from None
            _log.debug("%s: torch.export failed: %s", tracee.name, fault)
            raise TraceError(*explained(fault)) from fault
        if written or state:
            tracee.written |= written
            tracee.state |= state
            return _capture(tracee, dynamic, dynamic_ints, lengths, fixed)
        if impure:
            return Captured(Graph(b"", (), (), (), (), ()), impure=impure)
        if lost:
            raise TraceError(lost)
        checked = _torch_checks.as_result(program, made)
        changes = _torch_casts.changes(casts) if lengths else []
        try:
            captured, sizes = _described(program, tracee, dynamic, dynamic_ints, lines)
        except TraceError:
            if changes and (found := _with_sizes(tracee, dynamic, dynamic_ints, changes, dynamic)) is not None:
                return found
            raise
        if lengths and (changes or (numbers and captured.specialised)):
            found = _with_sizes(tracee, dynamic, dynamic_ints, changes, captured.specialised)
            return found or _capture(tracee, dynamic, dynamic_ints, lengths=False)
        if fixed is not None and not captured.specialised <= fixed:
            raise TraceError("another size is fixed")
        if sides and not checked:
            raise TraceError("a branch depends on the values of a tensor, of which the tracer keeps no check")
        results = captured.graph.outputs[:-1] if checked else captured.graph.outputs
        if not results:
            raise TraceError("it computes nothing from its arguments")
        if checked:
            captured = replace(captured, graph=replace(captured.graph, outputs=(*results, CHECKED)), sides=sides)
        _torch_checks.forget_truths(program)
        _torch_default_types.spell_out(program)
        _torch_mixed_types.widen(program)
        _torch_numbers.as_tensors(program)
        if not program.range_constraints:  # else the exporter makes an assertion of each size of each weight's
            program.example_inputs = None
        try:
            names = [n for group in (captured.graph.weights, captured.graph.inputs) for n in group]
            with contextlib.ExitStack() as forms:
                late = forms.enter_context(_torch_guards.late())
                forms.enter_context(_torch_registry.once())
                forms.enter_context(_torch_rules.where_they_apply())
                forms.enter_context(_torch_decompositions.known(program))
                exported = torch.onnx.export(
                    program, (), dynamo=True, opset_version=OPSET, input_names=names,
                    output_names=list(captured.graph.outputs), verbose=False,
                    custom_translation_table=_translations(),
                )  # fmt: skip
        except Exception as fault:
            while fault.__cause__ is not None:  # the exporter wraps what went wrong in advice on how to report it
                fault = fault.__cause__  # type: ignore[assignment]
            _log.debug("%s: torch.onnx.export failed: %s", tracee.name, fault)
            lacking = NO_FORM.search(str(fault))
            reason, remedy = explained(fault)
            if lacking:
                reason = f"ONNX has no form of torch's operator {lacking[1]}{called_at(program, lacking[1])}"
            outside = "Leave that operator outside: decorate the part before or after it"
            raise TraceError(reason, remedy or outside) from fault
    assert exported is not None
    captured = replace(captured, conditions=tuple(sizes.with_late(captured.conditions, late)))
    return _with_model(captured, exported.model_proto)


def _with_sizes(
    tracee: Tracee, dynamic: frozenset[tuple[int, int]], dynamic_ints: frozenset[int], changes: _torch_casts.Changes,
    fixed: frozenset[tuple[int, int]],
) -> Captured | None:  # fmt: skip
    """Traced with what ``len()`` and ``int()`` give as sizes; None where that cannot be, or fixes more than `fixed`."""
    try:
        with _torch_lengths.as_sizes(), _torch_casts.as_sizes(changes):
            found = _capture(tracee, dynamic, dynamic_ints, lengths=False, fixed=fixed)
        return None if found.impure else found
    except TraceError as fault:
        _log.debug("%s: what len() or int() gives is a number: %s", tracee.name, fault)
    return None


def _translations() -> dict[Any, Any]:
    rooms = (
        _torch_attention, _torch_arithmetic, _torch_bits, _torch_experts, _torch_images, _torch_lookup,
        _torch_recurrent, _torch_repeat, _torch_special, _torch_written_out,
    )  # fmt: skip
    return {operator: form for room in rooms for operator, form in room.translations().items()}


def _exported(
    tracee: Tracee, arguments: tuple[Any, ...], shapes: Any, recording: bool
) -> tuple[Any, tuple[tuple[str, bool], ...]]:
    """The exported program; traced once more where the tracer of branches and loops met the notes of what is read.

    And what it takes for granted (see ``Captured.sides``).
    """
    try:
        return _exported_once(tracee, arguments, shapes, recording)
    except _Stopped as stopped:
        if not tracee.watched or "HigherOrderOp" not in type(stopped.__cause__).__name__:
            raise
    tracee.watched = False
    return _exported_once(tracee, arguments, shapes, recording)


def _exported_once(tracee: Tracee, arguments: Any, shapes: Any, recording: bool, numbers: bool = False) -> Any:
    given = [each for group in arguments for each in group]
    with contextlib.ExitStack() as stack:
        taken = _torch_branches.taken(given, len(arguments[0]), numbers) if tracee.assuming else None
        branches = None if taken is None else stack.enter_context(taken)
        call = _Call(tracee, recording, branches)
        stack.enter_context(_torch_autocast.in_place())
        try:
            program = torch.export.export(call, arguments, dynamic_shapes=shapes, strict=False)
        except Exception as fault:
            if numbers or branches is None or not branches.met or not by_values(fault.__cause__ or fault):
                raise
            program = None
        finally:
            tracee.sides = () if branches is None else tuple(branches.sides)
    if program is None:
        return _exported_once(tracee, arguments, shapes, recording, numbers=True)
    return program, () if branches is None else branches.settled(program)


def _with_model(captured: Captured, model: Any) -> Captured:
    names = [value.name for value in model.graph.input]
    graph = captured.graph
    expected = [*graph.weights, *graph.inputs]
    if names != expected or [v.name for v in model.graph.output] != list(graph.outputs):
        raise TraceError("the exporter did not keep the inputs and outputs of the call in place")
    distinct(model.graph)
    _torch_result_types.keep(model.graph, graph.output_specs)
    for inner in (model.graph, *model.functions):
        for node in inner.node:
            del node.metadata_props[:]  # stack traces and module paths: they hold positions in the user's files
            node.doc_string = ""
    for values in (model.graph.input, model.graph.output, model.graph.value_info, model.graph.initializer):
        for value in values:
            del value.metadata_props[:]
    return replace(captured, graph=replace(graph, model=model.SerializeToString()))


def _constants(program: Any) -> tuple[Any, ...]:
    """Tensors that the trace met and did not make: one made from numbers inside the method is lifted before use."""
    lifted = program.graph_signature.inputs_to_lifted_tensor_constants
    found = []
    for node in program.graph.nodes:
        if node.op == "placeholder" and node.name in lifted:
            made = all(user.target in _LIFTS for user in node.users)
            if not made:
                found.append(program.constants[lifted[node.name]])
    return tuple(found)


_LIFTS = (torch.ops.aten.lift_fresh_copy.default, torch.ops.aten.lift_fresh.default)


def _described(
    program: Any, tracee: Tracee, dynamic: frozenset[tuple[int, int]], dynamic_ints: frozenset[int],
    lines: _torch_fixed.Lines,
) -> tuple[Captured, _torch_guards.Sizes]:  # fmt: skip
    """Names, element types, sizes and conditions of an exported program; `lines`: where sizes became numbers."""
    placeholders = [n.meta.get("val") for n in program.graph.nodes if n.op == "placeholder"]
    placeholders = placeholders[len(placeholders) - len(tracee.weights) - len(tracee.tensors) - len(tracee.ints) :]
    values = placeholders[len(tracee.weights) :]
    symbols: dict[Any, Expr] = {}
    derived: list[tuple[Expr, Any]] = []
    specs, varying, fixed = [], set(), set()
    environment = None
    for i, value in enumerate(values[: len(tracee.tensors)]):
        shape: list[int | None] = []
        for axis, size in enumerate(value.shape):
            if isinstance(size, torch.SymInt):
                environment = size.node.shape_env
                expression = size.node.expr.xreplace(environment.replacements)
                place = ["dim", i, axis]
                if expression.is_Symbol and expression not in symbols:
                    symbols[expression] = place
                elif expression.is_Integer:
                    shape.append(int(expression))
                    fixed.add((i, axis))
                    continue
                else:
                    derived.append((place, expression))
                varying.add((i, axis))
                shape.append(None)
            else:
                shape.append(int(size))
                if (i, axis) in dynamic:
                    fixed.add((i, axis))
        specs.append(TensorSpec(_dtype(value), tuple(shape), str(value.device)))
    ints = set()
    for number, value in zip(sorted(dynamic_ints), values[len(tracee.tensors) :], strict=True):
        if isinstance(value, torch.SymInt) and not value.node.expr.is_Integer:
            environment = value.node.shape_env
            if value.node.expr.is_Symbol and value.node.expr not in symbols:
                symbols[value.node.expr] = ["int", number]
            else:
                derived.append((["int", number], value.node.expr))
            ints.add(number)
        specs.append(TensorSpec("int64", ()))
    sizes = _torch_guards.Sizes(environment, symbols, derived, _torch_checks.kept(program), program)
    outputs = next(n for n in program.graph.nodes if n.op == "output").args[0]
    results = [n.meta.get("val") if hasattr(n, "meta") else n for n in outputs]
    result_specs = tuple(
        TensorSpec(_dtype(v), tuple(None if isinstance(s, torch.SymInt) else int(s) for s in v.shape), str(v.device))
        if isinstance(v, torch.Tensor)
        else TensorSpec("int64", ())
        for v in results
    )
    graph = Graph(
        b"",
        tuple(f"w{i}" for i in range(len(tracee.weights))),
        tuple(f"x{i}" for i in range(len(specs))),
        tuple(f"y{i}" for i in range(len(results))),
        tuple(specs),
        result_specs,
    )
    why = _torch_fixed.of_sizes(lines, values[: len(tracee.tensors)], fixed)
    found = Captured(graph, tuple(sizes.conditions()), frozenset(varying), frozenset(fixed), why, frozenset(ints))
    return replace(found, constants=_constants(program)), sizes


def _dtype(tensor: Any) -> str:
    return str(tensor.dtype).removeprefix("torch.")
