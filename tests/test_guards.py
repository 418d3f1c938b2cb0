"""Guards as data: their value and their text against Python's, their translation against sympy's own evaluation."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybrid_infer import _guards
from hybrid_infer._types import TensorSpec
from hybrid_infer._version import Call, Version

SHAPES = [(2, 3), (5,)]
PLACES = [["dim", 0, 0], ["dim", 0, 1], ["dim", 1, 0], ["int", 0], ["int", 1]]
NAMES = {f"tensor {i} axis {a}": f"shapes[{i}][{a}]" for i, a in ((0, 0), (0, 1), (1, 0))} | {
    f"integer {i}": f"ints[{i}]" for i in range(2)
}


def many(operators: list[str], inner: Any) -> Any:
    return st.tuples(st.sampled_from(operators), st.lists(inner, min_size=2, max_size=3)).map(lambda t: [t[0], *t[1]])


def two(operators: list[str], inner: Any) -> Any:
    return st.tuples(st.sampled_from(operators), inner, inner).map(list)


expressions = st.recursive(
    st.one_of(st.integers(-9, 9), st.sampled_from(PLACES)),
    lambda inner: st.one_of(many(["+", "*", "min", "max"], inner), two(["//", "%"], inner)),
    max_leaves=8,
)
conditions = st.recursive(
    two(["==", "!=", "<", "<="], expressions),
    lambda inner: st.one_of(many(["and", "or"], inner), inner.map(lambda c: ["not", c])),
    max_leaves=5,
)
shapes = st.tuples(st.tuples(st.integers(0, 9), st.integers(0, 9)), st.tuples(st.integers(0, 9)))
ints = st.tuples(st.integers(-9, 9), st.integers(-9, 9))


def python(data: Any) -> str:
    """The same in Python."""
    if not isinstance(data, list):
        return f"({data})"
    operator, *arguments = data
    if operator == "dim":
        return "shapes[{}][{}]".format(*arguments)
    if operator == "int":
        return f"ints[{arguments[0]}]"
    parts = [python(a) for a in arguments]
    if operator in ("min", "max"):
        return f"{operator}({', '.join(parts)})"
    if operator == "not":
        return f"(not {parts[0]})"
    return "(" + f" {operator} ".join(parts) + ")"


sizes_only = st.one_of(st.integers(1, 99), st.sampled_from(PLACES[:3]), st.sampled_from([0.6, 1.7, 0.1]))


@given(st.sampled_from(["trunc", "floor", "ceil", "round"]), two(["/", "*"], two(["/", "*", "+"], sizes_only)), shapes)
def test_fractions_are_pythons(way: str, expression: Any, shapes: Any) -> None:
    try:
        expected = {"round": round}.get(way, getattr(math, way, None))(eval(python(expression)))
    except ZeroDivisionError:
        assert not _guards.holds(["==", [way, expression], 1], shapes, [])
        return
    assert _guards.value(json.loads(json.dumps([way, expression])), shapes, []) == expected
    assert f"{way}(" in _guards.text(["==", [way, expression], 1])


@pytest.mark.parametrize("fraction", [
    ["/", 7, ["int", 0]], ["trunc", ["*", 1e400, ["int", 1]]], ["round", ["*", 1e400, ["int", 0]]],
    ["/", ["*", *[["int", 1]] * 400], 3], ["//", 7, ["int", 0]],
])  # fmt: skip
def test_what_python_computes_no_number_of_meets_no_condition(fraction: Any) -> None:
    known = json.loads(json.dumps(fraction))
    for condition in (["<", known, 1], ["<=", 1, known], ["!=", known, 1]):
        assert not _guards.holds(condition, [], [0, 9]) and not _guards.holds(["not", condition], [], [0, 9])


@given(expressions, shapes, ints)
@settings(max_examples=300, deadline=None)
def test_value_is_pythons(expression: Any, shapes: Any, ints: Any) -> None:
    try:
        expected = eval(python(expression))
    except ZeroDivisionError:
        with pytest.raises(ZeroDivisionError):
            _guards.value(expression, shapes, ints)
        return
    assert _guards.value(expression, shapes, ints) == expected


@given(conditions, shapes, ints)
@settings(max_examples=300, deadline=None)
def test_holds_is_pythons(condition: Any, shapes: Any, ints: Any) -> None:
    try:
        expected = eval(python(condition))
    except ZeroDivisionError:
        assert not _guards.holds(condition, shapes, ints)
        return
    assert _guards.holds(json.loads(json.dumps(condition)), shapes, ints) == expected


@given(two(["==", "!=", "<", "<="], many(["+", "min", "max"], st.one_of(st.integers(0, 9), st.sampled_from(PLACES)))),
       shapes, ints)  # fmt: skip
@settings(max_examples=100, deadline=None)
def test_text_reads_as_the_condition(condition: Any, shapes: Any, ints: Any) -> None:
    text = _guards.text(condition)
    for name, code in NAMES.items():
        text = text.replace(name, code)
    assert eval(text) == _guards.holds(condition, shapes, ints)


@given(expressions, expressions)
@settings(max_examples=200, deadline=None)
def test_text_tells_expressions_apart(left: Any, right: Any) -> None:
    if left != right:
        assert _guards.text(left) != _guards.text(right)


@pytest.mark.parametrize("condition", [["==", ["//", 1, ["dim", 0, 0]], 1], ["!=", ["%", 1, ["dim", 0, 0]], 1]])
def test_a_division_by_zero_is_met_by_no_call(condition: Any) -> None:
    assert not _guards.holds(condition, [(0,)], [])


def test_what_is_not_in_the_grammar_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown operator '__import__'"):
        _guards.value(["__import__", 1], [], [])
    with pytest.raises(ValueError, match="unknown comparison 'is'"):
        _guards.holds(["is", 1, 1], [], [])


# From the tracer's expressions


@st.composite
def symbolic(draw: Any, depth: int = 3) -> Any:
    """An expression as torch's symbolic shapes write them, over two sizes and an integer."""
    import sympy
    from torch.utils._sympy import functions as f

    symbols = sympy.symbols("s0 s1 u0", integer=True, positive=True)
    if not depth or draw(st.booleans()):
        return draw(st.one_of(st.sampled_from(symbols), st.integers(-4, 9).map(sympy.Integer)))
    left = draw(symbolic(depth - 1))
    right = draw(symbolic(depth - 1))
    divisor = draw(st.one_of(st.sampled_from(symbols), st.integers(1, 5).map(sympy.Integer)))
    kind = draw(st.sampled_from(["+", "*", "**", "//", "%", "max", "min", "clean"]))
    if kind == "+":
        return left + right
    if kind == "*":
        return left * right
    if kind == "**":
        return left ** draw(st.integers(1, 3))
    if kind == "//":
        return f.FloorDiv(left, divisor)
    if kind == "%":
        return f.PythonMod(left, divisor)
    if kind == "clean":
        return f.FloorDiv(left * divisor, divisor)
    return (f.Max if kind == "max" else f.Min)(left, right)


@pytest.mark.torch
@given(st.data())
@settings(max_examples=150, deadline=None)
def test_the_translation_of_a_tracers_condition_agrees_with_sympy(data: Any) -> None:
    sympy = pytest.importorskip("sympy")
    pytest.importorskip("torch")
    from hybrid_infer.frontends import _torch_guards as guards

    symbols = dict(zip(sympy.symbols("s0 s1 u0", integer=True, positive=True), PLACES[:2] + PLACES[3:4], strict=True))
    relation = data.draw(st.sampled_from([sympy.Eq, sympy.Ne, sympy.Lt, sympy.Le, sympy.Gt, sympy.Ge]))
    expression = relation(data.draw(symbolic()), data.draw(symbolic()))
    try:
        rule = guards._condition(expression, symbols)
    except guards._OutsideGrammar:
        return
    numbers = data.draw(st.tuples(*[st.integers(1, 12)] * 3))
    expected = expression.xreplace(dict(zip(symbols, map(sympy.Integer, numbers), strict=True)))
    assert expected in (sympy.true, sympy.false), expected
    found = True if rule is True else _guards.holds(rule, [numbers[:2]], [numbers[2]])
    assert found == bool(expected)
    assert rule is True or math.isfinite(len(json.dumps(rule)))


bounds = st.tuples(st.sampled_from(["<", "<=", "==", "!="]), st.sampled_from(PLACES), st.integers(-2, 9), st.booleans())
simple = bounds.map(lambda b: [b[0], *(b[1:3] if b[3] else b[2:0:-1])])


@given(st.lists(st.one_of(simple, simple.map(lambda c: ["not", c])), max_size=8), shapes, ints)
def test_what_is_left_of_conditions_means_the_same(found: list[Any], sizes: Any, numbers: Any) -> None:
    left = _guards.distinct(found)
    assert len(left) <= len(found)
    assert all(_guards.holds(c, sizes, numbers) for c in left) == all(_guards.holds(c, sizes, numbers) for c in found)


def test_a_bound_is_told_once() -> None:
    rows = ["dim", 0, 0]
    left = _guards.distinct([["<=", 2, rows], ["<=", rows, 63], ["<", rows, 64], ["not", ["<=", rows, 0]]])
    assert [_guards.text(each) for each in left] == ["2 <= tensor 0 axis 0", "tensor 0 axis 0 <= 63"]


def test_what_conditions_have_in_common_is_computed_once_for_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[float] = []
    monkeypatch.setitem(_guards._WHOLE, "round", lambda number: counted.append(number) or round(number))

    def side() -> Any:
        return ["round", ["*", 0.6, ["dim", 0, 0]]]

    rules = tuple(json.loads(json.dumps(["<", ["*", ["%", side(), 7], ["%", side(), n]], 99])) for n in range(1, 50))
    spec = TensorSpec("float32", (None,), "cpu")
    version = Version(method="m", tree=[], tensors=(spec,), ints=(), ambient=(), weights=(), conditions=rules)
    for size in (20, 33):
        del counted[:]
        call = Call([], (TensorSpec("float32", (size,), "cpu"),), (), ())
        expected = [rule for rule in rules if not _guards.holds(rule, [(size,)], [])]
        del counted[:]
        assert version.broken(call) == expected and counted == [0.6 * size]


@given(st.lists(conditions, min_size=1, max_size=4), shapes, ints)
def test_shared_parts_change_no_answer(several: list[Any], shapes: Any, ints: Any) -> None:
    parts: dict[Any, Any] = {}
    known: dict[int, Any] = {}
    together = [_guards.shared(json.loads(json.dumps(each)), parts) for each in several]
    assert together == several or json.dumps(together) == json.dumps(several)
    assert [_guards.holds(each, shapes, ints, known) for each in together] == [
        _guards.holds(each, shapes, ints) for each in several
    ]
