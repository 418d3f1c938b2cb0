"""Hundreds of guards, and of differences, in as many lines as a screen has."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence

from hybrid_infer import _differences

#: So many of one kind are told one by one.
_FEW = 6
_VALUES = 12  # attributes whose values are told, the rarest first
#: How guards begin that tell of no value of an attribute.
_OTHERS = ("tensor", "layer ", "method ", "group ", "object ", "missing", "code ", "hooks", "around", "compiled")


def specs(found: Iterable[str]) -> str:
    """Specs one after the other, many equal ones once: a language model is given its cache in dozens of tensors."""
    runs = (list(alike) for _, alike in itertools.groupby(found))
    return ", ".join(f"{len(alike)}x {alike[0]}" if len(alike) > 2 else ", ".join(alike) for alike in runs)


def guards(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """Guards and what each asks for; of a kind that has many, one row."""
    found = []
    for kind, alike in itertools.groupby(rows, lambda row: row[0].partition(" ")[0]):
        each = [list(row) for row in alike]
        if len(each) <= _FEW:
            found += each
        else:
            found.append([f"{len(each)} {kind}s", _told(kind, each)])
    return found


def differing(rows: Sequence[Sequence[str]], columns: int) -> list[list[str]]:
    """What differs, and what it is on either side; of a kind that has many, the first rows."""
    found = []
    for kind, alike in itertools.groupby(rows, lambda row: row[0].partition(" ")[0]):
        each = [list(row) for row in alike]
        if len(each) > _FEW + 1:
            each = [*each[:_FEW], [f"and {len(each) - _FEW} more: {kind}", *[""] * (columns - 1)]]
        found += each
    return found


def _told(kind: str, rows: Sequence[Sequence[str]]) -> str:
    names = [name.partition(" ")[2] for name, _ in rows]
    if kind == "attribute":
        return _values(names, [what for _, what in rows])
    return specs(what for _, what in rows) if kind == "tensor" else _differences.listed(names, 3)


def _values(names: Sequence[str], texts: Sequence[str]) -> str:
    """Which values attributes have: those of one name together, wherever in a model they are."""
    known: dict[str, list[str]] = defaultdict(list)
    for name, text in zip(names, texts, strict=True):
        if not text.startswith(_OTHERS):
            known[name.rpartition(".")[2]].append(text)
    if not known:
        return _differences.listed(list(names), 3)
    rarest = sorted(known, key=lambda name: len(known[name]))
    return "values among them: " + _differences.listed([_of_name(name, known[name]) for name in rarest], _VALUES)


def _of_name(name: str, texts: Sequence[str]) -> str:
    distinct = list(dict.fromkeys(texts))
    if any(text.startswith(("value ", "class ")) for text in distinct):  # digests
        return name
    return f"{name} {' or '.join(distinct)}" if len(distinct) <= 3 else f"{name} ({len(distinct)} values)"
