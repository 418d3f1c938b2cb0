"""From a layer or function to a static model: copied, put into evaluation mode, captured, compared with the eager one.

The capture is that of the decorator (``_tracing.trace``), on a copy that shares the weights' memory: the live program
sees neither the tracer nor another mode.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from hybrid_infer import _busy, _served_sizes
from hybrid_infer._errors import BackendError, CaptureError, EngineError, StaticModelError, TraceError
from hybrid_infer._signature import Signatures
from hybrid_infer._structure import class_of, inlined
from hybrid_infer._subject import Subject
from hybrid_infer._unsupported import Unsupported
from hybrid_infer._version import Call, Version, Weight
from hybrid_infer.capture import _tracing
from hybrid_infer.checks import _verify
from hybrid_infer.static import _model, _saved_branches, _saved_check, _saved_sizes, _static_call
from hybrid_infer.static._model import Method, Model, Parameter, Saved, Trained
from hybrid_infer.static._saved_sizes import Wish
from hybrid_infer.static._saved_stage import Shapes, Stage, at, examples, grown, numbers_of, open_dims, sized, together
from hybrid_infer.static._saved_target import Case, Target, targets, values_of

_log = logging.getLogger("hybrid_infer")

_ENOUGH = f"{_saved_branches.MOST} graphs are as many as are saved for arguments of one structure"


def model_of(target: Any, input_spec: Any, *, trainable: bool) -> Model:
    """The static model of a layer, function or bound method. Raises HybridInferError."""
    return model_of_targets(targets(target, input_spec), trainable=trainable)


def model_of_targets(found: Sequence[Target], *, trainable: bool) -> Model:
    """The same of targets."""
    weights = _Weights(found)
    methods: dict[str, Method] = {}
    untrainable: list[str] = []
    with _busy.exclusively():
        for each in found:
            methods[each.name] = _method(each, weights, untrainable if trainable else None)
    frontend = found[0].frontend
    return Model(
        frontend.name, methods, weights.tensors(frontend), weights.state, *weights.parameters(frontend),
        untrainable="; ".join(dict.fromkeys(untrainable)) if trainable else "it was saved with trainable=False",
    )  # fmt: skip


class _Weights:
    """The tensors that are saved, each once, under the layer's own names where it has one for them."""

    def __init__(self, found: Sequence[Target]) -> None:
        self.state: dict[str, str] = {}
        self._names: dict[int, str] = {}
        self._held: dict[str, Any] = {}
        self._parameters: set[str] = set()
        for each in found[:1]:
            if each.owner is not None and isinstance(each.owner, each.frontend.layer_type):
                for name, tensor in each.frontend.state(each.owner).items():
                    if not each.frontend.refuse(tensor):
                        self.state[name] = self.name(tensor, name)
                self._listed = True
                return
        self._listed = False

    def name(self, tensor: Any, wanted: str) -> str:
        """The name that a tensor is stored under."""
        if id(tensor) not in self._names:
            name, number = wanted, 1
            while name in self._held:
                name, number = f"{wanted}_{number}", number + 1
            self._names[id(tensor)], self._held[name] = name, tensor
        return self._names[id(tensor)]

    def renamed(self, stage: Stage, subject: Subject, version: Version, *, every: bool) -> Version:
        """A version whose weights have the names that they are stored under; "" for one that it does not use."""
        assert version.graph is not None
        groups = subject.census.weights().values()
        made: list[Weight] = []
        for slots, weight, used in zip(groups, version.weights, version.graph.weights, strict=True):
            needed = used is not None or ("w", len(made)) in version.sources
            needed = needed or (every and not stage.frontend.refuse(slots[0].tensor))
            tensor = stage.origins.get(id(slots[0].tensor), slots[0].tensor)
            stored = self.name(tensor, _short(slots[0].path)) if needed else ""
            if stored and not self._listed:
                self.state[stored] = stored
            made.append(Weight(stored, (), weight.dtype, weight.shape))
        return replace(version, weights=tuple(made))

    def tensors(self, frontend: Any) -> dict[str, tuple[str, Any]]:
        return {name: _static_call.stored_of(frontend, tensor) for name, tensor in self._held.items()}

    def parameters(self, frontend: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Which of them are parameters, and which of these are frozen."""
        found = [name for name, tensor in self._held.items() if frontend.is_parameter(tensor)]
        return tuple(found), tuple(name for name in found if not frontend.requires_grad(self._held[name]))


def _short(path: Sequence[str]) -> str:
    """A weight's name without what says where its root was found: "self", "closure net of module.f"."""
    root, rest = path[0], ".".join(path[1:])
    if root == "self":
        return rest
    found = root.split(" ")
    name = found[1] if len(found) > 2 else root
    return f"{name}.{rest}" if rest else name


def _method(target: Target, weights: _Weights, untrainable: list[str] | None) -> Method:
    stage = Stage(target, training=False)
    trained = None if untrainable is None else Stage(target, training=True)
    method = Method(target.name, _parameters(target), [])
    for case in target.cases:
        known = len(method.versions)
        for each in (stage, trained):
            if each is not None:
                each.style = case.style
        for n, (saved, subject, call) in enumerate(_versions(stage, case)):
            saved.version = weights.renamed(stage, subject, saved.version, every=untrainable is not None)
            saved.names = tuple(case.names)
            method.fields.update(_fields(saved.version.results))
            method.versions.append(saved)
            if trained is not None and untrainable is not None and not n:
                try:
                    saved.programs = _programs(stage, trained, case, call, saved.version)
                except TraceError as fault:
                    untrainable.append(str(fault))
                    _log.info("%s is saved without a program that can be trained: %s", target.label, fault)
                    trained = None
        if case.exact:
            _tell_limits(stage, case, [saved.version for saved in method.versions[known:]])
    return method


def _programs(stage: Stage, trained: Stage, case: Case, call: Call, version: Version) -> dict[str, Trained]:
    """The method in training mode and in evaluation mode, as the framework's own programs. Raises TraceError."""
    numbers = frozenset(i for i, n in enumerate(version.ints) if n is None)
    found = {}
    for mode, copy in (("train", trained), ("eval", stage)):
        tensors = examples(stage, case, version.example)
        request = copy.request(values_of(case, tensors, call.ints, stage.target))
        twin = _tracing.twin_of(request, numbers)
        try:
            data = stage.frontend.program(twin, open_dims(version), numbers)
            if twin.writes:
                raise TraceError("; ".join(twin.writes[:3]))
            assert twin.results is not None
            found[mode] = Trained(functools.partial(_itself, data), twin.results.tree, tuple(twin.sources))
        finally:
            twin.let_go()
    return found


def _parameters(target: Target) -> tuple[Parameter, ...]:
    found = []
    for parameter in target.parameters.parameters:
        node = None
        if parameter.default is not parameter.empty:
            try:
                layout = Signatures(target.frontend).layout([parameter.default], [parameter.name])
                node = ["c", "default", None] if layout.tensors or layout.local else layout.tree[-1][0]
                node = inlined(node, layout.ints)
            except Unsupported:
                node = ["c", "default", None]
        found.append(Parameter(parameter.name, int(parameter.kind), node))
    return tuple(found)


def _itself(value: Any) -> Any:
    return value


def _fields(tree: Any) -> dict[str, list[str]]:
    """The names of the fields of the named tuples in a tree."""
    if not isinstance(tree, list) or not tree or tree[0] in ("t", "i", "c", "a"):
        return {}
    found = {tree[1]: list(getattr(class_of(tree[1]), "_fields", ()))} if tree[0] == "n" else {}
    for child in tree[-1]:
        found.update(_fields(child))
    return found


def _versions(stage: Stage, case: Case) -> Iterator[tuple[Saved, Subject, Call]]:
    """What has to be captured for a case: most often one version, and another where a size of one is its own."""
    taken: list[Version] = []
    first = _first(stage, case, _saved_sizes.wishes(stage, case))
    yield first
    taken.append(first[0].version)
    for shapes, ints in _others(stage, case, first[0].version):
        call = replace(first[2], tensors=sized(first[2].tensors, shapes), ints=ints)
        if any(version.fits(call) for version in taken):
            continue
        dims = frozenset((i, a) for i, a in open_dims(first[0].version) if shapes[i][a] >= 2)
        numbers = frozenset(i for i, n in enumerate(first[0].version.ints) if n is None)
        try:
            again = _first(stage, case, [Wish(shapes, dims, numbers), Wish(shapes, frozenset(), frozenset())], ints)
        except (CaptureError, BackendError) as fault:
            if any((call.shapes, call.ints) == (seen.shapes, seen.ints) for seen in case.seen):
                raise
            _log.info("%s: not for sizes of one: %s", stage.target.label, fault)
            continue
        taken.append(again[0].version)
        yield again
    yield from _branches(stage, case, taken)


def _branches(stage: Stage, case: Case, taken: list[Version]) -> Iterator[tuple[Saved, Subject, Call]]:
    """Versions for sizes that a condition of the method keeps from those that are `taken`, which grows by them."""
    stage.unsaved = []
    dims, numbers = open_dims(taken[0]), frozenset(i for i, n in enumerate(taken[0].ints) if n is None)
    for shapes in _saved_branches.left_out(stage, case, taken):
        if len(taken) >= _saved_branches.MOST:
            return
        try:
            found = _first(stage, case, [Wish(shapes, dims, numbers)])
        except (CaptureError, BackendError) as fault:
            stage.unsaved.append(str(fault))
            continue
        if open_dims(found[0].version) == dims:  # else it is for few sizes: there may be no end to such
            taken.append(found[0].version)
            yield found


def _others(
    stage: Stage, case: Case, version: Version
) -> Iterator[tuple[tuple[tuple[int, ...], ...], tuple[int, ...]]]:
    """Sizes and integers that must be served too: those that were seen, and one where it is computed otherwise."""
    for call in case.seen:
        yield tuple(map(tuple, call.shapes)), call.ints
    numbers = numbers_of(case)

    def fits(shapes: Shapes) -> bool:
        return version.fits(Call(version.tree, sized(version.tensors, shapes), numbers, version.ambient))

    for places in together(open_dims(version)):
        free = fits(grown(version.example, places))  # of sizes that are tied to others
        shapes = at(version.example, places, 1)
        if free and not fits(shapes) and _saved_sizes.fault(stage, case, shapes) is None:
            yield shapes, numbers


def _first(
    stage: Stage, case: Case, wishes: Iterable[Wish], ints: tuple[int, ...] | None = None
) -> tuple[Saved, Subject, Call]:
    """The version that fulfils the first wish that can be. Raises CaptureError or BackendError."""
    label = stage.target.label
    fault: Exception | None = None
    for wish in wishes:
        numbers = ints if ints is not None else numbers_of(case)
        tensors = examples(stage, case, wish.shapes)
        values = values_of(case, tensors, numbers, stage.target)
        request = stage.request(values)
        with stage.frontend.no_grad():  # as the saved model is run
            outcome = _tracing.trace(request, [(wish.dims, wish.ints)])
        version, graph = outcome.version, outcome.graph
        if graph is None:
            fault = CaptureError(label, version.reason, version.remedy)
            continue
        from hybrid_infer.passes import run

        graph = run(graph, ("prune",))  # whatever is asked of it later, it is not given what it does not read
        data = graph.model
        import onnx

        saved = Saved(
            replace(version, graph=replace(graph, model=b""), reads=(), method=label), functools.partial(_itself, data),
            tuple(case.names), _model.operators(onnx.load_from_string(data)), ranges=case.ranges,
        )  # fmt: skip
        try:
            saved = _saved_check.checked(stage, case, saved, request.subject, numbers)
        except (EngineError, StaticModelError, _verify.Disagreement) as error:
            fault = BackendError(label, str(error))
            _log.debug("%s: %s", label, fault)
            continue
        if request.subject.facts is not None:
            _log.info("%s asks how tensors lie in memory: its graph holds the answers for contiguous ones", label)
        if case.exact:
            _tell(stage, case, saved.version)
        return saved, request.subject, request.call
    assert fault is not None
    raise fault


def _tell(stage: Stage, case: Case, version: Version) -> None:
    """Warn, once, of what a spec left open and the graph does not."""
    if stage.told is case:
        return
    stage.told = case
    for i, (wanted, found) in enumerate(zip(case.tensors, version.tensors, strict=True)):
        for axis, (wish, size) in enumerate(zip(wanted.shape, found.shape, strict=True)):
            if wish is None and size is not None and version.example[i][axis] >= 2:
                _log.warning(
                    "%s: axis %d of %s was to vary, and its graph fixes it to %d", stage.target.label, axis,
                    case.places[i], size,
                )  # fmt: skip


def _tell_limits(stage: Stage, case: Case, versions: Sequence[Version]) -> None:
    """Warn of sizes along axes that a spec left open, and that the method takes and the graphs do not."""
    for (i, axis), (text, size) in _served_sizes.limits(versions, case.tree).items():
        if _saved_sizes.fault(stage, case, at(versions[0].example, frozenset([(i, axis)]), size)) is not None:
            continue
        why = f"the others cannot be saved: {stage.unsaved[0]}" if stage.unsaved else _ENOUGH
        _log.warning(
            "%s: axis %d of %s was to vary, and what is saved takes %s, as a condition of the method tells sizes "
            "apart; %s", stage.target.label, axis, case.places[i], text, why,
        )  # fmt: skip
