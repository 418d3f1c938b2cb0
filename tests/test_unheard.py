"""Methods that print, log or warn are timed against the engines like others; what they say meanwhile is not heard."""

import io
import logging
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from support import counts, layer_class

from hybrid_infer import _choice, inference
from hybrid_infer.checks._unheard import unheard

LOG = logging.getLogger("user")


def _prints() -> None:
    print("computing")


def _writes() -> None:
    sys.stdout.writelines(["compu", "ting\n"])
    assert sys.stdout.writable() and sys.stderr.write("") == 0


def _logs() -> None:
    LOG.warning("computing")


def _warns() -> None:
    warnings.warn("computing", stacklevel=1)


def _writes_to_what_it_holds() -> None:
    print("computing", file=HELD[0])


WAYS = {
    "print": _prints, "write": _writes, "held": _writes_to_what_it_holds, "log": _logs, "warn": _warns,
}  # fmt: skip
HELD: list[Any] = [None]  # a stream, as `from sys import stdout` gives it


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was measured."""
    found: list[Any] = []
    measure = _choice.measure

    def noted(work: Any, runs: Any) -> Any:
        found.append(list(runs))
        return measure(work, runs)

    monkeypatch.setattr(_choice, "measure", noted)
    return found


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.filterwarnings("always:computing")
def test_what_it_says_while_it_is_timed_is_not_heard(
    how: str, framework: Any, timed: list[Any], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    monkeypatch.delenv("HYBRID_INFER_BACKEND")
    says, HELD[0] = WAYS[how], sys.stdout

    class Loud(layer_class(framework)):  # type: ignore[misc]
        @inference()
        def forward(self, x: Any) -> Any:
            says()
            return x * 2

    layer, x = Loud(), framework.ones([2, 3])
    before = sys.stdout, sys.stderr, list(LOG.handlers), list(logging.root.handlers), warnings.showwarning
    with framework.no_grad(), warnings.catch_warnings(record=True) as warned:
        assert (layer(x).numpy() == 2).all()
    assert before == (sys.stdout, sys.stderr, list(LOG.handlers), list(logging.root.handlers), warnings.showwarning)
    assert not [handler.filters for handler in logging.root.handlers if handler.filters]
    told = capsys.readouterr()
    texts = [told.out, told.err, caplog.text, *(str(each.message) for each in warned)]
    assert len(timed) == 1
    assert 1 <= "".join(texts).count("computing") <= 2  # while it is traced, and compared
    assert counts()["captures"] == 1 and not counts()["fallbacks"].keys() - {"an engine is slower"}


@pytest.mark.parametrize("says", WAYS.values(), ids=WAYS)
def test_what_other_threads_say_is_heard(
    says: Callable[[], None], capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    HELD[0] = sys.stdout
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with unheard():
            says()
            assert not warned
            other = threading.Thread(target=says)
            other.start()
            other.join()
            says()
    told = capsys.readouterr()
    text = "".join([told.out, caplog.text, *(str(each.message) for each in warned)])
    assert text.count("computing") == 1


def test_streams_that_the_program_exchanges_meanwhile_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    mine, before = io.StringIO(), sys.stdout
    with unheard():
        monkeypatch.setattr(sys, "stdout", mine)
        print("kept")
        monkeypatch.setattr(mine, "write", write := (lambda text: len(text)))
    assert mine.write is write and mine.getvalue() == "kept\n"
    assert "write" not in vars(before)


def test_two_that_overlap_leave_no_thread_unheard(capsys: pytest.CaptureFixture[str]) -> None:
    entered, left = threading.Event(), threading.Event()

    def other() -> None:
        with unheard():
            entered.set()
            left.wait(60)

    with unheard():
        thread = threading.Thread(target=other)
        thread.start()
        assert entered.wait(60)
    left.set()
    thread.join()
    _prints()
    assert capsys.readouterr().out == "computing\n"
