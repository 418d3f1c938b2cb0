"""What tells two static models apart, or a static model and a call that it does not serve, in words."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from hybrid_infer import _guards, _keys, _style
from hybrid_infer._signature import place as in_words
from hybrid_infer._structure import imported
from hybrid_infer._types import TensorSpec
from hybrid_infer._version import Call, Version
from hybrid_infer.objects import _constants
from hybrid_infer.state import _carry, _orders, _values
from hybrid_infer.state._attributes import Read
from hybrid_infer.state._ran import Ran

ABSENT = "absent"
ANY = "any"

#: How many entries of other keys are looked at for the one nearest to a call.
_OTHERS = 1000


class Difference(NamedTuple):
    """One thing in which two static models differ, with what it is in each."""

    what: str
    first: str
    second: str


def of_keys(first: Iterable[tuple[str, str]], second: Iterable[tuple[str, str]]) -> list[Difference]:
    """Labels of the ingredients that differ, with the first digits of each digest."""
    found = _keys.Key(tuple((label, digest) for label, digest in first)).differences(second)
    return [Difference(label, _short(mine), _short(theirs)) for label, mine, theirs in found]


def of_guards(first: Version, second: Version) -> list[Difference]:
    """Conditions under which only one of two versions is valid."""
    mine, theirs = guards(first), guards(second)
    names = [*mine, *(name for name in theirs if name not in mine)]
    pairs = ((name, mine.get(name, ABSENT), theirs.get(name, ABSENT)) for name in names)
    return [Difference(*pair) for pair in pairs if pair[1] != pair[2]]


def guards(version: Version) -> dict[str, str]:
    """Each condition under which a version is valid, by what it is about."""
    tensors, ints = _called(version)
    found = {}
    for i, text in enumerate(_arguments(version.tree)):
        if version.names[i : i + 1] != (_style.NAME,):
            found[_argument(version, i).replace("`", "")] = text
        elif (style := passed(version)) is not None:
            found["passed"] = style
    found |= {f"tensor {place}": spec(each) for place, each in zip(tensors, version.tensors, strict=True)}
    found |= {
        f"integer {place}": ANY if each is None else str(each) for place, each in zip(ints, version.ints, strict=True)
    }
    found |= of_instance(version)
    called = (tensors, ints) if version.names else ()
    found |= {f"condition {_guards.text(each, *called)}": "holds" for each in _guards.distinct(version.conditions)}
    if version.scope:
        found["engines and machine"] = _short(version.scope)
    return found


def of_instance(version: Version) -> dict[str, str]:
    """The same of what is no part of a call: the instance, its code's surroundings, modes."""
    found = {"ambient state": ", ".join(version.ambient)}
    found |= {f"weight {w.name}": spec(TensorSpec(w.dtype, w.shape)) + _tied(w.paths) for w in version.weights}
    for read in version.reads:
        known = _common().get(read.digest) if read.kind in ("value", "class") else None
        told = known and f"{known}{' (of its class)' if read.kind == 'class' else ''}"  # else two may look alike
        found[in_code(read)] = told or f"{read.kind} {_short(read.digest)}".rstrip()
    return found


def places(tree: Any, names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Where the tensors, and the integers, of a call are, by the names of its parameters."""
    found = [each for n, child in enumerate(tree[-1]) for each in leaves(child, names[n] if n < len(names) else str(n))]
    return [place for kind, place in found if kind == "t"], [place for kind, place in found if kind == "i"]


def leaves(node: Any, place: str) -> Iterator[tuple[str, str]]:
    """What the leaves of a tree are (see ``leaf_kinds``), and where: one that stands in two places is there twice."""
    if node[0] in ("t", "i"):
        yield node[0], place
    elif node[0] == "p":
        yield from leaves(node[-1][0], place)
    elif node[0] == "n":
        fields = getattr(imported(node[1]), "_fields", range(len(node[-1])))
        for field, child in zip(fields, node[-1], strict=False):
            yield from leaves(child, f"{place}.{field}" if isinstance(field, str) else f"{place}[{field}]")
    elif node[0] not in ("c", "a", "g"):
        keys = [k[-1] if isinstance(k, list) else k for k in node[2]] if node[0] in ("d", "f", "D", "o") else None
        dot = node[0] in ("D", "o")
        for n, child in enumerate(node[-1]):
            yield from leaves(child, f"{place}.{keys[n]}" if dot and keys else f"{place}[{keys[n] if keys else n!r}]")


def passed(version: Version) -> str | None:
    """The style of the call (see `_style`) in words, where that counts."""
    if _style.NAME not in version.names:
        return None
    return _style.in_words(version.tree[-1][version.names.index(_style.NAME)][-1])


def _called(version: Version) -> tuple[list[str], list[str]]:
    """The places of the tensors and the integers of a version; their numbers where it has no names."""
    tensors, ints = places(version.tree, version.names)
    if version.names and (len(tensors), len(ints)) == (len(version.tensors), len(version.ints)):
        return tensors, ints
    return [*map(str, range(len(version.tensors)))], [*map(str, range(len(version.ints)))]


def _argument(version: Version, place: int) -> str:
    return in_words(version.names[place]) if place < len(version.names) else f"argument {place}"


def from_call(version: Version, call: Call, subject: Any) -> list[str]:
    """What keeps a version from serving a call on an instance; empty if nothing does."""
    found = []
    if version.tree != call.tree:
        pairs = itertools.zip_longest(_arguments(version.tree), _arguments(call.tree), fillvalue=ABSENT)
        changed = [
            f"{_argument(version, i)} ({given}, was {mine})" for i, (mine, given) in enumerate(pairs) if mine != given
        ]
        found += changed or ["the structure of the arguments"]
    if version.ambient != call.ambient:
        found.append(f"the ambient state ({', '.join(call.ambient)}, was {', '.join(version.ambient)})")
    for own, given, place in zip(version.tensors, call.tensors, call.places, strict=False):
        if not _takes(own, given):
            found.append(f"{place} ({spec(given)}, was {spec(own)})")
    for number, value, place in zip(version.ints, call.ints, call.int_places, strict=False):
        if number is not None and number != value:
            found.append(f"{place} ({value}, was {number})")
    if version.similar(call):
        broken = [c for c in version.conditions if not _guards.holds(c, call.shapes, call.ints)]
        found += [f"the condition {_guards.text(each, call.places, call.int_places)}" for each in broken]
    if version.weights != subject.weights:
        was, now = ({w.name: w for w in each} for each in (version.weights, subject.weights))
        found += [f"weight {name}" for name in dict.fromkeys([*now, *was]) if was.get(name) != now.get(name)]
    elif (read := subject.attributes.match(version.reads, subject.census)) is not None:
        found.append(in_code(read))
    return found


def of_miss(versions: Iterable[Version], store: Any, call: Call, subject: Any) -> str:
    """Why nothing in a store serves a call: in what the static model that comes nearest differs."""
    mine = [(v, under) for v in versions if v.graph and (under := subject.under(v.ran)) is not None]
    found = [each for version, under in mine if (each := from_call(version, call, under))]
    if found:
        return f"no static model fits; the nearest differs in {listed(min(found, key=len))}"
    keys = []
    for entry in itertools.islice(store.entries(), _OTHERS):
        if entry.meta.get("method") == subject.name and entry.method != subject.key.hex:
            items = [(str(label), str(digest)) for label, digest in entry.meta.get("key", ())]
            ran = entry.meta.get("ran")
            under = subject if ran is None else subject.narrowed(Ran.from_meta(ran).codes)
            keys.append((of_keys(under.key.items, items), -entry.created, entry.version))
    if not keys:
        return "no static model; none of this method is stored"
    differences, _, version = min(keys, key=lambda each: (len(each[0]), each[1]))
    return f"no static model; the nearest, {version[:12]}, has another {listed([each.what for each in differences])}"


def spec(tensor: TensorSpec) -> str:
    """Element type and sizes, as ``float32 (any, 8)``; the device where it is no CPU."""
    sizes = ", ".join(ANY if n is None else str(n) for n in tensor.shape)
    place = "" if tensor.device == "cpu" else f" on {tensor.device}"
    return f"{tensor.dtype} ({sizes}){place}"


def _takes(own: TensorSpec, given: TensorSpec) -> bool:
    return (own.dtype, own.device, len(own.shape)) == (given.dtype, given.device, len(given.shape)) and all(
        n is None or n == m for n, m in zip(own.shape, given.shape, strict=True)
    )


def _arguments(tree: Any) -> list[str]:
    return [shown(each) for each in tree[-1]] if isinstance(tree[-1], list) else [shown(tree)]


def shown(node: Any) -> str:
    """One argument: its kind, its value where that is a constant, and what is in it."""
    kinds: Mapping[Any, str] = {"t": "tensor", "i": "integer"}
    if not isinstance(node, list) or not node:
        return str(node)
    if node[0] in kinds:
        return kinds[node[0]]
    if node[0] == "a":
        return "an object that stands in another place too"
    if node[0] == "c":
        kind, value = node[1], node[-1]
        if _carry.is_absent(value):
            return "not there yet"
        if kind in _constants.KINDS or kind in _constants.PLAIN:
            return _constants.told(kind, value)
        if kind in ("enum", "flag"):
            name = str(value[0]).rpartition(":")[2]
            return f"{name}.{value[1]}" if kind == "enum" else f"{name}({value[1]})"
        return f"{kind} {value}"
    kind, *names, children = node[1:]
    inside = [shown(child) for child in children]
    if names:
        labels = [str(name[-1] if isinstance(name, list) else name) for name in names[0]]
        inside = [f"{label}: {child}" for label, child in zip(labels, inside, strict=True)]
    return f"{str(kind).rpartition(':')[2]}({', '.join(inside)})"


def in_code(read: Read) -> str:
    """What was read, as ``attribute self.config``."""
    order = "order of the " if read.kind in _orders.KINDS else ""
    return f"{order}attribute {'.'.join((*read.path, read.name))}"


def _tied(paths: tuple[str, ...]) -> str:
    return f", tied with {', '.join(paths[1:])}" if len(paths) > 1 else ""


@functools.cache
def _common() -> dict[str, str]:
    """Values that attributes have often, by their digests: an entry holds no other sign of them."""
    hundredths = (n / 100 for n in range(1001))
    small = (sign * float(f"{n}e-{e}") for e in range(3, 13) for n in (1, 2, 5) for sign in (1, -1))
    numbers = (*range(-1, 2049), *range(2304, 65537, 256))
    plain = (None, False, True, *_TEXTS, *hundredths, *small, *numbers)
    pairs = [kind((a, b)) for kind in (tuple, list) for a in range(8) for b in range(8)]
    sizes = [kind((n,)) for kind in (tuple, list) for n in (*range(257), *range(320, 16385, 64))]
    found = {_keys.digest(value): repr(value) for value in plain}
    return found | {_keys.digest(_values.of_sequence(value)): repr(value) for value in (*pairs, *sizes, (), [])}


_TEXTS = ("", "zeros", "reflect", "circular", "same", "valid", "none", "mean", "gelu", "relu", "silu", "tanh", "eager",
          "sdpa", "default", "NCHW", "NHWC", "SAME", "VALID", "EXPLICIT", "float32", "float16", "bfloat16")  # fmt: skip


def _short(digest: str | None) -> str:
    if digest is None:
        return ABSENT
    plain = len(digest) >= 16 and not set(digest) - set("0123456789abcdef")
    return digest[:12] if plain else digest


def listed(words: Sequence[str], most: int = 6) -> str:
    """Words one behind the other, of many the first."""
    return ", ".join(words[:most]) + (f" and {len(words) - most} more" if len(words) > most else "")


def of_call(version: Version, call: Call, names: Sequence[str], subject: Any) -> tuple[str, str]:
    """What varies from call to call where a version does not serve one on an instance, and the remedy.

    `names` are those of the parameters. No value is part of the text: it is the same for all calls that differ so.
    """
    if version.tree != call.tree:
        for mine, given, name in zip(version.tree[-1], call.tree[-1], names, strict=False):
            if mine != given:
                if not mine[0] == given[0] == "c":
                    return f"the structure of {in_words(name)} varies", _MORE
                if given[1] in _NUMBERS and mine[:2] == given[:2]:
                    return f"{in_words(name)} takes many values", f"Pass it as a tensor. {_MORE}"
                return f"{in_words(name)} takes many values", _MORE
        return "the number of arguments varies", _MORE
    for mine, given, place in zip(version.tensors, call.tensors, call.places, strict=True):
        if mine.dtype != given.dtype or len(mine.shape) != len(given.shape):
            return f"the type of {place} varies", _MORE
        if any(m is not None and m != g for m, g in zip(mine.shape, given.shape, strict=True)):
            return f"the shape of {place} varies", _MORE
    for number, given_int, place in zip(version.ints, call.ints, call.int_places, strict=True):
        if number is not None and number != given_int:
            return f"{place} takes many values", f"Pass it as a tensor. {_MORE}"
    if version.ambient != call.ambient:
        return "what the framework answers its code, about a tensor or a mode, varies", _MORE
    if version.weights != subject.weights:
        return "which weights it reads, of which types and shapes, varies", _MORE
    read = subject.attributes.match(version.reads, subject.census)
    if read is not None and read.kind == "value":
        return f"{in_code(read)} takes many values", f"Pass it as an argument, as a tensor. {_MORE}"
    if read is not None:
        return f"{in_code(read)} varies", _MORE
    return "a condition on its sizes varies", _MORE


_NUMBERS = ("int", "float", "complex", "str", "numpy")
_MORE = "A higher max_versions keeps more static models"
