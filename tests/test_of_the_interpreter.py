"""What a method asks the interpreter itself, and what it takes from open files, is no constant of a static model."""

from __future__ import annotations

import csv
import datetime
import decimal
import gc
import importlib
import inspect
import io
import os
import sqlite3
import sys
import time
import traceback
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import eagerly, layer_class, served

from hybrid_infer import inference

NEWER = sys.version_info >= (3, 12)
DAY = datetime.date(2024, 5, 6)
NUMBER, THREE, SETTING, WRITTEN = 1234567, decimal.Decimal(3), "argv", io.StringIO("ab")
NOON = datetime.datetime(2024, 5, 6, 12)


def command_line(x: Any) -> Any:
    return x * (2 if "--scale" in sys.argv else 3)


def command_line_imported_here(x: Any) -> Any:
    import sys

    return x * len(sys.argv)


def command_line_by_another_name(x: Any) -> Any:
    import sys as system

    return x * len(system.argv)


def command_line_from_there(x: Any) -> Any:
    from sys import argv

    return x * len(argv)


def multiplied(x: Any, values: Any) -> Any:
    return x * len(values)


def command_line_behind_another(x: Any) -> Any:
    import sys

    return multiplied(x, sys.argv)


def options(x: Any) -> Any:
    return x * (2 if sys.flags.optimize else 3)


def installed(x: Any) -> Any:
    return x * len(sys.executable)


def folders(x: Any) -> Any:
    return x * len(sys.path)


def loaded(x: Any) -> Any:
    return x * (2 if "xformers" in sys.modules else 3)


def zone(x: Any) -> Any:
    return x * len(time.tzname[0])


def offset(x: Any) -> Any:
    return x + time.timezone


def recursion(x: Any) -> Any:
    return x * sys.getrecursionlimit()


def switches(x: Any) -> Any:
    return x * sys.getswitchinterval()


def debugged(x: Any) -> Any:
    return x * (2 if sys.gettrace() is None else 3)


def collects(x: Any) -> Any:
    return x * (2 if gc.isenabled() else 3)


def threshold(x: Any) -> Any:
    return x * gc.get_threshold()[0]


def caller(x: Any) -> Any:
    return x * len(sys._getframe(1).f_code.co_name)


def caller_by_inspect(x: Any) -> Any:
    frame = inspect.currentframe()
    assert frame is not None and frame.f_back is not None
    return x * frame.f_back.f_lineno


def callers(x: Any) -> Any:
    return x * len(inspect.stack())


def callers_by_traceback(x: Any) -> Any:
    return x * len(traceback.extract_stack())


def caller_by_a_traceback(x: Any) -> Any:
    try:
        raise ValueError
    except ValueError as error:
        assert error.__traceback__ is not None and error.__traceback__.tb_frame.f_back is not None
        return x * error.__traceback__.tb_frame.f_back.f_lineno


def error_of_callers(x: Any) -> Any:
    return x * (2 if sys.exc_info()[0] is None else 3)


def error_of_callers_as_text(x: Any) -> Any:
    return x * len(traceback.format_exc())


def no_bytecode(x: Any) -> Any:
    return x * (2 if sys.dont_write_bytecode else 3)


def origins(x: Any) -> Any:
    return x * sys.get_coroutine_origin_tracking_depth()


def calling_module(x: Any) -> Any:
    return x * len(sys._getframemodulename(1))


def watched(x: Any) -> Any:
    return x * (2 if sys.monitoring.get_tool(sys.monitoring.DEBUGGER_ID) is None else 3)


def sampled(x: Any) -> Any:
    return x * (3 if sys.is_stack_trampoline_active() else 2)


def weekday(x: Any) -> Any:
    return x * len(DAY.strftime("%A"))


def seconds(x: Any) -> Any:
    return x * (int(NOON.strftime("%s")) % 7)


def errors_of_numpy(x: Any) -> Any:
    return x * len(np.geterr()["over"])


def by_its_name(x: Any) -> Any:
    return x * len(getattr(sys, SETTING))


def among_all(x: Any) -> Any:
    return x * len(vars(sys)["argv"])


def a_module_by_its_name(x: Any) -> Any:
    return x * importlib.import_module(__name__).NUMBER


def weekday_in_a_text(x: Any) -> Any:
    return x * len(f"{DAY:%d %A}")


def number_in_a_text(x: Any) -> Any:
    return x * len(f"{NUMBER:>9n}")


def number_by_format(x: Any) -> Any:
    return x * len(format(NUMBER, "n"))


def weekday_by_format(x: Any) -> Any:
    return x * len("on {:%A}".format(DAY))  # noqa: UP032


def quotient(x: Any) -> Any:
    return x * float(1 / THREE)


def digits(x: Any) -> Any:
    return x * decimal.getcontext().prec


def quotient_in_a_copy(x: Any) -> Any:
    with decimal.localcontext():
        return x * float(1 / THREE)


def number_as_wide_as_told(x: Any) -> Any:
    return x * len(f"{NUMBER:{len(SETTING)}n}")


def number_by_a_format_with_fields(x: Any) -> Any:
    return x * len("{:{}n}".format(NUMBER, 9))


TEMPLATES = {"text": "{:n}"}
TEMPLATE, SPECIFICATION = TEMPLATES["text"], "n"


def number_by_a_template(x: Any) -> Any:
    return x * len(TEMPLATE.format(NUMBER))


def number_by_a_held_template(x: Any) -> Any:
    return x * len(TEMPLATES["text"].format(NUMBER))


def number_by_a_named_format(x: Any) -> Any:
    return x * len(format(NUMBER, SPECIFICATION))


def number_by_the_class(x: Any) -> Any:
    return x * len(str.format("{:n}", NUMBER))


def content(x: Any) -> Any:
    return x * len(WRITTEN.getvalue())


def content_from_the_begin(x: Any) -> Any:
    WRITTEN.seek(0)
    return x * len(WRITTEN.read())


@pytest.mark.parametrize(
    ("function", "what"),
    [
        (by_its_name, "a setting of"), (among_all, "a setting of"), (a_module_by_its_name, "a module by its name"),
        (weekday_in_a_text, "the locale"), (number_in_a_text, "the locale"), (number_by_format, "the locale"),
        (weekday_by_format, "the locale"), (quotient, "the context of decimal"), (content, "a stream"),
        (content_from_the_begin, "a stream"),
        (digits, "the context of decimal"), (quotient_in_a_copy, "the context of decimal"),
        (number_as_wide_as_told, "the locale"), (number_by_a_format_with_fields, "the locale"),
        (number_by_the_class, "the locale"), (number_by_a_template, "the locale"),
        (number_by_a_held_template, "the locale"), (number_by_a_named_format, "the locale"),
        (command_line, "the command line"), (command_line_imported_here, "the command line"),
        (command_line_by_another_name, "the command line"), (command_line_from_there, "the command line"),
        (command_line_behind_another, "the command line"),
        (options, "the options of the interpreter"), (installed, "where Python is installed"),
        (folders, "the folders in which modules"), (loaded, "which modules are loaded"),
        (zone, "the time zone"), (offset, "the time zone"), (recursion, "a setting of the interpreter"),
        (switches, "a setting of the interpreter"), (debugged, "whether a debugger"), (collects, "garbage"),
        (threshold, "garbage"), (caller, "the frames of its callers"), (caller_by_inspect, "the frames of its callers"),
        (callers, "the frames of its callers"), (callers_by_traceback, "the frames of its callers"),
        (weekday, "the locale"), (seconds, "the time zone"), (errors_of_numpy, "NumPy's settings"),
        (caller_by_a_traceback, "the frames of its callers"), (error_of_callers, "which error its callers handle"),
        (error_of_callers_as_text, "which error its callers handle"), (no_bytecode, "the options of the interpreter"),
        (origins, "a setting of the interpreter"),
        *([(calling_module, "the frames of its callers"), (watched, "whether a debugger"),
           (sampled, "whether a debugger")] if NEWER else []),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)  # fmt: skip
def test_it_is_answered_eagerly_for_a_reason(framework: Any, function: Callable[[Any], Any], what: str) -> None:
    hot, x = inference(function, verify="off"), framework.ones([2])
    for _ in range(2):
        hot(x)
    eagerly(what)


def test_the_seed_of_the_framework_is_another_one_later() -> None:
    torch = pytest.importorskip("torch")

    def of_the_seed(x: Any) -> Any:
        return x * (torch.initial_seed() % 1000)

    hot, x = inference(of_the_seed, verify="off"), torch.ones([1])
    for seed in (3, 5):
        torch.manual_seed(seed)
        assert float(hot(x)) == seed
    eagerly("the seed")


def own_frame(x: Any) -> Any:
    frame = inspect.currentframe()
    assert frame is not None
    return x * len(sys._getframe().f_code.co_name + frame.f_code.co_name)


def own_error(x: Any) -> Any:
    try:
        raise ValueError("three words here")
    except ValueError:
        name, said = sys.exc_info()[0].__name__, traceback.format_exc().splitlines()[-1]  # type: ignore[union-attr]
    return x * len(name + said)


def own_module(x: Any) -> Any:
    return x * len(sys.modules[__name__].__name__)


def a_class_is_made(x: Any) -> Any:
    return x * namedtuple("Pair", "a b")(2, 3).b


def the_year(x: Any) -> Any:
    return x * int(DAY.strftime("%Y"))


def names_of_its_own(x: Any) -> Any:
    class Settings:
        argv, path, flags, modules = 2, 3, 4, 5

    return x * (Settings.argv + Settings.path + Settings.flags + Settings.modules)


def a_text_of_its_own(x: Any) -> Any:
    with io.StringIO() as text:
        text.write("two")
        return x * len(text.getvalue())


def texts_of_numbers(x: Any) -> Any:
    return x * len(f"{NUMBER:,d} {DAY:%Y} {0.5:%} {'n':>3}" + format(NUMBER, "d") + "{:.3f} n".format(0.5))  # noqa: UP032


def an_exact_product(x: Any) -> Any:
    return x * float(THREE * 2)


def a_quotient_with_digits_of_its_own(x: Any) -> Any:
    return x * float(decimal.Context(prec=5).divide(1, THREE))


def a_library_by_its_name(x: Any) -> Any:
    return x * importlib.import_module("numpy").float32(2.0).item() + getattr(sys, "frozen", 0)


@pytest.mark.parametrize(
    "function",
    [
        own_frame, own_error, own_module, a_class_is_made, the_year, names_of_its_own, a_text_of_its_own,
        texts_of_numbers, an_exact_product, a_quotient_with_digits_of_its_own, a_library_by_its_name,
    ],
)  # fmt: skip
def test_what_is_the_same_everywhere_is_served(framework: Any, function: Callable[[Any], Any]) -> None:
    hot, x = inference(function, verify="off"), framework.ones([2])
    for _ in range(2):
        assert hot(x).numpy().tolist() == function(x).numpy().tolist()
    served(1)


TEXT = "\n".join(map(str, range(1, 9)))
STREAM: Any = None


def next_line(x: Any) -> Any:
    line = next(iter(STREAM))
    return x * float(line[0] if isinstance(line, (list, tuple)) else line)


def one_line(x: Any) -> Any:
    return x * float(STREAM.readline())


def of_a_pipe(folder: Path) -> Any:
    ours, theirs = os.pipe()
    os.write(theirs, TEXT.encode())
    os.close(theirs)
    return os.fdopen(ours)


def of_a_file(folder: Path) -> Any:
    (folder / "lines.txt").write_text(TEXT)
    return (folder / "lines.txt").open()


def of_a_table(folder: Path) -> Any:
    cursor = sqlite3.connect(":memory:").cursor()
    cursor.execute("create table lines (number)")
    cursor.executemany("insert into lines values (?)", [(int(line),) for line in TEXT.split()])
    return cursor.execute("select number from lines")


STREAMS = {
    "file": of_a_file,
    "pipe": of_a_pipe,
    "text": lambda folder: io.StringIO(TEXT),
    "bytes": lambda folder: io.BytesIO(TEXT.encode()),
    "rows": lambda folder: csv.reader(TEXT.split()),
    "table": of_a_table,
}


NO_LINES = ("rows", "table")


@pytest.mark.parametrize(
    ("function", "kind"),
    [*((next_line, kind) for kind in STREAMS), *((one_line, kind) for kind in STREAMS if kind not in NO_LINES)],
)
def test_no_line_of_an_open_file_is_lost_to_a_capture(
    framework: Any, function: Callable[[Any], Any], kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = STREAMS[kind](tmp_path)
    monkeypatch.setattr(sys.modules[__name__], "STREAM", made)
    hot, x = inference(function, verify="off"), framework.ones([1])
    assert [float(hot(x).sum()) for _ in range(3)] == [1, 2, 3]
    eagerly("stream" if kind == "pipe" else "iterator" if kind in ("rows", "table") else "STREAM")
    for each in (made, getattr(made, "connection", made)):
        if hasattr(each, "close"):
            each.close()


def test_a_file_that_code_does_not_name_is_in_no_way(framework: Any, tmp_path: Path) -> None:
    class Logged(layer_class(framework)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.scale = 2.0

        def forward(self, x: Any) -> Any:
            return x * self.scale * len(HELD)

    with of_a_pipe(tmp_path) as pipe:
        HELD[0].pipe = pipe
        hot, x = inference(Logged()), framework.ones([1])
        assert [float(hot(x).sum()) for _ in range(2)] == [2, 2]
        assert pipe.readline() == "1\n"
        del HELD[0].pipe
    served(1)


class Held:
    pass


HELD: list[Any] = [Held()]
