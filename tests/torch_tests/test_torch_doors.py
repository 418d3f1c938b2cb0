"""No stale answer, whatever a method depends on and however that is changed: at run time, and in another process.

By default every place is tried with some kinds of values, and a few more are drawn by chance. With
``HYBRID_INFER_TEST_DOORS=all`` in the environment every kind is tried in every place, which takes half an hour.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from doors import OPAQUE, PLACES, Case, across, cases, kept, make, selection, sweep
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

FRAMEWORK = "torch"
PARTS, FEWER = {"some": selection(FRAMEWORK, each=2)}, {"some": selection(FRAMEWORK, start=40, each=1)}
if os.environ.get("HYBRID_INFER_TEST_DOORS") == "all":
    PARTS = FEWER = {place: cases(FRAMEWORK, [place]) for place in PLACES}


@pytest.mark.parametrize("part", PARTS)
def test_the_next_call_sees_every_change(part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(sweep(make(tmp_path, FRAMEWORK, PARTS[part]), monkeypatch)) == []


@pytest.mark.processes
@pytest.mark.parametrize("part", FEWER)
def test_the_next_process_sees_every_change(
    part: str, tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert across(make(tmp_path, FRAMEWORK, kept(FEWER[part])), store, monkeypatch) == []


@settings(max_examples=1, deadline=None, phases=[Phase.generate], suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.sampled_from(cases(FRAMEWORK)), min_size=20, max_size=20, unique_by=lambda case: case.name))
def test_changes_drawn_by_chance(tmp_path_factory: pytest.TempPathFactory, chosen: list[Case]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        program = make(tmp_path_factory.mktemp("drawn"), FRAMEWORK, chosen)
        assert list(sweep(program, patch)) == []


@pytest.mark.parametrize("place", ["global", "settings_object"])
def test_what_has_no_fingerprint_is_seen_to_change(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert list(sweep(make(tmp_path, FRAMEWORK, cases(FRAMEWORK, [place], OPAQUE)), monkeypatch)) == []


@pytest.mark.parametrize("place", ["instance", "global", "settings"])
def test_variables_of_a_thread_are_refused(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [found] = sweep(make(tmp_path, FRAMEWORK, cases(FRAMEWORK, [place], ["local"])), monkeypatch)
    assert found.status == "eager" and "k_" + place in found.detail
