"""What diffusers and accelerate do to a model, done here without them."""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest
import torch
from support import counts

from hybrid_infer import inference

pytestmark = pytest.mark.torch


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
        self.kinds: Any = list[int]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(self.a(x)) * len(self.kinds.__args__)


class _Keeps:
    """A hook that answers every other call with what it kept."""

    def __init__(self, layer: Any) -> None:
        self.plain, self.kept, self.calls = layer.forward, None, 0

    def new_forward(self, x: Any) -> Any:
        found = self.plain(x) if self.kept is None or self.calls % 2 == 0 else self.kept
        self.kept, self.calls = found, self.calls + 1
        return found


def _pair() -> tuple[Net, Net]:
    torch.manual_seed(0)
    net = Net().eval()
    other = Net().eval()
    other.load_state_dict(net.state_dict())
    return net, other


def test_a_forward_around_a_layer_that_keeps_results_is_not_traced() -> None:
    eager, net = _pair()
    hooks = [_Keeps(each.a) for each in (eager, net)]
    for each, hook in zip((eager, net), hooks, strict=True):
        each.a.forward = lambda x, hook=hook: hook.new_forward(x)
    hot = inference(net)
    with torch.no_grad():
        for n in range(4):
            x = torch.full((2, 4), float(n))
            found = hot(x)
            assert type(found) is torch.Tensor and type(hooks[1].kept) is torch.Tensor
            torch.testing.assert_close(found, eager(x))
        assert counts()["captures"] == 0
        for each in (eager, net):
            del each.a.forward
        for _ in range(2):
            torch.testing.assert_close(hot(x), eager(x))
    assert counts()["captures"] == 1


def test_a_hook_around_the_model_before_its_first_call() -> None:
    eager, net = _pair()
    hot = inference(net)
    plain = hot.forward

    def new_forward(module: Any, *args: Any) -> Any:
        return plain(*args) + 1

    net.forward = functools.update_wrapper(functools.partial(new_forward, net), plain)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(net(torch.ones(2, 4)), eager(torch.ones(2, 4)) + 1)
        net.forward = plain
        torch.testing.assert_close(net(torch.ones(2, 4)), eager(torch.ones(2, 4)))
    assert (counts()["captures"], counts()["eager_calls"]) == (1, 0)


class FrozenDict(OrderedDict):  # type: ignore[type-arg]
    def __init__(self, **entries: Any) -> None:
        super().__init__(**entries)
        for name, value in self.items():
            setattr(self, name, value)


FrozenDict.__module__ = "diffusers.configuration_utils"


@pytest.mark.parametrize(
    "looks", [lambda config: config["scale"], lambda config: vars(config)["scale"]], ids=["entry", "attribute"]
)
def test_a_configuration_is_the_same_in_every_order_of_its_defaults(looks: Callable[[Any], Any]) -> None:
    """The order of a set of names, which is another in each process."""

    class Model(Net):
        def __init__(self, defaults: list[str], scale: float) -> None:
            super().__init__()
            self.config = FrozenDict(scale=scale, _use_default_values=defaults)

        @inference()
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.a(x) * looks(self.config)

    x = torch.ones(2, 4)
    with torch.no_grad():
        for defaults, scale in ((["a", "b"], 2.0), (["b", "a"], 2.0), (["a", "b"], 3.0)):
            model = Model(defaults, scale).eval()
            torch.testing.assert_close(model(x), model.a(x) * scale)
    assert counts()["captures"] == 2
