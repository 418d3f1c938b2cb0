"""A build at a terminal: the bar that is drawn meanwhile, and Ctrl-C, after which nothing is left or remembered."""

from __future__ import annotations

import os
import re
import signal
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import terminal
from decorated import builds, check, engines, layer
from double import World

from hybrid_infer._types import EngineOptions
from hybrid_infer.backends import engine

torch = pytest.importorskip("torch")

HERE = Path(__file__).resolve().parent

PROGRAM = """
import signal, sys, threading, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has what it runs in the background ignore it
sys.path[:0] = {paths!r}
import double, host_memory, pytest, torch
from hybrid_infer import explain, inference

world = double.install(pytest.MonkeyPatch())
host_memory.install(pytest.MonkeyPatch())
world.steps, world.at_step = 8, lambda step: time.sleep(0.5)

class Layer(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) + 1

layer = inference(Layer().eval(), with_trt=True)
x = torch.tensor([-1.0, 2.0])
with torch.no_grad():
    try:
        print("result", layer(x).tolist())
    except KeyboardInterrupt:
        print("interrupted in", threading.current_thread().name)
    world.at_step = None
    print("result", layer(x).tolist())
(method,) = explain(layer).to_dict()["methods"]
print("served by", method["versions"][0]["served_by"], world.counts["Builder.build_serialized_network"])
"""


def at_a_terminal(folder: Path, interrupted_at: str = "") -> str:
    """All that the program sends to its terminal, at which somebody types Ctrl-C once a text has been drawn."""
    file = folder / "program.py"
    file.write_text(textwrap.dedent(PROGRAM).format(paths=[str(HERE), str(HERE.parent / "backends")]))
    environment = {"PYTHONPATH": str(HERE.parents[1]), "HYBRID_INFER_CACHE_DIR": str(folder / "c")}
    return terminal.sent(file, environment, interrupted_at=interrupted_at)


def said(sent: str) -> list[str]:
    """What the program itself has said."""
    return re.findall(r"(?:result|interrupted|served)[^\r\n\x1b]*", sent)


@pytest.mark.processes
def test_a_bar_tells_how_far_a_build_has_come(tmp_path: Path) -> None:
    sent = at_a_terminal(tmp_path)
    assert said(sent) == ["result [1.0, 3.0]"] * 2 + ["served by ['tensorrt'] 1"]
    assert "hybrid_infer:  50% [##########          ] building __main__.Layer.forward" in sent
    shown = [part for part in (12, 25, 38, 50, 62, 75, 88) if f"{part:3}%" in sent]
    assert len(shown) >= 4
    last = sent.rindex("hybrid_infer: ")
    assert "\x1b[K\x1b8" in sent[last:]  # and is gone afterwards


@pytest.mark.processes
def test_ctrl_c_stops_a_build_and_the_next_call_builds_again(tmp_path: Path) -> None:
    sent = at_a_terminal(tmp_path, interrupted_at="38%")
    assert said(sent) == ["interrupted in MainThread", "result [1.0, 3.0]", "served by ['tensorrt'] 2"]
    assert " 88%" not in sent.partition("interrupted in")[0]
    assert "Traceback" not in sent


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Also in the background of a shell, which has its programs ignore Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("on_the_host", "interruptible")
def test_an_interrupt_is_the_programs_and_nothing_is_remembered(world: World, store: Path) -> None:
    def interrupt(step: int) -> None:
        if step == 1:
            os.kill(os.getpid(), signal.SIGINT)
        if step:
            threading.Event().wait(0.05)

    world.steps, world.at_step = 1000, interrupt
    wrapped, plain = layer()
    with pytest.raises(KeyboardInterrupt), torch.no_grad():
        wrapped(torch.randn(3, 4))
    for thread in [each for each in threading.enumerate() if "TensorRT build" in each.name]:
        thread.join(10)  # what is left of it, where the whole build takes 50 s
        assert not thread.is_alive()
    assert not [path for path in store.rglob("*") if "failures" in path.parts and path.is_file()]
    world.at_step, world.steps = None, 3
    check(wrapped, plain, 3, 3)
    assert engines(wrapped) == [["tensorrt"]] and builds(world) == 2


def test_a_build_that_its_caller_gives_up_is_no_fault_of_the_graph(world: World) -> None:
    from backend_graphs import linear
    from host_memory import TorchHost

    from hybrid_infer._errors import PassingFault

    given: Any = EngineOptions(memory=TorchHost("cpu"), extra={"progress": lambda part: False})
    with pytest.raises(PassingFault, match="its build was stopped"):
        engine("tensorrt").prepare(linear(), given)
