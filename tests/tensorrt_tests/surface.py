"""What of TensorRT the engine uses, read from its own source.

The files that call TensorRT say of each of its objects which class it is (``context: trt.IExecutionContext = ...``, in
parameters and in the bodies of classes as well). So every attribute that is used can be named with its class, and every
call with the number and the names of its arguments.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from hybrid_infer.backends.tensorrt import _refit

FOLDER = Path(_refit.__file__).parent

#: What TensorRT's module is called where it is passed on.
_MODULE = ("module", "trt")

#: Members that are looked up by a name from a table: of each, the table.
_TABLES = {"DataType": tuple(_refit.TYPES.values())}


class Use(NamedTuple):
    """``how``: "call", "get", "set" or "override"; of a call or an override the arguments, by number and by name."""

    kind: str
    name: str
    how: str
    count: int
    keywords: tuple[str, ...]
    where: str


class Found(NamedTuple):
    """``uses`` of TensorRT; ``untyped``: attributes of what is not known to be an object of TensorRT, with places."""

    uses: list[Use]
    untyped: list[tuple[str, str]]


def uses() -> Found:
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.py"))}
    ours: dict[str, dict[str, str]] = {}
    for tree in trees.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                ours[node.name] = {
                    each.target.id: kind for each in node.body
                    if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
                    and (kind := _kind(each.annotation)) is not None
                }  # fmt: skip
    found = Found([], [])
    for path, tree in trees.items():
        if any(_calls_tensorrt(node) for node in ast.walk(tree)):
            _Reader(path.name, ours, found).read(tree)
    return found


def wanted() -> dict[str, list[str]]:
    """By class the attributes that are used, for the listing."""
    names: dict[str, set[str]] = {}
    for use in uses().uses:
        names.setdefault(use.kind, set()).add(use.name)
    for path in FOLDER.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.AnnAssign, ast.arg)) and (kind := _kind(node.annotation)) is not None:
                names.setdefault(kind.partition(".")[0], set())  # an object that is only handed on, or read as bytes
    return {kind: sorted(found) for kind, found in sorted(names.items())}


def _calls_tensorrt(node: ast.AST) -> bool:
    return isinstance(node, ast.Import) and any(alias.name == "tensorrt" for alias in node.names)


def _kind(annotation: ast.expr | None) -> str | None:
    """The class of TensorRT's that an annotation names: ``trt.X``, ``trt.X.Y`` or either with ``| None``."""
    if isinstance(annotation, ast.BinOp):
        return _kind(annotation.left)
    text = "" if annotation is None else ast.unparse(annotation)
    return text.removeprefix("trt.") if text.startswith("trt.") else None


class _Reader:
    """Reads one file, function by function."""

    def __init__(self, file: str, ours: dict[str, dict[str, str]], found: Found) -> None:
        self._file, self._ours, self._found = file, ours, found

    def read(self, tree: ast.Module) -> None:
        self._scope(tree.body, {}, "")

    def _scope(self, body: list[ast.stmt], outer: dict[str, str], owner: str) -> None:
        """The statements of a module, class or function; `outer`: classes of variables; `owner`: the class around."""
        known = dict(outer)
        for node in self._own(body):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                if (kind := _kind(node.annotation)) is not None:
                    known[node.target.id] = kind
            elif isinstance(node, ast.Import):
                known.update({(a.asname or a.name): "MODULE" for a in node.names if a.name == "tensorrt"})
        calls = {id(node.func): node for node in self._own(body) if isinstance(node, ast.Call)}
        for node in self._own(body):
            if isinstance(node, ast.Attribute):
                self._attribute(node, calls.get(id(node)), known, owner)
            elif isinstance(node, ast.Call) and ast.unparse(node.func) == "getattr":
                self._looked_up(node, known, owner)
            elif isinstance(node, ast.ClassDef):
                bases = [self._type(base, known, owner) for base in node.bases]
                base = next((each.removeprefix("class ") for each in bases if each and each.startswith("class ")), "")
                self._scope(node.body, known, base or node.name)
                for each in node.body if base else ():
                    if isinstance(each, ast.FunctionDef) and each.name != "__init__":
                        arguments = tuple(a.arg for a in each.args.args[1:])
                        self._note(base, each.name, "override", len(arguments), arguments, each)
            elif isinstance(node, (ast.FunctionDef, ast.Lambda)):
                inner = dict(known)
                for each in (*node.args.args, *node.args.kwonlyargs):
                    inner.pop(each.arg, None)
                    kind = _kind(each.annotation)
                    named = "" if each.annotation is None else ast.unparse(each.annotation)
                    if each.arg in _MODULE:
                        inner[each.arg] = "MODULE"
                    elif kind is not None or named in self._ours:
                        inner[each.arg] = kind or f"our {named}"
                self._scope(node.body if isinstance(node, ast.FunctionDef) else [ast.Expr(node.body)], inner, owner)

    def _own(self, body: list[ast.stmt]) -> Iterator[ast.AST]:
        """All nodes of these statements, without what is inside the functions and classes among them."""
        queue: list[ast.AST] = list(body)
        while queue:
            node = queue.pop(0)
            yield node
            if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Lambda)):
                queue.extend([] if isinstance(node, ast.Lambda) else node.decorator_list)
                continue
            if isinstance(node, (ast.AnnAssign, ast.arg)):
                queue.extend(each for each in ast.iter_child_nodes(node) if each is not node.annotation)
                continue
            queue.extend(ast.iter_child_nodes(node))

    def _type(self, node: ast.expr, known: dict[str, str], owner: str) -> str | None:
        """"MODULE", "class X", "X" for an object of it, "our X" for one of ours; None where it is neither."""
        if isinstance(node, ast.Name):
            return known.get(node.id)
        if isinstance(node, ast.Call):
            made = self._type(node.func, known, owner)
            return made.removeprefix("class ") if made is not None and made.startswith("class ") else None
        if not isinstance(node, ast.Attribute):
            return None
        if isinstance(node.value, ast.Name) and node.value.id == "self":
            return self._ours.get(owner, {}).get(node.attr)
        base = self._type(node.value, known, owner)
        if base == "MODULE":
            return f"class {node.attr}"
        if base is not None and base.startswith("our "):
            return self._ours[base.removeprefix("our ")].get(node.attr)
        return None

    def _attribute(self, node: ast.Attribute, call: ast.Call | None, known: dict[str, str], owner: str) -> None:
        base = self._type(node.value, known, owner)
        keywords = () if call is None else tuple(each.arg or "**" for each in call.keywords)
        count = 0 if call is None else len(call.args)
        if base == "MODULE":
            if call is not None:
                self._note(node.attr, "__init__", "call", count, keywords, node)
        elif base is None or base.startswith("our "):
            self._found.untyped.append((node.attr, f"{self._file}:{node.lineno}"))
        elif base.startswith("class "):
            explicit = node.attr == "__init__"  # the base's, with the object as the first argument
            how = "get" if call is None else "call"
            self._note(base.removeprefix("class "), node.attr, how, count - explicit, keywords, node)
        else:
            how = "call" if call is not None else "set" if isinstance(node.ctx, ast.Store) else "get"
            self._note(base, node.attr, how, count, keywords, node)

    def _looked_up(self, node: ast.Call, known: dict[str, str], owner: str) -> None:
        base = self._type(node.args[0], known, owner)
        if base is not None:
            kind = base.removeprefix("class ")
            assert kind in _TABLES, f"{self._file}:{node.lineno} looks up what no table lists"
            for name in _TABLES[kind]:
                self._note(kind, name, "get", 0, (), node)

    def _note(
        self, kind: str, name: str, how: str, count: int, keywords: tuple[str, ...], node: ast.AST
    ) -> None:
        where = f"{self._file}:{getattr(node, 'lineno', 0)}"
        self._found.uses.append(Use(kind, name, how, count, keywords, where))
