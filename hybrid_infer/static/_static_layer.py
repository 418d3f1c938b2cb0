"""StaticLayer: a saved model, callable without its Python code and, given arrays, without its framework."""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Mapping
from typing import Any, NoReturn

from hybrid_infer._errors import StaticModelError
from hybrid_infer._options import Options
from hybrid_infer._spec import InputSpec
from hybrid_infer._structure import builder
from hybrid_infer.static import _static_call, _trainable
from hybrid_infer.static._model import FORWARD, Model
from hybrid_infer.static._static_bindings import described, inputs_of
from hybrid_infer.static._static_call import StaticMethod
from hybrid_infer.static._static_programs import Programs

#: Methods of the frameworks' layers that move, change or train them.
_OF_LAYERS = frozenset({
    "to", "cpu", "cuda", "half", "float", "double", "bfloat16", "named_parameters", "buffers", "sublayers",
    "modules", "requires_grad_", "zero_grad", "register_forward_hook", "load_state_dict", "apply",
})  # fmt: skip
#: Attributes that are not the program's.
_OWN = frozenset({"_model", "_programs", "methods", "_trainable"})
_INSTEAD = (
    "It computes where the tensors of a call are, with weights that set_state_dict() replaces; as_layer() gives a "
    "layer, if it was saved with trainable=True"
)


class StaticLayer:
    """A static model that ``load()`` gave.

    Called as the saved layer or function was, with tensors of torch or of Paddle or with NumPy arrays, it gives back
    results of the same kind in the structure of the eager result. A class of results that this process has not
    imported becomes a record: a dict with the fields as attributes. Other methods that were saved are attributes, and
    in ``methods`` by their names. It serves the graph that was captured in evaluation mode and records no gradient;
    after ``train()`` it computes with the trainable program instead.

    It may be called from several threads, but its weights must not be replaced meanwhile.
    """

    def __init__(self, model: Model, options: Options) -> None:
        self._model, self._programs = model, Programs(model, options)
        self.methods = {name: StaticMethod(self._programs, method) for name, method in model.methods.items()}
        self._trainable: Any = None
        self._programs.asked.look_for()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._called(self._model.called)(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        methods = vars(self).get("methods", {})
        if name in methods:
            return self._called(name)
        hint = f". {_INSTEAD}" if name in _OF_LAYERS else ""
        raise AttributeError(f"this static model has no method {name!r}; it has {', '.join(methods)}{hint}")

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.methods})

    # What is copied has weights of its own. Their arrays are replaced, never written to, so that both may have them.
    def __copy__(self) -> StaticLayer:
        made = self._copied({})
        vars(made).update(self._noted())
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> StaticLayer:
        made = memo[id(self)] = self._copied(memo)
        vars(made).update(copy.deepcopy(self._noted(), memo))
        return made

    def _copied(self, memo: dict[int, Any]) -> StaticLayer:
        """With the methods that were copied by themselves before, as ``static.forward`` is."""
        tensors = self.hybrid_infer_model().tensors
        made = StaticLayer.__new__(StaticLayer)
        made._programs, made.methods = copy.deepcopy((self._programs, self.methods), memo)
        made._model, made._trainable = made._programs.model, None
        made._model.tensors = tensors
        made._programs.asked.look_for()
        return made.train(self.training)

    def _noted(self) -> dict[str, Any]:
        """What the program has given it, such as the settings of the layer that was saved."""
        return {name: value for name, value in vars(self).items() if name not in _OWN}

    def __reduce__(self) -> NoReturn:
        self._programs.__reduce__()

    def _called(self, name: str) -> Any:
        if self._trainable is None:
            return self.methods[name]
        return self._trainable if name == FORWARD else getattr(self._trainable, name)

    # What it takes and gives

    @property
    def input_spec(self) -> list[Any]:
        """An InputSpec for each tensor argument, in the structure of the arguments; -1 for sizes that vary."""
        return list(self._specs(self._model.called)[0])

    @property
    def output_spec(self) -> Any:
        """The structure of the results, with an InputSpec for each tensor."""
        return self._specs(self._model.called)[1]

    def _specs(self, name: str) -> tuple[tuple[Any, ...], Any]:
        from hybrid_infer.static._model import resolved

        method = self._model.methods[name]
        saved = max(method.versions, key=lambda each: each.version.width)
        version = saved.version
        assert version.graph is not None
        inputs = inputs_of(saved)
        leaves: list[Any] = []
        for origin, index in version.sources:
            if origin == "x":
                leaves.append(inputs[index])
            elif origin == "w":
                weight = version.weights[index]
                leaves.append(InputSpec(weight.shape, weight.dtype, weight.name))
            else:
                spec = version.graph.output_specs[index]
                leaves.append(InputSpec(spec.shape, spec.dtype))
        results = builder(resolved(version.results, method.fields), lambda kind, value: value)(leaves)
        return described(saved, self.methods[name]._bindings), results

    @property
    def dtype(self) -> str:
        """The element type of its first floating-point weight, else of its first result."""
        for dtype, _ in self._model.tensors.values():
            if "float" in dtype:
                return dtype
        graph = next(iter(self._model.methods.values())).versions[0].version.graph
        assert graph is not None
        return graph.output_specs[0].dtype if graph.output_specs else "float32"

    # Weights

    def state_dict(self, kind: str | None = None) -> dict[str, Any]:
        """Copies of the weights under the names that they have in the layer that was saved.

        Parameters
        ----------
        kind : "torch", "paddle" or "numpy"; None: the framework that saved the model where this process has imported
            it, else NumPy. NumPy has no bfloat16: such weights come as float32 arrays.
        """
        self._fetch()
        if kind is None:
            there = sys.modules.get(self._model.framework) is not None
            kind = self._model.framework if there else "numpy"
        framework = frontend(kind)
        made: dict[str, Any] = {}
        for stored in self._model.state.values():
            if stored not in made:
                made[stored] = _static_call.tensor_of(framework, *self._model.tensors[stored])
        return {name: made[stored] for name, stored in self._model.state.items()}

    def set_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> tuple[list[str], list[str]]:
        """Replace weights by those of a layer, or of another training of it; all of them or, on an error, none.

        Parameters
        ----------
        state_dict : tensors of any framework, or arrays, by name.
        strict : raise for missing and unexpected names instead of returning them.

        Returns
        -------
        The missing and the unexpected names.

        Raises
        ------
        StaticModelError
            a weight has another shape or an element type of another kind, or the names differ.
        """
        state = self._model.state
        missing = [name for name in state if name not in state_dict]
        unexpected = [name for name in state_dict if name not in state]
        if strict and (missing or unexpected):
            both = (("missing", missing), ("unexpected", unexpected))
            told = [f"{what}: {', '.join(names)}" for what, names in both if names]
            raise StaticModelError(self._model.path, f"the names of the weights differ; {'; '.join(told)}")
        changed: dict[str, tuple[str, Any]] = {}
        for name, stored in state.items():
            if name not in state_dict:
                continue
            changed[stored] = self._checked(name, stored, state_dict[name])
        self._model.tensors = {**self._model.tensors, **changed}
        self._renew()
        if self._trainable is not None:
            training, self._trainable = self._trainable.training, None
            self.train(training)
        return missing, unexpected

    load_state_dict = set_state_dict

    def _checked(self, name: str, stored: str, value: Any) -> tuple[str, Any]:
        dtype, array = self._model.tensors[stored]
        frontend = _static_call.frontend_of_tensor(value) or _static_call.arrays()
        if not hasattr(value, "shape"):
            raise StaticModelError(self._model.path, f"the weight {name} is given as a {type(value).__name__}")
        found, shape, _ = frontend.describe(value)
        if tuple(shape) != array.shape:
            raise StaticModelError(
                self._model.path, f"the weight {name} is of shape {array.shape}, and {tuple(shape)} is given"
            )
        same = found == dtype or (not frontend.name and {found, dtype} == {"bfloat16", "float32"})
        if not same:
            raise StaticModelError(self._model.path, f"the weight {name} is {dtype}, and {found} is given")
        if not frontend.name and dtype == "bfloat16":
            from hybrid_infer.static import _tensors

            return dtype, _tensors.narrowed(value.astype("float32"))
        return _static_call.stored_of(frontend, value)

    def _renew(self) -> None:
        self._programs.clear()
        for method in self.methods.values():
            method.forget()

    def release(self) -> None:
        """Give back the sessions, and the memory that engines hold; the next call builds them again."""
        self._renew()

    # Modes

    @property
    def training(self) -> bool:
        return self._trainable is not None and bool(self._trainable.training)

    def eval(self) -> StaticLayer:
        """Serve the graph, with the weights as a training has left them; returns itself."""
        return self.train(False)

    def train(self, mode: bool = True) -> StaticLayer:
        """Compute with the trainable program, so that gradients flow to ``parameters()``; returns itself.

        The program is read by the framework's own loader (see ``as_layer``).

        Raises
        ------
        StaticModelError
            the model carries no trainable program.
        """
        if mode:
            if self._trainable is None:
                self._trainable = self.as_layer()
            self._trainable.train()
        elif self._trainable is not None:
            self._fetch()
            self._trainable = None
        return self

    def parameters(self) -> list[Any]:
        """The tensors that an optimizer of a training changes. Raises StaticModelError outside of ``train()``."""
        if self._trainable is None:
            reason = "it is in evaluation mode and has no parameters"
            raise StaticModelError(self._model.path, reason, "Call train() first")
        return list(self._trainable.parameters())

    def _fetch(self) -> None:
        """Take over the weights of the layer that was trained."""
        if self._trainable is not None:
            self._model.tensors = self._trainable.hybrid_infer_model().tensors
            self._renew()

    def as_layer(self) -> Any:
        """The framework's own trainable layer: a ``torch.nn.Module`` or a ``paddle.nn.Layer``, with these weights.

        It runs the program that was captured from the layer, in training and in evaluation mode, and can be fine-tuned
        and saved again with ``save()``. Reading that program is the framework's own work, which is as trustworthy as
        the file: call this for models of sources that you trust. Its weights are copies.

        Raises
        ------
        StaticModelError
            the model carries no trainable program, or its framework is not installed.
        """
        self._fetch()
        model = self._model
        if not any(saved.programs for method in model.methods.values() for saved in method.versions):
            raise StaticModelError(
                model.path, f"it carries no program that can be trained{': ' if model.untrainable else ''}"
                f"{model.untrainable}", "Save the layer with trainable=True",
            )  # fmt: skip
        return _trainable.layer(model, frontend(model.framework))

    def export_onnx(self, file: str | os.PathLike[str], method: str | None = None) -> list[str]:
        """Write one of its methods as an ONNX file that holds its weights; returns a description in words.

        The file is run in ONNX Runtime and compared with the model first. Raises StaticModelError, and TypeError for a
        `file` that is no path.
        """
        given: Any = file
        if not isinstance(given, (str, os.PathLike)):
            from hybrid_infer import _meant

            what = _meant.given(given)
            raise TypeError(f"export_onnx() was given {what} for `file`; it takes a string or an os.PathLike of one")
        from hybrid_infer.static import _onnx_export

        self._fetch()
        name = method if method in self.methods else self._model.called
        return _onnx_export.export(self._model, method, os.fspath(file), self._specs(name)[1])

    def __repr__(self) -> str:
        return f"<StaticLayer of {self._model.path}: {', '.join(self.methods)}>"

    def __str__(self) -> str:
        from hybrid_infer.static._static_table import table

        self._fetch()
        return table(self._model, {name: self._specs(name) for name in self.methods})

    def hybrid_infer_model(self) -> Model:
        """What ``save()`` writes."""
        self._fetch()
        return self._model


def frontend(kind: str) -> Any:
    """The frontend of a framework, which is imported where it is not yet. Raises StaticModelError."""
    if kind == "numpy":
        return _static_call.arrays()
    if kind not in ("torch", "paddle"):
        raise StaticModelError(kind or "the model", "it is of no framework that is known here; ask for 'numpy'")
    from importlib import import_module

    frontend = import_module(f"hybrid_infer.frontends.{kind}").FRONTEND
    try:
        frontend.layer_type  # noqa: B018  # its first use imports the framework
    except ImportError as fault:
        raise StaticModelError(kind, f"it cannot be imported: {fault}") from fault
    return frontend
