"""Functions of the framework, whose code no fingerprint holds: those that were replaced, and those that code names."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from hybrid_infer._own_thread import behind
from hybrid_infer.fingerprint._fingerprint import Fingerprint
from hybrid_infer.fingerprint._framework_spaces import strange
from hybrid_infer.fingerprint._objects import library_of
from hybrid_infer.fingerprint._walk import Walk
from hybrid_infer.objects import _origin


class Named(NamedTuple):
    """``space[name] is value``, in the namespace that is called ``where``."""

    space: Any
    where: str
    name: str
    value: Any

    def holds(self) -> bool:
        return behind(self.space.get(self.name)) is self.value

    def label(self) -> str:
        """What the name stands for, in every process."""
        kind = type(self.value).__qualname__
        return f"{_told(self.value, '__module__', '')}:{_told(self.value, '__qualname__', kind)}"

    def at_home(self) -> bool:
        """Is it what the framework itself has defined under that name?"""
        library = str(_told(self.value, "__module__", "")).partition(".")[0]
        return library == self.where.partition(".")[0] and _told(self.value, "__name__", "") == self.name


def _told(value: Any, name: str, otherwise: str) -> Any:
    """An attribute; `otherwise` where there is none, and of what stands for a package that is not installed."""
    try:
        return getattr(value, name, otherwise)
    except Exception:
        return otherwise


def replaced(frontend: Any) -> Iterator[Named]:
    """Functions of the program, or of another library, in the framework's namespaces."""
    for where, space in frontend.namespaces().items():
        for name, value in strange(where, space, functools.partial(foreign, frontend)):
            yield Named(space, where, name, value)


def foreign(frontend: Any, name: str, value: Any) -> bool:
    """Is what the framework has under a name a function of somebody else, or another object that is called as one?"""
    value = _held(value)
    kind = type(value)
    if kind is not types.FunctionType:
        if kind in _PARTIAL:
            return True
        made = kind.__module__ not in _PYTHONS and callable(value) and not isinstance(value, (type, types.ModuleType))
        return made and _origin.of_object(kind) == _origin.USER
    library = library_of(value)
    # Python's own, and what is private there, the framework has imported for itself.
    return library not in (frontend.name, _origin.PYTHON) and not (library and name.startswith("_"))


def named(frontend: Any, codes: Iterable[Fingerprint]) -> list[Named]:
    """What the program's code calls of the framework's modules by name, directly or through modules in between."""
    return list({(each.where, each.name): each for code in codes for each in _named(frontend, code)}.values())


def _named(frontend: Any, code: Fingerprint) -> list[Named]:
    held = [value for _, _, value in code.globals] + [value for _, value in code.cells]
    held += [space.get(name) for space in map(vars, code.modules) for name in code.attributes.intersection(space)]
    queue = list({id(each): each for each in held if _of_framework(frontend, each)}.values())
    found, seen = [], set(map(id, queue))
    for module in queue:
        space = vars(module)
        for name in sorted(code.attributes.intersection(space)):
            value = behind(space[name])
            if _of_framework(frontend, value):
                if id(value) not in seen:
                    seen.add(id(value))
                    queue.append(value)
            elif callable(value):
                found.append(Named(space, module.__name__, name, value))
    return sorted(found, key=lambda each: (each.where, each.name))


def of_libraries(frontend: Any, kinds: Iterable[type]) -> list[Named]:
    """What is called under the names of the libraries that classes of the state come from, which say what is computed.

    Their code is known by the version of the library, unless a program puts its own in the place of one.
    """
    spaces: dict[int, tuple[str, Any]] = {}
    for kind in dict.fromkeys(base for each in kinds for base in each.__mro__[:-1]):
        library = _origin.of_object(kind)
        if library in (_origin.USER, _origin.PYTHON, frontend.name, "hybrid_infer"):
            continue
        if vars(kind).keys().isdisjoint(("forward", "__call__")):
            continue
        module = sys.modules.get(kind.__module__)
        if module is not None:
            spaces[id(module)] = kind.__module__, vars(module)
        spaces[id(kind)] = f"{kind.__module__}.{kind.__qualname__}", vars(kind)
    items = ((where, space, *item) for where, space in spaces.values() for item in list(space.items()))
    return [Named(space, where, name, value) for where, space, name, value in items if _is_called(value)]


def of_layers(frontend: Any, kinds: Iterable[type]) -> list[Named]:
    """What the framework's own layers compute by: their ``forward``, and the functions that their methods name.

    ``__call__`` is not among them: tracers, ours among them, replace it for a while.
    """
    bases = dict.fromkeys(base for kind in kinds for base in kind.__mro__)
    own = [base for base in bases if issubclass(base, frontend.layer_type) and _origin.of_object(base) == frontend.name]
    found: dict[tuple[str, str], Named] = {}
    queue: list[types.FunctionType] = []
    for base in own:
        where = f"{base.__module__}.{base.__qualname__}"
        if base is not frontend.layer_type:
            if "forward" in vars(base):
                found[where, "forward"] = Named(vars(base), where, "forward", behind(vars(base)["forward"]))
            queue += [each for each in vars(base).values() if type(each) is types.FunctionType]
    functional = frontend.namespaces()[f"{frontend.name}.nn.functional"]
    while queue:
        function = queue.pop()
        for name in function.__code__.co_names:
            value, at = behind(functional.get(name)), (f"{frontend.name}.nn.functional", name)
            if at not in found and callable(value) and not isinstance(value, type):
                found[at] = Named(functional, at[0], name, value)
                queue += [value] if isinstance(value, types.FunctionType) else []
    return [found[at] for at in sorted(found)]


def moved(rows: Iterable[Named]) -> list[list[str]]:
    """Labels of those that the framework knows by another name than the one under which they are.

    As ``F.gelu = F.relu`` puts them there; a ``forward`` by that of another class.
    """
    return [[row.where, row.name, row.label()] for row in rows if not _is_known_so(row)]


def _is_known_so(row: Named) -> bool:
    known, name = ("__qualname__", f"{row.where}.forward") if row.name == "forward" else ("__name__", row.name)
    # Of the frameworks' own, some names have another ``_`` or none.
    found = str(_told(row.value, known, "")).replace("_", "")
    return not found or f".{name}".replace("_", "").endswith(f".{found}")


def _is_called(value: Any) -> bool:
    """Is it a function or a method, or another object that is called as one?"""
    kind = type(value)
    if kind is types.FunctionType or kind in _HOLDERS:
        return True
    return callable(value) and not isinstance(value, (type, types.ModuleType)) and kind.__module__ != "typing"


#: What holds a function, and where.
_HOLDERS = {
    staticmethod: "__func__", classmethod: "__func__", property: "fget", types.MethodType: "__func__",
    type(functools.lru_cache(lambda: None)): "__wrapped__",
}  # fmt: skip
_PARTIAL = (functools.partial, functools.partialmethod)
#: Where the classes of most of what the framework has are.
_PYTHONS = frozenset({"builtins", "typing"})


def programs(rows: Iterable[Named]) -> list[Named]:
    """Those that a program has put there, or may have: its own, wrappers around one, what was made to be called."""
    return sorted((row for row in rows if _is_programs(row.value)), key=lambda row: (row.where, row.name))


def _held(value: Any) -> Any:
    """What is behind those that hold a function; any other value itself."""
    while type(value) in _HOLDERS:
        value = getattr(value, _HOLDERS[type(value)])
    return value


def _is_programs(value: Any) -> bool:
    value = _held(value)
    kind = type(value)
    if kind is types.FunctionType:
        return not library_of(value) or not Walk.named_in_library(value)
    return kind is functools.partial or not _origin.of_object(kind)


def _of_framework(frontend: Any, value: Any) -> bool:
    return isinstance(value, types.ModuleType) and _origin.of_module(value.__name__) == frontend.name


def still(rows: Sequence[Named]) -> bool:
    return all(row.holds() for row in rows)


def labels(frontend: Any, rows: Iterable[Named]) -> list[list[str]]:
    """What tells programs apart by what they find under the names, in every process.

    The framework imports some of its modules when they are first asked for, as a trace may (``torch.onnx``): whether
    they are there must make no difference, so only what is strange in them counts.
    """
    always = frontend.namespaces()
    return [[row.where, row.name, row.label()] for row in rows if row.where in always or not row.at_home()]


def labels_of_libraries(rows: Iterable[Named]) -> list[list[str]]:
    """The same of other libraries, with the version of the one that a function comes from."""
    found = []
    for row in rows:
        value = _held(row.value)
        library = library_of(value) if isinstance(value, types.FunctionType) else _origin.of_object(value)
        found.append([row.where, row.name, row.label(), _origin.version(library) if library else ""])
    return sorted(found)
