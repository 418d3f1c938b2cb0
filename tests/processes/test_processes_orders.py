"""Sets of texts, whose order is another one in each process, where code goes through them and where it only asks."""

from __future__ import annotations

import pytest
from process_support import Program

pytestmark = [pytest.mark.torch, pytest.mark.processes]

LAYERS = """
import functools
import torch
from dataclasses import dataclass, field
from enum import Enum
from hybrid_infer import inference

NAMES = frozenset({"north", "south", "east", "west"})
GROUPS = {"all": {"north", "south", "east", "west"}}
WEIGHTS = {name: float(10 ** n) for n, name in enumerate(["east", "north", "south", "west", "up", "down"])}
Side = Enum("Side", "north south east west")

def names_of(layer):
    return layer.names

def weighed(names):
    return [WEIGHTS[name] for name in names]

def _closed():
    held = {"north", "south", "east", "west"}
    def numbers():
        return [WEIGHTS[name] for name in held]
    def has(name):
        return name in held
    return numbers, has

numbers_of_closure, has_in_closure = _closed()

def by_default(x, names=frozenset({"north", "south", "east", "west"})):
    return x + torch.tensor([WEIGHTS[name] for name in names])

@dataclass
class Settings:
    names: set = field(default_factory=lambda: {"north", "south", "east", "west"})
    pair: tuple = (frozenset({"north", "south", "east", "west"}), 1)

class Base(torch.nn.Module):
    kept = frozenset({"north", "south", "east", "west"})

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(4, 4)
        self.names = {"north", "south", "east", "west"}
        self.inside = {"names": {"north", "south", "east", "west"}}
        self.settings, self.sides = Settings(), {*Side}
        self.ids = {3, 1, 2}

    @property
    def allowed(self):
        return self.names

    def numbers(self):
        raise NotImplementedError

    @inference(fallback="error")
    def forward(self, x):
        return self.linear(x) + torch.tensor(self.numbers())

"""

#: What each method makes a table of, in the order of a set.
THROUGH = {
    "Loop": "[WEIGHTS[name] for name in self.names]",
    "Made": "[WEIGHTS[name] for name in list(self.names)]",
    "First": "[WEIGHTS[next(iter(self.names))]]",
    "Longest": "[WEIGHTS[max(self.names, key=len)]]",
    "Keys": "[WEIGHTS[name] for name in dict.fromkeys(self.names)]",
    "Joined": "[WEIGHTS[name] for name in ','.join(self.names).split(',')]",
    "Popped": "[WEIGHTS[self.names.copy().pop()]]",
    "Union": "[WEIGHTS[name] for name in self.names | {'up', 'down'}][:4]",
    "Copied": "[WEIGHTS[name] for name in set(self.names)]",
    "Given": "weighed(self.names)",
    "Property": "[WEIGHTS[name] for name in self.allowed]",
    "Returned": "[WEIGHTS[name] for name in names_of(self)]",
    "Nested": "[WEIGHTS[name] for name in self.inside['names']]",
    "Global": "[WEIGHTS[name] for name in NAMES]",
    "InGlobal": "[WEIGHTS[name] for name in GROUPS['all']]",
    "OfClass": "[WEIGHTS[name] for name in self.kept]",
    "OfSettings": "[WEIGHTS[name] for name in self.settings.names]",
    "InTuple": "[WEIGHTS[name] for name in self.settings.pair[0]]",
    "Closure": "numbers_of_closure()",
    "Default": "by_default(torch.zeros(4)).tolist()",
    "Constant": "[WEIGHTS[name] for name in {'north', 'south', 'east', 'west'}]",
    "Members": "[WEIGHTS[side.name] for side in self.sides]",
}
#: What each method finds out about a set, which is the same in any order.
ASKED = {
    "Within": "[1.0 if name in self.names else 2.0 for name in ('north', 'up')] * 2",
    "Sized": "[float(len(self.names))]",
    "Sorted": "[WEIGHTS[name] for name in sorted(self.names)]",
    "Equal": "[float(self.names == {'north'})]",
    "Below": "[float(self.names >= {'north'})]",
    "Common": "[1.0 if self.names & {'north'} else 2.0]",
    "Apart": "[float(self.names.isdisjoint({'north'}))]",
    "Many": "[float(any(name in self.names for name in ('up', 'north')))]",
    "WithinProperty": "[float('north' in self.allowed)]",
    "WithinNested": "[float('north' in self.inside['names'])]",
    "WithinGlobal": "[float('north' in NAMES and 'north' in GROUPS['all'])]",
    "WithinClass": "[float('north' in self.kept)]",
    "WithinSettings": "[float('north' in self.settings.names)]",
    "WithinClosure": "[float(has_in_closure('north'))]",
    "WithinConstant": "[float('up' in {'north', 'south', 'east', 'west'})]",
    "Numbers": "[float(number) for number in self.ids] + [0.0]",
}
#: The same in several statements.
STATEMENTS = """
class Local(Base):
    def numbers(self):
        names = self.names
        print(f"asked for {names}", names)
        return [float("north" in names)] + [1.0 if each in names else 2.0 for each in ("up", "down", "north")]

class Refusing(Base):
    def numbers(self):
        for name in ("north", "south"):
            if name not in self.names:
                raise ValueError(f"{name} is none of {self.names}: " + ", ".join(self.names))
            assert name in NAMES, f"{name} is none of {NAMES}"
        return [1.0]
"""

#: Ways through a set that are no expressions of its name alone.
AROUND = """
def _kept(layer):
    return layer.names

def _few():
    return {"north", "south", "east", "west"}

def _among(found=frozenset({"north", "south", "east", "west"})):
    return found

def collect(found, names):
    names.extend(found)

TABLE, FEW = {"names": _kept}, {"few": _few}
BY_NAMES = {frozenset({"north", "south", "east", "west"}): 1.0}

class Extended(Base):
    def numbers(self):
        found = []
        found.extend(self.names)
        return weighed(found)

class Collected(Base):
    def numbers(self):
        found = []
        collect(self.names, found)
        return weighed(found)

class Appended(Base):
    def numbers(self):
        found = []
        found.append(",".join(self.names))
        return weighed(found[0].split(","))

class ByText(Base):
    def numbers(self):
        assert "north" in self.names
        return [WEIGHTS[name] for name in getattr(self, "names")]

class OtherName(Base):
    names_now = _kept
    def numbers(self):
        return [WEIGHTS[name] for name in self.names_now()]

class InTable(Base):
    def numbers(self):
        return [WEIGHTS[name] for name in TABLE["names"](self)]

class ConstantInTable(Base):
    def numbers(self):
        return [WEIGHTS[name] for name in FEW["few"]()]

class DefaultGiven(Base):
    def numbers(self):
        return [WEIGHTS[name] for name in _among()]

class Updated(Base):
    def numbers(self):
        found = {"names": []}
        found.update(self.inside)
        return [WEIGHTS[name] for name in found["names"]]

class KeysOfSets(Base):
    def numbers(self):
        return [WEIGHTS[name] for names in BY_NAMES.keys() for name in names]

class MadeOfOne(Base):
    def __init__(self):
        super().__init__()
        self.one = {"north"}
    def numbers(self):
        names = self.one
        names = names | {"south", "east", "west"}
        return [WEIGHTS[name] for name in names]
"""

CALL = """
import layers

result = {}
for name in argument:
    layer, before = getattr(layers, name)().eval(), counts()["captures"]
    check(layer.forward, torch.ones(2, 4))
    result[name] = counts()["captures"] - before, list(layer.names)
"""


def _run(program: Program, cases: dict[str, str], names: list[str], times: int) -> list[dict[str, int]]:
    """Captures, and the order of a set, by case, in processes of two hash seeds in turn."""
    classes = (f"class {name}(Base):\n    def numbers(self):\n        return {code}\n" for name, code in cases.items())
    program.write(LAYERS + "\n".join(classes) + STATEMENTS + AROUND)
    found = [program.run(CALL, names) for _ in range(times)]
    orders = [[order for _, order in each.values()] for each in found]
    assert orders[0] != orders[1]
    return [{name: captures for name, (captures, _) in each.items()} for each in found]


def test_where_code_goes_through_a_set_each_order_has_a_static_model(program: Program) -> None:
    first, other, again = _run(program, THROUGH, [*THROUGH], 3)
    assert first == other == dict.fromkeys(THROUGH, 1)
    assert again == dict.fromkeys(THROUGH, 0)


def test_a_set_that_code_comes_to_in_other_ways_has_a_static_model_for_each_order(program: Program) -> None:
    names = [line.removeprefix("class ").partition("(")[0] for line in AROUND.splitlines() if line.startswith("class ")]
    first, other = _run(program, {}, names, 2)
    assert first == other == dict.fromkeys(names, 1)


def test_where_code_only_asks_what_is_in_a_set_its_order_is_nothing(program: Program) -> None:
    names = [*ASKED, "Local", "Refusing"]
    first, other = _run(program, ASKED, names, 2)
    assert first == dict.fromkeys(names, 1)
    assert other == dict.fromkeys(names, 0)
