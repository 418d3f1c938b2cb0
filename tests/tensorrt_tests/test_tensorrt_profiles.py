"""For which sizes plans are built, and that sizes which creep up need few of them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybrid_infer.backends.tensorrt import _profiles, _shapes
from hybrid_infer.backends.tensorrt._profiles import Range
from hybrid_infer.backends.tensorrt._shapes import Shapes

sizes = st.integers(0, 5000)
rows = st.tuples(st.tuples(sizes, sizes), st.tuples(sizes))


@given(st.lists(rows, max_size=5), rows)
def test_a_hull_covers_all_that_it_was_made_of(seen, opt) -> None:  # type: ignore[no-untyped-def]
    profile = _profiles.hull(seen, opt)
    assert all(_profiles.covers(profile, each) for each in (*seen, opt))
    assert tuple(r.opt for r in profile) == opt


@given(rows, rows)
def test_a_grown_profile_covers_the_old_one_and_the_call(old, new) -> None:  # type: ignore[no-untyped-def]
    before = _profiles.exact(old)
    after = _profiles.grown(before, new)
    assert _profiles.covers(after, old) and _profiles.covers(after, new)
    assert all(low <= usual <= high for r in after for low, usual, high in zip(*r, strict=True))


@settings(max_examples=30)
@given(st.lists(st.integers(1, 100_000), min_size=1, max_size=300))
def test_the_number_of_plans_is_logarithmic_in_the_sizes(lengths: list[int]) -> None:
    profile, plans = _profiles.exact(((lengths[0],),)), 1
    for n in lengths:
        if not _profiles.covers(profile, ((n,),)):
            profile, plans = _profiles.grown(profile, ((n,),)), plans + 1
    assert plans <= 1 + 2 * 17


def test_a_profile_grows_no_further_than_the_graph_is_valid() -> None:
    limit = 512
    grown = _profiles.grown(_profiles.exact(((300, 8),)), ((400, 8),), lambda rows: rows[0][0] <= limit)
    assert grown == (Range((300, 8), (400, 8), (400, 8)),)


def test_an_axis_that_does_not_vary_stays_as_it_is() -> None:
    grown = _profiles.grown(_profiles.exact(((8, 64), (3,))), ((9, 64), (3,)))
    assert _profiles.widths(grown) == [(0, 0)]


def test_declared_ranges_are_kept_and_widened_by_what_is_seen() -> None:
    wishes = _profiles.declared([{"min": (1, 8), "opt": (16, 8), "max": (64, 8)}, None, {"min": None}])
    found = _profiles.united(_profiles.exact(((100, 8), (2,), (7,))), wishes)
    assert found == (Range((1, 8), (16, 8), (100, 8)), Range((2,), (2,), (2,)), Range((7,), (7,), (7,)))


def test_a_call_of_another_rank_is_not_covered() -> None:
    assert not _profiles.covers(_profiles.exact(((2, 3),)), ((2,),))
    assert not _profiles.covers(_profiles.exact(((2, 3),)), ((2, 3), (1,)))


def test_a_profile_survives_json_and_nonsense_does_not() -> None:
    profile = _profiles.hull([((1, 8), (3,))], ((4, 8), (2,)))
    assert _profiles.from_json(json.loads(json.dumps(_profiles.to_json(profile)))) == profile
    for nonsense in ([[[4], [2], [8]]], [[[1], [2]]], [["a", "b", "c"]], 3):
        with pytest.raises((ValueError, TypeError)):
            _profiles.from_json(nonsense)


def test_records_of_two_runs_are_merged() -> None:
    first = Shapes({((2, 8),): 3, ((4, 8),): 1}, _profiles.exact(((2, 8),)))
    second = Shapes({((2, 8),): 1, ((9, 8),): 5}, _profiles.hull([((2, 8),)], ((9, 8),)))
    found = _shapes.merged(first, second)
    assert found.seen == {((2, 8),): 4, ((4, 8),): 1, ((9, 8),): 5}
    assert found.profile == second.profile
    assert found.usual(((4, 8),)) == ((9, 8),)
    disjoint = _shapes.merged(first, Shapes({}, _profiles.exact(((9, 8),))))
    assert disjoint.profile == (Range((2, 8), (9, 8), (9, 8)),)


def test_a_record_of_another_graph_under_the_same_name_is_left_out() -> None:
    found = _shapes.merged(Shapes({((2, 8),): 1}), Shapes({((2,),): 9}))
    assert found.seen == {((2, 8),): 1}


def test_a_record_keeps_what_makes_it_wide() -> None:
    seen = {((n,),): 200 - n for n in range(1, 200)}
    found = _shapes.merged(Shapes(), Shapes(seen)).seen
    assert len(found) == 64
    assert {((1,),), ((199,),)} <= found.keys()


def test_a_record_is_json_for_people_and_nonsense_is_an_empty_one() -> None:
    record = Shapes({((2, 8), (3,)): 3}, _profiles.exact(((2, 8), (3,))))
    assert _shapes.from_bytes(_shapes.to_bytes(record)) == record
    for data in (None, b"", b"{", b"[]", b'{"format": 99}', b'{"format": 1, "seen": 3, "profile": null}'):
        assert _shapes.from_bytes(data) == Shapes()
