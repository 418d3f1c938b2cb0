"""What a code object does, apart from where it stands and what it says about itself."""

from __future__ import annotations

import dis
import opcode
import struct
import sys
from dataclasses import dataclass
from types import CodeType

from hybrid_infer import _keys
from hybrid_infer._own_thread import itself
from hybrid_infer.fingerprint import _computed_names

#: How far an instruction's argument is shifted left of the name's index.
_SHIFTS = {
    opcode.opmap[name]: shift
    for name, shift, since in (
        ("LOAD_GLOBAL", 1, (3, 11)),
        ("LOAD_ATTR", 1, (3, 12)),
        ("LOAD_SUPER_ATTR", 2, (3, 12)),
    )
    if name in opcode.opmap and sys.version_info >= since
}
_NAMES = frozenset(opcode.hasname)
_CONSTS = frozenset(opcode.hasconst)
_SMALL_INT = opcode.opmap.get("LOAD_SMALL_INT", -1)
_READS_GLOBAL = frozenset(
    opcode.opmap[name]
    for name in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS", "STORE_GLOBAL", "DELETE_GLOBAL")
    if name in opcode.opmap
)
_WRITES_LOCAL_NAME = frozenset(opcode.opmap[name] for name in ("STORE_NAME", "DELETE_NAME") if name in opcode.opmap)
_IMPORT = opcode.opmap["IMPORT_NAME"]
_BUILD_CLASS = opcode.opmap["LOAD_BUILD_CLASS"]
_EXTENDED = opcode.opmap["EXTENDED_ARG"]
_RELEVANT = _NAMES | _CONSTS | {_EXTENDED, _SMALL_INT}
#: Behind the qualified name of the function that it makes, a constant before Python 3.11.
_MAKES_NAMED = opcode.opmap["MAKE_FUNCTION"] if sys.version_info < (3, 11) else -1
_MATCH_CLASS = opcode.opmap["MATCH_CLASS"]
_FORMATS = frozenset(code for name, code in opcode.opmap.items() if name.startswith(("FORMAT_", "CONVERT_VALUE")))
#: Loads of one object by name; an attribute chain from there may follow before ``getattr``'s second argument.
_SIMPLE_LOADS = frozenset(
    opcode.opmap[name]
    for name in ("LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_BORROW", "LOAD_DEREF", "LOAD_GLOBAL", "LOAD_NAME")
    if name in opcode.opmap
)
_LOADS_ONE = frozenset(
    opcode.opmap[name] for name in ("LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_BORROW") if name in opcode.opmap
)
#: Two at once (3.13), or one behind another one that is stored.
_LOADS_PAIR = frozenset(
    code for name, code in opcode.opmap.items() if name.count("_FAST") == 2 and not name.endswith("STORE_FAST")
)
_STORES_CELL = frozenset(opcode.opmap[name] for name in ("STORE_DEREF", "DELETE_DEREF") if name in opcode.opmap)
#: With the number of locals that they name.
_STORES_LOCAL = {
    code: name.count("_FAST") for name, code in opcode.opmap.items() if name.startswith(("STORE_FAST", "DELETE_FAST"))
}
_LOAD_ATTR = opcode.opmap["LOAD_ATTR"]
_CALLS = frozenset(opcode.opmap[name] for name in ("PRECALL", "CALL", "CALL_FUNCTION") if name in opcode.opmap)
_SKIPPED = frozenset(opcode.opmap[name] for name in ("CACHE", "PUSH_NULL") if name in opcode.opmap)
_ON_ATTRIBUTES = frozenset(
    opcode.opmap[name]
    for name in ("LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR", "DELETE_ATTR", "LOAD_SUPER_ATTR")
    if name in opcode.opmap
)
#: Assignments in a class body that say where it stands or describe it.
_DESCRIPTIVE = frozenset({"__doc__", "__firstlineno__", "__static_attributes__"})
#: Where instruction formats are not known to this module, every name counts as every kind of name.
_KNOWN_FORMAT = sys.version_info < (3, 15)

#: Reading one of these reaches attributes by names that no code object holds.
_DYNAMIC = frozenset(
    {"vars", "dir", "attrgetter", "methodcaller", "getmembers", "getattr_static", "__dict__", "__getattribute__"}
)
#: Reading one of these reaches globals by names that no code object holds.
_NAMESPACE = frozenset({"eval", "exec", "globals", "__globals__"})
#: Those of them that need to be told what to evaluate. Methods of layers have such names too.
_EVALUATE = frozenset({"eval", "exec"})
_ACCESSORS = frozenset({"__getattr__", "__getattribute__", "__setattr__", "__delattr__"})
_IMPORTERS = frozenset({"__import__", "import_module"})
#: Methods of texts that put others into them.
_FORMATTING = frozenset({"format", "format_map"})
#: What the names of files begin with under which attrs compiles the methods that it makes.
_ATTRS = "<attrs generated "
_MAX_CACHED = 20_000
_VARARGS, _VARKEYWORDS = 0x04, 0x08
_KIND = _VARARGS | _VARKEYWORDS | 0x20 | 0x80 | 0x200  # a generator, a coroutine, or both


@dataclass(frozen=True)
class Code:
    """A code object and those nested in it.

    ``digest`` leaves out file, lines, names of functions and docstrings. ``globals``: global names it reads or
    writes; ``attributes``: names it uses on objects, as attributes or as constant arguments of ``getattr``;
    ``imports``: (module, level, names) of its import statements, of which those that only take names from a module
    (``from m import f``) have no hold of it as a whole; None for the others. ``bare``: names whose values it uses for
    more than their attributes. ``computed``: global names with attributes behind them (``("F",)``, ``("torch",
    "nn")``) whose further attributes it reaches by computed names; ``on_self``: with what such names of attributes of
    its ``self`` begin;
    ``self_dict``: it reads ``self.__dict__``; ``dynamic``: it reaches attributes so of objects that are not known by
    name;
    ``namespace``: it reaches globals by computed names; ``importer``: it may import modules by computed names.
    ``formats``: it may call ``__repr__``, ``__str__`` or ``__format__``. ``makes_classes``: it has a class statement.
    """

    digest: bytes
    globals: tuple[str, ...]
    attributes: frozenset[str]
    imports: tuple[tuple[str, int, tuple[str, ...] | None], ...]
    bare: frozenset[str]
    computed: tuple[tuple[str, ...], ...]
    dynamic: bool
    on_self: frozenset[str]
    self_dict: bool
    namespace: bool
    importer: bool
    formats: bool
    makes_classes: bool


_cache: dict[int, tuple[CodeType, Code]] = {}


def describe(code: CodeType) -> Code:
    """The description of `code`; computed once per code object."""
    known = _cache.get(id(code))
    if known is not None and known[0] is code:
        return known[1]
    own = itself(code)
    described = _describe(code) if own is code else describe(own)
    if len(_cache) >= _MAX_CACHED:
        _cache.clear()
    _cache[id(code)] = (code, described)
    return described


def mark(code: CodeType) -> str:
    """What tells what a code object does from what others do, in every process; shorter than its digest."""
    return describe(code).digest.hex()[:16]


def parameters(code: CodeType) -> tuple[object, ...]:
    """What a code object takes: all of it that others ask for who do not run it."""
    several = bool(code.co_flags & _VARARGS) + bool(code.co_flags & _VARKEYWORDS)
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + several]
    return code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags & _KIND, names


def _describe(code: CodeType) -> Code:
    scan = _Scan(code)
    within = [const for const in code.co_consts if isinstance(const, CodeType)]
    nested = [describe(const) for const in within]
    names = set(code.co_names) - ({"__dict__"} if scan.self_dict else set())
    names -= {"__getattribute__"} if scan.on_super and code.co_name in _ACCESSORS else set()
    # Of one nested in it, `self` is this one's or another's.
    mine = _keeps_self(code)
    inside = [describe(const) for const in within if mine and "self" in const.co_freevars]
    strange = any((part.on_self or part.self_dict) and part not in inside for part in nested)
    return Code(
        scan.digest(),
        tuple(dict.fromkeys([*scan.globals, *(name for part in nested for name in part.globals)])),
        frozenset(scan.attributes).union(*(part.attributes for part in nested)),
        tuple(dict.fromkeys([*scan.imports, *(item for part in nested for item in part.imports)])),
        frozenset(scan.bare).union(*(part.bare for part in nested)),
        tuple(dict.fromkeys([*scan.computed, *(chain for part in nested for chain in part.computed)])),
        scan.computed_getattr or strange or bool(names & _DYNAMIC) or any(part.dynamic for part in nested),
        frozenset(scan.on_self).union(*(part.on_self for part in inside)),
        scan.self_dict or any(part.self_dict for part in inside),
        bool((names - scan.of_objects) & _NAMESPACE) or any(part.namespace for part in nested),
        bool(names & _IMPORTERS) or {"sys", "modules"} <= names or any(part.importer for part in nested),
        scan.formats or bool(names & _FORMATTING) or any(part.formats for part in nested),
        _BUILD_CLASS in code.co_code[::2] or any(part.makes_classes for part in nested),
    )


class _Scan:
    """One pass over the instructions of one code object."""

    def __init__(self, code: CodeType) -> None:
        self.code = code
        # Indices of constants move when a docstring comes or goes: they are blanked here, and the constants
        # themselves are listed in the order of their use.
        self.blanked = bytearray(code.co_code)
        self.consts: list[object] = []
        self.globals: list[str] = []
        self.attributes: set[str] = set()
        self.imports: list[tuple[str, int, tuple[str, ...] | None]] = []
        self.computed_getattr = False
        #: Is ``self.__dict__`` all that is read of that name? It has what an instance holds, and nothing of its class.
        self.self_dict = "__dict__" in code.co_names
        self.on_self: frozenset[str] = frozenset()
        #: Is ``super().__getattribute__`` all that is read of that name? Of an accessor, it looks for what it was asked
        #: for, or for another name: `_reads` notes that one.
        self.on_super = "__getattribute__" in code.co_names
        #: Names of Python's functions that are all methods here, called with nothing: `layer.eval()`.
        self.of_objects = _EVALUATE & set(code.co_names)
        self.computed: list[tuple[str, ...]] = []
        self.bare: set[str] = set()
        raw = code.co_code
        ops = raw[::2]
        self.formats = not _FORMATS.isdisjoint(ops)
        extended = 0
        start = 0
        level: object = 0
        previous: object = None
        for i, op in enumerate(ops):
            if op not in _RELEVANT:
                extended = 0
                start = i + 1
                continue
            if op == _EXTENDED:
                extended = (extended | raw[2 * i + 1]) << 8
                continue
            arg = extended | raw[2 * i + 1]
            if op in _CONSTS or op == _SMALL_INT:
                const = code.co_consts[arg] if op in _CONSTS else arg
                if self._describes(ops, i) or _of_one_process(code, const):
                    const = None
                # Printf-style formatting has no instruction of its own.
                self.formats |= isinstance(const, str) and "%" in const
                if isinstance(const, tuple) and _MATCH_CLASS in ops:
                    self.attributes.update(name for name in const if isinstance(name, str))
                self.blanked[2 * start + 1 : 2 * i + 2 : 2] = bytes(i - start + 1)
                self.consts.append(const)
                level, previous = previous, const
            else:
                name = code.co_names[arg >> _SHIFTS.get(op, 0)]
                whole = op != _IMPORT or previous is None
                if whole and self._following(ops, i) not in _ON_ATTRIBUTES:
                    self.bare.add(name)
                if op == _IMPORT:
                    taken = previous if isinstance(previous, tuple) else ()
                    self.imports.append((name, level if isinstance(level, int) else 0, None if whole else taken))
                elif op in _READS_GLOBAL:
                    self.globals.append(name)
                    if name in ("getattr", "hasattr", "setattr", "delattr"):
                        self._getattr(ops, i)
                elif op not in _WRITES_LOCAL_NAME:
                    self.attributes.add(name)
                if name == "__getattribute__":
                    self.on_super &= self._loads_super(ops, start)
                if name in self.of_objects and not self._called_with_nothing(ops, i):
                    self.of_objects -= {name}
                if name == "__dict__" and self.self_dict:
                    here = op == _LOAD_ATTR and 2 * start not in dis.findlabels(raw)  # type: ignore[arg-type]
                    self.self_dict = here and self._loads_self(ops, start - 1, last=True)
            extended = 0
            start = i + 1
        if not _KNOWN_FORMAT:
            self.globals.extend(code.co_names)
            self.attributes.update(code.co_names)
            self.bare.update(code.co_names)

    @staticmethod
    def _following(ops: bytes, i: int) -> int:
        return next((x for x in ops[i + 1 :] if x not in _SKIPPED and x != _EXTENDED), -1)

    def _loads_self(self, ops: bytes, i: int, *, last: bool) -> bool:
        """Is what an instruction loads, the last one or the first, the ``self`` of a method, by the custom of the name?
        """
        while i > 0 and ops[i] in _SKIPPED:
            i -= 1
        arg = self.code.co_code[2 * i + 1]
        arg = arg if ops[i] not in _LOADS_PAIR else arg & 15 if last else arg >> 4
        if (i > 0 and ops[i - 1] == _EXTENDED) or not _KNOWN_FORMAT or not _keeps_self(self.code):
            return False
        if ops[i] in _LOADS_CELL:
            return _cell_name(self.code, arg) == "self"
        if ops[i] not in _LOADS_ONE | _LOADS_PAIR:
            return False
        return arg == 0 or (arg == 1 and self.code.co_name in ("__eq__", "__ne__") and _keeps(self.code, 1))

    def _called_with_nothing(self, ops: bytes, i: int) -> bool:
        """Does an instruction load a method, which the next one calls without arguments?"""
        call = next((j for j in range(i + 1, len(ops)) if ops[j] != _CACHE), len(ops))
        called = call < len(ops) and opcode.opname[ops[call]] in ("PRECALL", "CALL", "CALL_METHOD")
        return _KNOWN_FORMAT and ops[i] in _ON_ATTRIBUTES and called and self.code.co_code[2 * call + 1] == 0

    def _loads_super(self, ops: bytes, i: int) -> bool:
        """Does an instruction load an attribute of ``super()``?"""
        if opcode.opname[ops[i]] == "LOAD_SUPER_ATTR":
            return True
        before = [j for j in range(max(i - 30, 0), i) if ops[j] not in _SKIPPED and opcode.opname[ops[j]] != "PRECALL"]
        if len(before) < 2 or not _KNOWN_FORMAT or ops[before[-1]] not in _CALLS:
            return False
        op, arg = ops[before[-2]], self.code.co_code[2 * before[-2] + 1]
        called = ops[before[-2]] in _READS_GLOBAL and self.code.co_names[arg >> _SHIFTS.get(op, 0)] == "super"
        return called and self.code.co_code[2 * before[-1] + 1] == 0

    def _describes(self, ops: bytes, i: int) -> bool:
        following = i + 1
        if following < len(ops) and ops[following] == _MAKES_NAMED:
            return True
        return (
            following < len(ops)
            and ops[following] in _WRITES_LOCAL_NAME
            and self.code.co_names[self.code.co_code[2 * following + 1]] in _DESCRIPTIVE
        )

    def _getattr(self, ops: bytes, i: int) -> None:
        """Take the attribute's name from ``getattr(object.chain, "name")``, or note that it is computed."""
        rest = [j for j in range(i + 1, min(i + 100, len(ops))) if ops[j] not in _SKIPPED]
        at = self._operand(ops, rest, 0)
        name = self.code.co_consts[self.code.co_code[2 * rest[at] + 1]] if at and ops[rest[at]] in _CONSTS else None
        end = at + 1 if at else 0
        if end and ops[rest[end]] not in _CALLS:
            end = self._operand(ops, rest, end)
        if isinstance(name, str) and end and ops[rest[end]] in _CALLS:
            self.attributes.add(name)
        elif at and self._hands_on(ops, rest[at:]):
            return
        elif at and ops[rest[0]] in _READS_GLOBAL and _computed_names.whole(self.code, 2 * i, at):
            raw, names = self.code.co_code, self.code.co_names
            self.computed.append(tuple(names[raw[2 * j + 1] >> _SHIFTS.get(ops[j], 0)] for j in rest[:at]))
        elif (
            (at == 1 or ops[rest[0]] in _LOADS_PAIR)
            and self._loads_self(ops, rest[0], last=False)
            and _computed_names.whole(self.code, 2 * i, 1)
        ):
            # Where a variable is loaded with it, that is what the name begins with.
            self.on_self |= {"" if ops[rest[0]] in _LOADS_PAIR else _computed_names.beginning(self.code, 2 * i)}
        else:
            self.computed_getattr = True

    def _hands_on(self, ops: bytes, rest: list[int]) -> bool:
        """Does a class's accessor look for the very name that it was asked for? That is followed where it is used."""
        code = self.code
        if code.co_name not in ("__getattr__", "__getattribute__") or code.co_argcount != 2 or len(rest) < 2:
            return False
        first, call = rest[:2]
        return ops[first] in _LOADS_ONE and code.co_code[2 * first + 1] == 1 and ops[call] in _CALLS

    @staticmethod
    def _operand(ops: bytes, rest: list[int], at: int) -> int:
        """The position behind one name with its chain of attributes, or one constant; 0 for any other expression."""
        if at >= len(rest) or ops[rest[at]] not in _SIMPLE_LOADS | _CONSTS:
            return 0
        at += 1
        while at < len(rest) and ops[rest[at]] == _LOAD_ATTR:
            at += 1
        return at if at + 1 < len(rest) else 0

    def digest(self) -> bytes:
        code = self.code
        shape = (
            code.co_argcount,
            code.co_posonlyargcount,
            code.co_kwonlyargcount,
            # 0x4000000 says that there is a docstring (3.14).
            code.co_flags & ~0x4000000,
            code.co_names,
            code.co_varnames,
            code.co_freevars,
            code.co_cellvars,
            bytes(self.blanked),
            getattr(code, "co_exceptiontable", b""),
        )
        parts = [describe(const).digest if isinstance(const, CodeType) else _const(const) for const in self.consts]
        return bytes.fromhex(_keys.hash_bytes(_keys.frame(b"k", _keys.Encoder().encode(shape), *parts)))


def _of_one_process(code: CodeType, const: object) -> bool:
    """Is it what a ``__hash__`` that attrs has made begins with: a hash of a text, in each process another number?"""
    if type(const) is not int or code.co_name != "__hash__" or not code.co_filename.startswith(_ATTRS):
        return False
    return const == hash(f"{_ATTRS}hash {code.co_filename.removeprefix(_ATTRS).partition(' ')[2]}")


def _const(const: object) -> bytes:
    # A code object's constants are marshalable: plain data, and code objects nested in nothing but tuples.
    return struct.pack("<B", 0) + _keys.Encoder().encode(const)


_CACHE = opcode.opmap.get("CACHE", -1)
#: Cells are numbered apart from locals.
_CELLS_APART = sys.version_info < (3, 11)
_LOADS_LOCAL = {code: name.count("LOAD_FAST") for name, code in opcode.opmap.items() if "LOAD_FAST" in name}
_LOADS_CELL = frozenset(
    opcode.opmap[name]
    for name in ("LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF")
    if name in opcode.opmap
)


def _keeps(code: CodeType, index: int) -> bool:
    """Is a parameter never assigned?"""
    pairs = zip(code.co_code[::2], code.co_code[1::2], strict=True)
    stored = [(arg,) if _STORES_LOCAL[op] == 1 else divmod(arg, 16) for op, arg in pairs if op in _STORES_LOCAL]
    return not any(index in each for each in stored)


def _keeps_self(code: CodeType) -> bool:
    """Is ``self`` the first parameter, or that of the function around this one, and never assigned?"""
    cell = "self" in (*code.co_cellvars, *code.co_freevars)
    if not cell and not (code.co_argcount and code.co_varnames[0] == "self"):
        return False
    pairs = zip(code.co_code[::2], code.co_code[1::2], strict=True)
    if cell and any(op in _STORES_CELL and _cell_name(code, arg) == "self" for op, arg in pairs):
        return False
    if not cell and not _keeps(code, 0):
        return False
    nested = [const for const in code.co_consts if isinstance(const, CodeType) and "self" in const.co_freevars]
    return all(map(_keeps_self, nested))


def escapes(code: CodeType, name: str = "") -> bool:
    """Is the first parameter (or variable `name`) used for anything but its attributes: called, passed on, stored?"""
    if not name:
        if not code.co_argcount:
            return False
        name = code.co_varnames[0]
    raw = code.co_code
    extended = 0
    for i in range(0, len(raw), 2):
        op, arg = raw[i], raw[i + 1] | extended
        extended = arg << 8 if op == _EXTENDED else 0
        if op in _LOADS_CELL:
            loaded: tuple[str, ...] = (_cell_name(code, arg),)
        elif op in _LOADS_LOCAL:
            pair = _LOADS_LOCAL[op] > 1 or opcode.opname[op].startswith("STORE_FAST")
            loaded = tuple(
                code.co_varnames[k] if k < len(code.co_varnames) else "" for k in (divmod(arg, 16) if pair else (arg,))
            )
            # The cell itself, for a function inside that has it (3.13): what that makes of it is asked there.
            loaded = tuple("" if each in code.co_cellvars else each for each in loaded)
        else:
            continue
        if name in loaded[:-1]:
            return True
        if loaded[-1] == name and next((x for x in raw[i + 2 :: 2] if x != _CACHE), -1) not in _ON_ATTRIBUTES:
            return True
    return any(
        escapes(const, name) for const in code.co_consts if isinstance(const, CodeType) and name in const.co_freevars
    )


def _cell_name(code: CodeType, arg: int) -> str:
    if _CELLS_APART:
        return (code.co_cellvars + code.co_freevars)[arg]
    # Locals, then the cells that are no parameters, then free variables share one numbering.
    names = (*code.co_varnames, *(cell for cell in code.co_cellvars if cell not in code.co_varnames), *code.co_freevars)
    return names[arg]
