"""What the sides of a branch on the value of a tensor change beside computing: the tracer goes through all of them."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import paddle
import pytest
from paddle_support import eagerly, grid, same

from hybrid_infer import inference, reset_stats, stats

pytestmark = pytest.mark.paddle


class State(paddle.nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.state, self.flag, self.box = paddle.zeros([2, 4]), 1, {"a": paddle.zeros([2, 4])}
        self.calls, self.pair = 0, (paddle.zeros([2, 4]), 0)

    def put(self, x: Any) -> None:
        self.state = x * 2

    def kept(self, x: Any) -> Any:
        self.state = x * 2
        return self.state

    def get(self) -> Any:
        return self.state


class AssignsOnOneSide(State):
    def forward(self, x: Any) -> Any:
        if x.sum() > 0:
            self.state = x * 2
            y = x + 1
        else:
            y = x + self.state
        return y


class AssignsInAnEarlyReturn(State):
    def forward(self, x: Any) -> Any:
        if x.sum() > 0:
            self.state = x * 2
            return x + 1
        return x + self.state


class AssignsInALoop(State):
    def forward(self, x: Any) -> Any:
        turn, turns, y = paddle.zeros([1], "int64"), (x.sum() > 0).astype("int64") * 2, x
        while turn < turns:
            self.state = x * 3
            y = y + self.state
            turn = turn + 1
        return y


class AssignsBothSidesTheSame(State):
    def forward(self, x: Any) -> Any:
        if x.sum() > 0:
            self.flag = 1
            y = x * 2
        else:
            self.flag = 1
            y = x
        return y + self.flag


class UsesADictOfItsOwn(State):
    def forward(self, x: Any) -> Any:
        if x.sum() > 0:
            parts = {}
            parts.update(a=x * 2)
            y = parts["a"]
        else:
            y = x
        return y


class ChoosesADict(State):
    def forward(self, x: Any) -> Any:
        if x.sum() > 0:  # noqa: SIM108
            found = {"a": x * 2, "n": x.sum()}
        else:
            found = {"a": x, "n": x.max()}
        return found["a"] * found["n"]


class CallsWhatBranches(State):
    def step(self, x: Any) -> Any:
        if x.sum() > 0:
            self.state = x * 2
            return x
        return x + self.state

    def forward(self, x: Any) -> Any:
        return self.step(x) + self.step(-x)


class AssignsBeforeABreak(State):
    def forward(self, x: Any) -> Any:
        turn = paddle.zeros([], "int64")
        while turn < 5:
            x = x + 1
            if x.sum() > 40:
                self.state = x * 2
                break
            turn = turn + 1
        return x + self.state


SERVED = [
    AssignsOnOneSide, AssignsInAnEarlyReturn, AssignsInALoop, AssignsBothSidesTheSame, UsesADictOfItsOwn, ChoosesADict,
    CallsWhatBranches, AssignsBeforeABreak,
]  # fmt: skip


class CallsWhatAssigns(State):
    def forward(self, x: Any) -> Any:
        if x.sum() > 0:
            self.put(x)
            y = x + 1
        else:
            y = x + self.get()
        return y


class CallsInABranchOfABranch(State):
    def forward(self, x: Any) -> Any:
        if x.sum() > 0:
            if x.max() > 5:
                self.put(x)
            y = x + 1
        else:
            y = x + self.get()
        return y


class CallsInATernary(State):
    def forward(self, x: Any) -> Any:
        y = self.kept(x) if x.sum() > 0 else self.get()
        return x + y


class CallsAfterAnd(State):
    def forward(self, x: Any) -> Any:
        if x.sum() > 0 and self.kept(x).sum() > -100:  # noqa: SIM108
            y = x + 1
        else:
            y = x + self.get()
        return y


class CallsAfterOr(State):
    def forward(self, x: Any) -> Any:
        if x.sum() < 0 or self.kept(x).sum() < -100:  # noqa: SIM108
            y = x + 1
        else:
            y = x + self.get()
        return y


class CallsInALoop(State):
    def forward(self, x: Any) -> Any:
        turn, turns = paddle.zeros([1], "int64"), (x.sum() > 0).astype("int64") * 2
        while turn < turns:
            self.put(x)
            turn = turn + 1
        return x + self.get()


class CallsInTheConditionOfALoop(State):
    def forward(self, x: Any) -> Any:
        y = x
        while self.kept(y).sum() < 10:
            y = y.abs() + 1
        return y


class WritesToADict(State):
    def forward(self, x: Any) -> Any:
        if x.sum() > 0:
            self.box["a"] = x * 2
        return x + self.box["a"]


class AssignsADict(State):
    def forward(self, x: Any) -> Any:
        if x.sum() > 0:
            self.box = {"a": x * 2}
        return x + self.box["a"]


class ChangesADictOfItsOwn(State):
    def forward(self, x: Any) -> Any:
        parts = {"n": 1}
        if x.sum() > 0:
            parts.update(n=2)
        return x * parts["n"]


class CountsInAFunctionOfItsOwn(State):
    def forward(self, x: Any) -> Any:
        n = 1

        def count() -> None:
            nonlocal n
            n = 2

        if x.sum() > 0:
            count()
        return x * n


class CaughtByTheMethod(State):
    def forward(self, x: Any) -> Any:
        try:
            y = self.kept(x) if x.sum() > 0 else self.get()
        except Exception:
            y = x
        return x + y


class OfTheFrameworksOwn(State):
    def forward(self, x: Any) -> Any:
        return x + paddle.static.nn.cond(x.sum() > 0, lambda: self.kept(x), lambda: self.get())


class AssignsANumber(State):
    def forward(self, x: Any) -> Any:
        if x.sum() > 0:
            self.flag = 5
        return x + self.flag


class AssignsANumberOnOneSide(State):
    def forward(self, x: Any) -> Any:
        if x.sum() > 0:
            self.flag = 5
            y = x + 1
        else:
            y = x + self.flag
        return y


class Counts(State):
    def forward(self, x: Any) -> Any:
        if x.sum() > 0:
            self.calls += 1
        return x * self.calls


class CountsInALoop(State):
    def forward(self, x: Any) -> Any:
        while x.sum() < 4:
            x = x.abs() + 1
            self.calls = self.calls + 1
        return x


class AssignsANumberInATuple(State):
    def forward(self, x: Any) -> Any:
        if x.sum() > 0:
            self.pair = (x * 2, 1)
        return x + self.pair[0]


class Kept:
    last: Any = 0.0


def keep(x: Any) -> None:
    Kept.last = x


class KeepsInAClass(State):
    """Of what is outside of the layer, a change is seen after the trace."""

    def forward(self, x: Any) -> Any:
        if x.sum() > 0:
            keep(x * 2)
            y = x + 1
        else:
            y = x + Kept.last
        return y


class UsedOutside(State):
    def forward(self, x: Any) -> Any:
        if x.sum() > 0:
            keep(x * 2)
        return x + Kept.last


REASONS = {
    CallsWhatAssigns: "one side changes self.state",
    CallsInABranchOfABranch: "one side changes self.state",
    CallsInATernary: "one side changes self.state",
    CallsAfterAnd: "`and` depends on the values of a tensor, and its right side changes self.state",
    CallsAfterOr: "`or` depends on the values of a tensor, and its right side changes self.state",
    CallsInALoop: "a loop depends on the values of a tensor, and its body changes self.state",
    CallsInTheConditionOfALoop: "a loop depends on the values of a tensor, and its body changes self.state",
    WritesToADict: "one side changes self.box",
    ChangesADictOfItsOwn: "one side changes parts",
    CountsInAFunctionOfItsOwn: "one side changes n",
    CaughtByTheMethod: "one side changes self.state",
    OfTheFrameworksOwn: "one side changes self.state",
    AssignsANumber: "a branch depends on the values of a tensor, and decides which number self.flag is",
    AssignsANumberOnOneSide: "a branch depends on the values of a tensor, and decides which number self.flag is",
    Counts: "a branch depends on the values of a tensor, and decides which number self.calls is",
    CountsInALoop: "a loop depends on the values of a tensor, and decides which number self.calls is",
    AssignsADict: "it changes self.box",
    KeepsInAClass: "one side changes Kept.last",
    UsedOutside: "one side changes Kept.last",
    AssignsANumberInATuple: "a branch depends on the values of a tensor, and decides which number self.pair is",
}
ALIKE = ("state", "flag", "box", "calls", "pair")


def compare(kind: Any, **options: Any) -> None:
    """Calls of either side, in an order in which each follows the other and itself; results and state are eager's."""
    eager = kind()
    mine = inference(copy.deepcopy(eager), **options)
    with paddle.no_grad():
        for n, sign in enumerate([1, 1, -1, -1, 1, -1]):
            x = (grid(2, 4) + 2 + n) * sign
            same(mine(x), eager(x), 1e-4)
            same([getattr(mine, name) for name in ALIKE], [getattr(eager, name) for name in ALIKE], 1e-4)


@pytest.mark.parametrize("verify", ["first", "off"])
@pytest.mark.parametrize("kind", SERVED, ids=lambda kind: kind.__name__)
def test_what_the_branch_itself_assigns_is_served(kind: Any, verify: str) -> None:
    compare(kind, backend="onnxruntime", verify=verify)
    assert not [each["fallbacks"] for each in stats().values() if each["fallbacks"]]


@pytest.mark.parametrize("verify", ["first", "off"])
def test_what_a_side_changes_otherwise_is_left_to_eager(verify: str) -> None:
    """In a process of its own, which the framework used to end."""
    path = os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parent.parent), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", f"import test_paddle_sides as t; t.left_to_eager({verify!r})"],
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]


def left_to_eager(verify: str) -> None:
    for kind, reason in REASONS.items():
        print(kind, file=sys.stderr, flush=True)
        Kept.last = 0.0
        compare(kind, backend="onnxruntime", verify=verify)
        eagerly(reason, "test_paddle_sides.py:")
        reset_stats()
