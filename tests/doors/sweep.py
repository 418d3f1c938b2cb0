"""The search for doors: at run time, and in a second process over the same store."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from doors.changes import changes
from doors.kinds import KINDS
from doors.places import PLACES
from doors.program import Case, Program
from hybrid_infer import inference
from hybrid_infer.capture import _tracing


class Finding(NamedTuple):
    """What happened to one case. ``status``: "door" (a stale answer), or what was wrong with the case itself.

    That is "eager" (not captured), "vain" (the change changes nothing), "for good" (it could not be undone),
    "failing" (the eager method fails), "kept off" (nothing of it is on disk).
    """

    status: str
    place: str
    kind: str
    change: str = ""
    detail: str = ""


class _Recaptured(BaseException):
    """A call would make another version: whatever that gives, it is not stale."""


def _refuse(*_: Any) -> Any:
    raise _Recaptured


def _hot(program: Program) -> Any:
    return inference(max_versions=10_000)(program.layer.forward)


def _warm(program: Program, monkeypatch: Any) -> tuple[Any, str]:
    """A decorated method that was called two times, and why it was answered eagerly, if it was."""
    hot, expected = _hot(program), program.call(program.layer.forward)
    for _ in range(2):
        for mine, eager in zip(program.call(hot), expected, strict=True):
            np.testing.assert_allclose(mine, eager, atol=1e-5)
    method = hot.__hybrid_infer__
    monkeypatch.setattr(_tracing, "capture", _refuse)
    return hot, "" if method.counters.hits else "; ".join(method.counters.fallbacks)


def sweep(program: Program, monkeypatch: Any) -> Iterator[Finding]:
    """Every change of a program at run time and the way back, each followed by a call."""
    with monkeypatch.context() as patch:
        hot, reason = _warm(program, patch)
        if reason:
            yield Finding("eager", "", "", detail=reason)
            return
        yield from _changed(program, lambda: hot)


def _changed(program: Program, hot: Any, *, back: bool = True) -> Iterator[Finding]:
    first = program.call(program.layer.forward)
    index = {case.name: i for i, case in enumerate(program.cases)}
    for change in changes(program):
        i = index[change.case.name]
        where = (change.case.place.name, change.case.kind.name, change.name)
        for undone in (False, True):
            (change.undo if undone else change.do)()
            try:
                expected = program.call(program.layer.forward)
            except Exception as fault:
                yield Finding("failing", *where, repr(fault))
                continue
            same = np.allclose(expected[i], first[i])
            if same and not undone and change.alters:
                yield Finding("vain", *where)
            elif not same and undone:
                yield Finding("for good", *where)
            if undone and not back:
                continue
            try:
                found = program.call(hot())
            except _Recaptured:
                continue
            for case, mine, eager in zip(program.cases, found, expected, strict=True):
                if not np.allclose(mine, eager, atol=1e-5):
                    shown = f"{change.name}, {'undone' if undone else 'done'}"
                    wrong = f"{mine.flat[0]}, not {eager.flat[0]}"
                    yield Finding("door", case.place.name, case.kind.name, shown, wrong)


def across(program: Program, store: Path, monkeypatch: Any) -> list[Finding]:
    """Every change of a program in a second process over the same store, each followed by the first call there."""
    with monkeypatch.context() as patch:
        _, reason = _warm(program, patch)
    if reason:
        return [Finding("eager", "", "", detail=reason)]
    if not list((store / "v1" / "methods").glob("??/*/*/manifest.json")):
        return [Finding("kept off", "", "")]
    names = [[case.place.name, case.kind.name] for case in program.cases]
    root = Path(__file__).resolve().parents[2]
    path = os.pathsep.join([str(root / "tests"), str(root), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-m", "doors.sweep", str(program.folder), program.name, program.framework, json.dumps(names)],
        env={**os.environ, "PYTHONPATH": path, "HYBRID_INFER_CACHE_DIR": str(store)},
        cwd=program.folder, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return [Finding(*found) for found in json.loads(done.stdout.splitlines()[-1])]


def _second_process(folder: str, name: str, framework: str, names: Sequence[Sequence[str]]) -> list[Finding]:
    __import__(framework)
    cases = [Case(PLACES[place], KINDS[kind]) for place, kind in names]
    program = Program(Path(folder), name, framework, cases)
    _tracing.capture = _refuse  # type: ignore[assignment]
    try:
        program.call(_hot(program))  # from the store
    except _Recaptured:
        return [Finding("kept off", "", "", detail="unchanged, it is not found on disk")]
    return list(_changed(program, lambda: _hot(program), back=False))


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_second_process(*sys.argv[1:4], json.loads(sys.argv[4]))) + "\n")
