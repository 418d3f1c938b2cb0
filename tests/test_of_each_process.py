"""What is another value in each process or at each call, and no argument: no static model keeps it."""

from __future__ import annotations

import copy
import datetime
import dis
import gc
import json
import locale
import multiprocessing
import os
import platform
import random
import resource
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
import time
import types
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import eagerly, served

from hybrid_infer import inference

FILE = open(__file__)  # noqa: SIM115
SYSTEM = random.SystemRandom()
WHEN = datetime.datetime(2020, 1, 1)
EARLY = datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc)
TABLE = {"now": time.time}


class Key:
    def __init__(self, number: int) -> None:
        self.number = number

    def __hash__(self) -> int:
        return hash((type(self).__name__, self.number))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and other.number == self.number


SCALES = {Key(1): 2.0}


def of_text(x: Any) -> Any:
    return x * (hash("north") % 7)


def of_texts_in_turn(x: Any) -> Any:
    return x * (sum(map(hash, ("north", "south"))) % 7)


def by_its_method(x: Any) -> Any:
    return x * ("north".__hash__() % 7)


def address(x: Any) -> Any:
    return x * (id(TABLE) % 7)


def thread(x: Any) -> Any:
    return x * (threading.get_ident() % 7)


def native_thread(x: Any) -> Any:
    return x * (threading.get_native_id() % 7)


def name_of_thread(x: Any) -> Any:
    return x * len(threading.current_thread().name)


def main_thread(x: Any) -> Any:
    return x * 2 if threading.current_thread() is threading.main_thread() else x


def threads(x: Any) -> Any:
    return x * threading.active_count()


def process(x: Any) -> Any:
    return x * ((multiprocessing.current_process().pid or 0) % 7)


def group(x: Any) -> Any:
    return x * (os.getpgrp() % 7)


def load(x: Any) -> Any:
    return x * os.getloadavg()[0]


def memory(x: Any) -> Any:
    return x * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss % 7)


def garbage(x: Any) -> Any:
    return x * gc.get_count()[0]


def references(x: Any) -> Any:
    return x * sys.getrefcount(TABLE)


def host(x: Any) -> Any:
    return x * len(socket.gethostname())


def node(x: Any) -> Any:
    return x * len(platform.node())


def name_of_system(x: Any) -> Any:
    return x * len(os.uname().nodename)


def cores(x: Any) -> Any:
    return x * (os.cpu_count() or 1)


def cores_of_process(x: Any) -> Any:
    return x * (os.process_cpu_count() or 1)  # type: ignore[attr-defined]  # from Python 3.13 on


def variables(x: Any) -> Any:
    return x * len(os.environ)


def stamped(x: Any) -> Any:
    return x * (uuid.uuid1().int % 7)


def card(x: Any) -> Any:
    return x * (uuid.getnode() % 7)


def drawn_by_the_system(x: Any) -> Any:
    return x * random.SystemRandom().random()


def drawn_by_one_that_is_held(x: Any) -> Any:
    return x * SYSTEM.random()


def drawn_by_a_new_one(x: Any) -> Any:
    return x * random.Random().random()


def drawn_by_numpy(x: Any) -> Any:
    generator = np.random.default_rng()
    return x * float(generator.random())


def chosen(x: Any) -> Any:
    return x * secrets.choice((1.0, 2.0))


def sampled(x: Any) -> Any:
    return x * SYSTEM.sample((1.0, 2.0, 3.0), 2)[0]


def in_this_zone(x: Any) -> Any:
    return x * datetime.datetime.fromtimestamp(86400.0).hour


def moved_to_this_zone(x: Any) -> Any:
    return x * EARLY.astimezone().hour


def counted_in_this_zone(x: Any) -> Any:
    return x * (WHEN.timestamp() % 86400)


def made_in_this_zone(x: Any) -> Any:
    return x * (time.mktime((2020, 1, 1, 0, 0, 0, 0, 0, 0)) % 86400)


def language(x: Any) -> Any:
    return x * len(str(locale.getlocale()))


def point(x: Any) -> Any:
    return x * len(str(locale.localeconv()["decimal_point"]))


def encoding(x: Any) -> Any:
    return x * len(locale.getpreferredencoding(False))


def line(x: Any) -> Any:
    return x * len(FILE.readline())


def program(x: Any) -> Any:
    return x * len(subprocess.check_output([sys.executable, "-c", "print(1)"]))


def command(x: Any) -> Any:
    return x * (1 + os.system("true"))


def folder(x: Any) -> Any:
    return x * len(tempfile.mkdtemp())


def in_a_table(x: Any) -> Any:
    return x * TABLE["now"]()


PROCESS, HASH, ADDRESS, THREAD = "the number of the process", "a hash", "where an object lies", "the thread"
MACHINE, RANDOM, ZONE, LOCALE = "the machine", "the system's random numbers", "the time zone", "the locale"


@pytest.mark.parametrize(
    ("function", "what"),
    [
        (of_text, HASH), (of_texts_in_turn, HASH), (by_its_method, HASH), (address, ADDRESS),
        (thread, THREAD), (native_thread, THREAD), (name_of_thread, THREAD), (main_thread, THREAD), (threads, THREAD),
        (process, PROCESS), (group, PROCESS), (load, MACHINE), (memory, "what the process has used"),
        (garbage, "garbage"), (references, "referred to"),
        (host, MACHINE), (node, MACHINE), (name_of_system, MACHINE), (cores, MACHINE),
        *([(cores_of_process, MACHINE)] if hasattr(os, "process_cpu_count") else ()),  # from Python 3.13 on
        (variables, "the environment as a whole"), (stamped, "the clock"), (card, MACHINE),
        (drawn_by_the_system, RANDOM), (drawn_by_one_that_is_held, RANDOM), (drawn_by_a_new_one, RANDOM),
        (drawn_by_numpy, ""), (chosen, RANDOM), (sampled, RANDOM), (in_this_zone, ZONE),
        (moved_to_this_zone, ZONE), (counted_in_this_zone, ZONE), (made_in_this_zone, ZONE), (language, LOCALE),
        (point, LOCALE), (encoding, LOCALE), (line, "the file"), (program, "another program"),
        (command, "another program"), (folder, "the file system"), (in_a_table, "the clock"),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)  # fmt: skip
def test_it_is_answered_eagerly_for_a_reason(framework: Any, function: Callable[[Any], Any], what: str) -> None:
    hot, x = inference(function, verify="off"), framework.ones([2])
    for _ in range(2):
        hot(x)
    eagerly(what)


class OfParts(Key):
    def __hash__(self) -> int:
        return hash(tuple(hash(each) for each in (self.number, "north")))


class ByHelper(Key):
    def told(self) -> int:
        return sum(map(hash, (self.number, "north")))

    def __hash__(self) -> int:
        return self.told()


class ByLambda(Key):
    __hash__ = lambda self: hash(("north", self.number))  # type: ignore[assignment]  # noqa: E731


class Copied:
    def __init__(self) -> None:
        self.scale = 2.0

    def __deepcopy__(self, memo: dict[int, Any]) -> Copied:
        memo[id(self)] = made = Copied()
        return made


HELD = Copied()


@pytest.mark.parametrize("kind", [Key, OfParts, ByHelper, ByLambda])
def test_what_a_class_makes_a_hash_of_for_look_ups_is_served(framework: Any, kind: type[Key]) -> None:
    table = {kind(1): 2.0}

    def looked_up(x: Any) -> Any:
        return x * table[kind(1)]

    hot, x = inference(looked_up, verify="off"), framework.ones([2])
    for _ in range(2):
        assert hot(x).numpy().tolist() == [2.0, 2.0]
    served(1)


def test_a_class_with_a_hash_that_the_method_makes_is_served(framework: Any) -> None:
    def made(x: Any) -> Any:
        class Local:
            scale = 2.0
            __hash__ = None  # type: ignore[assignment]

        return x * Local.scale

    hot, x = inference(made, verify="off"), framework.ones([2])
    for _ in range(2):
        assert hot(x).numpy().tolist() == [2.0, 2.0]
    served(1)


def test_what_python_s_own_code_knows_objects_by_is_served(framework: Any) -> None:
    def written(x: Any) -> Any:
        return x * len(json.dumps({"scales": [1, {"north": 2.0}]}, indent=1))

    hot, x = inference(written, verify="off"), framework.ones([2])
    for _ in range(2):
        assert hot(x).numpy().tolist() == 2 * [float(len(json.dumps({"scales": [1, {"north": 2.0}]}, indent=1)))]
    served(1)


def test_an_object_that_copies_itself_is_served(framework: Any) -> None:
    def copied(x: Any) -> Any:
        return x * copy.deepcopy(HELD).scale

    hot, x = inference(copied, verify="off"), framework.ones([2])
    for _ in range(2):
        assert hot(x).numpy().tolist() == [2.0, 2.0]
    served(1)


def test_instructions_of_libraries_are_not_read(framework: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    read: set[str] = set()
    instructions = dis.get_instructions

    def noting(code: types.CodeType) -> Any:
        read.add(code.co_filename)
        return instructions(code)

    def timed(x: Any) -> Any:
        return x * (hash("north") + len(copy.deepcopy([1.0, [2.0]]))) * time.time()

    monkeypatch.setattr(dis, "get_instructions", noting)
    inference(timed, verify="off")(framework.ones([2]))
    eagerly("the clock", "a hash")
    assert "id" in copy.deepcopy.__code__.co_names and copy.__file__ not in read
    assert any("timed" in file or file == __file__ for file in read)


def test_a_folder_is_made_once_for_each_call(framework: Any, tmp_path: Path) -> None:
    place = tmp_path / "made"
    place.mkdir()

    def counted(x: Any) -> Any:
        return x * len(tempfile.mkdtemp(dir=place))

    hot = inference(counted, verify="off")
    for n in range(1, 4):
        hot(framework.ones([2]))
        assert len([*place.iterdir()]) == n
    eagerly("the file system")


def test_a_folder_that_a_programs_own_mkdir_makes(
    framework: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose frame is that of whoever asks for it: the method here, and not what the framework makes for itself."""
    mkdir = os.mkdir

    def noting(path: Any, *arguments: Any, **named: Any) -> None:
        mkdir(path, *arguments, **named)

    def counted(x: Any, place: str) -> Any:
        os.mkdir(place)
        return x * 2

    monkeypatch.setattr(os, "mkdir", noting)
    hot = inference(counted, verify="off")
    for n in range(3):
        hot(framework.ones([2]), str(tmp_path / str(n)))
        assert (tmp_path / str(n)).is_dir()
    eagerly("the file system")


def test_attributes_that_hold_the_clock_or_its_like(framework: Any) -> None:
    layer_type = framework.nn.Module if framework.__name__ == "torch" else framework.nn.Layer

    class Timed(layer_type):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            super().__init__()
            self.ask = time.time

        @inference(verify="off")
        def forward(self, x: Any) -> Any:
            return x * self.ask()

    layer = Timed()
    layer.eval()
    for _ in range(2):
        layer(framework.ones([2]))
    eagerly("the clock")
