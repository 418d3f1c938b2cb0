"""Which nodes of a graph TensorRT refuses, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

_SHOWN = 4


class Complaint(NamedTuple):
    """What the parser said of one node: its number in the graph (negative: of none), its name and its operator."""

    number: int
    name: str
    operator: str
    text: str


class Group(NamedTuple):
    """Nodes, by number, that TensorRT takes together or not at all."""

    nodes: Sequence[int]
    supported: bool


def refused(
    operators: Sequence[tuple[str, str]], complaints: Sequence[Complaint], groups: Sequence[Group] = ()
) -> str:
    """Why the parser refuses a graph whose nodes are `operators`, each an operator and a name.

    >>> refused([("Add", "a"), ("Unique", "u")], [Complaint(1, "u", "Unique", "no importer for Unique")])
    "it refuses Unique 'u' (no importer for Unique)"
    """
    found: dict[str, str] = {}
    for each in complaints:
        if 0 <= each.number < len(operators):
            operator, name = operators[each.number]
        else:
            operator, name = each.operator, each.name
        found.setdefault(_named(operator, name), " ".join(each.text.split()))
    for group in groups:
        if not group.supported:
            for number in group.nodes:
                if 0 <= number < len(operators):
                    found.setdefault(_named(*operators[number]), "")
    named = {node: text for node, text in found.items() if node}
    if not named:
        said = next((text for text in found.values() if text), "its parser gives no reason")
        return f"it refuses the graph ({said})"
    shown = [f"{node} ({text})" if text else node for node, text in list(named.items())[:_SHOWN]]
    more = f" and {len(named) - _SHOWN} more nodes" if len(named) > _SHOWN else ""
    return f"it refuses {', '.join(shown)}{more}"


def _named(operator: str, name: str) -> str:
    return f"{operator or 'a node'} {name!r}" if name else operator
