"""Statements of a random program, drawn from `fuzz_rules` for the variables that there are."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from fuzz_draw import Draw
from fuzz_rules import CHANGES, SORTS, Rule

_SLOT = re.compile(r"<(\w+)(?::(\w+)(?:\((\w+)\))?)?>")
_NUMBERS = ("-1.5", "0.5", "2.0", "0.1", "3.0", "0", "1", "-2")
_ARITHMETIC = (
    "{0} + {1}", "{0} - {1}", "{0} * {1}", "{0} // {k}", "{0} % {k}", "-(-{0} // {k})", "-(-{0} // {k}) * {k}",
    "-{0} // {k}", "({0} + {k} - 1) // {k}", "max({0}, {1})", "min({0}, {1})", "math.ceil({0} / {k})",
    "math.floor({0} / {k})", "-{0} % {k}", "round({0} * {x})", "int({0} * {x})", "int({0} / {k})", "abs({0} - {1})",
    "{0} * {k}", "{0} + {k}", "{0} - {k}", "math.ceil({0} / {x})", "int({0} ** 0.5)", "({0} + {1}) // 2",
    "{0} // max({1}, 1)", "math.ceil({0} * {x})", "int(math.sqrt({0}))", "2 ** math.ceil(math.log2(max({0}, 1)))",
    "{0} // -{k}", "{0} % -{k}", "({0} > {k}) + {1}", "sum([{0}, {1}])", "divmod({0}, {k})[1]", "round({0} / {k})",
    "({0} if {0} > {k} else {k})", "{0} - {1} // {k}", "int({0} > {1})",
)  # fmt: skip
_FRACTIONS = ("0.5", "0.1", "0.3", "1.5", "0.7", "0.25", "1.1")
_CONDITIONS = (
    "{0} > {1}", "{0} == {1}", "{0} % {k} == 0", "{0} >= {k}", "{0} != {k}", "{0} < {1} < 9", "{0}", "not {0}",
    "{0} in (2, 3, 5)", "{0} > {k} and {1} > 1", "{0} == {k} or {1} % 2", "{0} * {1} < 12",
)  # fmt: skip


class NothingFits(Exception):
    """No variable is there for a slot."""


@dataclass
class Variable:
    """What is known of a variable, from calls: its letter in the rules, and the rank of a tensor."""

    letter: str
    rank: int | None = None


@dataclass
class Scope:
    """The variables that a statement can use, those of the method's arguments among them."""

    draw: Draw
    framework: str
    variables: dict[str, Variable] = field(default_factory=dict)
    containers: frozenset[str] = frozenset()
    layers: tuple[str, ...] = ()

    def name(self, letter: str) -> str:
        names = [name for name, found in self.variables.items() if found.letter == letter]
        if not names:
            raise NothingFits
        # What was made last is used more often.
        late = names[len(names) // 2 :]
        return self.draw.of(late if self.draw.chance(0.4) else names)

    def number(self, depth: int = 2) -> str:
        """Arithmetic on sizes, integer arguments and what was made of them."""
        if depth == 0 or self.draw.chance(0.35):
            return self._leaf()
        chosen = self.draw.of(_ARITHMETIC)
        parts = [self.number(depth - 1), self.number(depth - 1)]
        return "(" + chosen.format(*parts, k=self.draw.between(2, 4), x=self.draw.of(_FRACTIONS)) + ")"

    def _leaf(self) -> str:
        tensors = [name for name, found in self.variables.items() if found.rank]
        numbers = [name for name, found in self.variables.items() if found.letter == "N"]
        if numbers and self.draw.chance(0.45):
            return self.draw.of(numbers)
        if tensors and self.draw.chance(0.9):
            name = self.draw.of(tensors)
            axis = self.draw.below(self.variables[name].rank or 1)
            return f"{name}.shape[{axis - (self.variables[name].rank or 1) if self.draw.chance(0.3) else axis}]"
        return str(self.draw.below(5))

    def condition(self) -> str:
        flags = [name for name, found in self.variables.items() if found.letter == "C"]
        if flags and self.draw.chance(0.3):
            return self.draw.of(flags)
        return "(" + self.draw.of(_CONDITIONS).format(self.number(1), self.number(1), k=self.draw.between(1, 4)) + ")"

    def axis(self, of: str) -> str:
        rank = self.variables[of].rank if of in self.variables else None
        if not rank:
            raise NothingFits
        axis = self.draw.below(rank)
        return str(axis - rank if self.draw.chance(0.3) else axis)

    def order(self, of: str) -> str:
        rank = self.variables[of].rank or 0
        left = list(range(rank))
        return ", ".join(str(left.pop(self.draw.below(len(left)))) for _ in range(rank))

    def argument(self) -> str:
        """An integer argument, to decide an axis."""
        return self.name("N") if self.draw.chance(0.8) else self.number(1)


_FILLERS: dict[str, Callable[[Scope, str], str]] = {
    "F": lambda scope, _: scope.name("F"),
    "I": lambda scope, _: scope.name("I"),
    "B": lambda scope, _: scope.name("B"),
    "N": lambda scope, _: scope.number(),
    "P": lambda scope, _: f"max({scope.number(1)}, 1)" if scope.draw.chance(0.4) else scope.number(1),
    "V": lambda scope, _: scope.argument(),
    "K": lambda scope, _: str(scope.draw.between(1, 4)),
    "L": lambda scope, _: str(scope.draw.below(3)),
    "X": lambda scope, _: scope.name("X") if scope.draw.chance(0.3) else scope.draw.of(_NUMBERS),
    "G": lambda scope, _: scope.draw.of(("True", "False")),
    "C": lambda scope, _: scope.condition(),
    "AX": lambda scope, of: scope.axis(of),
    "PERM": lambda scope, of: scope.order(of),
}


def filled(template: str, scope: Scope, name: str) -> tuple[str, dict[str, str]]:
    """The text of a template for a result called `name`, and what each slot was filled with. Raises NothingFits."""
    taken: dict[str, str] = {}

    def slot(match: re.Match[str]) -> str:
        letter, kind, of = match.groups()
        if kind is not None:
            try:
                taken[letter] = _FILLERS[kind](scope, taken.get(of, ""))
            except NothingFits:
                if kind != "X":
                    raise
                taken[letter] = scope.draw.of(_NUMBERS)
        return taken[letter]

    text = _SLOT.sub(slot, template).replace("OUT", name)
    return spelled(text, scope.framework), taken


def spelled(text: str, framework: str) -> str:
    """A common spelling in that of a framework."""
    paddle = framework == "paddle"
    for common, its in (("CAT(", "lib.concat(" if paddle else "lib.cat("), ("DIM=", "axis=" if paddle else "dim=")):
        text = text.replace(common, its)
    if paddle:
        text = text.replace(".float()", ".astype('float32')").replace(".long()", ".astype('int64')")
    return text.replace("lib.", framework + ".")


@dataclass(frozen=True)
class Statement:
    """Lines of a method that give `name` a value."""

    name: str
    text: str
    rule: Rule
    #: What filled the rule's slot ``a``.
    operand: str


def statement(scope: Scope, name: str) -> Statement:
    """A statement drawn by chance. Raises NothingFits where it needs a variable that is not there."""
    if scope.layers and scope.draw.chance(0.15):
        rule = Rule(scope.draw.of(scope.layers))
    elif scope.containers and scope.draw.chance(0.25):
        rule = scope.draw.of(CHANGES)
    else:
        rule = scope.draw.of(scope.draw.of([rules for weight, rules in SORTS for _ in range(weight)]))
    template = rule.text(scope.framework)
    if not template:
        raise NothingFits
    text, taken = filled(template, scope, name)
    if not rule.block:
        text = f"{name} = {text}"
    return Statement(name, text, rule, taken.get("a", ""))
