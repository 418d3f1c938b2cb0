"""A program of ``torch.export`` in a file, as a module whose forward is captured like any other."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils import _pytree

from hybrid_infer._errors import StaticModelError, summary
from hybrid_infer.frontends._torch_capture import _quiet


class _Held:
    """The program and the order of its inputs; no state of the module, so that copies share it."""

    __slots__ = ("inputs", "program", "tree")

    def __init__(self, program: Any, inputs: list[tuple[str, Any]], tree: Any) -> None:
        self.program, self.inputs, self.tree = program, inputs, tree

    def __deepcopy__(self, memo: dict[int, Any]) -> _Held:
        return self


class Program(torch.nn.Module):
    """The weights of a program under their names in the module that it was exported from, which may be any."""

    def __init__(self, held: _Held, weights: dict[str, Any], persistent: set[str]) -> None:
        super().__init__()
        self._hybrid_infer_held = held
        for name, value in weights.items():
            *path, last = name.split(".")
            holder: Any = self
            for part in path:
                if part not in holder._modules:
                    holder.add_module(part, torch.nn.Module())
                holder = holder._modules[part]
            if isinstance(value, torch.nn.Parameter):
                holder.register_parameter(last, value)
            else:
                holder.register_buffer(last, value, persistent=name in persistent)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        held = self._hybrid_infer_held
        given = iter(_pytree.tree_leaves((args, kwargs)))
        values = [next(given) if kind == "input" else _weight(self, name) for kind, name in held.inputs]
        return _pytree.tree_unflatten(list(held.program(*values)), held.tree)


def _weight(holder: Any, name: str) -> Any:
    *path, last = name.split(".")
    for part in path:
        holder = holder._modules[part]
    return holder._parameters[last] if last in holder._parameters else holder._buffers[last]


def open_program(path: str) -> tuple[Any, inspect.Signature, list[Any], list[tuple[int | None, ...]]]:
    """The module, the signature of its forward, example values for that, and the sizes of their tensors.

    None stands for a size that varies. Raises StaticModelError.
    """
    with _quiet():
        try:
            exported = torch.export.load(path)
        except Exception as fault:
            raise StaticModelError(path, *_unread(fault)) from fault
        signature = exported.graph_signature
        if any(spec.kind is not OutputKind.USER_OUTPUT for spec in signature.output_specs):
            raise StaticModelError(
                path, "it changes its inputs or buffers", "Export the module in evaluation mode: eval()"
            )
        weights: dict[str, Any] = {}
        inputs: list[tuple[str, Any]] = []
        leaves: list[Any] = []
        shapes: list[tuple[int | None, ...]] = []
        placeholders = [node for node in exported.graph.nodes if node.op == "placeholder"]
        for node, spec in zip(placeholders, signature.input_specs, strict=True):
            if spec.kind is InputKind.USER_INPUT:
                value = node.meta.get("val")
                inputs.append(("input", ""))
                leaves.append(_example(value))
                if isinstance(value, torch.Tensor):
                    shapes.append(tuple(None if isinstance(n, torch.SymInt) else int(n) for n in value.shape))
            elif spec.kind in (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR):
                held = exported.state_dict if spec.target in exported.state_dict else exported.constants
                weights[spec.target] = held[spec.target]
                inputs.append(("weight", spec.target))
            else:
                kind = spec.kind.name.lower()
                raise StaticModelError(path, f"its input {node.name} is a {kind}, which is not served")
        args, kwargs = _pytree.tree_unflatten(leaves, exported.call_spec.in_spec)
        names = exported.module_call_graph[0].signature.forward_arg_names
        names = list(names) if names else [f"x{i}" for i in range(len(args))] + list(kwargs)
        held = _Held(exported.graph_module, inputs, exported.call_spec.out_spec)
        module = Program(held, weights, set(exported.state_dict))
    kinds = inspect.Parameter
    parameters = [kinds("self", kinds.POSITIONAL_OR_KEYWORD)]
    parameters += [kinds(name, kinds.POSITIONAL_OR_KEYWORD) for name in names[: len(args)]]
    parameters += [kinds(name, kinds.KEYWORD_ONLY) for name in kwargs]
    return module.eval(), inspect.Signature(parameters), [*args, *kwargs.values()], shapes


def _unread(fault: Exception) -> tuple[str, str]:
    """Reason and remedy, of an archive that is sound. What torch says itself may refer to warnings that it gave."""
    why = "" if "warnings above" in str(fault) else f": {summary(fault)}"
    reason = f"torch {torch.__version__} cannot read the program in it, which another release of torch may have written"
    return reason + why, "Export the module with this release, and save that by torch.export.save()"


def _example(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return torch.zeros([_size(n) for n in value.shape], dtype=value.dtype)
    return _size(value) if isinstance(value, torch.SymInt) else value


def _size(n: Any) -> int:
    if not isinstance(n, torch.SymInt):
        return int(n)
    hint = n.node.hint
    return 2 if hint is None else int(hint)
