"""Lists, dicts and objects among the arguments, which a method changes: caches of keys and values above all."""

from __future__ import annotations

import functools
import gc
import threading
from dataclasses import dataclass
from typing import Any

import given_objects
import pytest
import torch
from given_objects import CHANGES, Cache, Parts
from torch_support import Block, counts, eagerly, same, served

from hybrid_infer import CaptureError, _defects, _miss, explain, inference, load, save
from hybrid_infer.backends import onnxruntime
from hybrid_infer.checks import _agreement

OURS = _defects.ours  # before a fixture takes it away
X = torch.linspace(-1, 1, 8).reshape(2, 4)


class Joins:
    @staticmethod
    def joined(a: Any, b: Any) -> Any:
        return torch.cat([a, b])


def numbers(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return None
    return tuple(value.shape), [round(n, 4) for n in value.detach().flatten().tolist()]


def same_state(found: Any, expected: Any) -> None:
    assert given_objects.described(found, numbers) == given_objects.described(expected, numbers)


@pytest.mark.parametrize("name", CHANGES)
def test_what_a_method_changes_is_changed(name: str) -> None:
    function, make = CHANGES[name]
    method = inference()(function)
    with torch.no_grad():
        mine, eager = make(X, Joins), make(X, Joins)
        for n in range(7):
            x = X + n
            ids = given_objects.containers(mine)
            found, expected = method(x, mine), function(x, eager)
            same_state((found, mine), (expected, eager))
            if name not in ("another_part", "swapped"):
                assert given_objects.containers(mine)[: len(ids)] == ids
        other, eager = make(X, Joins), make(X, Joins)
        found, expected = method(X, other), function(X, eager)
        same_state((found, other), (expected, eager))
    # The first call of some does no more than to keep what it is given.
    assert counts()["hits"] >= 2 and set(counts()["fallbacks"]) <= {"it computes nothing from its arguments"}, counts()


def test_a_cache_costs_three_captures_however_long_it_grows() -> None:
    """Empty, filled, and of a length that varies."""
    method = inference()(given_objects.grows)
    with torch.no_grad():
        for _ in range(2):
            mine, eager = Cache(Joins), Cache(Joins)
            for n in range(8):
                same(method(X + n, mine), given_objects.grows(X + n, eager))
            same_state(mine, eager)
    served(captures=3)
    assert counts()["hits"] == 12  # at 8 rows it is compared once more


def test_a_layer_is_looked_at_for_new_static_models_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not at each length of a cache, of which each step of a text has another one."""
    found: list[Any] = []
    subject = _miss.subject_of
    monkeypatch.setattr(_miss, "subject_of", lambda *given: found.append(given) or subject(*given))
    method, mine, eager = inference()(given_objects.grows), Cache(Joins), Cache(Joins)
    looked = []
    with torch.no_grad():
        for n in range(40):
            same(method(X + n, mine), given_objects.grows(X + n, eager))
            looked.append(len(found))
    served(captures=3)
    assert looked[-1] == looked[19]
    assert len(set(looked)) < 8  # three captures, and the magnitudes of the sizes at which one is compared anew


def _noting(noted: list[Any], function: Any, values: Any) -> Any:
    noted.append(values)
    return function(values)


def test_numbers_of_objects_are_found_once_for_calls_that_are_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    class Counter:
        def __init__(self, seen: int) -> None:
            self.seen = seen

    @inference()
    def step(x: Any, counter: Any) -> Any:
        counter.seen = counter.seen + 1
        return x + counter.seen

    laid_out: list[Any] = []
    with torch.no_grad():
        for turn in range(3):
            if turn == 2:
                state = step.__hybrid_infer__.sole
                watched = functools.partial(_noting, laid_out, state.layout)
                monkeypatch.setattr(state, "layout", watched)
            for seen in (3, 5, 9, 11):
                counter = Counter(seen)
                same(step(X, counter), X + seen + 1)
                assert counter.seen == seen + 1
    assert counts()["hits"] >= 8 and not laid_out


def test_explain_names_what_is_inside_of_an_object() -> None:
    method = inference()(given_objects.of_parts)
    with torch.no_grad():
        cache = Parts(Joins)
        for _ in range(2):
            method(X, cache)
    told = str(explain(method))
    assert "takes      given.layers[0].keys: float32 (2, 4)" in told
    assert "takes      given.layers[1].rows: int 2" in told


def test_every_call_is_compared() -> None:
    method = inference(verify="always")(given_objects.grows)
    mine, eager = Cache(Joins), Cache(Joins)
    with torch.no_grad():
        for n in range(5):
            same(method(X + n, mine), given_objects.grows(X + n, eager))
            same_state(mine, eager)
    assert not counts()["fallbacks"] and counts()["hits"] == 2


def test_a_change_that_only_the_eager_method_makes_is_found() -> None:
    class Silent(Cache):
        def update(self, x: Any) -> Any:
            if not torch.compiler.is_compiling():
                self.kept = x
            return super().update(x)

    method, mine = inference()(given_objects.grows), Silent(Joins)
    with torch.no_grad():
        for _ in range(2):
            method(X, mine)
    same(mine.kept, X * 2)
    assert counts()["hits"] == 0


def test_engines_are_measured_on_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HYBRID_INFER_BACKEND")
    method, mine, eager = inference()(given_objects.grows), Cache(Joins), Cache(Joins)
    with torch.no_grad():
        for n in range(6):
            same(method(X + n, mine), given_objects.grows(X + n, eager))
            same_state(mine, eager)
    assert counts()["captures"] >= 2


def test_an_engine_that_fails_leaves_the_change_to_the_eager_method(monkeypatch: pytest.MonkeyPatch) -> None:
    method, mine, eager = inference()(given_objects.grows), Cache(Joins), Cache(Joins)
    with torch.no_grad():
        for n in range(4):
            method(X + n, mine)
            given_objects.grows(X + n, eager)

        def failing(*_: Any) -> Any:
            raise ValueError("out of order")

        for route in method.__hybrid_infer__.sole.routes.values():
            monkeypatch.setattr(route.program._session, "run", failing)
        same(method(X, mine), given_objects.grows(X, eager))
    same_state(mine, eager)
    assert "out of order" in str(counts()["fallbacks"])


def test_a_defect_behind_the_eager_answer_changes_nothing_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: Any) -> Any:
        raise ValueError("broken")

    monkeypatch.setattr(_defects, "ours", OURS)
    monkeypatch.setattr(_agreement, "check", failing)
    method, mine, eager = inference()(given_objects.grows), Cache(Joins), Cache(Joins)
    with torch.no_grad():
        for n in range(3):
            same(method(X + n, mine), given_objects.grows(X + n, eager))
            same_state(mine, eager)
    assert "a defect of hybrid_infer: ValueError: broken" in str(counts()["fallbacks"])


def test_a_defect_in_the_comparison_of_every_call_changes_nothing_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    method, mine, eager = inference(verify="always")(given_objects.grows), Cache(Joins), Cache(Joins)
    with torch.no_grad():
        for n in range(4):
            method(X + n, mine)
            given_objects.grows(X + n, eager)

        def failing(*_: Any) -> Any:
            raise ValueError("broken")

        monkeypatch.setattr(_defects, "ours", OURS)
        monkeypatch.setattr(_agreement, "check", failing)
        same(method(X, mine), given_objects.grows(X, eager))
    same_state(mine, eager)
    assert "a defect of hybrid_infer: ValueError: broken" in str(counts()["fallbacks"])


def test_gradients_reach_what_was_put_into_a_cache() -> None:
    method = inference()(given_objects.grows)
    weight = torch.ones(4, requires_grad=True)
    gradients = []
    for function in (method, given_objects.grows):
        cache = Cache(Joins)
        for n in range(5):
            result = function((X + n) * weight, cache)
        (result.sum() + cache.keys.sum()).backward()
        gradients.append(weight.grad)
        weight.grad = None
    same(*gradients)
    assert counts()["hits"] >= 1


def test_in_the_background() -> None:
    from hybrid_infer import _background

    method = inference(background=True)(given_objects.grows)
    mine, eager = Cache(Joins), Cache(Joins)
    with torch.no_grad():
        for n in range(8):
            same(method(X + n, mine), given_objects.grows(X + n, eager))
            same_state(mine, eager)
            _background.wait()
    assert counts()["captures"] >= 2 and counts()["hits"] >= 2


def test_one_object_in_two_places() -> None:
    def run(x: Any, a: list[Any], b: list[Any]) -> Any:
        a.append(x)
        return x + len(b)

    method = inference(fallback="error")(run)
    with torch.no_grad():
        for _ in range(3):
            same(method(X, [], []), X)
        for _ in range(3):
            one: list[Any] = []
            same(method(X, one, one), X + 1)
            assert len(one) == 1
    served(captures=2)


def test_a_model_is_saved_whatever_calls_came_before(tmp_path: Any) -> None:
    class Hot(Block):
        @inference()
        def forward(self, x: Any, a: Any, b: Any) -> Any:
            rows = [self.linear(x) * a[0]]
            return {"first": rows, "second": rows, "sum": rows[0] + b[0]}

    layer, one = Hot().eval(), [2]
    with torch.no_grad():
        layer(X, [1], [2])
        layer(X, one, one)
        save(layer, str(tmp_path / "model"))
        found = load(str(tmp_path / "model"))(X, [1], [2])
        same(found["sum"], layer(X, [1], [2])["sum"])
    assert found["first"] is found["second"]


class Plain:
    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)


@pytest.mark.parametrize("kind", [lambda: [1], lambda: {0: 1}, lambda: Plain(n=1), lambda: given_objects.Record(1)])
def test_one_object_is_told_from_two_equal_ones(kind: Any) -> None:
    method = inference(fallback="error")(lambda x, a, b: x + 1 if a is b else x * 2)
    with torch.no_grad():
        for _ in range(2):
            same(method(X, kind(), kind()), X * 2)
            one = kind()
            same(method(X, one, one), X + 1)
    served(captures=2)


def test_a_change_that_is_taken_back_is_seen_where_two_are_one() -> None:
    def run(x: Any, a: Plain, b: Plain) -> Any:
        before, a.n = a.n, 5
        x = x * b.n
        a.n = before
        return x

    method, one = inference(fallback="error")(run), Plain(n=1)
    with torch.no_grad():
        for _ in range(2):
            same(method(X, Plain(n=1), Plain(n=1)), X)
            same(method(X, one, one), X * 5)


def test_an_object_that_stands_in_two_places_or_in_itself() -> None:
    def run(x: Any, given: dict[str, Any]) -> Any:
        given["a"].rows += 1
        return x + given["b"].rows

    method = inference()(run)
    with torch.no_grad():
        for _ in range(2):
            cache = Cache(Joins)
            same(method(X, {"a": cache, "b": cache}), X + 1)
        served(captures=1)
        cache.itself = cache  # type: ignore[attr-defined]
        same(method(X, {"a": cache, "b": Cache(Joins)}), X)
    assert "which holds itself," in next(iter(counts()["fallbacks"]))


@pytest.mark.parametrize("make", [lambda: [], dict])
def test_a_list_or_dict_that_holds_itself_is_named(make: Any) -> None:
    method, one = inference()(lambda x, given: x + len(given)), make()
    one.append(one) if isinstance(one, list) else one.update(again=[one])
    with torch.no_grad():
        same(method(X, one), X + 1)
    eagerly("which holds itself,")


def test_arguments_nested_too_deeply() -> None:
    deep: list[Any] = []
    for _ in range(3000):
        deep = [deep]
    method = inference()(lambda x, given: x + len(given))
    with torch.no_grad():
        same(method(X, deep), X + 1)
    eagerly("its arguments are nested too deeply")


def test_a_new_object_that_a_method_puts_in_two_places_stays_one() -> None:
    def run(x: Any, given: dict[str, Any]) -> Any:
        if "a" in given:
            given["a"].append(x)
            return x + len(given["b"])
        given["a"] = given["b"] = [x + 1]
        given["c"] = given["d"] = Plain(n=x)
        return x * 2

    method = inference(fallback="error")(run)
    with torch.no_grad():
        for _ in range(3):
            mine: dict[str, Any] = {}
            method(X, mine)
            assert mine["a"] is mine["b"] and mine["c"] is mine["d"]
            same(method(X, mine), X + 2)
    assert counts()["hits"] == 4


class Derived(list[Any]):
    pass


@dataclass
class Slotted:
    __slots__ = ("n",)
    n: int


@pytest.mark.parametrize("make", [lambda: Derived([1]), lambda: Slotted(3), lambda: [1], lambda: Plain(n=1)])
def test_what_stands_beside_a_change_stays_that_object(make: Any) -> None:
    def run(x: Any, first: dict[str, Any], second: list[Any]) -> Any:
        first["sum"] = second[0] = x + 1
        return x * 2

    method = inference(fallback="error")(run)
    with torch.no_grad():
        for _ in range(3):
            one, other = make(), make()
            first, second = {"one": one, "sum": None}, [X, other]
            method(X, first, second)
            assert first["one"] is one and second[1] is other
            same(second[0], X + 1)
    assert counts()["hits"] == 2


def test_objects_in_tuples_and_among_any_number_of_arguments() -> None:
    def run(x: Any, *caches: Any, **named: Any) -> Any:
        for each in (*caches, *named["both"]):
            each.n = each.n + 1
        return x + caches[0].n

    method, mine = inference()(run), [Plain(n=k) for k in range(4)]
    with torch.no_grad():
        for n in range(4):
            same(method(X, *mine[:2], both=(mine[2], mine[3])), X + n + 1)
            assert [each.n for each in mine] == [n + 1, n + 2, n + 3, n + 4]
    assert counts()["hits"] >= 1 and not counts()["fallbacks"]


def test_the_order_of_what_is_dropped_and_put_back() -> None:
    def run(x: Any, given: Plain, keys: dict[Any, Any]) -> Any:
        given.c = x + 1
        held = vars(given).pop("a")
        given.a = held
        keys[True] = keys.pop(1)
        return x

    method = inference()(run)
    with torch.no_grad():
        for _ in range(3):
            mine, keys = Plain(a=1, b=2), {1: 3}
            method(X, mine, keys)
            assert [*vars(mine)] == ["b", "c", "a"] and [*map(type, keys)] == [bool]
    assert counts()["hits"] == 2


def test_an_argument_of_which_the_class_changes() -> None:
    class Filled(Plain):
        pass

    def run(x: Any, given: Plain) -> Any:
        given.__class__ = Filled
        return x + given.n

    method = inference()(run)
    with torch.no_grad():
        for _ in range(2):
            mine = Plain(n=1)
            same(method(X, mine), X + 1)
            assert type(mine) is Filled
    eagerly("it changes the class of an argument")


ADD, MULTIPLY = Plain(), Plain()
TABLE = {"add": ADD}


@pytest.mark.parametrize("known", [lambda each: each is ADD, lambda each: each is TABLE["add"]])
def test_an_object_that_the_code_knows_by_its_identity(known: Any) -> None:
    @inference()
    def run(x: Any, operation: Plain) -> Any:
        return x + 1 if known(operation) else x * 2

    with torch.no_grad():
        for operation in (Plain(), Plain(), MULTIPLY, MULTIPLY):
            same(run(X, operation), X * 2)
        for _ in range(2):
            same(run(X, ADD), X + 1)
    assert counts()["hits"] == 3 and "its code holds too" in next(iter(counts()["fallbacks"]))


@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize("make", [lambda: Plain(n=1), lambda: {"n": 1}])
def test_an_object_that_the_layer_holds_comes_after_another_one(make: Any, background: bool) -> None:
    class Hot(Block):
        def __init__(self) -> None:
            super().__init__()
            self.held = make()

        @inference(background=background)
        def forward(self, x: Any, given: Any) -> Any:
            state = given if isinstance(given, dict) else vars(given)
            mine = self.held if isinstance(given, dict) else vars(self.held)
            state["n"] = state["n"] + 1
            return x + mine["n"]

    from hybrid_infer import _background

    layer = Hot()
    with torch.no_grad():
        for _ in range(3):
            same(layer(X, make()), X + 1)
            _background.wait()
        assert counts()["hits"] >= 1
        for _ in range(2):
            layer.held = own = make()
            same(layer(X, own), X + 2)
            _background.wait()


def test_a_cache_that_the_layer_holds_as_well() -> None:
    class Hot(Block):
        def __init__(self) -> None:
            super().__init__()
            self.cache = Cache(Joins)

        @inference()
        def forward(self, x: Any, cache: Cache) -> Any:
            cache.update(x)
            return x + self.cache.rows

    layer = Hot()
    with torch.no_grad():
        same(layer(X, layer.cache), X + 2)
        same(layer(X, layer.cache), X + 4)
    eagerly("an object that its layer or its code holds too")


SHARED = Cache(Joins)


def test_a_cache_that_a_global_holds_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "SHARED", Cache(Joins))

    @inference()
    def run(x: Any, cache: Cache) -> Any:
        cache.update(x)
        return x + SHARED.rows

    with torch.no_grad():
        same(run(X, SHARED), X + 2)
        same(run(X, SHARED), X + 4)
    assert counts()["hits"] == 0 and "its layer or its code holds too" in next(iter(counts()["fallbacks"]))


def test_a_write_into_a_tensor_of_a_cache_is_a_change_of_it() -> None:
    @inference()
    def run(x: Any, cache: Cache) -> Any:
        cache.keys[:2] = x
        return cache.keys + 1

    keys = torch.zeros(4, 4)
    cache = Cache(Joins, keys=keys)
    with torch.no_grad():
        for n in range(3):
            same(run(X + n, cache), torch.cat([X + n, torch.zeros(2, 4)]) + 1)
            same(keys, torch.cat([X + n, torch.zeros(2, 4)]))
    assert cache.keys is keys and counts()["hits"] == 2


def test_what_cannot_be_taken_apart_is_named() -> None:
    method, lock = inference(fallback="error")(given_objects.grows), threading.Lock()
    with torch.no_grad(), pytest.raises(CaptureError, match=r"argument `given`\.lock is of class _thread\.lock"):
        method(X, Cache(Joins, lock=lock))


def test_a_layer_or_a_function_is_no_data() -> None:
    @inference(fallback="error")
    def run(x: Any, given: Any) -> Any:
        return given(x)

    with torch.no_grad(), pytest.raises(CaptureError, match="Block"):
        run(X, Block())


def test_code_of_a_cache_is_part_of_the_key() -> None:
    class Doubling(Cache):
        def update(self, x: Any) -> Any:
            return super().update(x) * 2

    method = inference()(given_objects.grows)
    with torch.no_grad():
        for kind in (Cache, Doubling, Cache):
            for _ in range(2):
                same(method(X, kind(Joins)), given_objects.grows(X, kind(Joins)))
        Doubling.update = lambda self, x: Cache.update(self, x) * 3  # type: ignore[method-assign,assignment]
        for _ in range(2):
            same(method(X, Doubling(Joins)), given_objects.grows(X, Doubling(Joins)))
    assert not counts()["fallbacks"]


def test_a_member_of_an_enumeration_is_told_from_the_others() -> None:
    def run(x: Any, mode: Any) -> Any:
        return x * 2 if mode is given_objects.Mode.SUM else x - 1

    method = inference(fallback="error")(run)
    with torch.no_grad():
        for mode in (*given_objects.Mode, *given_objects.Mode):
            same(method(X, mode), run(X, mode))
    served(captures=2)


def test_what_the_class_of_an_object_says_is_seen_to_change() -> None:
    class Config:
        scale = 2.0

        def __init__(self) -> None:
            self.factor = 3

        @property
        def both(self) -> float:
            return self.scale * self.factor

    method, config = inference(fallback="error")(lambda x, config: x * config.both), Config()
    with torch.no_grad():
        for change in (lambda: None, lambda: setattr(Config, "scale", 5.0), lambda: setattr(config, "factor", 7),
                       lambda: setattr(config, "scale", 0.5), lambda: setattr(Config, "both", 11.0)):  # fmt: skip
            change()
            for _ in range(2):
                same(method(X, config), X * config.both)
    assert counts()["hits"] >= 4


def test_an_object_is_not_kept() -> None:
    class Watched(Cache):
        pass

    method = inference()(given_objects.grows)
    with torch.no_grad():
        for _ in range(3):
            cache = Watched(Joins)
            method(X, cache)
    del cache
    gc.collect()
    assert not any(type(each) is Watched for each in gc.get_objects())


def test_several_threads_with_a_cache_each() -> None:
    method = inference()(given_objects.of_parts)
    expected = Parts(Joins)
    for n in range(6):
        given_objects.of_parts(X + n, expected)
    found: list[Any] = []

    def work() -> None:
        with torch.no_grad():
            mine = Parts(Joins)
            for n in range(6):
                method(X + n, mine)
            found.append(given_objects.described(mine, numbers))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [given_objects.described(expected, numbers)] * 4


def test_the_program_is_asked_for_once_more_where_a_weight_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hot(Block):
        @inference()
        def forward(self, x: Any, cache: Cache) -> Any:
            return cache.update(self.linear(x))

    layer, loads = Hot(), []
    load = onnxruntime.OnnxRuntime.load
    monkeypatch.setattr(onnxruntime.OnnxRuntime, "load", lambda *a, **k: loads.append(1) or load(*a, **k))
    with torch.no_grad():
        for value in (1.0, 2.0):
            layer.linear.weight.fill_(value)
            cache = Cache(Joins)
            for _ in range(4):
                found = layer(X, cache)
            same(found, layer.linear(X).repeat(4, 1))
    # The other weight is bound anew for each of the two kinds of calls with a filled cache, which one program serves.
    assert counts()["captures"] == 3 and len(loads) == 5
