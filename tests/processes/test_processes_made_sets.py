"""Sets that a method makes of other values than constants: of texts, each order has a static model of its own."""

from __future__ import annotations

import pytest
from process_support import Program

pytestmark = [pytest.mark.torch, pytest.mark.processes]

LAYERS = """
import torch
from hybrid_infer import inference

SIDES = ["north", "south", "east", "west"]
WEIGHTS = {name: float(10 ** n) for n, name in enumerate(["east", "north", "south", "west", "up", "down"])}

def weighed(names):
    return [WEIGHTS[name] for name in set(names)]

class Part:
    def __init__(self, name):
        self.name = name

class Base(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(4, 4)
        self.listed = [*SIDES]
        self.text = " ".join(SIDES)
        self.held = dict.fromkeys(SIDES, 1)
        self.dims = [3, 1, 2, 0]
        for name in set(SIDES):
            self.held[name] += 1

    def numbers(self):
        raise NotImplementedError

    @inference(fallback="error", verify="off")
    def forward(self, x):
        return self.linear(x) + torch.tensor(self.numbers())

"""
THROUGH = {
    "Made": "[WEIGHTS[name] for name in set(self.listed)]",
    "Frozen": "[WEIGHTS[name] for name in list(frozenset(self.listed))]",
    "Keys": "[WEIGHTS[name] for name in self.held.keys() & WEIGHTS.keys()]",
    "Both": "[WEIGHTS[name] for name in set(self.listed) | set(self.held)]",
    "Understood": "[WEIGHTS[name] for name in {name for name in self.listed}]",
    "Filtered": "[WEIGHTS[name] for name in {name for name in self.listed if name in self.held}]",
    "Nested": "[WEIGHTS[name] for name in {name for _ in range(2) for name in self.listed}]",
    "Unpacked": "[WEIGHTS[name] for name in {*self.listed}]",
    "United": "[WEIGHTS[name] for name in set().union(self.listed)]",
    "Popped": "[WEIGHTS[set(self.listed).pop()]]",
    "OfGlobal": "[WEIGHTS[name] for name in set(SIDES)]",
    "Split": "[WEIGHTS[name] for name in set(self.text.split())]",
    "Given": "weighed(self.listed)",
    "Formatted": "[WEIGHTS[name] for name in {f'{name}' for name in WEIGHTS}][:4]",
}
ASKED = {
    "Sorted": "[WEIGHTS[name] for name in sorted(set(self.listed))]",
    "Sized": "[float(len(set(self.listed) | {'up'}))]",
    "Within": "[float('north' in set(self.listed))]",
    "Common": "[1.0 if self.held.keys() & {'north'} else 2.0]",
    "Numbers": "[float(n) for n in set(self.dims)]",
    "Range": "[float(n) for n in set(range(4)) - {2}] + [0.0]",
}
STATEMENTS = """
class Again(Base):
    def __init__(self):
        super().__init__()
        for name in set(self.listed):
            self.held[name] += 1

    def numbers(self):
        return [1.0 if "__init__" in dir(self) else 2.0]

    def made(self):
        self.__init__()

class Seen(Base):
    def numbers(self):
        seen, found = set(), []
        for name in self.listed:
            if name not in seen:
                seen.add(name)
                found.append(WEIGHTS[name])
        return found
"""
CALL = """
import layers

result = {}
for name in argument:
    layer, before = getattr(layers, name)().eval(), counts()["captures"]
    check(layer.forward, torch.ones(2, 4))
    result[name] = counts()["captures"] - before, list(set(layer.listed))
"""


def _run(program: Program, cases: dict[str, str], names: list[str], times: int) -> list[dict[str, int]]:
    """Captures by case in processes of two hash seeds in turn."""
    classes = (f"class {name}(Base):\n    def numbers(self):\n        return {code}\n" for name, code in cases.items())
    program.write(LAYERS + "\n".join(classes) + STATEMENTS)
    found = [program.run(CALL, names) for _ in range(times)]
    orders = [[order for _, order in each.values()] for each in found]
    assert orders[0] != orders[1]
    return [{name: captures for name, (captures, _) in each.items()} for each in found]


def test_where_code_goes_through_a_set_that_it_makes_each_order_has_a_static_model(program: Program) -> None:
    first, other, again = _run(program, THROUGH, [*THROUGH], 3)
    assert first == other == dict.fromkeys(THROUGH, 1)
    assert again == dict.fromkeys(THROUGH, 0)


def test_where_code_only_asks_what_is_in_such_a_set_or_it_is_of_numbers_its_order_is_nothing(program: Program) -> None:
    names = [*ASKED, "Seen", "Again"]
    first, other = _run(program, ASKED, names, 2)
    assert first == dict.fromkeys(names, 1)
    assert other == dict.fromkeys(names, 0)


def test_a_set_of_what_goes_by_its_address_is_gone_through_eagerly(program: Program) -> None:
    program.write(
        LAYERS.replace('fallback="error", ', "")
        + "class Parts(Base):\n"
        + "    def __init__(self):\n        super().__init__()\n        self.parts = [Part(name) for name in SIDES]\n"
        + "    def numbers(self):\n        return [WEIGHTS[part.name] for part in {*self.parts}]\n"
    )
    [reason] = program.run(
        "import layers\nlayer = layers.Parts().eval()\n"
        "for _ in range(2):\n    check(layer.forward, torch.ones(2, 4))\nresult = counts()['reasons']\n"
    )
    assert "the order of self.parts" in reason
