"""Ranges of sizes in an InputSpec: what is allowed, how they show, and that a saved model keeps them."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest

from hybrid_infer import InputSpec, SpecError, load, save
from hybrid_infer._spec import arguments

RANGED = InputSpec([None, 4], "float32", "x", min=[1, 4], opt=[8, 4], max=[64, 4])


def test_a_range_shows_and_one_without_shows_as_ever() -> None:
    shown = "InputSpec(shape=(-1, 4), dtype=float32, name=x, min=(1, 4), opt=(8, 4), max=(64, 4))"
    assert repr(RANGED) == shown
    assert repr(InputSpec([None, 4], "float32", "x")) == "InputSpec(shape=(-1, 4), dtype=float32, name=x)"


def test_the_usual_size_is_the_largest_where_nothing_is_said() -> None:
    assert InputSpec([None], min=[1], max=[64]).range == ((1,), (64,), (64,))
    assert InputSpec([None]).range is None and InputSpec([None]).min is None


def test_specs_of_other_ranges_are_others() -> None:
    other = InputSpec([None, 4], "float32", "x", min=[1, 4], opt=[9, 4], max=[64, 4])
    assert other != RANGED and InputSpec([None, 4], "float32", "x") != RANGED and len({RANGED, other, RANGED}) == 2
    assert copy.deepcopy(RANGED) == pickle.loads(pickle.dumps(RANGED)) == RANGED


@pytest.mark.parametrize(
    ("sizes", "argument", "words"),
    [
        ({"min": [1, 4]}, "max", "needs both min and max"),
        ({"max": [1, 4]}, "min", "needs both min and max"),
        ({"opt": [1, 4]}, "min", "needs both min and max"),
        ({"min": [1], "max": [8, 4]}, "min", "not one size for each dimension"),
        ({"min": [1, 4], "max": [None, 4]}, "max", "not one size for each dimension"),
        ({"min": [1, 4], "max": [8, 5]}, "max", "5 is not the size 4 of dimension 1"),
        ({"min": [9, 4], "max": [8, 4]}, "opt", "not in order: min 9, opt 8, max 8"),
        ({"min": [2, 4], "opt": [1, 4], "max": [8, 4]}, "opt", "not in order: min 2, opt 1, max 8"),
        ({"min": "ab", "max": [8, 4]}, "min", "no sequence of sizes"),
    ],
)
def test_what_is_no_range_is_refused(sizes: dict[str, Any], argument: str, words: str) -> None:
    with pytest.raises(SpecError, match=words) as caught:
        InputSpec([None, 4], **sizes)
    assert caught.value.argument == argument


def test_a_spec_that_gets_its_parameters_name_keeps_its_range() -> None:
    from hybrid_infer._parameters import Parameters

    def function(x: Any) -> None: ...

    unnamed = InputSpec([None, 4], min=[1, 4], opt=[8, 4], max=[64, 4])
    assert arguments([unnamed], Parameters(function, owner=False), "function") == (RANGED,)


def test_a_saved_model_carries_them(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    layer = torch.nn.Linear(4, 3).eval()
    spec = InputSpec([None, 4], "float32", "input", min=[1, 4], opt=[8, 4], max=[64, 4])
    save(layer, str(tmp_path / "model"), input_spec=[spec])
    loaded = load(str(tmp_path / "model"))
    assert loaded.input_spec == [spec]
    save(loaded, str(tmp_path / "again"))
    assert load(str(tmp_path / "again")).input_spec == [spec]
    save(layer, str(tmp_path / "plain"), input_spec=[InputSpec([None, 4], "float32", "input")])
    assert load(str(tmp_path / "plain")).input_spec == [InputSpec([None, 4], "float32", "input")]
