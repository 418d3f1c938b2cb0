"""Results that carry no gradient eagerly carry none of a served method."""

from __future__ import annotations

from typing import Any

from support import layer_class

from hybrid_infer import inference, stats


def carries(tensor: Any) -> bool:
    return bool(tensor.requires_grad) if hasattr(tensor, "requires_grad") else not tensor.stop_gradient


def wanting(x: Any) -> Any:
    """A copy that requires a gradient."""
    x = x.clone().detach()
    if hasattr(x, "requires_grad_"):
        return x.requires_grad_()
    x.stop_gradient = False
    return x


def layer(framework: Any) -> Any:
    nn = framework.nn

    class Partly(layer_class(framework)):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.frozen = nn.Linear(4, 4), nn.Linear(4, 4)
            for weight in self.frozen.parameters():
                weight.stop_gradient = True
                weight.requires_grad = False

        def compute(self, x: Any, factor: Any) -> Any:
            with framework.no_grad():
                inner = self.linear(x)
            return inner * 2, self.linear(x), self.frozen(x), factor * 3, inner > 0

        @inference
        def forward(self, x: Any, factor: Any) -> Any:
            return self.compute(x, factor)

    made = Partly()
    made.eval()
    return made


def test_each_result_carries_a_gradient_where_the_eager_one_does(framework: Any) -> None:
    hot = layer(framework)
    x, factor = framework.ones([2, 4]), framework.ones([2, 4])
    for first, second in ((x, factor), (wanting(x), factor), (x, wanting(factor)), (x, factor)):
        for _ in range(3):
            expected, found = hot.compute(first, second), hot(first, second)
            assert [carries(each) for each in found] == [carries(each) for each in expected]
    [counts] = stats().values()
    assert counts["eager_calls"] == 0 and counts["hits"] >= 9
    with framework.no_grad():
        assert not any(carries(each) for each in hot(wanting(x), factor))


def test_the_gradients_are_those_of_the_eager_method(framework: Any) -> None:
    hot = layer(framework)
    for _ in range(3):
        gradients = []
        for method in (hot.compute, hot):
            x = wanting(framework.ones([2, 4]))
            results = method(x, framework.ones([2, 4]))
            sum((each * each).sum() for each in results[:4] if carries(each)).backward()
            gradients.append([x.grad.numpy().copy(), hot.linear.weight.grad.numpy().copy()])
            weight = hot.linear.weight
            weight.clear_gradient() if hasattr(weight, "clear_gradient") else weight.grad.zero_()
        for eager, found in zip(*gradients, strict=True):
            assert abs(eager - found).max() < 1e-5
