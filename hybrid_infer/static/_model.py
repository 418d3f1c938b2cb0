"""A static model in memory: methods, their versions, weights by name; and its form as a manifest and files."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hybrid_infer._errors import StaticModelError
from hybrid_infer._types import Graph
from hybrid_infer._version import Version
from hybrid_infer.static import _artefact, _tensors
from hybrid_infer.static._artefact import Artefact

FORWARD = "forward"

WEIGHTS = "weights.safetensors"

#: An element type and an array in its carrier's type (see ``_tensors``).
Stored = tuple[str, Any]


@dataclass(frozen=True)
class Parameter:
    """One of a method: its name, its kind (as of ``inspect``) and its default as a node of a layout, None if required.

    The node ``["c", "default", None]`` is a default that no file can hold; it was taken into the graph.
    """

    name: str
    kind: int
    default: list[Any] | None = None


@dataclass(frozen=True)
class Trained:
    """A program of the framework itself, with the structure of its results (see ``Version``).

    It takes every weight of its version, then tensors and integers.
    """

    read: Callable[[], bytes]
    results: list[Any]
    sources: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Plan:
    """Files that an engine prepared from a graph, and the inputs of what was left of it (see ``Graph``)."""

    weights: tuple[str | None, ...]
    inputs: tuple[str | None, ...]
    read: Callable[[], dict[str, bytes]]


@dataclass
class Saved:
    """A version of a method with its graph.

    ``names``: of its tensors. ``operators``: how many there are of each. ``programs``: what can be trained, by mode
    ("train", "eval"). ``plans``: what engines prepared, by plan. ``ranges``: of its tensors, as ``InputSpec.range``;
    empty where none was given.
    """

    version: Version
    read: Callable[[], bytes]
    names: tuple[str, ...]
    operators: Mapping[str, int]
    programs: dict[str, Trained] = field(default_factory=dict)
    plans: dict[str, Plan] = field(default_factory=dict)
    ranges: tuple[Any, ...] = ()

    def graph(self) -> Graph:
        assert self.version.graph is not None
        return replace(self.version.graph, model=self.read())


@dataclass
class Method:
    """A method by its name, with its parameters and versions. ``fields``: of the classes of named tuples, by path."""

    name: str
    parameters: tuple[Parameter, ...]
    versions: list[Saved]
    fields: dict[str, list[str]] = field(default_factory=dict)


@dataclass
class Model:
    """A static model.

    ``tensors``: every distinct weight, by its first name. ``state``: the names under which the layer has them, in its
    own order. ``parameters``: which of ``tensors`` are parameters of the layer, ``frozen``: which of these a training
    leaves as they are. ``untrainable``: why there is no program for training.
    """

    framework: str
    methods: dict[str, Method]
    tensors: dict[str, Stored]
    state: dict[str, str]
    parameters: tuple[str, ...] = ()
    frozen: tuple[str, ...] = ()
    untrainable: str = ""
    path: str = ""

    @property
    def called(self) -> str:
        """The method that a call of the model runs: its forward, or the only one. Raises StaticModelError."""
        if FORWARD in self.methods:
            return FORWARD
        if len(self.methods) > 1:
            reason = f"it has no forward, which a call would run; it has {', '.join(self.methods)}"
            raise StaticModelError(self.path or "the model", reason, "Name the method")
        return next(iter(self.methods))


def operators(model: Any) -> dict[str, int]:
    """How many there are of each operator in a ModelProto, bodies of loops and branches included."""
    from hybrid_infer.passes._scopes import graphs

    counts = Counter(node.op_type for inner in graphs(model.graph) for node in inner.node)
    for function in model.functions:
        counts.pop(function.name, None)
        counts.update(node.op_type for node in function.node)
    return dict(counts.most_common())


def write(model: Model, path: str) -> None:
    """Write a model as an artefact. Raises StaticModelError."""
    files: dict[str, Sequence[Any]] = {WEIGHTS: [_weights(model, path)]}
    methods = {}
    for method in model.methods.values():
        versions = []
        for saved in method.versions:
            number = sum(role.startswith("graph") for role in files)
            files[f"graph{number}.onnx"] = [saved.read()]
            programs = {}
            for mode, program in saved.programs.items():
                role = f"trainable{number}_{mode}.bin"
                files[role] = [program.read()]
                programs[mode] = [role, program.results, list(map(list, program.sources))]
            plans = {}
            for n, (key, plan) in enumerate(saved.plans.items()):
                roles = {}
                for k, (name, data) in enumerate(plan.read().items()):
                    roles[name] = f"plan{number}_{n}_{k}.bin"
                    files[roles[name]] = [data]
                plans[key] = [list(plan.weights), list(plan.inputs), roles]
            versions.append(
                {
                    "version": saved.version.to_meta(), "graph": f"graph{number}.onnx", "names": list(saved.names),
                    "operators": dict(saved.operators), "programs": programs, "plans": plans,
                    **({"ranges": saved.ranges} if any(saved.ranges) else {}),
                }
            )  # fmt: skip
        parameters = [[p.name, p.kind, p.default] for p in method.parameters]
        methods[method.name] = {"parameters": parameters, "versions": versions, "fields": method.fields}
    manifest = {
        "framework": model.framework, "methods": methods, "order": list(methods), "state": list(model.state.items()),
        "parameters": list(model.parameters), "frozen": list(model.frozen), "untrainable": model.untrainable,
    }  # fmt: skip
    _artefact.write(path, manifest, files)


def _weights(model: Model, path: str) -> bytes:
    for name, (dtype, _) in model.tensors.items():
        if _tensors.carrier(dtype) is None:
            raise StaticModelError(path, f"the weight {name} is of the element type {dtype}, which no file can hold")
    return _tensors.dump(model.tensors)


def read(path: str) -> Model:
    """The model of an artefact; graphs, programs and plans are read when they are used. Raises StaticModelError."""
    artefact = _artefact.read(path)
    try:
        tensors = _tensors.load(artefact.take(WEIGHTS))
    except ValueError as fault:
        raise StaticModelError(artefact.path, f"its weights are damaged: {fault}") from fault
    try:
        model = _model(artefact, tensors)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as fault:
        raise StaticModelError(artefact.path, f"its manifest does not describe a model: {fault!r}") from fault
    _agree(model)
    return model


def _model(artefact: Artefact, tensors: dict[str, Stored]) -> Model:
    body = artefact.model
    methods = {}
    for name in body["order"]:
        entry = body["methods"][name]
        parameters = tuple(Parameter(each, int(kind), default) for each, kind, default in entry["parameters"])
        versions = [_saved(artefact, each) for each in entry["versions"]]
        if not versions:
            raise ValueError(f"{name} has no graph")
        fields = {str(k): [str(n) for n in v] for k, v in entry["fields"].items()}
        methods[str(name)] = Method(str(name), parameters, versions, fields)
    state = {str(name): str(stored) for name, stored in body["state"]}
    for stored in (*state.values(), *body["parameters"]):
        if stored not in tensors:
            raise ValueError(f"it has no weight {stored}")
    return Model(
        str(body["framework"]), methods, tensors, state, tuple(body["parameters"]), tuple(body["frozen"]),
        str(body["untrainable"]), artefact.path,
    )  # fmt: skip


def _saved(artefact: Artefact, entry: Mapping[str, Any]) -> Saved:
    def reader(role: str) -> Callable[[], bytes]:
        if role not in artefact:
            raise ValueError(f"there is no file {role}")
        return lambda: artefact.read(role)

    def files(roles: Mapping[str, str]) -> Callable[[], dict[str, bytes]]:
        readers = {name: reader(role) for name, role in roles.items()}
        return lambda: {name: read() for name, read in readers.items()}

    version = Version.from_meta(entry["version"])
    if version.graph is None or len(version.graph.weights) != len(version.weights):
        raise ValueError("a graph is described by halves")
    return Saved(
        version,
        reader(entry["graph"]),
        tuple(map(str, entry["names"])),
        {str(name): int(count) for name, count in entry["operators"].items()},
        {
            str(mode): Trained(reader(role), results, tuple((str(kind), int(i)) for kind, i in sources))
            for mode, (role, results, sources) in entry["programs"].items()
        },
        {
            str(key): Plan(tuple(weights), tuple(inputs), files(roles))
            for key, (weights, inputs, roles) in entry["plans"].items()
        },
        tuple(each and tuple(tuple(map(int, part)) for part in each) for each in entry.get("ranges", ())),
    )


def _agree(model: Model) -> None:
    """Raise StaticModelError where the weights are not those that the graphs were made for."""
    for method in model.methods.values():
        for saved in method.versions:
            assert saved.version.graph is not None
            for weight, name in zip(saved.version.weights, saved.version.graph.weights, strict=True):
                if name is None:
                    continue
                found = model.tensors.get(weight.name)
                if found is None:
                    raise StaticModelError(model.path, f"it has no weight {weight.name}")
                given = (found[0], tuple(found[1].shape))
                if given != (weight.dtype, weight.shape):
                    raise StaticModelError(
                        model.path,
                        f"the weight {weight.name} is {given[0]} {given[1]}, where its graph takes {weight.dtype} "
                        f"{weight.shape}",
                    )


def resolved(node: Any, fields: Mapping[str, Sequence[str]]) -> Any:
    """A tree of results in which a class that this process has not imported is a record, a tuple or a dict.

    A member of an enumeration is its name then, flags are a number. Nothing is imported for it: which modules run is
    not for a file to say.
    """
    if isinstance(node, list) and node[:2] == ["c", "type"]:
        return node if known(node[2]) else ["c", "str", node[2]]
    if isinstance(node, list) and node[:1] == ["c"] and node[1] in ("enum", "flag"):
        return node if known(node[2][0]) else ["c", "str" if node[1] == "enum" else "int", node[2][1]]
    if not isinstance(node, list) or not node or node[0] in ("t", "i", "c", "g", "a"):
        return node
    code, path = node[0], str(node[1])
    children = [resolved(child, fields) for child in node[-1]]
    if known(path):
        return [*node[:-1], children]
    if code in ("n", "D", "o"):
        names = node[2] if code != "n" else fields.get(path, [f"field_{i}" for i in range(len(children))])
        kind = "FieldTuple" if code == "n" else "Record"
        return ["d", f"hybrid_infer._record:{kind}", [["str", name] for name in names], children]
    if code == "d":
        return ["d", "builtins:dict", node[2], children]
    return ["u", "builtins:tuple", children]


def known(path: str) -> bool:
    """Is a class of this process at an import path?"""
    module, _, name = path.partition(":")
    value: Any = sys.modules.get(module)
    for part in name.split("."):
        value = getattr(value, part, None)
    return isinstance(value, type)
