"""Which sizes a method is traced with for a file, and which of them are to vary."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hybrid_infer._errors import SpecError
from hybrid_infer.state import _census, _roots
from hybrid_infer.static._saved_stage import Dims, Stage, attempts, numbers_of
from hybrid_infer.static._saved_target import Case, values_of

_TRIALS = 200  # combinations of sizes that are tried for a spec that leaves them open


@dataclass(frozen=True)
class Wish:
    """What an attempt at a capture asks for: sizes of the example, dimensions and integers that vary."""

    shapes: tuple[tuple[int, ...], ...]
    dims: Dims
    ints: frozenset[int]


def wishes(stage: Stage, case: Case) -> Iterator[Wish]:
    ints = frozenset(i for i, n in enumerate(case.ints) if n is None)
    if case.exact:
        shapes = _solved(stage, case)
        yield Wish(shapes, frozenset(_varied(case)), ints)
        return
    base = max(case.seen, key=lambda call: sum(map(_volume, call.shapes)))
    shapes = tuple(base.shapes)
    varied = _varied(case)
    batches = {(i, 0) for i, shape in enumerate(shapes) if shape}
    usual = max([shape[0] for shape in shapes if shape and shape[0] > 1] or [2])
    grown = tuple((usual, *shape[1:]) if shape and shape[0] == 1 else shape for shape in shapes)
    made: list[Wish] = []
    choices: tuple[tuple[Any, set[tuple[int, int]]], ...] = (
        (grown, varied | batches),
        (shapes, varied | {(i, 0) for i, _ in batches if shapes[i][0] > 1}),
        (shapes, varied),
        (shapes, set()),
    )
    for sizes, dims in choices:
        wide = _at_least_two(sizes, dims & varied)
        for numbers in dict.fromkeys((ints, frozenset[int]())):
            wish = Wish(wide, frozenset((i, a) for i, a in dims if wide[i][a] >= 2), numbers)
            if wish not in made and fault(stage, case, wish.shapes) is None:
                made.append(wish)
                yield wish
    if not made:
        yield Wish(shapes, frozenset(), frozenset())


def _varied(case: Case) -> set[tuple[int, int]]:
    return {(i, a) for i, t in enumerate(case.tensors) for a, n in enumerate(t.shape) if n is None}


def _volume(shape: Sequence[int]) -> int:
    volume = 1
    for n in shape:
        volume *= n
    return volume


def _at_least_two(shapes: Sequence[tuple[int, ...]], dims: set[tuple[int, int]]) -> tuple[tuple[int, ...], ...]:
    return tuple(
        tuple(max(n, 2) if (i, a) in dims else n for a, n in enumerate(shape)) for i, shape in enumerate(shapes)
    )


def fault(stage: Stage, case: Case, shapes: Sequence[tuple[int, ...]]) -> Exception | None:
    """Why the method fails for some sizes; None if it does not."""
    found: Exception | None = None
    for tensors in attempts(stage, case, shapes):
        values = values_of(case, tensors, numbers_of(case), stage.target)
        try:
            stage.eager(values)
        except Exception as error:
            if isinstance(error, RuntimeError) and stage.frontend.lacks_kernel(error):
                return None
            found = found or error
        else:
            return None
    return found


def _solved(stage: Stage, case: Case) -> tuple[tuple[int, ...], ...]:
    """Sizes for which the method runs, for a spec that leaves some open. Raises SpecError."""
    if case.hint is not None and fault(stage, case, case.hint) is None:
        return case.hint
    places = sorted(_varied(case))
    weights = {n for slot in _layers_slots(stage) for n in slot if n > 1}
    others = sorted(weights, reverse=True)[:12]
    refusal: Exception | None = None
    for trials, combination in enumerate(_combinations(case, places, others)):
        sizes = dict(zip(places, combination, strict=True))
        shapes = tuple(
            tuple(sizes[i, a] if n is None else n for a, n in enumerate(t.shape)) for i, t in enumerate(case.tensors)
        )
        error = fault(stage, case, shapes)
        if error is None:
            return shapes
        refusal = refusal or error
        if trials >= _TRIALS or not places:
            break
    reason = f"{stage.target.label} fails for it: {_said(refusal)}"
    if places:
        reason = f"no sizes were found for its open dimensions for which {stage.target.label} runs: {_said(refusal)}"
        reason += ". Pass an example tensor, or call the decorated method once and save it without input_spec"
    raise SpecError("input_spec", reason) from refusal


def _said(refusal: Exception | None) -> str:
    """What went wrong, on one line: frameworks add hints and places in their sources on others."""
    lines = [line.strip() for line in str(refusal).splitlines() if line.strip()]
    return f"{type(refusal).__name__}: {lines[0] if lines else 'without a reason'}".rstrip(".")


def _layers_slots(stage: Stage) -> list[tuple[int, ...]]:
    roots = dict(_roots.find(stage.function, stage.frontend))
    if stage.owner is not None:
        roots["self"] = stage.owner
    found: list[tuple[int, ...]] = [tuple(slot.tensor.shape) for slot in _census.take(roots, stage.frontend).slots]
    return found


def _combinations(case: Case, places: Sequence[tuple[int, int]], weights: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """The first axis is the batch, of one size for all; others are tried from likely to unlikely, most alike first."""
    batch = next((t.shape[0] for t in case.tensors if t.shape and t.shape[0] not in (None, 1)), None) or 4
    usual = [64 if len(case.tensors[i].shape) >= 4 else 16 for i, _ in places]
    likely = list(dict.fromkeys([*weights, 224, 32, 8, 2]))
    inner = [n for n, (_, axis) in enumerate(places) if axis]
    base = [usual[n] if axis else batch for n, (_, axis) in enumerate(places)]
    yield tuple(base)
    for size in likely:
        yield tuple(size if n in inner else own for n, own in enumerate(base))
    for count in (1, 2):
        for chosen in itertools.combinations(range(len(places)), count):
            for sizes in itertools.product(likely, repeat=count):
                yield tuple(
                    sizes[chosen.index(n)] if n in chosen else own for n, own in enumerate(base)
                )
