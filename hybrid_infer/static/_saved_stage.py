"""A copy of what a method works on, in which a capture for a file takes place: in one mode, on the CPU."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from hybrid_infer._errors import CaptureError, SpecError, TraceError
from hybrid_infer._met import Style
from hybrid_infer._options import Options
from hybrid_infer._request import Request
from hybrid_infer._signature import Signatures
from hybrid_infer._subject import Subject
from hybrid_infer._types import TensorSpec
from hybrid_infer._unsupported import Unsupported
from hybrid_infer._version import Call, Version
from hybrid_infer.capture._copies import copied
from hybrid_infer.state import _census, _roots
from hybrid_infer.static._saved_target import Case, Target, example, repeats, trials

OPTIONS = Options(cache_static_model=False, cache_key="saved")

_SEVERAL = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)

#: Places of dimensions: (tensor, axis).
Dims = frozenset[tuple[int, int]]

#: Sizes of the tensors of a call.
Shapes = Sequence[tuple[int, ...]]


class Stage:
    """A copy of what a method works on, in one mode, on the CPU; and the function that reaches the copy."""

    def __init__(self, target: Target, *, training: bool) -> None:
        frontend = target.frontend
        self.target, self.frontend = target, frontend
        self.style: Style | None = None  # of the case at hand, where it was seen
        self.told: Case | None = None  # the case that a warning was given for
        self.unsaved: list[str] = []  # why what the method does for some sizes is not part of what is saved
        roots = {"self": target.owner} if target.owner is not None else {}
        roots.update({k: v for k, v in _roots.find(target.function, frontend).items() if v is not target.owner})
        live = _census.take(roots, frontend)
        #: Tensors of the copy that are not the live ones, but copies of them: on the CPU, and of what a method may
        #: write to when it is run here.
        self.origins: dict[int, Any] = {}
        memo: dict[int, Any] = {}
        for tensor in {id(slot.tensor): slot.tensor for slot in live.slots}.values():
            memo[id(tensor)] = tensor
            elsewhere = frontend.describe(tensor)[2] != "cpu"
            if elsewhere or not frontend.is_parameter(tensor):
                memo[id(tensor)] = here = tensor.cpu() if elsewhere else frontend.duplicate(tensor)
                self.origins[id(here)] = tensor
        try:
            twins = copied(roots, live, memo)
        except TraceError as fault:
            raise CaptureError(target.label, fault.reason, fault.remedy) from fault
        for name, root in twins.items():
            inside = [root] if isinstance(root, frontend.layer_type) else _layers(name, root, frontend)
            for layer in inside:
                if not (training and layer.training):  # a part that is frozen in evaluation mode stays so
                    frontend.switch(layer, training)
        self.function = _roots.Clones(twins).of(target.function)
        self.owner = twins.get("self")

    def request(self, values: Sequence[Any]) -> Request:
        """A call of the copy. Raises SpecError."""
        target, frontend = self.target, self.frontend
        try:
            layout = Signatures(frontend).layout(values, target.parameters.names, target.parameters.defaults)
        except Unsupported as fault:
            raise SpecError(fault.place, str(fault)) from fault
        call = Call(
            layout.tree, tuple(TensorSpec(*frontend.describe(t)) for t in layout.tensors), tuple(layout.ints), (),
            tuple(layout.places), tuple(layout.int_places),
        )  # fmt: skip
        subject = Subject(
            frontend, self.function, self.owner, self.owner is not None, target.label, "saved", layout.kinds
        )
        return Request(
            frontend, OPTIONS, self.function, target.label, target.parameters, layout, call, subject, None, False,
            self._style(values), any_size=True,
        )  # fmt: skip

    def _style(self, values: Sequence[Any]) -> Style:
        """How many arguments are passed by position, and the names of the others; defaults at the end are left out."""
        if self.style is not None:
            return self.style
        given, names = 0, set()
        for i, (parameter, value) in enumerate(zip(self.target.parameters.parameters, values, strict=True)):
            left_out = not value if parameter.kind in _SEVERAL else value is parameter.default
            if not left_out and parameter.kind is not parameter.VAR_KEYWORD:
                given = i + 1
                names.add(parameter.name)
        return given, frozenset(names)

    def eager(self, values: Sequence[Any]) -> Any:
        args, kwargs = self.target.parameters.unbind(values, *self._style(values))
        owner = () if self.owner is None else (self.owner,)
        with self.frontend.no_grad():
            return self.function(*owner, *args, **kwargs)


def _layers(name: str, root: Any, frontend: Any) -> list[Any]:
    return [layer for _, layer in _census.take({name: root}, frontend).layers]


def numbers_of(case: Case) -> tuple[int, ...]:
    return case.seen[-1].ints if case.seen else tuple(n for n in case.ints if n is not None)


def examples(
    stage: Stage, case: Case, shapes: Sequence[tuple[int, ...]], whole: int = 1, truth: bool = True
) -> list[Any]:
    again = repeats(case.tree)
    tensors: list[Any] = []
    for i, (spec, given, shape) in enumerate(zip(case.tensors, case.given, shapes, strict=True)):
        same = again[i]
        if same is not None:
            tensors.append(tensors[same])
        elif given is not None and tuple(given.shape) == tuple(shape):
            tensors.append(given)
        else:
            tensors.append(example(stage.frontend, spec.dtype, shape, whole, truth))
    return tensors


def attempts(stage: Stage, case: Case, shapes: Sequence[tuple[int, ...]]) -> Iterator[list[Any]]:
    """Examples of other values each time, for methods that do not take some."""
    for whole, truth in trials({spec.dtype for spec in case.tensors}):
        yield examples(stage, case, shapes, whole, truth)


def sized(tensors: Sequence[TensorSpec], shapes: Sequence[tuple[int, ...]]) -> tuple[TensorSpec, ...]:
    return tuple(replace(tensor, shape=shape) for tensor, shape in zip(tensors, shapes, strict=True))


def open_dims(version: Version) -> Dims:
    return frozenset((i, a) for i, t in enumerate(version.tensors) for a, n in enumerate(t.shape) if n is None)


def together(dims: Dims) -> list[Dims]:
    """Sets of dimensions to be given one size: all on one axis (a batch is of one size), on two axes, all, each alone.

    One set after the other makes a graph close to sizes for which it is wrong: what is right for each of two axes alone
    may be wrong for both.
    """
    axes = [frozenset(place for place in dims if place[1] == axis) for axis in sorted({axis for _, axis in dims})]
    pairs = [one | other for one, other in itertools.combinations(axes, 2)]
    alone = [frozenset([place]) for place in sorted(dims)]
    return list(dict.fromkeys([*axes, *pairs, *([dims] if dims else []), *alone]))


def at(shapes: Shapes, places: Dims, size: int) -> tuple[tuple[int, ...], ...]:
    """The shapes with a size at some places."""
    return tuple(tuple(size if (i, a) in places else n for a, n in enumerate(s)) for i, s in enumerate(shapes))


def grown(shapes: Shapes, places: Dims) -> tuple[tuple[int, ...], ...]:
    """The shapes with sizes that are larger by one at some places."""
    return tuple(tuple(n + ((i, a) in places) for a, n in enumerate(s)) for i, s in enumerate(shapes))
