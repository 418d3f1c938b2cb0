"""Other ways to speed the same method up, each as its users would use it: alone, and in turn with eager work.

A program that spends half its time in the method can gain 2 / (1 + 1/s) if the method alone is s times as fast as
eager; where both sides fight over the cores it gains less, or loses. "decorated" leaves the choice of the engine, the
eager method among them, to the router.
"""

from __future__ import annotations

import contextlib
import io
import logging
import math
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import hybrid_infer
from benchmarks import _bare, _each_model, _measure, _picture, _subject, models

ALONE, IN_TURN = "alone", "in turn with eager work"
DECORATED = "decorated"
Peer = Callable[[models.Case, models.Workload, Path], _measure.Run]


def _onnxruntime(case: models.Case, workload: models.Workload, folder: Path) -> _measure.Run:
    import onnxruntime

    path = _bare.export(case, workload, folder)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    feed = _bare.feed(session, workload.tensors())
    return lambda: session.run(None, feed)


def _openvino(case: models.Case, workload: models.Workload, folder: Path) -> _measure.Run:
    import openvino

    compiled = openvino.Core().compile_model(_bare.export(case, workload, folder), "CPU")
    arrays = [tensor.numpy() for tensor in workload.tensors()]
    return lambda: compiled(arrays)


def _compile(case: models.Case, workload: models.Workload, folder: Path) -> _measure.Run:
    import torch

    compiled = torch.compile(workload.layer)
    return lambda: compiled(*workload.args, **workload.kwargs)


def _inductor(case: models.Case, workload: models.Workload, folder: Path) -> _measure.Run:
    import torch

    program = torch.export.export(workload.layer, workload.args, dict(workload.kwargs))
    package = torch._inductor.aoti_compile_and_package(program, package_path=str(folder / "model.pt2"))
    loaded = torch._inductor.aoti_load_package(package)
    return lambda: loaded(*workload.args, **workload.kwargs)


def _paddle(case: models.Case, workload: models.Workload, folder: Path) -> _measure.Run:
    paddle = models.import_paddle()
    with contextlib.redirect_stdout(io.StringIO()):
        layer = paddle.incubate.jit.inference(workload.layer, save_model_dir=str(folder))
        layer(*workload.args)
    return lambda: layer(*workload.args)


PEERS: dict[str, dict[str, Peer]] = {
    "torch": {
        "torch.compile": _compile, "AOTInductor": _inductor, "ONNX Runtime": _onnxruntime, "OpenVINO": _openvino,
    },
    "paddle": {"Paddle's decorator": _paddle, "ONNX Runtime": _onnxruntime, "OpenVINO": _openvino},
}  # fmt: skip


@contextlib.contextmanager
def _runs(case: models.Case) -> Iterator[tuple[dict[str, _measure.Run], _measure.Run, dict[str, str]]]:
    """Runs by name, eager work of the method's cost, and why a peer is missing."""
    missing: dict[str, str] = {}
    with _measure.store(), contextlib.ExitStack() as stack, _subject.no_grad(case.framework):
        plain, work = case.build(), case.build()
        hot = case.build()
        hybrid_infer.inference(hot.layer, backend="auto")
        runs: dict[str, _measure.Run] = {"eager": plain.call, DECORATED: hot.call}
        for _ in range(3):
            hot.call()
        for name, make in PEERS[case.framework].items():
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    run = make(case, case.build(), folder)
                    run()
            except Exception as fault:
                first = str(fault).strip().partition("\n")[0]
                missing[name] = f"{type(fault).__name__}: {first[:120]}"
                continue
            runs[name] = run
        yield runs, work.call, missing


def measure(case: models.Case, rounds: int) -> dict[str, Any]:
    logging.disable(logging.WARNING)
    with _runs(case) as (runs, work, missing):

        def program(method: _measure.Run) -> _measure.Run:
            def run() -> None:
                method()
                work()

            return run

        alone = _measure.in_turn(runs, rounds)
        whole = _measure.in_turn({name: program(run) for name, run in runs.items()}, rounds, block_s=0.2)
        return {
            "model": case.name,
            "framework": case.framework,
            "gain": {
                ALONE: {name: _measure.ratio(alone["eager"], alone[name]) for name in runs if name != "eager"},
                IN_TURN: {name: _measure.ratio(whole["eager"], whole[name]) for name in runs if name != "eager"},
            },
            "seconds": {ALONE: alone, IN_TURN: whole},
            "missing": missing,
            "served": "the eager method" if _subject.fallbacks() else "an engine",
        }


def names(results: Sequence[dict[str, Any]]) -> list[str]:
    """Everything that was measured beside eager, the decorator first."""
    found = dict.fromkeys(name for result in results for name in result["gain"][ALONE])
    return [DECORATED, *(name for name in found if name != DECORATED)]


def show(results: Sequence[dict[str, Any]]) -> str:
    columns = names(results)
    tables = []
    titles = {ALONE: "The method alone", IN_TURN: "The whole program, in turn with as much eager work"}
    for setting, title in titles.items():
        rows = []
        for result in results:
            gains = result["gain"][setting]
            cells = [f"{gains[name]['ratio']:.2f}" if name in gains else "-" for name in columns]
            rows.append((result["model"], *cells, result["served"]))
        for framework in ("torch", "paddle"):
            found = [r["gain"][setting] for r in results if r["framework"] == framework]
            if found:
                rows.append((f"geometric mean, {framework}", *(_mean(found, name) for name in columns), ""))
        tables.append(_measure.table(f"{title}: times as fast as eager", ("model", *columns, "decorated by"), rows))
    absent = {f"{name} on {r['model']}: {why}" for r in results for name, why in r["missing"].items()}
    return "\n".join([*tables, *sorted(absent)])


def _mean(found: Sequence[dict[str, Any]], name: str) -> str:
    ratios = [gains[name]["ratio"] for gains in found if name in gains]
    return f"{math.exp(sum(map(math.log, ratios)) / len(ratios)):.2f}" if len(ratios) == len(found) else "-"


def main(rounds: int) -> str:
    results = _each_model.measure_all("peers", rounds)
    for setting, file in ((ALONE, "alone"), (IN_TURN, "in_turn")):
        _picture.bars(results, setting, names(results), file)
    return show(results)


if __name__ == "__main__":
    _each_model.command_line(__doc__ or "", measure, main)
