"""The canonical encoding is type-exact, injective and the same in every process."""

from __future__ import annotations

import enum
import logging
import math
import struct
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hybrid_infer._keys import Key, Unhashable, digest, method_key


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Access(enum.Flag):
    READ = 1
    WRITE = 2


def nan(payload: int) -> float:
    return struct.unpack("<d", struct.pack("<Q", 0x7FF8000000000000 | payload))[0]


STRUCTURED = np.dtype([("a", "<f4"), ("b", "<i4")])

DISTINCT = [
    None, True, False, 1, 0, -1, 255, 256, 2**64, -(2**64), 1.0, 0.0, -0.0, math.inf, -math.inf, nan(0), nan(1),
    1 + 0j, 0j, complex(0.0, -0.0), "", "1", "a", "\ud800", b"", b"1", b"a", (), [], {}, set(), frozenset(),
    (1,), [1], {1}, frozenset({1}), {1: 1}, {1: True}, {True: 1}, {1.0: 1}, ((),), [[]], [()], ([],), ("ab",),
    ("a", "b"), (("a",), "b"), (("a", "b"),), [1, 2], [2, 1], {"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": {"b": 1}},
    {"a": 1, "b": 1}, {1, 2}, {1, 2.5}, ..., NotImplemented, slice(1), slice(1, None), slice(None, 1, 1),
    slice(None, 1, True), range(0), range(3), range(0, 3, 2), range(0, 4, 2), Colour.RED, Colour.BLUE, Access.READ,
    Access.READ | Access.WRITE, Colour, Access, int, float, np.float32, np.int8(1), np.int16(1), np.uint8(1),
    np.float32(1), np.float64(1), np.float64(-0.0), np.float64(0.0), np.bool_(True), np.str_("a"), np.bytes_(b"a"),
    np.datetime64(1, "s"), np.datetime64(1, "D"), np.dtype("float32"), np.dtype(">f4"), np.dtype("float64"),
    STRUCTURED, np.dtype([("a", "<f4"), ("c", "<i4")]), np.dtype([("b", "<f4"), ("a", "<i4")]),
    np.dtype([("a", "<i4"), ("b", "<f4")]), np.dtype(("<f4", (2,))), np.dtype(("<f4", (3,))),
    np.zeros(()), np.zeros(0), np.zeros((0, 2)), np.zeros((2, 0)), np.zeros(2), np.zeros(2, "f4"), np.zeros((1, 2)),
    np.zeros((2, 1)), -np.zeros(2), np.zeros(2, ">f4"), np.arange(4).reshape(2, 2), np.arange(4).reshape(2, 2).T,
    np.array([1, "a"], dtype=object), np.array([True, "a"], dtype=object), np.zeros(2, STRUCTURED),
]  # fmt: skip


def test_every_pair_of_distinct_values_differs() -> None:
    digests = [digest(value) for value in DISTINCT]
    clashes = [(DISTINCT[i], DISTINCT[j]) for i in range(len(digests)) for j in range(i) if digests[i] == digests[j]]
    # slice(1) and slice(None, 1) are the same object to Python; no such pair stands in the list.
    assert clashes == []


def test_equal_values_agree_whatever_their_layout() -> None:
    square = np.arange(6.0).reshape(2, 3)
    assert digest(square) == digest(np.asfortranarray(square)) == digest(np.array(square.tolist()))
    assert digest(square.T) == digest(np.ascontiguousarray(square.T))
    assert digest(np.arange(10)[::2]) == digest(np.array([0, 2, 4, 6, 8]))
    assert digest({3, "a", (1,)}) == digest({(1,), "a", 3})
    assert digest(nan(0)) == digest(nan(0))


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.complex_numbers() | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(max_size=2) | st.integers() | st.booleans() | st.floats(), inner, max_size=4)
        | st.sets(st.integers(0, 4) | st.booleans() | st.text(max_size=1), max_size=4)
        | st.frozensets(st.integers(0, 4) | st.text(max_size=1), max_size=4)
    ),
    max_leaves=8,
)


def same(a: object, b: object) -> bool:
    """Could no code tell them apart? An independent reading of what the encoding promises."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return struct.pack("<d", a) == struct.pack("<d", b)
    if isinstance(a, complex):
        return same(a.real, b.real) and same(a.imag, b.imag)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return len(a) == len(b) and all(same(k, m) and same(a[k], b[m]) for k, m in zip(a, b, strict=True))
    if isinstance(a, (set, frozenset)):
        return len(a) == len(b) and all(any(same(x, y) for y in b) for x in a)
    return a == b


def rebuilt(value: object) -> object:
    """The same value in new objects, sets filled in another order."""
    if isinstance(value, (list, tuple)):
        return type(value)(rebuilt(x) for x in value)
    if isinstance(value, dict):
        return {rebuilt(k): rebuilt(v) for k, v in value.items()}
    if isinstance(value, (set, frozenset)):
        return type(value)(sorted(value, key=repr, reverse=True))
    return value


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(PLAIN, PLAIN)
def test_equal_exactly_when_the_same(a: object, b: object) -> None:
    assert (digest(a) == digest(b)) == same(a, b)
    assert digest(a) == digest(rebuilt(a))
    assert digest([a, b]) != digest([b, a]) or same(a, b)
    assert digest((a, b)) != digest(((a,), b))


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(PLAIN, max_size=4), st.integers(0, 4), PLAIN)
def test_one_changed_element_changes_the_digest(values: list[object], at: int, new: object) -> None:
    changed = [*values[:at], new, *values[at + 1 :]]
    assert (digest(values) == digest(changed)) == same(values, changed)
    assert digest({"x": values}) == digest({"x": list(values)})


def loop() -> list[object]:
    value: list[object] = []
    value.append(value)
    return value


def deep(levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (object(), ""),
        (lambda: 0, ""),
        ([1, object()], "[1]"),
        ({"a": {"b": (0, object())}}, "['a']['b'][1]"),
        ({"a": loop()}, "['a'][0]"),
        (np.array([1, object()], dtype=object), "[1]"),
        (type("D", (dict,), {})(), ""),
        (bytearray(b"a"), ""),
        (slice(0, object()), ".stop"),
    ],
)
def test_names_the_element_that_cannot_be_encoded(value: object, path: str) -> None:
    with pytest.raises(Unhashable) as caught:
        digest(value)
    assert caught.value.path == path
    assert caught.value.what in str(caught.value)


def test_nesting_beyond_the_stack_is_refused() -> None:
    with pytest.raises(Unhashable, match="nested too deeply"):
        digest(deep(100_000))


PROBE = """
import enum, numpy as np
from hybrid_infer._keys import digest, method_key
print(digest([1, True, 0.5, "a", b"b", {"k": (None, ...)}, {"x", "y", "zz", "w"}, frozenset("abcdef"), slice(1, 2),
              range(3), np.arange(5.0), np.float32(2), np.dtype("i4"), int]))
print(method_key({"name": "m", "set": {"p", "q", "r"}}).hex)
"""


def test_every_process_and_hash_seed_agrees() -> None:
    import os

    outs = {
        subprocess.run(
            [sys.executable, "-c", PROBE],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "12345")
    }
    assert len(outs) == 1


def test_key_is_ordered_labelled_and_comparable() -> None:
    a = method_key({"format": 1, "name": "m", "lr": 0.5})
    assert [label for label, _ in a.items] == ["format", "name", "lr"]
    assert a.hex == method_key({"format": 1, "name": "m", "lr": 0.5}).hex
    assert a.hex != method_key({"name": "m", "format": 1, "lr": 0.5}).hex
    b = method_key({"format": 1, "name": "n", "new": None})
    assert [d[0] for d in a.differences(b)] == ["name", "lr", "new"]
    assert a.differences(b)[1][2] is None and a.differences(b)[2][1] is None
    assert a.differences(list(a.items)) == []
    assert Key(()).hex != a.hex


def test_each_ingredient_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="hybrid_infer.keys"):
        key = method_key({"format": 1, "name": "m"})
    assert [record.getMessage() for record in caplog.records] == [
        *(f"{label}: {value}" for label, value in key.items),
        f"key: {key.hex}",
    ]


def test_an_ingredient_that_is_not_plain_is_named() -> None:
    with pytest.raises(Unhashable) as caught:
        method_key({"options": {"handle": object()}})
    assert caught.value.path == "options['handle']"
