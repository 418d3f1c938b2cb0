"""What torch's tracer assumed about sizes and integers, as data (see ``Condition`` and ``Expr``)."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any

import sympy  # type: ignore[import-untyped]
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from hybrid_infer._errors import TraceError
from hybrid_infer._own_thread import replaced
from hybrid_infer._types import Condition, Expr
from hybrid_infer.frontends import _torch_quotients

_log = logging.getLogger("hybrid_infer")

_COMPARISONS = {"Equality": "==", "Unequality": "!=", "StrictLessThan": "<", "LessThan": "<="}
_SWAPPED = {"StrictGreaterThan": "<", "GreaterThan": "<="}
_FLOOR = {"FloorDiv", "CleanDiv", "Mod", "PythonMod"}
#: Of the integers below and above a fraction.
_ROUNDED: dict[str, Callable[[Expr, Expr], Expr]] = {
    "CeilToInt": lambda below, above: above,
    "FloorToInt": lambda below, above: below,
    "TruncToInt": lambda below, above: ["+", ["max", below, 0], ["min", above, 0]],
}
#: The same of one that is rounded itself, as Python has them.
_AS_PYTHON = {"CeilToInt": "ceil", "FloorToInt": "floor", "TruncToInt": "trunc", "RoundToInt": "round"}
_EXTREMA = {"Max": "max", "Min": "min"}
_ROOTS = {"FloatPow": "**", "OpaqueUnaryFn_sqrt": "sqrt"}
#: What a program calls what the grammar has no words for.
_SPELLED = {
    "RoundToInt": "round()", "RoundDecimal": "round()", "TruncToInt": "int()", "CeilToInt": "ceil()",
    "FloorToInt": "floor()", "IntTrueDiv": "a quotient", "FloatTrueDiv": "a quotient", "FloatPow": "a power",
    "PowByNatural": "a power", "Pow": "a power", "ToFloat": "a float",
    "LShift": "<<", "RShift": ">>", "BitwiseFn_bitwise_and": "&", "BitwiseFn_bitwise_or": "|",
}  # fmt: skip


class _OutsideGrammar(Exception):
    def __init__(self, expression: Any) -> None:
        super().__init__(expression)
        self.spelled = _SPELLED.get(type(expression).__name__, "")


@contextlib.contextmanager
def late() -> Iterator[list[Any]]:
    """What is assumed of sizes on this thread after a trace, while operators are put in other terms.

    torch takes such questions for answered by the example, and keeps no guard of it.
    """
    found: list[Any] = []

    def noted(check: Any, environment: Any, expression: Any, value: Any) -> None:
        check(environment, expression, value)
        rule = expression if value is sympy.true else sympy.Not(expression) if value is sympy.false else None
        found.append(sympy.Eq(expression, value) if rule is None else rule)

    with replaced(ShapeEnv, "_check_frozen", noted):
        yield found


class Sizes:
    """What a trace left open: ``symbols`` of sizes and integers with their places, and others that are ``derived``.

    Of the tracer's shape environment it holds what that knew when this was made: what it assumes later it puts in place
    of a size everywhere, so that what it had assumed before comes to say nothing. Strides that do not follow from sizes
    are the example's: no graph depends on them, and a call's are part of what it is told by where code asks for them.
    ``kept``: assertions that the traced program makes itself, as text; ``program``: the traced one.
    """

    def __init__(
        self, environment: Any, symbols: Mapping[Any, Expr], derived: Sequence[tuple[Expr, Any]],
        kept: Set[str] = frozenset(), program: Any = None,
    ) -> None:  # fmt: skip
        self._environment, self._symbols, self._derived, self._kept = environment, symbols, derived, kept
        self._replacements = {} if environment is None else dict(environment.replacements)
        self._layout = {} if environment is None else _layout(environment, self._symbols)
        self._rounded, self._divisors, self._numbers = set[Any](), set[Any](), frozenset[float]()
        if environment is not None:
            self._rounded = _torch_quotients.rounded(program, self._replacements)
            self._divisors = set(_torch_quotients.divisors(program, self._replacements))
            self._numbers = _torch_quotients.numbers(program)

    def conditions(self) -> list[Condition]:
        """Every guard and range of the environment, and what the places that are derived are equal to.

        A guard that the grammar cannot express raises TraceError: the caller then fixes all dimensions.
        """
        with _as_data():
            rules = [["==", place, _expression(each, self._symbols, self._numbers)] for place, each in self._derived]
            if self._environment is not None:
                rules += _ranges(self._environment, self._symbols)
                rules += self._small()
                divisors = sorted(self._divisors, key=str)
                rules += [["!=", _expression(each, self._symbols, self._numbers), 0] for each in divisors]
                self._add(rules, _guards(self._environment, self._kept))
        return rules

    def _small(self) -> list[Condition]:
        """That what sizes are computed of by fractions is small enough for it."""
        rules: list[Condition] = []
        for each in sorted(self._rounded, key=str):
            exact = _torch_quotients.exact(each.args[0])
            if exact is None:  # torch and a graph may differ
                raise _OutsideGrammar(each)
            rule = ["<=", _expression(sympy.expand(exact[0]), self._symbols), _torch_quotients.LARGEST]
            rules += [] if rule in rules else [rule]
        return rules

    def with_late(self, rules: Sequence[Condition], late: Sequence[Any]) -> list[Condition]:
        """`rules`, which `conditions` gave, and guards that the environment does not have (see ``late``).

        Those on anything but sizes of arguments are left out: where in a larger memory an argument lies is nothing that
        a graph depends on. Raises TraceError.
        """
        found = list(rules)
        sizes = set(self._symbols).union(*(each.free_symbols for _, each in self._derived))
        with _as_data():
            self._add(found, [each for each in late if each.free_symbols <= sizes])
        return found

    def _add(self, rules: list[Condition], guards: Sequence[Any]) -> None:
        for guard in guards:
            rule = _condition(guard.xreplace(self._replacements).xreplace(self._layout), self._symbols, self._numbers)
            if rule is not True and rule not in rules:
                rules.append(rule)


@contextlib.contextmanager
def _as_data() -> Iterator[None]:
    try:
        with _torch_quotients.divided():
            yield
    except _OutsideGrammar as fault:
        _log.debug("a condition on sizes cannot be kept as data: %s", fault)
        by = f" uses {fault.spelled}, which" if fault.spelled else ""
        raise TraceError(f"a condition on sizes{by} cannot be kept as data") from fault


def _layout(environment: Any, symbols: Mapping[Any, Expr]) -> dict[Any, Any]:
    """The example's values of strides and offsets that are no sizes."""
    found = {}
    for symbol, sources in environment.var_to_sources.items():
        kinds = {getattr(getattr(source, "prop", None), "name", "") for source in sources}
        if kinds and kinds <= {"STRIDE", "STORAGE_OFFSET"} and symbol not in symbols:
            found[symbol] = environment.backed_var_to_val[symbol]
    return found


def _ranges(environment: Any, symbols: Mapping[Any, Expr]) -> list[Condition]:
    rules = []
    for symbol, interval in environment.var_to_range.items():
        place = symbols.get(symbol)
        if place is None:
            continue
        low, high = interval.lower, interval.upper
        if low.is_Integer and int(low) > (0 if place[0] == "dim" else -(2**62)):  # no size is below 0
            rules.append(["<=", int(low), place])
        if high.is_Integer and int(high) < 2**62:
            rules.append(["<=", place, int(high)])
    return rules


def _guards(environment: Any, kept: Set[str]) -> list[Any]:
    found = [guard.expr for guard in environment.guards]
    for asserts in environment.deferred_runtime_asserts.values():
        found += [each.expr for each in asserts if str(each.expr) not in kept]
    return found


def _condition(guard: Any, symbols: Mapping[Any, Expr], numbers: Set[float] = frozenset()) -> Condition:
    if guard is True or guard == True:  # noqa: E712  # sympy's own true
        return True
    kind = type(guard).__name__
    for each in guard.args if kind == "Equality" and any(each.is_Integer for each in guard.args) else ():
        if type(each).__name__ in _AS_PYTHON and _torch_quotients.exact(each.args[0]) is None:
            raise _OutsideGrammar(each)  # a number that int() took: one for each size
    if kind in _COMPARISONS:
        return [_COMPARISONS[kind], *(_expression(a, symbols, numbers) for a in guard.args)]
    if kind in _SWAPPED:
        return [_SWAPPED[kind], *(_expression(a, symbols, numbers) for a in reversed(guard.args))]
    if kind in ("And", "Or", "Not"):
        return [kind.lower(), *(_condition(a, symbols, numbers) for a in guard.args)]
    raise _OutsideGrammar(guard)


def _expression(expression: Any, symbols: Mapping[Any, Expr], numbers: Set[float] = frozenset()) -> Expr:
    """`numbers`: those of the program, of which fractions of sizes may be made."""
    if expression in symbols:
        return list(symbols[expression])
    if expression.is_Integer:
        return int(expression)
    kind = type(expression).__name__
    arguments: Sequence[Any] = expression.args
    if kind in _ROUNDED and (fraction := _torch_quotients.exact(arguments[0])) is not None:
        above, below = _expression(sympy.expand(fraction[0]), symbols, numbers), fraction[1]
        return _ROUNDED[kind](["//", above, below], ["*", -1, ["//", ["*", -1, above], below]])
    if not expression.is_integer and not _as_written(expression, numbers):
        raise _OutsideGrammar(expression)
    if expression.is_Float:
        return float(expression)
    parts = [_expression(each, symbols, numbers) for each in arguments]
    if kind == "Add":
        return ["+", *parts]
    if kind == "Mul":
        return ["*", *parts]
    if kind == "Pow" and arguments[1].is_Integer and 0 < int(arguments[1]) <= 4:
        return ["*", *[parts[0]] * int(arguments[1])]
    if kind in _FLOOR:
        return ["//" if kind.endswith("Div") else "%", *parts]
    if kind in _EXTREMA:
        return [_EXTREMA[kind], *parts]
    if kind in ("IntTrueDiv", "FloatTrueDiv"):
        return ["/", *parts]
    if kind == "ToFloat":
        return ["/", *parts, 1]
    if kind in _ROOTS:
        return [_ROOTS[kind], *parts]
    if kind in _AS_PYTHON:
        return [_AS_PYTHON[kind], *parts]
    raise _OutsideGrammar(expression)


def _as_written(fraction: Any, numbers: Set[float]) -> bool:
    """Is the last step to a fraction, of which any may be rounded, the one that the program takes?

    sympy makes one of several products and sums, and one number of two.
    """
    kind, arguments = type(fraction).__name__, fraction.args
    if kind == "Mul":
        factors = [each for each in arguments if each.is_Number]
        return len(arguments) == 2 and all(each.is_Float and abs(float(each)) in numbers for each in factors)
    return fraction.is_Float or kind in (*_EXTREMA, *_ROOTS, "IntTrueDiv", "FloatTrueDiv", "ToFloat")
