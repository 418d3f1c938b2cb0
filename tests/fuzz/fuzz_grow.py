"""How a random program grows: statement by statement, each of which is run eagerly at once, with all calls.

A statement stays where most calls go through, and where a small change of the arguments and weights changes its
result a little: what jumps (a comparison of two numbers that are nearly equal, an order of equal values) may come out
otherwise of any other computation, and would be no finding.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import numpy as np
from fuzz_draw import Draw
from fuzz_grammar import NothingFits, Scope, Statement, Variable, statement
from fuzz_program import Kit, Program, module_of

NUDGE = 3e-5
_LARGEST = 4096
_SHAPES = (
    ("A",), ("A", "D"), ("A", "D"), ("A", "B"), ("A", "B", "D"), ("A", "B", "D"), ("A", "D", "B"), ("B", "A"), ("D",),
    ("2", "A"), ("A", "A"), ("A", "B", "C"), ("A", "D", "B", "C"), ("1", "A"), ("C", "A", "D"),
)  # fmt: skip
_LAYERS = {
    "torch": (
        ("self.linear = torch.nn.Linear({d}, 3)", "self.linear(<a:F>)"),
        ("self.linear = torch.nn.Linear({d}, {d}, bias=False)", "self.linear(<a:F>)"),
        ("self.norm = torch.nn.LayerNorm({d})", "self.norm(<a:F>)"),
        ("self.embedding = torch.nn.Embedding(6, {d})", "self.embedding(<i:I> % 6)"),
        ("self.conv = torch.nn.Conv1d({d}, 3, 3, padding=1)", "self.conv(<a:F>)"),
        ("self.conv = torch.nn.Conv2d({d}, 2, 2, stride=2)", "self.conv(<a:F>)"),
        ("self.scale = torch.nn.Parameter(torch.ones({d}))", "<a:F> * self.scale"),
        ("self.table = torch.nn.Parameter(torch.ones(16, {d}))", "self.table[:<n:N>]"),
        ("self.table = torch.nn.Parameter(torch.ones(16, {d}))", "<a:F> + self.table[: <a>.shape[-2]]"),
        ("self.block = torch.nn.Sequential(torch.nn.Linear({d}, 5), torch.nn.GELU(), torch.nn.Linear(5, {d}))",
         "<a:F> + self.block(<a>)"),
        ("self.rnn = torch.nn.GRU({d}, 3, batch_first=True)", "self.rnn(<a:F>)[0]"),
    ),
    "paddle": (
        ("self.linear = paddle.nn.Linear({d}, 3)", "self.linear(<a:F>)"),
        ("self.linear = paddle.nn.Linear({d}, {d}, bias_attr=False)", "self.linear(<a:F>)"),
        ("self.norm = paddle.nn.LayerNorm({d})", "self.norm(<a:F>)"),
        ("self.embedding = paddle.nn.Embedding(6, {d})", "self.embedding(<i:I> % 6)"),
        ("self.conv = paddle.nn.Conv1D({d}, 3, 3, padding=1)", "self.conv(<a:F>)"),
        ("self.conv = paddle.nn.Conv2D({d}, 2, 2, stride=2)", "self.conv(<a:F>)"),
        ("self.scale = self.create_parameter([{d}])", "<a:F> * self.scale"),
        ("self.table = self.create_parameter([16, {d}])", "self.table[:<n:N>]"),
        ("self.table = self.create_parameter([16, {d}])", "<a:F> + self.table[: <a>.shape[-2]]"),
        ("self.block = paddle.nn.Sequential(paddle.nn.Linear({d}, 5), paddle.nn.GELU(), paddle.nn.Linear(5, {d}))",
         "<a:F> + self.block(<a>)"),
        # Over no steps, it ends the process.
        ("self.rnn = paddle.nn.GRU({d}, 3)", "self.rnn(paddle.concat([<a:F>, 0 * <a>.sum(1, keepdim=True)], 1))[0]"),
    ),
}  # fmt: skip


class Unfit(Exception):
    """A statement that says nothing about the library, or about which the frameworks' own kernels may differ."""


def grow(framework: str, seed: int) -> Program:
    """The program of a seed."""
    draw = Draw(seed)
    kit = Kit(framework)
    while True:
        program, scope = _start(draw, framework, seed)
        for _ in range(120):
            if len(program.statements) >= 6 + seed % 5:
                break
            _add(program, scope, kit)
        names = [name for name in dict.fromkeys(each.name for each in program.statements)]
        if not any(scope.variables.get(name, Variable("O")).letter in "FIB" for name in names):
            continue
        kept = [name for name in names[:-1] if draw.chance(0.75)]
        program.returned = [*kept, names[-1]]
        if draw.chance(0.95):
            program.returned = _owned(program, kit)
        if draw.chance(0.1):
            program.returned.append(draw.of(program.parameters))
        program.form = draw.of(("alone", "tuple", "tuple", "list", "dict", "nested"))
        return program if draw.chance(0.2) else _without_what_is_not_used(program)


def _owned(program: Program, kit: Kit) -> list[str]:
    """What is returned, without views of an argument or a weight: with them, a method runs eagerly."""
    module = module_of(program.source())
    layer, arguments = module.Program(), module.CALLS[0]()
    layer.eval()
    module.renew(layer, program.weights[0])
    result = kit.outcome(layer, arguments)
    given = [leaf for leaf in kit.leaves(list(arguments)) if isinstance(leaf, kit.tensor)]
    memory = [kit.memory(each) for each in [*given, *layer.parameters()]]
    owned = []
    for name, value in zip(program.returned, result, strict=True):
        starts = [kit.memory(leaf).start for leaf in kit.leaves(value) if isinstance(leaf, kit.tensor)]
        views = any(start in each for start in starts for each in memory)
        if not views:
            owned.append(name)
        elif isinstance(value, kit.tensor):
            owned.append(f"{name}.clone()")
        elif isinstance(value, (list, tuple)) and all(isinstance(each, kit.tensor) for each in value):
            owned.append(f"[each.clone() for each in {name}]")
    return owned or [f"{program.parameters[0]} * 2"]


def _without_what_is_not_used(program: Program) -> Program:
    """The same without the arguments and layers that no statement names."""
    words = set(re.findall(r"[\w.]+", "\n".join([*(each.text for each in program.statements), program.result()])))
    words |= {word.partition(".")[0] for word in words}
    used = [at for at, name in enumerate(program.parameters) if name in words] or [0]
    return dataclasses.replace(
        program,
        parameters=tuple(program.parameters[at] for at in used),
        calls=[[call[at] for at in used] for call in program.calls],
        layers=tuple(line for line in program.layers if line.split(" ")[0] in words),
    )


def _start(draw: Draw, framework: str, seed: int) -> tuple[Program, Scope]:
    """Arguments, layers and calls; no statement yet."""
    width = draw.between(2, 4)
    kinds: dict[str, tuple[str, Any]] = {}
    shape = draw.of(_SHAPES)
    for name in ("x", "y", "z")[: draw.of((1, 2, 2, 3))]:
        dtype = draw.of(("float32", "float32", "float32", "int64", "bool")) if name != "x" else "float32"
        kinds[name] = (dtype, shape if draw.chance(0.45) else draw.of(_SHAPES))
    for name in ("n", "k")[: draw.of((0, 1, 1, 2))]:
        kinds[name] = ("int", None)
    if draw.chance(0.2):
        kinds["f"] = (draw.of(("float", "flag")), None)
    held = draw.of(("items", "table", "state")) if draw.chance(0.15) else None
    if held is not None:
        kinds[held] = (held, draw.of(_SHAPES))
    calls, weights = _calls(draw, framework, kinds, width)
    layers = draw.some(_LAYERS[framework], draw.of((0, 1, 1, 2)))
    variables = {}
    for name, (kind, axes) in kinds.items():
        letter = {"float32": "F", "int64": "I", "bool": "B", "int": "N", "float": "X", "flag": "C"}.get(kind)
        if letter is not None:
            variables[name] = Variable(letter, len(axes) if axes is not None else None)
    if held is not None:
        inside = {"items": "items[0]", "table": "table['a']", "state": "state.value"}[held]
        variables[inside] = Variable("F", len(kinds[held][1]))
    program = Program(
        framework, seed, tuple(kinds), calls, weights, tuple(dict.fromkeys(made.format(d=width) for made, _ in layers))
    )
    scope = Scope(draw, framework, variables, frozenset([held] if held else []), tuple(use for _, use in layers))
    return program, scope


def _calls(
    draw: Draw, framework: str, kinds: dict[str, tuple[str, Any]], width: int
) -> tuple[list[list[str]], list[int]]:
    sizes = {"A": draw.between(1, 6), "B": draw.between(2, 6), "C": draw.between(2, 4), "D": width, "1": 1, "2": 2}
    values: dict[str, Any] = {"n": draw.between(1, 5), "k": draw.between(0, 3), "f": 0.5}
    empty = draw.chance(0.35)
    varied = [name for name in "ABC" if any(axes and name in axes for _, axes in kinds.values())]
    varied += [name for name in ("n", "k", "f") if name in kinds]
    # As in most programs, some of them are always the same.
    varied = draw.some(varied, draw.between(1, len(varied))) if varied else []
    varied = list(dict.fromkeys([*(["A"] if draw.chance(0.7) else []), *varied]))
    past: list[tuple[dict[str, int], dict[str, Any]]] = []
    calls, weights, seed = [], [], 1
    turned = draw.of(["", *(name for name, (kind, axes) in kinds.items() if kind == "float32" and len(axes) == 2)])
    for number in range(draw.between(6, 8)):
        if number and draw.chance(0.25):
            sizes, values = map(dict, draw.of(past))
        elif number:
            for name in draw.some(varied, draw.of((1, 2, 2, 3))):
                if name in sizes:
                    sizes[name] = 0 if empty and draw.chance(0.25) else draw.of((1, 2, 3, 4, 5, 6, 7, 8, 9, 12))
                else:
                    values[name] = draw.of((0.25, 1.5, -1.0)) if name == "f" else draw.between(0, 6)
        past.append((dict(sizes), dict(values)))
        if number and draw.chance(0.15):
            seed += 1
        weights.append(seed)
        made = []
        for at, (name, (kind, axes)) in enumerate(kinds.items()):
            shape = [sizes[axis] for axis in axes or ()]
            drawn = 10 * number + at
            text = f"tensor('float32', {_tuple(shape)}, {drawn})"
            if kind in ("float32", "int64", "bool"):
                text = f"tensor('{kind}', {_tuple(shape)}, {drawn})"
                if name == turned:
                    turn = "transpose([1, 0])" if framework == "paddle" else "transpose(0, 1)"
                    text = f"tensor('{kind}', {_tuple(shape[::-1])}, {drawn}).{turn}"
            elif kind == "items":
                text = f"[{text}, {text}]"
            elif kind == "table":
                text = f"{{'a': {text}, 'n': {values['n']}}}"
            elif kind == "state":
                text = f"State({text})"
            else:
                text = str(values[name]) if kind != "flag" else str(values[name] > 0.4)
            made.append(text)
        calls.append(made)
    return calls, weights


def _tuple(shape: list[int]) -> str:
    return "(" + "".join(f"{size}, " for size in shape).rstrip(" " if len(shape) == 1 else ", ") + ")"


def _add(program: Program, scope: Scope, kit: Kit) -> None:
    """One statement more, if the one that is drawn is fit."""
    try:
        added = statement(scope, f"v{len(program.statements)}")
    except NothingFits:
        return
    program.statements.append(added)
    before = program.returned, program.form
    names = [name for name in dict.fromkeys([*program.parameters, *(each.name for each in program.statements)])]
    program.returned, program.form = names, "dict"
    try:
        found = program.run(kit)
        nudged = program.run(kit, lambda make: lambda *given: _nudged(make(*given), given[-1]))
        observed = _observed(added, found, nudged, scope, kit)
    except Unfit:
        program.statements.pop()
    else:
        scope.variables.update(observed)
    finally:
        program.returned, program.form = before


def _nudged(tensor: Any, seed: int) -> Any:
    if not str(tensor.dtype).endswith("float32"):
        return tensor
    noise = np.random.RandomState(seed + 1).uniform(-NUDGE, NUDGE, tuple(tensor.shape)).astype("float32")
    return tensor * (1 + type(tensor)(noise)) if tensor.shape else tensor * float(1 + noise)


def _observed(added: Statement, found: list[Any], nudged: list[Any], scope: Scope, kit: Kit) -> dict[str, Variable]:
    """The variables that a statement adds. Raises Unfit."""
    passed = [(one, other) for one, other in zip(found, nudged, strict=True) if isinstance(one, dict)]
    if not isinstance(found[0], dict) or 3 * len(passed) < 2 * len(found):
        raise Unfit("most calls raise")
    finite = True
    for one, other in passed:
        if not isinstance(other, dict):
            raise Unfit("a small change makes it raise")
        finite &= _steady(one, other, kit)
        if added.rule.filled or added.rule.ordered:
            operand = one.get(added.operand)
            if not isinstance(operand, kit.tensor):
                raise Unfit("of an operand that is not known")
            array = kit.array(operand)
            if not array.size or (added.rule.ordered and len(np.unique(array)) < array.size):
                raise Unfit("nothing to choose from, or equal values")
    values = [one[added.name] for one, _ in passed]
    # What is not finite may be returned; what comes of it differs between kernels of one framework.
    return _variables(added.name, values, kit) if finite else {added.name: Variable("O")}


def _steady(one: dict[str, Any], other: dict[str, Any], kit: Kit) -> bool:
    """Are all values finite? Raises Unfit where a small change of the arguments is a large one of a result."""
    leaves, changed = kit.leaves(one), kit.leaves(other)
    if len(leaves) != len(changed):
        raise Unfit("a small change gives another structure")
    finite = True
    for left, right in zip(leaves, changed, strict=True):
        if not isinstance(left, kit.tensor):
            if isinstance(left, (int, float)) and not abs(left) < 1e6:
                raise Unfit("a large number")
            if left != right:
                raise Unfit("a number that values decide")
            continue
        mine, its = kit.array(left), kit.array(right)
        if mine.shape != its.shape or mine.size > _LARGEST:
            raise Unfit("a shape that values decide, or a large one")
        if mine.dtype.kind != "f":
            if not np.array_equal(mine, its) or (mine.dtype.kind == "i" and mine.size and np.abs(mine).max() > 1e6):
                raise Unfit("jumps")
            continue
        whole = np.isfinite(mine)
        finite &= bool(whole.all())
        if not np.array_equal(whole, np.isfinite(its)):
            raise Unfit("jumps")
        size = np.abs(mine[whole]).max(initial=1.0)
        if size > 1e4 or np.abs(mine[whole] - its[whole]).max(initial=0.0) > 100 * NUDGE * size:
            raise Unfit("jumps")
    return finite


def _variables(name: str, values: list[Any], kit: Kit) -> dict[str, Variable]:
    """What can be used of the values that a variable had."""
    if all(isinstance(value, kit.tensor) for value in values):
        kinds = {kit.array(value).dtype.kind for value in values}
        ranks = {len(value.shape) for value in values}
        letter = {"f": "F", "i": "I", "b": "B"}.get(min(kinds), "O") if len(kinds) == 1 else "O"
        return {name: Variable(letter, ranks.pop() if len(ranks) == 1 else None)}
    for kind, letter in ((bool, "C"), (int, "N"), (float, "X")):
        if all(type(value) is kind for value in values):
            return {name: Variable(letter)}
    found = {name: Variable("O")}
    if all(isinstance(value, (list, tuple)) for value in values):
        for at in range(min(2, *(len(value) for value in values))):
            found |= _variables(f"{name}[{at}]", [value[at] for value in values], kit)
    return found
