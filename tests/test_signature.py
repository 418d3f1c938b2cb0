"""Binding, keys and layouts of arguments, against Python's own binding and against each other."""

from __future__ import annotations

import inspect
import json
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import PosixPath, PurePosixPath, PureWindowsPath
from typing import Any, NamedTuple

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybrid_infer._parameters import Parameters
from hybrid_infer._signature import Signatures
from hybrid_infer._structure import builder
from hybrid_infer._unsupported import Unsupported

KINDS = list(inspect._ParameterKind)


@st.composite
def functions(draw: Any) -> Callable[..., Any]:
    """A function with any legal list of parameters; it returns their values."""
    kinds = draw(st.lists(st.sampled_from(KINDS), max_size=5))
    kinds = [k for i, k in enumerate(kinds) if k not in (KINDS[2], KINDS[4]) or k not in kinds[:i]]
    parameters, optional = [], False
    for n, kind in enumerate(sorted(kinds)):
        default = inspect.Parameter.empty
        if kind in (KINDS[0], KINDS[1]):
            optional = optional or draw(st.booleans())
            default = n if optional else default
        elif kind is KINDS[3] and draw(st.booleans()):
            default = n
        parameters.append(inspect.Parameter(f"p{n}", kind, default=default))

    space: dict[str, Any] = {}
    values = "".join(f"{p.name}, " for p in parameters)
    exec(f"def function{inspect.Signature(parameters)}: return ({values})", space)
    return space["function"]  # type: ignore[no-any-return]


names = st.sampled_from([f"p{n}" for n in range(6)])


@given(functions(), st.lists(st.integers(), max_size=6).map(tuple), st.dictionaries(names, st.integers(), max_size=4))
@settings(max_examples=400, deadline=None)
def test_bind_agrees_with_a_call(function: Callable[..., Any], args: tuple[int, ...], kwargs: dict[str, int]) -> None:
    # Not with `inspect`, which up to Python 3.12 refuses some calls that Python allows.
    try:
        expected = function(*args, **kwargs)
    except TypeError:
        expected = None
    parameters = Parameters(function, owner=False)
    assert parameters.bind(args, kwargs) == expected
    others, named = tuple(-n for n in args), {name: -n for name, n in kwargs.items()}
    assert parameters.bind(others, named) == (None if expected is None else function(*others, **named))
    again = parameters.bind(args, kwargs)  # passed as before
    assert again == expected
    for first, second in zip(parameters.bind(args, kwargs) or (), again or (), strict=True):
        assert not isinstance(first, dict) or first is not second  # each call has a ``**kwargs`` of its own


@given(functions(), st.lists(st.integers(), max_size=6).map(tuple), st.dictionaries(names, st.integers(), max_size=4))
@settings(max_examples=200, deadline=None)
def test_unbind_gives_a_call_that_binds_to_the_same(
    function: Callable[..., Any], args: tuple[int, ...], kwargs: dict[str, int]
) -> None:
    parameters = Parameters(function, owner=False)
    values = parameters.bind(args, kwargs)
    if values is not None:
        again, named = parameters.unbind(values, len(args), kwargs)
        assert parameters.bind(tuple(again), named) == values


def test_the_instance_is_no_parameter() -> None:
    def method(self: Any, x: Any, *, y: int = 2) -> None: ...

    parameters = Parameters(method, owner=True)
    assert parameters.names == ["x", "y"]
    assert parameters.bind((1,), {}) == (1, 2)
    with pytest.raises(TypeError, match="takes no argument for its instance"):
        Parameters(lambda: None, owner=True)


class Tensor:
    """What the tests take for a tensor."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape


class Frontend:
    tensor_type = Tensor
    tensor_types = frozenset({Tensor})
    traced_types = (Tensor,)
    numbers_of_values = ()
    constant_types = ()

    @staticmethod
    def key(tensor: Tensor) -> Any:
        return tensor.shape


class Named(NamedTuple):
    first: Any
    second: Any


@dataclass
class Record:
    value: Any
    other: Any = None
    derived: Any = field(default=7, init=False)


leaves = st.one_of(
    st.builds(Tensor, st.lists(st.integers(0, 3), max_size=2).map(tuple)),
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3), st.binary(max_size=3),
    st.complex_numbers(),
    st.builds(slice, st.none() | st.integers(-2, 2), st.integers(-2, 2)), st.builds(range, st.integers(-2, 2)),
    st.just(...), st.frozensets(st.integers(-9, 9), max_size=2), st.builds(numpy.float32, st.floats(width=32)),
    st.builds(numpy.int64, st.integers(-2, 2)), st.builds(PurePosixPath, st.text("ab/.", max_size=4)),
)  # fmt: skip
keys = st.one_of(st.text(max_size=2), st.integers(-2, 2), st.booleans(), st.none())
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(keys, inner, max_size=3),
        st.dictionaries(keys, inner, max_size=2).map(OrderedDict),
        st.builds(Named, inner, inner),
        st.builds(Record, inner, inner),
    ),
    max_leaves=8,
)
SIGNATURES = Signatures(Frontend())


def same(left: Any, right: Any) -> bool:
    """Equal in type, structure and bits; tensors by identity."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return [*map(exact, left)] == [*map(exact, right)] and all(same(left[k], right[k]) for k in left)
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, Record):
        return all(same(getattr(left, name), getattr(right, name)) for name in ("value", "other", "derived"))
    return left is right if isinstance(left, Tensor) else exact(left) == exact(right)


def exact(value: Any) -> Any:
    if isinstance(value, numpy.generic):
        return type(value), value.tobytes()
    return type(value).__name__, value.hex() if isinstance(value, float) else repr(value)


def key(arguments: list[Any], *defaults: Any) -> Any:
    return SIGNATURES.key(arguments, [], defaults, {})


@given(st.lists(values, max_size=3))
@settings(max_examples=300, deadline=None)
def test_a_structure_comes_back_from_its_layout(arguments: list[Any]) -> None:
    layout = SIGNATURES.layout(arguments, [f"p{n}" for n in range(len(arguments))])
    flat = [layout.tensors[i] if kind == "t" else layout.ints[i] for kind, i in layout.leaves]
    made = builder(layout.tree, lambda kind, value: pytest.fail(f"a constant {kind}"))(flat)
    assert same(made, tuple(arguments))


@given(st.lists(values, max_size=2), st.lists(values, max_size=2))
@settings(max_examples=300, deadline=None)
def test_keys_are_equal_exactly_where_layouts_are(left: list[Any], right: list[Any]) -> None:
    def described(arguments: list[Any]) -> Any:
        layout = SIGNATURES.layout(arguments, [""] * len(arguments))
        return repr((layout.tree, [t.shape for t in layout.tensors], layout.ints))

    assert (key(left) == key(right)) == (described(left) == described(right))
    assert key(left) == key(left)
    hash(key(left))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (1, True), (1, 1.0), (0.0, -0.0), ([1], (1,)), ({}, OrderedDict()), ("1", 1), (b"", ""),
        (numpy.float32(2), 2.0), (numpy.float64(2), 2.0), (numpy.float32(2), numpy.float64(2)),
        (numpy.int64(1), numpy.int32(1)), (numpy.bool_(True), True), (numpy.float32(0.0), numpy.float32(-0.0)),
        (numpy.uint32(0x7FC00000).view(numpy.float32), numpy.uint32(0x7FC00001).view(numpy.float32)),
        (numpy.str_("a"), "a"), (slice(1), slice(True)), (slice(0, 1), slice(numpy.int64(0), 1)),
        (range(0), range(1, 1)),
        (frozenset({1}), frozenset({True})), ({1}, frozenset({1})), (frozenset({0.0}), frozenset({-0.0})),
        (frozenset([0, 8]), frozenset([8, 0])), (frozenset(), set()), (PureWindowsPath("A"), PureWindowsPath("a")),
        (PurePosixPath("a"), "a"), (PurePosixPath("a"), PosixPath("a")), (..., None),
    ],
)  # fmt: skip
def test_values_that_python_takes_for_equal_are_told_apart(left: Any, right: Any) -> None:
    assert key([left]) != key([right])


@pytest.mark.parametrize("value", [
    object(), lambda: None, {(1, 2): 3}, [object()], {"a", "b"}, frozenset({"a", 1}), {object()}, slice(object()),
    slice({1}), numpy.longdouble(1), numpy.zeros(1),
])  # fmt: skip

def test_what_cannot_be_part_of_a_signature_is_refused_by_both(value: Any) -> None:
    with pytest.raises(Unsupported):
        key([value])
    with pytest.raises(Unsupported, match="argument `x`"):
        SIGNATURES.layout([value], ["x"])


@pytest.mark.parametrize(
    "value", [numpy.str_("a\0"), {2, 1}, {8, 0}, {5, -3}, {"a"}, frozenset({(1, "a")}), slice(None, numpy.int64(3))]
)
def test_constants_come_back_as_they_were(value: Any) -> None:
    layout = SIGNATURES.layout([value], ["x"])
    assert json.loads(json.dumps(layout.tree)) == layout.tree
    build = builder(layout.tree, lambda kind, value: pytest.fail(f"a constant {kind}"))
    made, other = build([])[0], build([])[0]
    assert type(made) is type(value) and made == value and repr(made) == repr(value)
    assert (made is other) == (type(value) is not set)


def test_a_set_of_texts_is_refused_for_its_order() -> None:
    with pytest.raises(Unsupported, match=r"argument `x`\[0\] is a set whose order") as found:
        SIGNATURES.layout([[{"a", "b"}]], ["x"])
    assert found.value.remedy == "Pass a sorted tuple"


def test_a_default_of_any_class_is_known_by_its_identity() -> None:
    default = object()
    layout = SIGNATURES.layout([default], ["x"], [default])
    assert builder(layout.tree, lambda kind, value: (kind, value))([]) == (("default", 0),)
    assert key([default], default)
    with pytest.raises(Unsupported):
        key([object()], default)


def test_arguments_are_put_in_order_by_going_through_the_parameters_once_for_a_call_and_not_at_all_once_a_way_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def f(x: Any, *, scale: float = 1.0, **more: Any) -> None: ...

    parameters, calls, bind = Parameters(f, owner=False), [], Parameters._bind
    monkeypatch.setattr(Parameters, "_bind", lambda *args: calls.append(args) or bind(*args))

    def counted(*args: Any, **kwargs: Any) -> int:
        calls.clear()
        assert parameters.bind(args, kwargs) == bind(parameters, args, kwargs, parameters.defaults)
        return len(calls)

    assert [counted(1, scale=2.0) for _ in range(3)] == [2, 0, 0]
    assert [counted(1, scale=2.0, other=3) for _ in range(3)] == [2, 1, 1]
    assert [counted(1, scaled=2.0, other=3) for _ in range(3)] == [2, 1, 1]
