"""How arguments reach a decorated method, and what of them is part of the signature."""

from __future__ import annotations

import dataclasses
import decimal
import math
import time
from array import array
from collections import ChainMap, OrderedDict, UserDict, UserList, defaultdict, deque
from datetime import date, datetime, timedelta, tzinfo
from decimal import Decimal
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy
import pytest
import torch
from passed_constants import CONSTANTS, CONSTANTS_SHOWN, of_constant
from torch_support import Block, counts, same, served, twice

from hybrid_infer import CaptureError, explain, inference

X = torch.linspace(-1, 1, 8).reshape(2, 4)
Y = X + 2


class Pair(NamedTuple):
    left: torch.Tensor
    right: Any


@dataclasses.dataclass
class Batch:
    ids: torch.Tensor
    scale: float = 2.0
    extra: Any = None


@dataclasses.dataclass(frozen=True)
class Frozen:
    ids: torch.Tensor
    note: str = "n"


def test_every_way_to_pass_the_same_arguments_is_one_signature() -> None:
    def mix(x: torch.Tensor, y: torch.Tensor, scale: float = 2.0, *, shift: float = 1.0) -> torch.Tensor:
        return x * scale - y + shift

    hot = inference(fallback="error")(mix)
    for args, kwargs in (
        ((X, Y), {}),
        ((X,), {"y": Y}),
        ((), {"y": Y, "x": X}),
        ((X, Y, 2.0), {"shift": 1.0}),
    ):
        twice(hot, mix, *args, **kwargs)
    served(captures=1)
    twice(hot, mix, X, Y, shift=3.0)
    served(captures=2)


def test_var_positional_and_var_keyword() -> None:
    def total(*parts: torch.Tensor, **named: Any) -> torch.Tensor:
        return sum(parts) * named.get("scale", 1) + named["bias"]  # type: ignore[return-value]

    hot = inference(fallback="error")(total)
    twice(hot, total, X, Y, bias=X)
    twice(hot, total, X, Y, X, bias=X, scale=3)
    served(captures=2)


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((), {}), ((X,), {}), ((X, Y, 3), {}), ((X,), {"z": Y}), ((X, Y), {"y": Y}), ((X, Y[:1, :3]), {})],
)
def test_wrong_arguments_fail_exactly_as_the_eager_method_does(args: Any, kwargs: Any) -> None:
    class Plain:
        def __init__(self) -> None:
            self.weight = torch.ones(4)

        def add(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return x + y * self.weight

    class Hot(Plain):
        add = inference()(Plain.add)

    with pytest.raises(Exception) as eager:  # which error is what the test is about
        Plain().add(*args, **kwargs)
    with pytest.raises(type(eager.value)) as found:
        Hot().add(*args, **kwargs)
    assert str(found.value) == str(eager.value)


def _nested(tree: Any) -> torch.Tensor:
    return tree["a"][0] + tree["b"][1]["c"] * (2 if tree["d"] is None else 3)


@pytest.mark.parametrize("kind", [dict, OrderedDict])
def test_nested_lists_tuples_and_dicts(kind: Any) -> None:
    hot = inference(fallback="error")(_nested)
    twice(hot, _nested, kind(a=[X], b=(0, {"c": Y}), d=None))
    twice(hot, _nested, kind(a=[X], b=(0, {"c": Y}), d="set"))
    served(captures=2)


def _pair(pair: Pair) -> torch.Tensor:
    return pair.left * pair.right[0]


def _batch(batch: Batch, frozen: Frozen) -> torch.Tensor:
    return batch.ids * batch.scale + (0 if batch.extra is None else batch.extra) + frozen.ids * len(frozen.note)


def test_named_tuples_and_dataclasses() -> None:
    hot = inference(fallback="error")(_pair)
    twice(hot, _pair, Pair(X, [Y]))
    served(captures=1, part="_pair")
    both = inference(fallback="error")(_batch)
    twice(both, _batch, Batch(X), Frozen(Y))
    twice(both, _batch, Batch(X, 3.0), Frozen(Y))
    twice(both, _batch, Batch(X, 3.0, X), Frozen(Y, "longer"))
    served(captures=3, part="_batch")


def _constant(x: torch.Tensor, value: Any) -> Any:
    if isinstance(value, bool):
        return x * 10 if value else x * 20
    if isinstance(value, int):
        return x + 30 + value
    if isinstance(value, float):
        return x * math.copysign(5.0, value) + value
    return x - (0 if value is None else len(value))


def test_constants_are_told_apart_by_type_and_bits() -> None:
    hot = inference(fallback="error", max_versions=32)(_constant)
    values = [1, True, 1.0, 0, False, 0.0, -0.0, None, "a", "ab"]
    for _ in range(2):
        for value in values:
            twice(hot, _constant, X, value)
    served(captures=counts()["captures"])
    assert counts()["captures"] <= len(values)


@pytest.mark.parametrize(("values", "shown"), [*zip(CONSTANTS, CONSTANTS_SHOWN, strict=True)], ids=repr)
def test_constants_beside_numbers_and_texts(values: tuple[Any, ...], shown: str) -> None:
    hot = inference(fallback="error", backend="onnxruntime")(of_constant)
    for _ in range(2):
        for value in values:
            twice(hot, of_constant, X, value)
            twice(hot, of_constant, X, (value, 1.0))
    served(captures=2 * len(values))
    assert counts()["hits"] >= 6 * len(values)
    assert f"value = {shown}\n" in str(explain(hot))


def test_an_exact_number_counts_with_the_context_that_rounds_what_is_made_of_it() -> None:
    hot = inference(fallback="error", backend="onnxruntime")(lambda x, share: x * float(share / 3))
    for _ in range(2):
        for digits in (3, 8):
            with decimal.localcontext() as context:
                context.prec = digits
                same(hot(X, Decimal(2)), X * float(Decimal(2) / 3))
    served(captures=2)


@pytest.mark.skipif(not hasattr(time, "tzset"), reason="the time zone of a process cannot be set")
@pytest.mark.parametrize("day", [date(2020, 7, 1), datetime(2020, 7, 1, 5)], ids=str)
def test_a_day_counts_with_the_time_zone_in_which_it_begins(day: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    method = lambda x, day: x * (float(f"{day:%s}") % 86400)  # noqa: E731  by C alone, which nothing sees
    hot = inference(fallback="error", backend="onnxruntime")(method)
    try:
        for zone in ("UTC", "JST-9", "UTC"):
            monkeypatch.setenv("TZ", zone)
            time.tzset()
            same(hot(X, day), method(X, day))
    finally:
        monkeypatch.undo()
        time.tzset()
    served(captures=2)


def test_a_constant_of_numpy_keeps_what_it_does_to_types() -> None:
    hot = inference(fallback="error")(lambda x, k: (k * x, x.double() * k, {"k": x + k}))
    for value in (numpy.float32(2), 2.0, numpy.float64(2), numpy.int64(2), numpy.float32("nan")):
        with torch.no_grad():
            for _ in range(2):
                same(hot(X, value), hot.__wrapped__(X, value))
    served(captures=5)


@pytest.mark.parametrize("given", [lambda each: each, lambda each: [each], lambda each: ({"a": each},)])
def test_a_set_that_the_method_changes_is_changed_at_each_call(given: Any) -> None:
    def grow(x: torch.Tensor, held: Any) -> torch.Tensor:
        while not isinstance(held, set):
            held = held[0] if 0 in held or not isinstance(held, dict) else held["a"]
        held.add(len(held) + 7)
        return x * len(held)

    hot = inference()(grow)
    with torch.no_grad():
        for _ in range(3):
            mine, eager = {1}, {1}
            same(hot(X, given(mine)), grow(X, given(eager)))
            assert mine == eager == {1, 8}


def test_a_set_is_another_one_at_each_call_and_one_of_texts_runs_eagerly() -> None:
    def pick(x: torch.Tensor, names: Any) -> list[torch.Tensor]:
        return [x * len(str(name)) + ord(str(name)[0]) for name in names]

    hot = inference()(pick)
    for axes in ({0, 8}, {8, 0}, frozenset([8, 0]), {3}, {"a"}):
        twice(hot, pick, X, axes)
    assert not counts()["fallbacks"] and counts()["captures"] <= 5
    twice(hot, pick, X, {"a", "bb", "ccc"})
    assert "is a set whose order" in next(iter(counts()["fallbacks"]))


def test_an_integer_becomes_an_input_at_its_second_value() -> None:
    def shift(x: torch.Tensor, n: int) -> torch.Tensor:
        return x * n + n

    hot = inference(fallback="error")(shift)
    for n in (3, 5, 7, 1000):
        twice(hot, shift, X, n)
    served(captures=2)
    for n in (-4, 0, 1, -4, 9):  # what the tracer's range leaves out gets a version of its own
        twice(hot, shift, X, n)
    assert counts()["captures"] <= 5 and counts()["eager_calls"] == 0


def test_an_integer_behind_others_that_stay_becomes_an_input() -> None:
    def affine(x: torch.Tensor, a: int, b: int, c: int) -> Any:
        return x * a + b, c + 1

    function = inference()(affine)
    for b, c in [(3, 1), (4, 1), (5, 1), (6, 1), (7, 2), (8, 3), (9, 4)]:
        same(function(X, 2, b, c), affine(X, 2, b, c))
    served(captures=3)
    assert counts()["hits"] == 3  # at 8, which is four times 2, it is compared once more


@pytest.mark.parametrize(
    "equal",
    [lambda x, n, m: n == len(x), lambda x, n, m: n == x.shape[0], lambda x, n, m: n == m,
     lambda x, n, m: n == m + 1, lambda x, n, m: x.shape[0] == 2 * n],
)  # fmt: skip
def test_integers_that_are_equal_to_something_where_they_vary_are_so_in_each_call(equal: Any) -> None:
    def sided(x: torch.Tensor, n: int, m: int) -> torch.Tensor:
        return x * 2 if equal(x, n, m) else x * 3

    hot = inference(fallback="error")(sided)
    calls = [(6, 6, 6), (8, 8, 8), (10, 10, 10), (10, 9, 8), (8, 4, 6), (12, 6, 5), (14, 7, 6), (14, 9, 11)]
    with torch.no_grad():
        for rows, n, m in calls:
            x = torch.ones(rows, 2)
            same(hot(x, n, m), sided(x, n, m))
    served(captures=counts()["captures"])
    before = counts()["captures"]
    with torch.no_grad():
        for rows, n, m in calls:  # in another order than they were captured in
            x = torch.ones(rows, 2)
            same(hot(x, n, m), sided(x, n, m))
    served(captures=before)
    assert before <= 4


def test_an_integer_that_the_tracer_fixes_leaves_the_others_open() -> None:
    def turned(x: torch.Tensor, n: int, times: int) -> torch.Tensor:
        for _ in range(times):
            x = torch.tanh(x * n)
        return x

    hot = inference(fallback="error")(turned)
    for n, times in ((3, 2), (4, 2), (5, 2), (5, 3), (6, 3), (7, 3), (8, 2), (9, 3)):
        twice(hot, turned, X, n, times)
    served(captures=3)


def test_a_default_integer_that_was_left_out_becomes_an_input_too() -> None:
    def shift(x: torch.Tensor, n: int = 3) -> torch.Tensor:
        return x * n

    hot = inference(fallback="error")(shift)
    twice(hot, shift, X, 5)
    twice(hot, shift, X)
    twice(hot, shift, X, 7)
    served(captures=2)


def test_a_float_stays_a_constant() -> None:
    def scaled(x: torch.Tensor, s: float) -> torch.Tensor:
        return x * s

    hot = inference(fallback="error")(scaled)
    for s in (0.5, 1.5, 0.5):
        twice(hot, scaled, X, s)
    served(captures=2)


def test_a_dtype_and_a_device_are_constants() -> None:
    def cast(x: torch.Tensor, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        return (x * 4).to(device=device, dtype=dtype)

    hot = inference(fallback="error")(cast)
    for dtype in (torch.float64, torch.int32, torch.float64):
        twice(hot, cast, X, dtype, torch.device("cpu"))
    served(captures=2)


def test_an_argument_of_a_foreign_class_is_answered_eagerly_by_name() -> None:
    def first(x: torch.Tensor, table: Any) -> torch.Tensor:
        return x + len(table)

    hot = inference()(first)
    twice(hot, first, X, bytearray(2))
    found = counts()
    assert found["eager_calls"] == 2 and found["captures"] == 0
    assert "builtins.bytearray" in next(iter(found["fallbacks"]))


def test_model_output_goes_in_and_comes_out() -> None:
    outputs = pytest.importorskip("transformers.modeling_outputs")

    def step(given: Any) -> Any:
        hidden = given.last_hidden_state
        return outputs.BaseModelOutput(last_hidden_state=hidden * 2, hidden_states=(given["last_hidden_state"],))

    hot = inference(fallback="error")(step)
    given = outputs.BaseModelOutput(last_hidden_state=X)
    found = twice(hot, step, given)
    assert isinstance(found, outputs.BaseModelOutput) and list(found) == ["last_hidden_state", "hidden_states"]
    assert found["hidden_states"][0] is X and found[0] is found.last_hidden_state
    served(captures=1)


def test_an_attribute_of_a_tensor_that_the_code_may_read() -> None:
    class Scaled(Block):
        @inference()
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x) * getattr(x, "scale", 1.0)

    layer = Scaled()
    plain = torch.ones(2, 4)
    with torch.no_grad():
        for _ in range(2):
            same(layer(plain), layer.linear(plain))
            for scale in (2.0, 3.0):
                scaled = plain.clone()
                scaled.scale = scale  # type: ignore[attr-defined]
                same(layer(scaled), layer.linear(plain) * scale)
            other = plain.clone()
            other.name_of_mine = "which nothing reads"  # type: ignore[attr-defined]
            same(layer(other), layer.linear(plain))
    found = counts()
    assert found["captures"] == 1 and found["hits"] == 3 and found["eager_calls"] == 4
    [reason] = found["fallbacks"]
    assert "'scale' of a tensor" in reason


NAMES = ("scale",)


class Computed(Block):
    def __init__(self) -> None:
        super().__init__()
        self.name = "scale"

    @inference()
    def from_constants(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        for name in ("scale", "shift"):
            y = y * getattr(x, name, 1.0)
        return y

    @inference()
    def from_global(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * getattr(x, NAMES[0], 1.0)

    @inference()
    def from_layer(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * getattr(x, self.name, 1.0)

    @inference()
    def from_default(self, x: torch.Tensor, name: str = "scale") -> torch.Tensor:
        return self.linear(x) * getattr(x, name, 1.0)


@pytest.mark.parametrize("method", ["from_constants", "from_global", "from_layer", "from_default"])
def test_an_attribute_of_a_tensor_that_the_code_may_read_by_a_computed_name(method: str) -> None:
    layer = Computed()
    call = getattr(layer, method)
    plain = torch.ones(2, 4)
    with torch.no_grad():
        for scale in (2.0, 3.0):
            same(call(plain), layer.linear(plain))
            scaled = plain.clone()
            scaled.scale = scale  # type: ignore[attr-defined]
            for _ in range(2):
                same(call(scaled), layer.linear(plain) * scale)


def test_a_parameter_as_an_argument_is_served() -> None:
    class Hot(Block):
        forward = inference(fallback="error")(Block.forward)

    layer = Hot()
    twice(layer, Block.forward.__get__(layer), torch.nn.Parameter(torch.ones(2, 4), requires_grad=False))
    served(captures=1)


class Recent(deque[float]):
    pass


class Moved(tzinfo):
    def utcoffset(self, moment: datetime | None) -> timedelta:
        return timedelta(hours=moment.hour if moment else 0)


@pytest.mark.parametrize(
    "value, words",
    [(defaultdict(lambda: 0.0, a=2.0), r"collections.defaultdict.*plain dict of it, dict\(...\)"),
     (MappingProxyType(UserDict(a=2.0)), r"mappingproxy.*plain dict of it, dict\(...\)"),
     (Recent([2.0]), r"Recent.*a list of it"),
     (UserList([2.0]), r"collections.UserList.*a list of it, list\(...\)"),
     ({"a": 2.0}.values(), r"builtins.dict_values.*a list of it, list\(...\)"),
     (ChainMap({"a": 2.0}), r"collections.ChainMap.*plain dict of it"),
     (array("f", [2.0]), r"array.array.*tensor of it"),
     (iter([2.0]), r"list_iterator.*a list of it"), (bytearray(b"a"), "builtins.bytearray.*Pass bytes"),
     (numpy.ones(2), "numpy.ndarray.*Make a tensor of it"),
     (datetime(2020, 1, 2, tzinfo=Moved()), "datetime.datetime.*fixed offset")],
    ids=lambda each: type(each).__name__,
)  # fmt: skip
def test_what_to_pass_instead_is_named(value: Any, words: str) -> None:
    hot = inference(fallback="error")(lambda x, k: x * 2)
    for given in (value, [X, value], {"t": X, "v": value}):
        with torch.no_grad(), pytest.raises(CaptureError, match=words):
            hot(X, given)
