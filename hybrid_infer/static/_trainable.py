"""The trainable layer of a static model: the programs of the framework behind a layer that holds the weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from hybrid_infer import _guards
from hybrid_infer._errors import SpecError
from hybrid_infer._structure import builder, constants, leaf_kinds
from hybrid_infer._version import Call
from hybrid_infer.static import _static_call
from hybrid_infer.static._model import Method, Model, Saved, resolved
from hybrid_infer.static._static_bindings import Bindings

Lookup = Callable[[str], Any]


class Core:
    """What answers the calls of a trainable layer; shared by its copies, and holds no weight that is in use."""

    __slots__ = ("_bindings", "_frontend", "_model", "_runners")

    def __init__(self, model: Model, frontend: Any) -> None:
        self._model, self._frontend = model, frontend
        self._bindings = {name: Bindings(model, method) for name, method in model.methods.items()}
        self._runners = {
            (id(saved), mode): frontend.runner(program.read())
            for method in model.methods.values()
            for saved in method.versions
            for mode, program in saved.programs.items()
        }

    def __copy__(self) -> Core:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Core:
        return self

    @property
    def names(self) -> list[str]:
        return list(self._bindings)

    def model(self, lookup: Lookup) -> Model:
        """The static model with the weights as they are now."""
        tensors = {name: _static_call.stored_of(self._frontend, lookup(name)) for name in self._model.tensors}
        return replace(self._model, tensors=tensors)

    def call(self, name: str, training: bool, lookup: Lookup, args: Any, kwargs: Any) -> Any:
        """Run a method's program in a mode. Raises SpecError or StaticModelError."""
        bindings, frontend = self._bindings.get(name) or self._bindings[self._model.called], self._frontend
        values = bindings.bind(args, kwargs)
        saved, layout = bindings.find(values, frontend, partial(_suits, bindings.method))
        mode = "train" if training else "eval"
        program = saved.programs[mode]
        weights = [lookup(weight.name) if weight.name else None for weight in saved.version.weights]
        ints = [n for n, own in zip(layout.ints, saved.version.ints, strict=True) if own is None]
        computed = self._runners[id(saved), mode](weights, layout.tensors, ints)
        leaves = []
        for (origin, index), kind in zip(program.sources, leaf_kinds(program.results), strict=True):
            if origin == "x":
                leaves.append(layout.tensors[index])
            elif origin == "w":
                leaves.append(weights[index])
            else:
                leaves.append(int(computed[index]) if kind == "i" else computed[index])
        tree = resolved(program.results, bindings.method.fields)
        return builder(tree, constants(frontend))(leaves)


def _suits(method: Method, saved: Saved, call: Call) -> bool:
    """Sizes of one are not told apart here: the program says itself what it cannot take.

    It does not say of sizes that go another way through the method. Raises SpecError for these.
    """
    if not saved.programs or not _fits_but_for_sizes(saved, call):
        return False
    if any(type(size) is not int for shape in call.shapes for size in shape):  # a tracer's
        return True
    tensors = tuple(replace(spec, shape=tuple(max(size or 0, 2) for size in spec.shape)) for spec in call.tensors)
    judged = replace(call, tensors=tensors)
    broken = saved.version.broken(judged)
    others = (each for each in method.versions if each is not saved and _fits_but_for_sizes(each, call))
    ways = [each for each in others if not each.version.broken(judged)] if broken else []
    if ways and not any(each.programs for each in ways):
        rule = min(map(_guards.text, broken), key=len)
        reason = "a call of such sizes takes another way through the method than its program for training"
        raise SpecError(f"the call of {method.name}", f"{reason}, which is for those where {rule}")
    return not ways


def _fits_but_for_sizes(saved: Saved, call: Call) -> bool:
    return replace(saved.version, conditions=()).fits(call)


def layer(model: Model, frontend: Any) -> Any:
    """A layer of the framework with copies of the weights. Raises StaticModelError."""
    tensors = {name: _static_call.tensor_of(frontend, *stored) for name, stored in model.tensors.items()}
    return frontend.layer_of(Core(model, frontend), tensors, model.state, model.parameters, model.frozen)
