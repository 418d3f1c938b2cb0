"""Plain branches on the values of tensors: a graph has the side that its call took, and each later call is checked."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch_support import Block, counts, eagerly, same

import hybrid_infer
from hybrid_infer import CaptureError, _pauses, _sides, inference, to_static

pytestmark = pytest.mark.torch

X = torch.arange(1.0, 7.0).reshape(2, 3)
NAN, INFINITE = X.clone().index_fill_(0, torch.tensor([1]), torch.nan), X.clone().fill_(torch.inf)


def asserted(x: Any) -> Any:
    assert (x > 0).all(), "not positive"
    return x * 2


def finite(x: Any) -> Any:
    if torch.isnan(x).any():
        raise ValueError("NaN")
    return x * 2


def by_item(x: Any) -> Any:
    return x * 2 if (x > 0).all().item() else x - 1


def negated(x: Any) -> Any:
    if not (x > 0).all():
        return x - 1
    return x * 2


def number(x: Any) -> Any:
    return x * 2 if x.sum() else x - 1  # NaN is true


def integer(x: Any) -> Any:
    return x * 2 if (x > 0).sum() else x - 1


def one_element(x: Any) -> Any:
    return x * 2 if x[:1, :1] > 0 else x - 1


def contained(x: Any) -> Any:
    return x * 2 if 2.0 in x else x - 1


def several(x: Any) -> Any:
    if (x > 0).all() and not (x > 10).any():
        x = x + 1
    if (x.sum() > 0) | (x.max() > 3):
        x = x * 2
    return x - 1


def by_function(x: Any) -> Any:
    return x * 2 if torch.is_nonzero((x > 0).all()) and x.sum().is_nonzero() else x - 1


def greatest(x: Any) -> Any:
    return max(x[0, 0], x[0, 1]) * x


def each_row(x: Any) -> Any:
    for row in x:
        if row.sum() < 0:
            return x - 1
    return x * 2


def helper(x: Any) -> Any:
    return x + 1 if (x > 0).all() else x


def by_several_calls(x: Any) -> Any:
    return helper(x) + helper(-x)  # one place goes both ways, by two calls


def behind_writes(x: Any) -> Any:
    y = x.clone()
    y[0] += 1
    y.mul_(2)
    if (y > 3).all():
        y.sub_(1)
    return y


def normal(x: Any) -> Any:
    return torch.distributions.Normal(x[0], x[1].exp()).log_prob(x)


def size_too(x: Any) -> Any:
    return x * x.shape[0] if (x.sum() > x.shape[0]) else x - 1


FORMS: list[Callable[..., Any]] = [
    asserted, finite, by_item, negated, number, integer, one_element, contained, several, by_function, greatest,
    each_row, by_several_calls, behind_writes, normal, size_too,
]  # fmt: skip


def outcome(function: Any, *args: Any) -> Any:
    """What a call gives, or what it raises."""
    try:
        return function(*args)
    except Exception as fault:
        return type(fault), str(fault).partition("\n")[0]


def alike(found: Any, expected: Any) -> None:
    if isinstance(expected, torch.Tensor):
        same(found, expected)
    else:
        assert found == expected


@pytest.mark.parametrize("engine", ["onnxruntime", "native"])
@pytest.mark.parametrize("function", FORMS, ids=lambda each: each.__name__)
def test_each_side_is_the_eager_ones(function: Any, engine: str) -> None:
    hot = inference(function, backend=engine)
    others = [-X, X * 0, NAN, INFINITE, -INFINITE, X - 3]
    with torch.no_grad():
        for _ in range(3):
            alike(outcome(hot, X.clone()), outcome(function, X.clone()))
        before = counts()
        assert before["captures"] == 1 and before["hits"] == 2 and not before["fallbacks"], before
        for other in others:
            alike(outcome(hot, other.clone()), outcome(function, other.clone()))
            alike(outcome(hot, X.clone()), outcome(function, X.clone()))
    after = counts()
    assert after["hits"] > 2, after
    assert all("went another way" in reason for reason in after["fallbacks"]), after


@pytest.mark.parametrize("function", [asserted, by_item, several], ids=lambda each: each.__name__)
def test_an_engine_that_takes_a_nan_for_a_number_is_not_asked(function: Any) -> None:
    pytest.importorskip("openvino")
    hot = inference(function, backend=["openvino", "onnxruntime"])
    with torch.no_grad():
        for given in (X, X, NAN, X):
            alike(outcome(hot, given), outcome(function, given))
    (version,) = hybrid_infer.explain(hot).to_dict()["methods"][0]["versions"]
    assert version["served_by"] == ["onnxruntime"]
    alone = inference(function, backend="openvino")
    with torch.no_grad():
        alike(outcome(alone, NAN), outcome(function, NAN))
        alike(outcome(alone, X), outcome(function, X))


CONDITIONS: list[Callable[[Any], Any]] = [
    lambda x: (x > 0).all(), lambda x: x.isnan().any(), lambda x: x.sum(), lambda x: (x[0] > 1).any().item(),
    lambda x: x.max() >= 2, lambda x: x.long().sum() % 2 == 0, lambda x: not (x < -1).any(), lambda x: 1.0 in x.round(),
]  # fmt: skip
STEPS: list[Callable[[Any], Any]] = [
    lambda x: x * 2, lambda x: x - 1, lambda x: -x, lambda x: x.clone().add_(1), lambda x: x.flip(0), torch.tanh,
]  # fmt: skip


@pytest.mark.parametrize("seed", range(8))
def test_methods_made_at_random(seed: int) -> None:
    generator = random.Random(seed)
    plan = [(generator.choice(CONDITIONS), *generator.sample(STEPS, 2)) for _ in range(4)]

    def method(x: Any) -> Any:
        (ask, then, otherwise), (ask_2, then_2, otherwise_2), (ask_3, then_3, otherwise_3), (assure, *_) = plan
        x = then(x) if ask(x) else otherwise(x)
        x = then_2(x) if ask_2(x) else otherwise_2(x)
        if ask_3(x):
            x = then_3(x)
        x = otherwise_3(x)
        assert assure(x) or x.shape[0] == 2
        return x + 1

    hot = inference(method)
    kinds = [lambda: torch.randn(2, 3), lambda: torch.rand(2, 3) + 1, lambda: -torch.rand(2, 3), lambda: NAN.clone()]
    with torch.no_grad():
        for n in range(40):
            given = kinds[0 if n % 4 else generator.randrange(4)]()
            same(hot(given.clone()), method(given.clone()))
    found = counts()
    assert found["captures"] >= 1 and all("branch" in reason for reason in found["fallbacks"]), found


def test_what_eager_raises_is_raised_and_no_fallback_is_counted() -> None:
    hot = inference(asserted)
    with torch.no_grad():
        hot(X), hot(X)
        for _ in range(3):
            with pytest.raises(AssertionError, match="not positive"):
                hot(-X)
        same(hot(X), X * 2)
    found = counts()
    assert (found["captures"], found["hits"]) == (1, 2) and not found["fallbacks"], found


def test_a_first_call_that_raises_leaves_later_ones_to_be_served(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(_pauses, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    hot = inference(finite)
    with torch.no_grad():
        with pytest.raises(ValueError, match="NaN"):
            hot(NAN)
        clock[0] += 10
        same(hot(X), X * 2)
        same(hot(X), X * 2)
    assert counts()["hits"] == 1


def loop(x: Any) -> Any:
    while x.abs().max() > 1:
        x = x / 2
    return x + 1


def many(x: Any) -> Any:
    for _ in range(65):
        if x.sum() > 0:
            x = x + 1
    return x


def drawn(x: Any) -> Any:
    if torch.rand(2).sum() > 5:
        x = x + 1
    return x


def in_a_branch(x: Any) -> Any:
    def side(y: Any) -> Any:
        return y + 1 if y.sum() > 0 else y * 2

    return torch.cond(x.sum() > 0, side, lambda y: y * 2, (x,)) if torch.compiler.is_compiling() else x + 1


def a_size(x: Any) -> Any:
    return x[x > 2] if x[x > 2].shape[0] else x


@pytest.mark.parametrize("function", [loop, many, drawn, in_a_branch, a_size], ids=lambda each: each.__name__)
def test_what_no_graph_could_hold_runs_eagerly(function: Any) -> None:
    hot = inference(function)
    with torch.no_grad():
        for _ in range(3):
            same(hot(X), function(X))
    found = counts()
    assert found["captures"] == found["hits"] == 0 and found["eager_calls"] == 3, found


def test_a_loop_that_ended_at_once_is_not_captured_for_every_count(monkeypatch: pytest.MonkeyPatch) -> None:
    hot = inference(loop)
    with torch.no_grad():
        for n in (0.1, 0.2, *range(2, 40)):
            same(hot(X * 0 + n), loop(X * 0 + n))
    found = counts()
    assert found["captures"] == 1 and found["eager_calls"] >= 36, found


class Mask(Block):
    def forward(self, x: Any, mask: Any = None) -> Any:
        if mask is not None and mask.all():
            mask = None
        y = self.linear(x)
        return y if mask is None else y.masked_fill(~mask[..., None], 0.0)


def decorated(kind: Any, **options: Any) -> Any:
    """A layer of a class of its own, so that no static model of another test is known."""
    hot = type(kind.__name__, (kind,), {"forward": inference(kind.forward, **options)})
    return hot().eval()


FULL, PART = torch.ones(2, 3, dtype=torch.bool), torch.tensor([[True, True, False], [True, False, False]])


def test_the_rare_side_is_answered_eagerly_and_the_other_one_goes_on() -> None:
    layer, x = decorated(Mask), torch.randn(2, 3, 4)
    with torch.no_grad():
        for n in range(60):
            mask = PART if n % 20 == 19 else FULL
            same(layer(x, mask), Mask.forward(layer, x, mask))
    found = counts()
    assert (found["captures"], found["eager_calls"], found["hits"]) == (1, 3, 56), found
    (reason,) = found["fallbacks"]
    assert "test_torch_branches.py:" in reason


def test_the_other_side_is_captured_where_all_calls_take_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_sides, "_PAUSE", 600.0)  # however long the capture takes
    layer, x = decorated(Mask), torch.randn(2, 3, 4)
    with torch.no_grad():
        for n in range(40):
            mask = FULL if n < 5 else PART
            same(layer(x, mask), Mask.forward(layer, x, mask))
    found = counts()
    assert (found["captures"], found["eager_calls"]) == (2, 3), found
    assert found["hits"] == 40 - 2 - 3, found


def test_where_both_sides_are_common_the_eager_method_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(_pauses, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    layer, x, runs = decorated(Mask), torch.randn(2, 3, 4), []
    another_way = _sides.Sides.another_way
    monkeypatch.setattr(_sides.Sides, "another_way", lambda s, *of: runs.append(1) or another_way(s, *of))
    with torch.no_grad():
        for n in range(1000):
            clock[0] += 0.01
            mask = FULL if n % 2 else PART
            same(layer(x, mask), Mask.forward(layer, x, mask))
    found = counts()
    assert found["captures"] <= 2, found
    assert len(runs) < 30, len(runs)
    assert any("its calls take both sides" in reason for reason in found["fallbacks"]), found


def test_it_is_an_error_where_the_user_wants_one() -> None:
    layer, x = inference(Block_with_flag().eval(), fallback="error"), torch.randn(2, 4)
    with torch.no_grad():
        layer(x), layer(x)
    hot = inference(loop, fallback="error")
    with torch.no_grad(), pytest.raises(CaptureError, match="a branch depends on the values of a tensor"):
        hot(X)


class Block_with_flag(Block):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("ready", torch.tensor([False]))
        self.register_buffer("seen", torch.tensor(0))

    def forward(self, x: Any) -> Any:
        if not self.ready:
            x = x * 2
        if self.seen == 0:
            x = x + 1
        return self.linear(x)


def set_in_place(layer: Any) -> None:
    layer.ready.fill_(True)


def set_through_data(layer: Any) -> None:
    layer.ready.data[0] = True


def set_by_state(layer: Any) -> None:
    layer.load_state_dict({**layer.state_dict(), "ready": torch.tensor([True]), "seen": torch.tensor(3)})


def set_anew(layer: Any) -> None:
    layer.ready = torch.tensor([True])


SETS = [set_in_place, set_through_data, set_by_state, set_anew]


@pytest.mark.parametrize("weights", ["auto", "live", "bound"])
@pytest.mark.parametrize("change", SETS, ids=lambda each: each.__name__)
def test_a_flag_of_the_layer_that_is_set_later_is_seen_by_the_next_call(
    change: Any, weights: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_sides, "_PAUSE", 600.0)  # however long the capture takes
    layer, x = inference(Block_with_flag().eval(), weights=weights), torch.randn(2, 4)
    eager = type(layer).forward

    def right(times: int) -> None:
        for _ in range(times):
            same(layer(x), eager(layer, x))

    with torch.no_grad():
        right(3)
        change(layer)
        right(10)
        found = counts()
        assert found["captures"] == 2 and found["eager_calls"] == 3, found
        layer.ready.fill_(False)
        layer.seen.zero_()
        right(5)
        assert counts()["captures"] == 2


def test_instances_with_other_flags_are_served_each_by_its_own() -> None:
    layers = [inference(Block_with_flag().eval()) for _ in range(2)]
    layers[1].ready.fill_(True)
    x = torch.randn(2, 4)
    with torch.no_grad():
        for _ in range(10):
            for layer in layers:
                same(layer(x), type(layer).forward(layer, x))
    found = counts()
    assert found["captures"] == 2 and found["eager_calls"] == 3, found


class Counting(Block):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(4))
        self.log: list[float] = []

    def forward(self, x: Any, out: Any) -> Any:
        self.total += x.sum(0)
        out.add_(1)
        if (x < 0).any():
            out.mul_(3)
            self.total.zero_()
        return self.linear(x)


def test_a_check_that_fails_has_changed_nothing() -> None:
    torch.manual_seed(0)
    layer, eager = decorated(Counting), Counting().eval()
    eager.load_state_dict(layer.state_dict())
    outs = [torch.zeros(2), torch.zeros(2)]
    with torch.no_grad():
        for n in range(20):
            x = torch.rand(2, 4) - (1.0 if n % 10 == 7 else 0.0)
            state = torch.get_rng_state()
            same(layer(x, outs[0]), Counting.forward(eager, x, outs[1]))
            assert torch.equal(torch.get_rng_state(), state)
            same(outs[0], outs[1])
            same(layer.total, eager.total)
    found = counts()
    assert (found["captures"], found["eager_calls"]) == (1, 2) and found["hits"] == 17, found


def test_the_capture_leaves_values_and_generators_alone() -> None:
    layer, x, out = decorated(Counting), torch.rand(2, 4), torch.zeros(2)
    weight, state = layer.linear.weight.clone(), torch.get_rng_state()
    with torch.no_grad():
        layer(x, out)
    same(out, torch.ones(2))
    same(layer.total, x.sum(0))
    assert torch.equal(layer.linear.weight, weight) and torch.equal(torch.get_rng_state(), state)


class Normed(Block):
    """A norm that keeps statistics as it goes, in front of a branch."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(4)

    def forward(self, x: Any) -> Any:
        y = self.norm(x)
        return y * 2 if y.isfinite().all() else y


def test_statistics_of_a_norm_are_written_once_per_call() -> None:
    layer, x = decorated(Normed).train(), torch.randn(8, 4)
    eager = Normed()
    eager.load_state_dict(layer.state_dict())
    with torch.no_grad():
        for _ in range(3):
            same(layer(x), Normed.forward(eager, x))
            same(layer.norm.running_mean, eager.norm.running_mean)
            assert layer.norm.num_batches_tracked == eager.norm.num_batches_tracked


@pytest.mark.parametrize("mode", [torch.inference_mode, lambda: torch.autocast("cpu", torch.bfloat16)])
def test_modes_around_the_call(mode: Any) -> None:
    layer, x = decorated(Mask), torch.randn(2, 3, 4)
    with torch.no_grad(), mode():
        for mask in (FULL, FULL, PART, FULL):
            same(layer(x, mask), Mask.forward(layer, x, mask), 2e-2)
    found = counts()
    assert (found["captures"], found["hits"], found["eager_calls"]) == (1, 2, 1), found


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.uint8, torch.bool])
def test_truths_of_other_types(dtype: torch.dtype) -> None:
    def method(x: Any, flag: Any) -> Any:
        return x * 2 if flag else x - 1

    hot, one = inference(method), torch.ones((), dtype=dtype)
    with torch.no_grad():
        for flag in (one, one, one * 0 if dtype is not torch.bool else ~one, one):
            same(hot(X, flag), method(X, flag))
    found = counts()
    assert (found["captures"], found["hits"], found["eager_calls"]) == (1, 2, 1), found


def test_sizes_vary_with_the_checks() -> None:
    hot = inference(size_too)
    with torch.no_grad():
        for rows in (2, 3, 4, 5, 6):
            x = torch.ones(rows, 3)
            same(hot(x), size_too(x))
        for rows in (4, 7):
            x = -torch.ones(rows, 3)
            same(hot(x), size_too(x))
            same(hot(-x), size_too(-x))
    found = counts()
    assert found["captures"] == 2 and found["eager_calls"] == 2, found


def test_gradients_are_as_before() -> None:
    layer = decorated(Mask)
    for mask in (FULL, FULL, PART):
        x = torch.randn(2, 3, 4, requires_grad=True)
        found, expected = layer(x, mask), Mask.forward(layer, x, mask)
        same(found, expected)
        same(*(torch.autograd.grad(each.sum(), x)[0] for each in (found, expected)))


def test_threads_with_calls_of_both_sides() -> None:
    layer, faults = decorated(Mask), []

    def work(seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        try:
            with torch.no_grad():
                for n in range(60):
                    x = torch.randn(2, 3, 4, generator=generator)
                    mask = FULL if (n * (seed + 1)) % 4 else PART
                    same(layer(x, mask), Mask.forward(layer, x, mask))
        except Exception as fault:
            faults.append(fault)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not faults, faults
    found = counts()
    assert found["captures"] <= 3, found


def test_the_log_and_explain_name_the_places(caplog: pytest.LogCaptureFixture) -> None:
    layer, x = decorated(Mask), torch.randn(2, 3, 4)
    with torch.no_grad(), caplog.at_level(logging.INFO, "hybrid_infer"):
        layer(x, FULL)
    line = f"test_torch_branches.py:{Mask.forward.__code__.co_firstlineno + 1}"
    (record,) = [each for each in caplog.records if "takes for granted" in each.getMessage()]
    assert line in record.getMessage() and record.levelno == logging.INFO
    explained = hybrid_infer.explain(layer)
    (version,) = explained.to_dict()["methods"][0]["versions"]
    (branch,) = version["branches"]
    assert branch.endswith(f"{line}: true") and line in str(explained)


def test_a_saved_model_takes_nothing_for_granted(tmp_path: Any) -> None:
    specs = [hybrid_infer.InputSpec([2, 3, 4]), hybrid_infer.InputSpec([2, 3], "bool")]
    static = to_static(decorated(Mask), input_spec=specs)
    with torch.no_grad(), pytest.raises(CaptureError, match="a branch depends on the values of a tensor"):
        hybrid_infer.save(static, str(tmp_path / "model"))


def test_a_call_is_compared_each_time_where_the_user_wants_that() -> None:
    layer, x = inference(Block_with_flag().eval(), verify="always"), torch.randn(2, 4)
    with torch.no_grad():
        for n in range(12):
            if n == 3:
                layer.ready.fill_(True)
            same(layer(x), type(layer).forward(layer, x))
    assert all("went another way" in reason for reason in counts()["fallbacks"])


def test_a_number_that_item_gives_is_as_before() -> None:
    @inference
    def scaled(x: torch.Tensor) -> Any:
        return x * x.max().item()

    @inference
    def compared(x: torch.Tensor) -> Any:
        return x if x.max().item() > 3 else x * 2

    with torch.no_grad():
        same(scaled(X), X * 6)
        same(scaled(X), X * 6)
        assert counts("scaled")["hits"] == 1
        hybrid_infer.reset_stats()
        compared(X)
    eagerly("depends on the values of a tensor")


DISTRIBUTIONS: dict[str, Callable[[Any], Any]] = {
    "normal": lambda x: torch.distributions.Normal(x[0], x[1].exp()).log_prob(x),
    "categorical": lambda x: torch.distributions.Categorical(logits=x).probs,
    "entropy": lambda x: torch.distributions.Categorical(logits=x).entropy(),
    "log_prob": lambda x: torch.distributions.Categorical(logits=x).log_prob(torch.tensor([0, 2])),
    "bernoulli": lambda x: torch.distributions.Bernoulli(logits=x).probs,
    "beta": lambda x: torch.distributions.Beta(x.abs(), x.abs() + 1).mean,
    "divergence": lambda x: torch.distributions.kl_divergence(
        torch.distributions.Normal(x[0], x[1].exp()), torch.distributions.Normal(x[1], x[0].exp())
    ),
    "independent": lambda x: torch.distributions.Independent(torch.distributions.Normal(x, x.exp()), 1).log_prob(x),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
@pytest.mark.parametrize("grad", [False, True])
def test_distributions_with_their_checks(name: str, grad: bool) -> None:
    function = DISTRIBUTIONS[name]
    hot = inference(function)
    with torch.set_grad_enabled(grad):
        for given in (X, X / 10, NAN, X):
            alike(outcome(hot, given), outcome(function, given))
    found = counts()
    assert found["captures"] == 1 and found["hits"] >= 2, found


def test_a_lazy_parameter_of_a_weight_requires_a_gradient_as_eagerly() -> None:
    class Layer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.logits = torch.nn.Parameter(torch.randn(2, 3))

        @inference
        def forward(self, x: torch.Tensor) -> Any:
            made = torch.distributions.Bernoulli(probs=torch.tensor(0.5))
            made.__dict__.pop("probs")
            made.logits = self.logits
            return made.probs * 1, x + 1

    layer = Layer()
    with torch.no_grad():
        for _ in range(3):
            found, expected = layer(X), Layer.forward.__wrapped__(layer, X)
            same(found, expected)
            assert found[0].requires_grad == expected[0].requires_grad


def test_a_condition_of_bytes_is_a_truth() -> None:
    def choose(x: torch.Tensor, condition: torch.Tensor) -> Any:
        return torch.where(condition, x, -x), x.where(condition, x * 2)

    hot, condition = inference(choose), torch.tensor([[0, 1, 2], [255, 0, 1]], dtype=torch.uint8)
    with torch.no_grad(), pytest.warns(UserWarning, match="uint8 condition"):
        for each in (condition, condition, 1 - condition):
            same(hot(X, each), choose(X, each))
    assert counts()["hits"] == 2
