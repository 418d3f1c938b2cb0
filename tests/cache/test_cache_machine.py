"""A state machine: two handles on one store, compared with a model after every step."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from hybrid_infer.cache import CacheWarning, DamagedEntry, Entry, Store, _files

METHODS = ("ab" * 16, "cd" * 16)
PLANS = ("12" * 16, "34" * 16)

handles = st.integers(0, 1)
methods = st.sampled_from(METHODS)
plans = st.sampled_from(PLANS)
numbers = st.integers(0, 2)
numbers_of_all = st.integers(0, 5)
steps = st.sampled_from(["write", "rename"])
damages = st.sampled_from(["flip", "swap", "truncate", "empty", "remove"])


class Crash(BaseException):
    """The process ends here."""


class Stored:
    """What the model knows of one version: its content, whether a file of it was damaged, and its plans likewise."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.damaged: set[str] = set()
        self.plans: dict[str, int] = {}
        self.damaged_plans: set[str] = set()


def content(number: int) -> dict[str, bytes]:
    return {"graph": bytes([number + 1]) * 200, "signature": b"[%d]" % number}


class StoreMachine(RuleBasedStateMachine):
    held = Bundle("held")

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.stores = [Store(self.root, sync=False), Store(self.root, sync=False)]
        self.model: dict[tuple[str, str], Stored] = {}
        self.failures: dict[str, set[int]] = {method: set() for method in METHODS}
        # What a rule has read and not let go, with the publication that it was read from.
        self.in_use: list[tuple[Entry, Stored]] = []

    def teardown(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)

    @contextmanager
    def warns(self, expected: bool) -> Iterator[None]:
        """Warnings come where there is damage, and nowhere else."""
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always", CacheWarning)
            try:
                yield
            finally:
                assert bool(seen) == expected, [str(item.message) for item in seen]

    # Publishing

    def reset(self, handle: int, method: str, number: int) -> tuple[Entry, Stored]:
        """Publish, and bring the model to what must be there now."""
        with self.warns(self.is_damaged(method, number)):
            entry = self.stores[handle].publish(method, {"number": number}, content(number))
        assert entry is not None
        key = method, entry.version
        if key not in self.model or self.model[key].damaged:
            self.model[key] = Stored(number)
        assert self.model[key].number == number
        return entry, self.model[key]

    def is_damaged(self, method: str, number: int) -> bool:
        return any(key[0] == method and it.number == number and it.damaged for key, it in self.model.items())

    @rule(target=held, handle=handles, method=methods, number=numbers)
    def publish(self, handle: int, method: str, number: int) -> Entry:
        entry, stored = self.reset(handle, method, number)
        self.in_use.append((entry, stored))
        return entry

    @rule(handle=handles, method=methods, number=numbers, plan=plans, other=numbers)
    def publish_plan(self, handle: int, method: str, number: int, plan: str, other: int) -> None:
        entry, stored = self.reset(handle, method, number)
        with self.warns(plan in stored.damaged_plans):
            made = self.stores[handle].publish_plan(entry, plan, {"number": other}, {"model": bytes([other + 1]) * 99})
        if plan not in stored.plans or plan in stored.damaged_plans:
            stored.plans[plan] = other
            stored.damaged_plans.discard(plan)
        assert made is not None and made.read("model") == bytes([stored.plans[plan] + 1]) * 99

    @rule(
        handle=handles,
        method=methods,
        number=numbers,
        name=st.sampled_from(["write", "rename"]),
        step=st.integers(1, 4),
    )
    def crash(self, handle: int, method: str, number: int, name: str, step: int) -> None:
        """A publication that ends in the middle: nothing of it is seen, or all of it."""
        if self.is_damaged(method, number):
            return
        left = [step]
        call: Callable[..., object] = getattr(os, name)

        def crashing(*arguments: object) -> object:
            left[0] -= 1
            if left[0] == 0:
                raise Crash
            return call(*arguments)

        # A process that is killed does not tidy up either.
        with pytest.MonkeyPatch.context() as patch, contextlib.suppress(Crash):
            patch.setattr(os, name, crashing)
            patch.setattr(_files, "remove_tree", lambda path: None)
            self.stores[handle].publish(method, {"number": number}, content(number))
        for entry in Store(self.root).versions(method):
            if entry.meta["number"] == number:
                self.model.setdefault((method, entry.version), Stored(number))

    # Reading

    @rule(target=held, handle=handles, method=methods)
    def load(self, handle: int, method: str) -> Entry | None:
        """Read all versions of a method; a damaged one is found out and gone afterwards."""
        last = None
        for entry in self.stores[handle].versions(method):
            stored = self.model[method, entry.version]
            try:
                with self.warns(bool(stored.damaged)):
                    assert {name: entry.read(name) for name in entry.files} == content(stored.number)
            except DamagedEntry as error:
                assert stored.damaged and not error.absent
                del self.model[method, entry.version]
            else:
                assert not stored.damaged
                self.in_use.append((entry, stored))
                last = entry
        return last

    @rule(handle=handles, method=methods, plan=plans)
    def load_plans(self, handle: int, method: str, plan: str) -> None:
        for entry in self.stores[handle].versions(method):
            stored = self.model[method, entry.version]
            bad = plan in stored.damaged_plans
            found = self.stores[handle].plan(entry, plan)
            assert (found is not None) == (plan in stored.plans)
            if found is None:
                continue
            try:
                with self.warns(bad):
                    assert found.read("model") == bytes([stored.plans[plan] + 1]) * 99
                assert not bad
            except DamagedEntry:
                assert bad
                del stored.plans[plan]
                stored.damaged_plans.discard(plan)

    @rule(entry=held)
    def read_again(self, entry: Entry | None) -> None:
        """An entry that is held can be read for as long as nobody damages it, whatever was evicted meanwhile."""
        if entry is None:
            return
        stored = self.model.get((entry.method, entry.version))
        if stored is None or stored.damaged:
            return
        with self.warns(False):
            assert entry.read("graph") == content(stored.number)["graph"]

    @rule(entry=consumes(held))
    def let_go(self, entry: Entry | None) -> None:
        if entry is not None:
            entry.close()
            self.in_use = [item for item in self.in_use if item[0] is not entry]

    # Misfortune and maintenance

    # What is drawn does not depend on the model: which of two entries used within one tick of the file system's clock
    # is evicted first is not the same in every run.
    @rule(which=numbers_of_all, what=numbers_of_all, how=damages)
    def damage(self, which: int, what: int, how: str) -> None:
        if not self.model:
            return
        key = sorted(self.model)[which % len(self.model)]
        stored = self.model[key]
        directory = self.root / "v1" / "methods" / key[0][:2] / key[0] / key[1]
        targets = ["graph", *(f"plans/{plan}/model" for plan in stored.plans if plan not in stored.damaged_plans)]
        target = targets[what % len(targets)]
        path = directory / target
        if target in stored.damaged:
            return
        if how == "remove":
            path.unlink()
        else:
            raw = path.read_bytes()
            flipped = bytes([raw[0] ^ 1]) + raw[1:]
            path.write_bytes({"truncate": raw[:-1], "empty": b"", "flip": flipped, "swap": bytes(len(raw))}[how])
        if target == "graph":
            stored.damaged.add(target)
        else:
            stored.damaged_plans.add(target.split("/")[1])

    @rule(handle=handles)
    def verify(self, handle: int) -> None:
        bad = [key for key, stored in self.model.items() if stored.damaged]
        bad_plans = [
            (stored, plan) for stored in self.model.values() if not stored.damaged for plan in stored.damaged_plans
        ]
        with self.warns(bool(bad or bad_plans)):
            found = self.stores[handle].verify()
        assert len(found) == len(bad) + len(bad_plans)
        for key in bad:
            del self.model[key]
        for stored, plan in bad_plans:
            del stored.plans[plan]
            stored.damaged_plans.discard(plan)

    @rule(handle=handles, keep=st.sampled_from([0, 1500]))
    def evict(self, handle: int, keep: int) -> None:
        before = set(self.model)
        pruned = self.stores[handle].prune(keep)
        present = {
            (method, path.name)
            for method in METHODS
            for path in (self.root / "v1" / "methods" / method[:2] / method).glob("????????????????*")
        }
        assert len(before - present) == pruned.removed
        for entry, stored in self.in_use:
            key = entry.method, entry.version
            assert key in present or self.model.get(key) is not stored
        if keep == 0:
            assert len(present) == pruned.in_use
        self.model = {key: stored for key, stored in self.model.items() if key in present}

    @rule(handle=handles, method=methods, number=numbers)
    def fail(self, handle: int, method: str, number: int) -> None:
        self.stores[handle].remember_failure(method, {"number": number})
        self.failures[method].add(number)

    @rule(handle=handles, method=methods)
    def forget(self, handle: int, method: str) -> None:
        self.stores[handle].forget_failures(method)
        self.failures[method] = set()

    @rule(chance=numbers_of_all)
    def delete_everything(self, chance: int) -> None:
        if chance:  # it leaves little to do
            return
        shutil.rmtree(self.root, ignore_errors=True)
        self.model.clear()
        self.failures = {method: set() for method in METHODS}

    @invariant()
    def both_handles_see_what_the_model_says(self) -> None:
        for store in self.stores:
            with self.warns(False):
                for method in METHODS:
                    found = {(entry.version, entry.meta["number"]) for entry in store.versions(method)}
                    assert found == {(key[1], it.number) for key, it in self.model.items() if key[0] == method}
                    assert {record["number"] for record in store.failures(method)} == self.failures[method]


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(
    max_examples=50,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
