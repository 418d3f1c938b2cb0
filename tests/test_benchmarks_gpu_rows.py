"""Rows of the benchmark of a GPU: what they are held to, and what is said of them."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest

from benchmarks import (
    _floors,
    _gpu_child,
    _gpu_goals,
    _gpu_machine,
    _gpu_measure,
    _gpu_page,
    _gpu_row,
    _gpu_tables,
    _gpu_turns,
    _measure,
    gpu,
    tensorrt,
)
from benchmarks._gpu_budget import Budget
from benchmarks._gpu_models import MODELS, Model

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def row(name: str = "ViT-B", batch: int = 8, **other: Any) -> dict[str, Any]:
    return {
        "model": name, "dtype": "float16", "batch": batch, "first_s": {},
        "ms": {"eager": [4.0, 6.0, 5.0], "torch.compile": [2.0] * 3, "max-autotune": [1.2] * 3, "native": [1.0] * 3},
        "error": {"eager": 1e-3, "native": 1.5e-3}, "work": {"nbytes": 2_000_000, "operations": 3_000_000_000},
        "floors": {"bytes": 0.1, "arithmetic": 0.9, "floor": 0.9}, "cold_s": 9.0, "build_s": 3.0, "warm_s": 0.4,
        "peak": {"eager": 100 << 20, "native": 90 << 20}, "fallbacks": [], "failed": {}, **other,
    }  # fmt: skip


def test_results_that_are_no_numbers_are_the_largest_error_and_miss_the_goal() -> None:
    """In any draw: in the first, and in one that is followed by others."""
    draws = [[torch.tensor([each])] for each in (1.0, 2.0, 3.0)]
    for bad in (1.0, 2.0):
        call = {"native": lambda x, bad=bad: torch.where(x == bad, float("nan"), x + 1)}
        assert math.isnan(_gpu_measure.errors(call, lambda x: x, draws, lambda x: x, {})["native"])
    for eager, native, met in (
        (1e-3, float("nan"), False), (float("nan"), 1e-3, False), (0.0, 1e-3, False), (0.0, float("nan"), False),
        (0.0, 0.0, True), (1e-3, float("inf"), False),
    ):  # fmt: skip
        found = {each.what: each for each in _gpu_goals.goals(row(error={"eager": eager, "native": native}))}
        assert found["error to eager's"].met == met, (eager, native)


def test_goals_are_those_of_the_row() -> None:
    found = {each.what: each for each in _gpu_goals.goals(row())}
    assert all(each.met for each in found.values())
    assert found["over the floor"].figure == pytest.approx(1 / 0.9) and "over eager" not in found
    single = {each.what: each for each in _gpu_goals.goals(row("ResNet-50", 1))}
    assert single["over eager"].figure == 5 and "over the floor" not in single
    slow = row("ViT-B", 1, ms={"eager": [2.0], "torch.compile": [1.0], "max-autotune": [0.9], "native": [1.0]})
    assert [each.what for each in _gpu_goals.goals(slow) if not each.met] == [
        "over eager", "over the faster torch.compile"
    ]  # fmt: skip
    others = row(build_s=6.0, warm_s=0.6, peak={"eager": 10, "native": 11}, error={"eager": 1e-3, "native": 3e-3})
    assert [each.what for each in _gpu_goals.goals(others) if not each.met] == [
        "memory to eager's", "error to eager's", "build, cold store, s", "first call, warm store, s"
    ]  # fmt: skip
    assert not any(each.met for each in _gpu_goals.goals(row(fallbacks=["it was refused"])))


def test_native_is_held_to_the_faster_mode_of_torch_compile() -> None:
    for default, best, met in ((0.9, 1.2, False), (1.2, 0.9, False), (1.1, 1.2, True)):
        ms = {"eager": [9.0], "torch.compile": [default], "max-autotune": [best], "native": [1.0]}
        (goal,) = (each for each in _gpu_goals.goals(row(ms=ms)) if "torch.compile" in each.what)
        assert goal.met == met and goal.figure == min(default, best)
    del ms["max-autotune"]
    assert "over the faster torch.compile was not measured" in _gpu_goals.unmet([row(ms=ms)])


def test_what_was_not_measured_meets_no_goal_and_is_a_dash() -> None:
    none = _gpu_row.blank("ViT-B", "float16", 8)
    assert none.keys() == row().keys()
    none["failed"]["speed"] = "took longer than 9 s"
    assert not any(each.met for each in _gpu_goals.goals(none))
    text = _gpu_tables.show([none])
    assert "ViT-B, float16, batch 8: speed failed: took longer than 9 s" in text and "nan" not in text
    assert "build, cold store, s was not measured, where at most 5 is the goal" in text
    assert not any(each.met for each in _gpu_goals.goals(row(build_s=None)) if "build" in each.what)


def test_tables_name_every_figure_and_the_goals_that_are_missed() -> None:
    text = _gpu_tables.show([row(), row(batch=1, fallbacks=["CUDA out of memory"], floors=None)])
    for words in ("5.000", "5.00", "1.20", "2.0", "3.0", "0.900", "1.11", "100", "90", "1.50e-03", "9.00", "0.40",
                  "ViT-B, float16, batch 1: answered eagerly: CUDA out of memory"):  # fmt: skip
        assert words in text, words
    assert "  none" in _gpu_tables.show([row()])
    assert "over the faster torch.compile 0.50, where at least 1 is the goal" in _gpu_tables.show([row(ms={
        "eager": [4.0], "torch.compile": [2.0], "max-autotune": [0.5], "native": [1.0]})])  # fmt: skip


def test_what_was_not_run_is_listed() -> None:
    every = [_gpu_row.blank(*each) for each in gpu.rows(tuple(MODELS))]
    assert len(every) == 24 and not gpu.not_run(every)
    assert gpu.not_run(every[1:]) == ["DiT blocks 28x1152, 256 tokens, float16, batch 1"]


def test_the_most_important_rows_come_first() -> None:
    found = gpu.rows(("ViT-B", "ResNet-50"))
    assert found[:3] == [("ViT-B", "float16", 1), ("ResNet-50", "float16", 1), ("ViT-B", "float16", 8)]
    assert {dtype for _, dtype, _ in found[4:]} == {"bfloat16"} and len(set(found)) == 8


def test_the_least_work_is_told_without_weights() -> None:
    model = Model(lambda: torch.nn.Linear(8, 4), lambda batch: [torch.randn(batch, 8)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(MODELS, "Small", model)
        patch.setattr(torch.nn.init, "kaiming_uniform_", lambda tensor, **_: pytest.fail(str(tensor.device))
                      if tensor.device.type != "meta" else tensor)  # fmt: skip
        assert gpu.least("Small", "float16", 3) == (2 * (8 * 4 + 4 + 3 * 8 + 3 * 4), 2 * 3 * 8 * 4)


#: What the processes of a row tell, by the form that is asked for.
TOLD = {
    "speed": {"first_s": {}, "ms": row()["ms"], "error": row()["error"], "failed": {}},
    "eager": {"first_s": 0.1, "peak": 100}, "native": {"first_s": 0.4, "peak": 90, "seconds": {"build": 3.0}},
}  # fmt: skip


def told(module: str, *arguments: str, limit: float, **_: str) -> tuple[dict[str, Any], str]:
    """Stands for `_gpu_child.told`."""
    form = arguments[-1] if module.endswith("process") else "speed"
    return {"served_by": ["native"], "fallbacks": [], **TOLD[form]}, ""


def test_a_row_is_what_its_processes_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_gpu_child, "told", told)
    monkeypatch.setattr(gpu, "least", lambda *_: _floors.Work(1, 2))
    found = gpu.measure("ViT-B", "float16", 8, 3, "NVIDIA H200", Budget(None, 9.0))
    assert found["ms"] == row()["ms"] and found["peak"] == {"eager": 100, "native": 90} and not found["failed"]
    assert (found["cold_s"], found["build_s"], found["warm_s"]) == (0.4, 3.0, 0.4)
    assert found["work"] == {"nbytes": 1, "operations": 2} and set(found["floors"]) == {"bytes", "arithmetic", "floor"}


@pytest.mark.parametrize("form, lost", [
    ("speed", {"speed"}), ("eager", {"memory of eager"}), ("native", {"first call, cold store"})
])  # fmt: skip
def test_a_process_that_fails_costs_what_it_would_have_told(
    form: str, lost: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(module: str, *arguments: str, limit: float, **_: str) -> tuple[dict[str, Any], str]:
        asked = arguments[-1] if module.endswith("process") else "speed"
        return ({}, "it took longer than 9 s") if asked == form else told(module, *arguments, limit=limit)

    def least(*_: Any) -> Any:
        raise RuntimeError("values are needed")

    monkeypatch.setattr(_gpu_child, "told", failing)
    monkeypatch.setattr(gpu, "least", least)
    found = gpu.measure("ViT-B", "float16", 8, 3, "NVIDIA H200", Budget(None, 9.0))
    assert found["failed"].keys() == lost | {"floors"} and found["floors"] is None
    assert bool(found["ms"]) == (form != "speed") and ("eager" in found["peak"]) == (form != "eager")
    assert (found["warm_s"] is None) == (form == "native") and _gpu_tables.show([found])


MACHINE = {"name": "x", "device": "x", "driver": ["x"], "cuda": "x", "cudnn": 1, "versions": {},
           "libraries": {}, "sources": "commit abc", "date": "2026-01-01"}  # fmt: skip


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A page without figures, a machine, and rows that are measured at once."""
    path = tmp_path / "docs" / "gpu.md"
    path.parent.mkdir()
    path.write_text(f"# On a GPU\n\n{_gpu_page.BEGIN}\nBefore.\n{_gpu_page.END}\n")
    monkeypatch.setattr(_gpu_page, "PAGE", path)
    monkeypatch.setattr(_measure, "RESULTS", tmp_path / "out")
    monkeypatch.setattr(gpu, "machine", lambda: MACHINE)
    monkeypatch.setattr(gpu, "measure", lambda name, dtype, batch, *_: row(name, batch, dtype=dtype))
    return path


def named(path: Path) -> list[str]:
    """The rows of the page's data."""
    return [_gpu_goals.label(each) for each in json.loads(path.with_suffix(".json").read_text())["results"]]


def test_each_row_is_saved_and_told_at_once_and_one_that_fails_costs_no_other(
    page: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told: list[tuple[int, str]] = []

    def measure(name: str, dtype: str, batch: int, *_: Any) -> dict[str, Any]:
        if "Before." not in page.read_text():
            told.append((len(named(page)), capsys.readouterr().out))
        if (dtype, batch) == ("float16", 8):
            raise RuntimeError("CUDA out of memory")
        return row(name, batch, dtype=dtype)

    monkeypatch.setattr(gpu, "measure", measure)
    text = gpu.main(3, ["ViT-B"], out=page.parent / "other")
    assert [count for count, _ in told] == [1, 2, 3] and "ViT-B, float16, batch 1" in told[0][1]
    for words in ("ViT-B, float16, batch 8: all of it failed: RuntimeError: CUDA out of memory", "bfloat16, batch 8"):
        assert words in text and words in page.read_text()
    assert page.read_text() == (page.parent / "other" / "gpu.md").read_text()
    assert len(json.loads((page.parent / "other" / "gpu.json").read_text())["results"]) == 4
    assert len(json.loads((_measure.RESULTS / "gpu.json").read_text())["results"]) == 4
    assert not list(page.parent.glob(".*"))


def test_a_run_of_some_rows_keeps_the_others_of_the_page(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless another machine, or other releases, would stand in one table with it."""
    gpu.main(3, ["ViT-B"])
    monkeypatch.setattr(gpu, "machine", lambda: {**MACHINE, "date": "2026-01-02"})
    gpu.main(3, ["ResNet-50"])
    assert len(named(page)) == 8 and named(page)[:2] == ["ViT-B, float16, batch 1", "ResNet-50, float16, batch 1"]
    tables, _, left_out = page.read_text().partition("**Not run:**")
    assert "ViT-B, float16, batch 8  " in tables and "ViT-B" not in left_out and "UNet" in left_out
    assert "2026-01-01, commit abc: ViT-B, float16, batch 1" in tables and "2026-01-02, commit abc: ResNet-50" in tables
    gpu.main(3, ["ViT-B"])
    assert len(named(page)) == 8 and "2026-01-01" not in page.read_text()
    for part in ("device", "driver", "versions", "libraries"):
        monkeypatch.setattr(gpu, "machine", lambda part=part: {**MACHINE, part: {"cuDNN": "is new"}})
        gpu.main(3, ["UNet block 640x32x32"])
        assert len(named(page)) == 4


def test_the_rest_is_what_the_page_does_not_have_whole(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[tuple[str, str, int]] = []

    def measure(name: str, dtype: str, batch: int, *_: Any) -> dict[str, Any]:
        done.append((name, dtype, batch))
        return row(name, batch, dtype=dtype, failed={} if batch == 1 else {"speed": "it took longer than 9 s"})

    monkeypatch.setattr(gpu, "measure", measure)
    gpu.main(3, ["ViT-B"])
    done.clear()
    gpu.main(3, ["ViT-B", "ResNet-50"], rest=True)
    assert [each for each in done if each[0] == "ViT-B"] == [("ViT-B", "float16", 8), ("ViT-B", "bfloat16", 8)]
    assert len(done) == 6 and len(named(page)) == 8


def test_what_does_not_fit_the_budget_is_told_as_not_run(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of a slow model that would not fit leaves the time to the quick ones."""
    now, took = 100.0, {"ViT-B": 40.0, "ResNet-50": 10.0}

    def measure(name: str, dtype: str, batch: int, *_: Any) -> dict[str, Any]:
        nonlocal now
        now += took[name]
        return row(name, batch, dtype=dtype)

    monkeypatch.setattr(gpu, "measure", measure)
    monkeypatch.setattr(gpu.time, "monotonic", lambda: now)
    text = gpu.main(3, ["ViT-B", "ResNet-50"], Budget(75.0, 600.0, lambda: now))
    assert len(named(page)) == 4 and "ViT-B, float16, batch 8" not in named(page)
    done, _, late = text.partition("Not run, since the time was up\n\n")
    assert "ViT-B, float16, batch 1" in done and late.count("ViT-B") == 3 and late.count("ResNet-50") == 1
    assert "ViT-B, float16, batch 8;" in page.read_text().partition("**Not run:**")[2]
    assert gpu.main(3, ["ViT-B"], Budget(0.0, 600.0, lambda: now)).startswith("Not run, since the time was up")


def test_a_process_ends_with_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    now, limits = 0.0, list[float]()

    def asked(module: str, *arguments: str, limit: float, **_: str) -> tuple[dict[str, Any], str]:
        nonlocal now
        limits.append(limit)
        now += 50.0
        return told(module, *arguments, limit=limit)

    monkeypatch.setattr(_gpu_child, "told", asked)
    monkeypatch.setattr(gpu, "least", lambda *_: _floors.Work(1, 2))
    found = gpu.measure("ViT-B", "float16", 8, 3, "NVIDIA H200", Budget(120.0, 60.0, lambda: now))
    assert limits == [60.0, 60.0, 20.0]
    assert found["failed"] == {"first call, warm store": "the time was up"} and found["warm_s"] is None


def test_peers_and_processes_can_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[str, ...]] = []

    def asked(module: str, *arguments: str, limit: float, **_: str) -> tuple[dict[str, Any], str]:
        given.append((module, *arguments))
        return told(module, *arguments, limit=limit)

    monkeypatch.setattr(_gpu_child, "told", asked)
    monkeypatch.setattr(gpu, "least", lambda *_: _floors.Work(1, 2))
    found = gpu.measure("ViT-B", "float16", 8, 3, "x", Budget(None, 9.0), ["max-autotune", gpu.PROCESSES])
    assert len(given) == 1 and given[0][0] == "benchmarks._gpu_speed" and given[0][-2:] == ("--without", "max-autotune")
    assert found["cold_s"] is None and not found["failed"]


def test_the_page_holds_the_figures_and_says_what_was_not_run() -> None:
    page = f"# On a GPU\n\n{_gpu_page.BEGIN}\nBefore.\n{_gpu_page.END}\n\n## More\n"
    told = {"device": "NVIDIA H100, sm_90, 132 multiprocessors", "driver": ["NVIDIA H100, 580.1"], "cuda": "13.0",
            "date": "2026-01-01", "versions": {"torch": "2.13"}, "cudnn": 91900, "libraries": {}}  # fmt: skip
    words, tables = _gpu_machine.described(told), _gpu_tables.show([row()])
    once = _gpu_page.filled(page, words, "2026-01-01", tables, ["ResNet-50, float16, batch 1"])
    for part in ("2026-01-01", "sm_90", "580.1", "torch 2.13", "**Not run:** ResNet-50, float16, batch 1."):
        assert part in once, part
    assert once.startswith("# On a GPU") and once.endswith("## More\n") and "Before." not in once
    assert _gpu_page.filled(_gpu_page.PAGE.read_text(encoding="utf-8"), "", "", "", [])
    assert _gpu_page.filled(once, words, "2026-01-01", tables, []).count("Measured by") == 1
    with pytest.raises(ValueError, match="no place for figures"):
        _gpu_page.filled("# On a GPU", "", "", "", [])


def test_the_table_of_tensorrt_has_every_row_too(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever fails in one of them; each is saved at once."""
    saved: list[int] = []

    def measure(name: str, dtype: str, batch: int, rounds: int) -> dict[str, Any]:
        if batch == 8:
            raise RuntimeError("CUDA out of memory")
        ms = {"eager": [4.0], "native": [1.0], "tensorrt": [2.0]}
        return {**row(name, batch, dtype=dtype, ms=ms, failed={"max-autotune": "it raised"}), "served_by": ["tensorrt"]}

    monkeypatch.setattr(_gpu_machine, "machine", lambda: MACHINE)
    monkeypatch.setattr(tensorrt, "measure", measure)
    monkeypatch.setattr(_measure, "save", lambda name, result: saved.append(len(result["results"])))
    text = tensorrt.main(3, ["ViT-B"])
    assert saved == [1, 2, 3, 4] and text.count("all of it failed: RuntimeError: CUDA out of memory") == 2
    assert "ViT-B, float16, batch 1: max-autotune failed: it raised" in text
    (line,) = (each for each in text.splitlines() if each.startswith("  ViT-B, float16, batch 1  "))
    assert line.split()[4:] == ["2.000", "2.00", "-", "0.50", "-", "-", "-", "tensorrt"]


def test_rows_beside_each_other_are_measured_in_two_parts_and_a_fault_costs_one_of_them(
    page: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, str]] = []

    def noted(module: str, *arguments: str, limit: float, **more: str) -> tuple[dict[str, Any], str]:
        assert Path(os.environ[_gpu_turns.VARIABLE]).is_dir() and Path(more["HYBRID_INFER_CACHE_DIR"]).is_dir()
        asked.append((module, more["HYBRID_INFER_CACHE_DIR"]))
        if module.endswith("speed") and "float16" in arguments and "8" in arguments:
            raise OSError("no process could be started")
        return told(module, *arguments, limit=limit)

    monkeypatch.setattr(_gpu_child, "told", noted)
    monkeypatch.setattr(gpu, "least", lambda *_: _floors.Work(1, 2))
    text = gpu.main(3, ["ViT-B"], Budget(None, 9.0, patience=5.0), jobs=3)
    assert _gpu_turns.VARIABLE not in os.environ and len(named(page)) == 4
    modules = [module.rpartition("_")[2] for module, _ in asked]
    assert modules == ["speed"] * 3 + ["process"] * 9 + ["speed"] + ["process"] * 3
    assert len({store for _, store in asked}) == 8  # none of a speed is that of a first call
    assert "ViT-B, float16, batch 8: all of it failed: OSError: no process could be started" in text
