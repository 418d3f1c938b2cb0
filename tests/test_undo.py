"""What a trace takes back is read while other threads write."""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Iterator

import pytest

from hybrid_infer.objects import _undo


@pytest.fixture
def restless() -> Iterator[None]:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.parametrize("kind", [dict, OrderedDict])
@pytest.mark.parametrize("named", [True, False])
def test_keys_come_and_go_meanwhile(kind: type, named: bool, restless: None) -> None:
    names = [f"name{n}" for n in range(100)]
    box = kind.fromkeys(names, 1)
    over = threading.Event()

    def write() -> None:
        while not over.is_set():
            for name in names:
                box.pop(name, None)
            for name in names:
                box[name] = 1

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for _ in range(1000):
            entries = _undo.Entries(box, names if named else None)
            assert set(entries.before) <= {*names} and set(entries.before.values()) <= {1}
            assert isinstance(entries.changed(), str | None)
            entries.restore()
    finally:
        over.set()
        thread.join()
