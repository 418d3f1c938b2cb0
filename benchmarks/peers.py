"""Other ways to speed the same method up, each as its users would use it: alone, in turn with eager work, in a program.

A program that spends the share p of its time in the method can gain 1 / (1 - p + p/s) if the method alone is s times as
fast as eager: 2 / (1 + 1/s) where it is half of it. Where both sides fight over the cores it gains less, or loses.
"decorated" leaves the choice of the engine, the eager method among them, to the router.
"""

from __future__ import annotations

import contextlib
import functools
import io
import logging
import statistics
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import hybrid_infer
from benchmarks import _bare, _each_model, _measure, _picture, _subject, models, programs

ALONE, IN_TURN, PROGRAM = "alone", "in turn with eager work", "in a program of 20 steps"
EAGER, DECORATED = "eager", "decorated"
ROUNDS = 7  # of a whole program, which takes as long as 20 calls and more
Peer = Callable[[models.Case, models.Workload, Path], programs.Method]


def _onnxruntime(case: models.Case, workload: models.Workload, folder: Path) -> programs.Method:
    import onnxruntime

    path = _bare.export(case, workload, folder)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    back = _to_tensor(case)
    return lambda *tensors: back(session.run(None, _bare.feed(session, tensors))[0])


def _openvino(case: models.Case, workload: models.Workload, folder: Path) -> programs.Method:
    import openvino

    # By default it computes in bfloat16 where the processor can, with errors of some percent.
    settings = {"INFERENCE_PRECISION_HINT": "f32"}
    compiled = openvino.Core().compile_model(_bare.export(case, workload, folder), "CPU", settings)
    back = _to_tensor(case)
    return lambda *tensors: back(compiled([tensor.numpy() for tensor in tensors])[0])


def _to_tensor(case: models.Case) -> Callable[[Any], Any]:
    if case.framework == "torch":
        import torch

        return torch.from_numpy
    return functools.partial(models.import_paddle().to_tensor, place="cpu")


def _compile(case: models.Case, workload: models.Workload, folder: Path) -> programs.Method:
    import torch

    return workload.method(torch.compile(workload.layer))


def _inductor(case: models.Case, workload: models.Workload, folder: Path) -> programs.Method:
    import torch

    program = torch.export.export(workload.layer, workload.args, dict(workload.kwargs))
    package = torch._inductor.aoti_compile_and_package(program, package_path=str(folder / "model.pt2"))
    return workload.method(torch._inductor.aoti_load_package(package))


def _paddle(case: models.Case, workload: models.Workload, folder: Path) -> programs.Method:
    paddle = models.import_paddle()
    with contextlib.redirect_stdout(io.StringIO()):
        layer = paddle.incubate.jit.inference(workload.layer, save_model_dir=str(folder))
        layer(*workload.args)
    return workload.method(layer)


PEERS: dict[str, dict[str, Peer]] = {
    "torch": {
        "torch.compile": _compile, "AOTInductor": _inductor, "ONNX Runtime": _onnxruntime, "OpenVINO": _openvino,
    },
    "paddle": {"Paddle's decorator": _paddle, "ONNX Runtime": _onnxruntime, "OpenVINO": _openvino},
}  # fmt: skip


class Forms(NamedTuple):
    """The method in each form by name, the tensors of a call, eager work of its cost, and why a peer is missing.

    `hot`: the layer whose method is decorated.
    """

    hot: Any
    methods: dict[str, programs.Method]
    tensors: list[Any]
    work: _measure.Run
    missing: dict[str, str]


@contextlib.contextmanager
def _forms(case: models.Case) -> Iterator[Forms]:
    missing: dict[str, str] = {}
    with _measure.store(), contextlib.ExitStack() as stack, _subject.no_grad(case.framework):
        plain, work, hot = case.build(), case.build(), case.build()
        hybrid_infer.inference(hot.layer, backend="auto")
        methods = {EAGER: plain.method(), DECORATED: hot.method()}
        tensors = plain.tensors()
        for _ in range(3):
            methods[DECORATED](*tensors)
        for name, make in PEERS[case.framework].items():
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    method = make(case, case.build(), folder)
                    method(*tensors)
            except Exception as fault:
                first = str(fault).strip().partition("\n")[0]
                missing[name] = f"{type(fault).__name__}: {first[:120]}"
                continue
            methods[name] = method
        yield Forms(hot.layer, methods, tensors, work.call, missing)


def _in_turn(method: programs.Method, tensors: Sequence[Any], work: _measure.Run) -> _measure.Run:
    def run() -> None:
        method(*tensors)
        work()

    return run


def measure(case: models.Case, rounds: int) -> dict[str, Any]:
    logging.disable(logging.WARNING)
    with _forms(case) as (hot, methods, tensors, work, missing):
        expected = methods[EAGER](*tensors)
        alone = {name: functools.partial(method, *tensors) for name, method in methods.items()}
        whole = {name: _in_turn(method, tensors, work) for name, method in methods.items()}
        inside = {name: case.program(method, tensors) for name, method in methods.items()}
        seconds = {
            ALONE: _measure.in_turn(alone, rounds),
            IN_TURN: _measure.in_turn(whole, rounds, block_s=0.2),
            PROGRAM: _measure.in_turn(inside, min(rounds, ROUNDS), block_s=0.2),
        }
        eager = statistics.median(seconds[PROGRAM][EAGER])
        return {
            "model": case.name,
            "framework": case.framework,
            "gain": {
                setting: {name: _measure.ratio(found[EAGER], found[name]) for name in methods if name != EAGER}
                for setting, found in seconds.items()
            },
            "share": programs.STEPS * statistics.median(seconds[ALONE][EAGER]) / eager,
            "difference": {
                name: float((method(*tensors) - expected).abs().max()) for name, method in methods.items()
            },
            "seconds": seconds,
            "missing": missing,
            "served": _subject.served(hot),
        }


def names(results: Sequence[dict[str, Any]]) -> list[str]:
    """Everything that was measured beside eager, the decorator first."""
    found = dict.fromkeys(name for result in results for name in result["gain"][ALONE])
    return [DECORATED, *(name for name in found if name != DECORATED)]


TITLES = {
    ALONE: "The method alone",
    IN_TURN: "The whole program, in turn with as much eager work",
    PROGRAM: "A whole program of 20 steps (see benchmarks/programs.py)",
}


def show(results: Sequence[dict[str, Any]]) -> str:
    columns = names(results)
    tables = []
    for setting, title in TITLES.items():
        rows = []
        for result in results:
            gains = result["gain"][setting]
            cells = [_measure.ratio_text(gains[name]) if name in gains else "-" for name in columns]
            rows.append((result["model"], *cells, *_possible(result, setting), result["served"]))
        for framework in ("torch", "paddle"):
            found = [r["gain"][setting] for r in results if r["framework"] == framework]
            if found:
                means = [_mean(found, name) for name in columns]
                rows.append((f"geometric mean, {framework}", *means, *([""] * (1 + (setting != ALONE)))))
        head = ("model", *columns, *(["of possible"] if setting != ALONE else []), "decorated by")
        tables.append(_measure.table(f"{title}: times as fast as eager", head, rows))
    absent = {f"{name} on {r['model']}: {why}" for r in results for name, why in r["missing"].items()}
    return "\n".join([*tables, *sorted(absent)])


def _possible(result: dict[str, Any], setting: str) -> list[str]:
    """The share of what the decorated method's own speed would allow the program to gain."""
    if setting == ALONE:
        return []
    part = 0.5 if setting == IN_TURN else min(1.0, result["share"])
    possible = 1 / (1 - part + part / result["gain"][ALONE][DECORATED]["ratio"])
    return [f"{result['gain'][setting][DECORATED]['ratio'] / possible:.0%}"]


def _mean(found: Sequence[dict[str, Any]], name: str) -> str:
    ratios = [gains[name]["ratio"] for gains in found if name in gains]
    return f"{statistics.geometric_mean(ratios):.2f}" if len(ratios) == len(found) else "-"


def main(rounds: int) -> str:
    results = _each_model.measure_all("peers", rounds)
    for setting, file in ((ALONE, "alone"), (IN_TURN, "in_turn"), (PROGRAM, "program")):
        _picture.bars(results, setting, names(results), file)
    return show(results)


if __name__ == "__main__":
    _each_model.command_line(__doc__ or "", measure, main)
