"""Rows of the benchmark of a GPU: what they are held to, and what is said of them."""

from __future__ import annotations

import math
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
    _measure,
    gpu,
)
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


def told(module: str, *arguments: str, limit: float) -> tuple[dict[str, Any], str]:
    """Stands for `_gpu_child.told`."""
    form = arguments[-1] if module.endswith("process") else "speed"
    return {"served_by": ["native"], "fallbacks": [], **TOLD[form]}, ""


def test_a_row_is_what_its_processes_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_gpu_child, "told", told)
    monkeypatch.setattr(gpu, "least", lambda *_: _floors.Work(1, 2))
    found = gpu.measure("ViT-B", "float16", 8, 3, "NVIDIA H200")
    assert found["ms"] == row()["ms"] and found["peak"] == {"eager": 100, "native": 90} and not found["failed"]
    assert (found["cold_s"], found["build_s"], found["warm_s"]) == (0.4, 3.0, 0.4)
    assert found["work"] == {"nbytes": 1, "operations": 2} and set(found["floors"]) == {"bytes", "arithmetic", "floor"}


@pytest.mark.parametrize("form, lost", [
    ("speed", {"speed"}), ("eager", {"memory of eager"}), ("native", {"first call, cold store"})
])  # fmt: skip
def test_a_process_that_fails_costs_what_it_would_have_told(
    form: str, lost: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(module: str, *arguments: str, limit: float) -> tuple[dict[str, Any], str]:
        asked = arguments[-1] if module.endswith("process") else "speed"
        return ({}, "it took longer than 9 s") if asked == form else told(module, *arguments, limit=limit)

    def least(*_: Any) -> Any:
        raise RuntimeError("values are needed")

    monkeypatch.setattr(_gpu_child, "told", failing)
    monkeypatch.setattr(gpu, "least", least)
    found = gpu.measure("ViT-B", "float16", 8, 3, "NVIDIA H200")
    assert found["failed"].keys() == lost | {"floors"} and found["floors"] is None
    assert bool(found["ms"]) == (form != "speed") and ("eager" in found["peak"]) == (form != "eager")
    assert (found["warm_s"] is None) == (form == "native") and _gpu_tables.show([found])


MACHINE = {"name": "x", "device": "x", "driver": ["x"], "cuda": "x", "cudnn": 1, "versions": {},
           "libraries": {}, "date": "2026-01-01"}  # fmt: skip


def test_each_row_is_saved_and_told_at_once_and_one_that_fails_costs_no_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    saved: list[tuple[str, list[str], str]] = []

    def measure(name: str, dtype: str, batch: int, *_: Any) -> dict[str, Any]:
        if (dtype, batch) == ("float16", 8):
            raise RuntimeError("CUDA out of memory")
        return row(name, batch, dtype=dtype)

    def save(name: str, result: dict[str, Any]) -> None:
        saved.append((name, [each["dtype"] for each in result["results"]], capsys.readouterr().out))

    pages: list[str] = []
    monkeypatch.setattr(gpu, "machine", lambda: MACHINE)
    monkeypatch.setattr(gpu, "measure", measure)
    monkeypatch.setattr(_measure, "save", save)
    monkeypatch.setattr(_gpu_page, "write", lambda machine, date, tables, rest: pages.append(tables))
    text = gpu.main(3, ["ViT-B"])
    assert [len(each[1]) for each in saved] == [1, 2, 3, 4] and len(pages) == 4
    assert "ViT-B, float16, batch 1" in saved[1][2] and "ViT-B, bfloat16, batch 1" in saved[3][2]
    assert "ViT-B, float16, batch 8: all of it failed: RuntimeError: CUDA out of memory" in text
    assert "ViT-B, bfloat16, batch 8" in text


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
