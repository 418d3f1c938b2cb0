"""Objects of settings: classes derived from `dict`, namespaces. What a method reads there counts, and no more does."""

from __future__ import annotations

import argparse
import copy
import sys
import textwrap
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from forks import forked
from support import counts, layer_class, served

from hybrid_infer import inference


class Attributes(dict[str, Any]):
    """Entries are attributes, as in most projects."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __delattr__(self, name: str) -> None:
        del self[name]


class Itself(dict[str, Any]):
    """Its attributes are its entries, as in HiFi-GAN and what is derived from it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.__dict__ = self


class Both(dict[str, Any]):
    """Each entry is an attribute as well, as in EasyDict."""

    def __init__(self, **entries: Any) -> None:
        super().__init__()
        for name, value in entries.items():
            setattr(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        super().__setitem__(name, value)

    __setitem__ = __setattr__

    def __delattr__(self, name: str) -> None:
        super().__delattr__(name)
        super().__delitem__(name)


class Frozen(Attributes):
    """Attributes beside the entries, as in yacs."""

    def __init__(self, **entries: Any) -> None:
        super().__init__(**entries)
        self.__dict__["frozen"] = False
        self.__dict__["renamed"] = {"a": "b"}
        self.__dict__["deprecated"] = {"c"}

    def doubled(self) -> Any:
        return self.scale * 2


class Lookups(dict[str, Any]):
    __getattr__ = dict.get
    __setattr__ = dict.__setitem__  # type: ignore[assignment]
    __delattr__ = dict.__delitem__  # type: ignore[assignment]


KINDS: dict[str, Any] = {
    "attributes": Attributes, "itself": Itself, "both": Both, "frozen": Frozen, "lookups": Lookups,
    "namespace": types.SimpleNamespace, "argparse": argparse.Namespace,
}  # fmt: skip
DICTS = [name for name in KINDS if isinstance(KINDS[name], type) and issubclass(KINDS[name], dict)]


def make(framework: Any, way: Callable[..., Any], config: Any) -> Any:
    class Net(layer_class(framework)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.config = framework.nn.Linear(4, 4), config

        def eager(self, x: Any) -> Any:
            return way(self.config, self.linear(x))

        forward = inference(eager)

    layer = Net()
    layer.eval()
    return layer


def ask(framework: Any, layer: Any) -> None:
    with framework.no_grad():
        for n in range(2):
            x = framework.ones([2, 4]) * n
            assert bool(framework.allclose(layer(x), layer.eager(x), atol=1e-6))


SINGLE: dict[str, Callable[..., Any]] = {
    "getattr": lambda config, y: y * getattr(config, "scale", 3.0),
    "of one in it": lambda config, y: y * config.scale + config.model.eps,
}
OF_DICTS: dict[str, Callable[..., Any]] = {
    "get": lambda config, y: y * config.get("scale", 3.0),
    "in": lambda config, y: y * (config["scale"] + 1 if "scale" in config else 3.0),
    "of one in it": lambda config, y: y * config["scale"] + config["model"]["eps"],
}
WHOLE: dict[str, Callable[..., Any]] = {
    "vars": lambda config, y: y * len(str(sorted(vars(config).items()))),
    "text": lambda config, y: y * len(str(config)),
    "copy": lambda config, y: y * len(str(copy.deepcopy(config))),
    "shallow": lambda config, y: y * len(str(copy.copy(config))),
    "equal": lambda config, y: y * (2 if config == copy.deepcopy(config) else 3),
}
WHOLE_DICTS: dict[str, Callable[..., Any]] = {
    "items": lambda config, y: y * len(str([*config.items()])),
    "unpacked": lambda config, y: y * len(str({**config})),
    "dict": lambda config, y: y * len(str(dict(config))),
    "length": lambda config, y: y * len(config),
}


def _settings(kind: str, **changes: Any) -> Any:
    inner = KINDS[kind](eps=1.0, name="a")
    return KINDS[kind](**{"scale": 2.0, "run": "a", "model": inner, "sizes": [1, 2], **changes})


@pytest.mark.parametrize(("kind", "name"), [*((kind, "of one in it") for kind in KINDS), ("attributes", "getattr")])
def test_another_attribute_does_not_count(framework: Any, kind: str, name: str) -> None:
    layer = make(framework, SINGLE[name], _settings(kind))
    ask(framework, layer)
    served(captures=1)
    layer.config.run, layer.config.model.name = "b", "c"
    layer.config.more = 3
    ask(framework, layer)
    served(captures=1)
    layer.config.scale = 5.0
    ask(framework, layer)
    served(captures=2)
    layer.config.scale = 2.0
    ask(framework, layer)
    served(captures=2)
    layer.config = _settings(kind, run=None, sizes=[3])
    ask(framework, layer)
    served(captures=2)
    layer.config.model.eps = 3.0
    ask(framework, layer)
    served(captures=3 if name == "of one in it" else 2)


@pytest.mark.parametrize(
    ("kind", "name"), [*((kind, "of one in it") for kind in DICTS), ("itself", "get"), ("frozen", "in")]
)
def test_another_entry_does_not_count(framework: Any, kind: str, name: str) -> None:
    layer = make(framework, OF_DICTS[name], _settings(kind))
    ask(framework, layer)
    layer.config["run"], layer.config["model"]["name"], layer.config["more"] = "b", "c", 3
    ask(framework, layer)
    served(captures=1)
    layer.config["scale"] = 5.0
    ask(framework, layer)
    served(captures=2)


@pytest.mark.torch
@pytest.mark.parametrize("kind", ["itself", "both", "frozen", "namespace"])
@pytest.mark.parametrize("name", WHOLE)
def test_what_looks_at_all_of_it(kind: str, name: str) -> None:
    framework = pytest.importorskip("torch")
    _changed(framework, make(framework, WHOLE[name], _settings(kind)))


@pytest.mark.torch
@pytest.mark.parametrize("kind", ["itself", "frozen"])
@pytest.mark.parametrize("name", WHOLE_DICTS)
def test_what_looks_at_all_entries(kind: str, name: str) -> None:
    framework = pytest.importorskip("torch")
    _changed(framework, make(framework, WHOLE_DICTS[name], _settings(kind)))


def _changed(framework: Any, layer: Any) -> None:
    ask(framework, layer)
    for run in ("another", "a", ["b", {"c": 1}]):
        layer.config.run = run
        ask(framework, layer)
    layer.config.new = 1
    ask(framework, layer)
    del layer.config.new
    ask(framework, layer)


@pytest.mark.parametrize("kind", ["attributes", "both", "lookups", "namespace"])
def test_one_that_is_not_there(framework: Any, kind: str) -> None:
    layer = make(framework, lambda config, y: y * (getattr(config, "other", None) or 3.0), _settings(kind))
    ask(framework, layer)
    layer.config.more = 1
    ask(framework, layer)
    served(captures=1)
    layer.config.other = 2.0
    ask(framework, layer)
    served(captures=2)
    del layer.config.other
    ask(framework, layer)
    served(captures=2)


@pytest.mark.parametrize("kind", KINDS)
def test_one_that_is_written_to(framework: Any, kind: str) -> None:
    def way(config: Any, y: Any) -> Any:
        config.calls = getattr(config, "calls", None) or 0
        config.calls += 1
        return y * config.scale

    layer, eager = (make(framework, way, _settings(kind)) for _ in range(2))
    with framework.no_grad():
        for _ in range(3):
            layer(framework.ones([2, 4]))
            eager.eager(framework.ones([2, 4]))
    assert layer.config.calls == eager.config.calls == 3


@pytest.mark.parametrize("kind", KINDS)
def test_one_that_is_written_what_it_holds(framework: Any, kind: str) -> None:
    """With another value there, the method would have changed it."""

    def way(config: Any, y: Any) -> Any:
        config.mode = "eval"
        return y * config.scale

    layer = make(framework, way, _settings(kind, mode="eval"))
    ask(framework, layer)
    layer.config.mode = "train"
    with framework.no_grad():
        layer(framework.ones([2, 4]))
    assert layer.config.mode == "eval"


def test_an_attribute_that_hides_an_entry(framework: Any) -> None:
    layer = make(framework, lambda config, y: y * config.scale + config["scale"], _settings("both"))
    ask(framework, layer)
    object.__setattr__(layer.config, "scale", 7.0)
    ask(framework, layer)
    dict.__setitem__(layer.config, "scale", 8.0)
    ask(framework, layer)
    object.__delattr__(layer.config, "scale")
    dict.__setitem__(layer.config, "scale", 2.0)
    with pytest.raises(AttributeError), framework.no_grad():
        layer(framework.ones([2, 4]))


@pytest.mark.parametrize("kind", ["frozen"])
def test_what_its_class_computes(framework: Any, kind: str) -> None:
    layer = make(framework, lambda config, y: y * config.doubled(), _settings(kind))
    ask(framework, layer)
    layer.config.run = "b"
    ask(framework, layer)
    served(captures=1)
    layer.config.scale = 5.0
    ask(framework, layer)
    served(captures=2)


def test_a_class_whose_accessor_is_replaced(framework: Any) -> None:
    class Own(Attributes):
        pass

    layer = make(framework, lambda config, y: y * config.scale, Own(scale=2.0))
    ask(framework, layer)
    Own.__getattr__ = lambda self, name: self[name] + 1  # type: ignore[method-assign]
    ask(framework, layer)


def test_a_class_with_what_is_missing(framework: Any) -> None:
    class Filling(dict[str, Any]):
        def __missing__(self, name: str) -> Any:
            self[name] = 4.0
            return 4.0

    config = Filling(scale=2.0)
    layer = make(framework, lambda config, y: y * config["scale"], config)
    ask(framework, layer)
    del config["scale"]
    layer(framework.ones([2, 4]))
    assert dict(config) == {"scale": 4.0}


def test_a_class_that_tells_itself_from_others(framework: Any) -> None:
    class Exact(Attributes):
        def factor(self) -> float:
            return self.scale if type(self) is Exact else 9.0

    layer = make(framework, lambda config, y: y * config.factor(), Exact(scale=2.0, run="a"))
    ask(framework, layer)
    layer.config.scale = 3.0
    ask(framework, layer)
    assert counts()["eager_calls"] == 0


def test_one_as_a_result(framework: Any) -> None:
    layer = make(framework, lambda config, y: (y, config), _settings("attributes"))
    with framework.no_grad():
        for run in ("a", "b"):
            layer.config.run = run
            _, found = layer(framework.ones([2, 4]))
            assert type(found) is Attributes and found == layer.config


CONFIG: Any = Attributes(scale=2.0, run="a")


def test_one_that_is_global(framework: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    layer = make(framework, lambda _, y: y * CONFIG.scale, None)
    ask(framework, layer)
    monkeypatch.setitem(CONFIG, "scale", 3.0)
    ask(framework, layer)
    monkeypatch.setitem(globals(), "CONFIG", Attributes(scale=4.0))
    ask(framework, layer)
    assert counts()["eager_calls"] == 0


def test_one_that_comes_to_hold_a_tensor(framework: Any) -> None:
    def way(config: Any, y: Any) -> Any:
        return y * config.scale + (config.shift if config.shift is not None else 0)

    layer = make(framework, way, _settings("attributes", shift=None))
    for shift in (None, framework.ones([4]), framework.ones([4]) * 3, None):
        layer.config.shift = shift
        ask(framework, layer)


SCRIPT = """
import importlib, sys, time, types, test_settings
from hybrid_infer import inference, stats
framework = importlib.import_module(sys.argv[1])
nn = framework.nn

class Own(dict):
    def __getattr__(self, name):
        return self[name] ACCESSOR

kind = Own if sys.argv[2] == "own" else test_settings.KINDS[sys.argv[2]]

class Net(nn.Module if sys.argv[1] == "torch" else nn.Layer):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.config = kind(scale=float(sys.argv[3]), begun=time.time(), run=kind(id=time.time()))

    @inference(backend="onnxruntime")
    def forward(self, x):
        return self.linear(x) * self.config.scale

layer = Net()
layer.eval()
with framework.no_grad():
    for _ in range(3):
        x = framework.ones([2, 4])
        assert bool(framework.allclose(layer(x), layer.linear(x) * layer.config.scale, atol=1e-6))
found = stats()["__main__.Net.forward"]
print(found["captures"], found["hits"], found["fallbacks"])
"""


@pytest.mark.parametrize("kind", ["itself", "both", "frozen", "namespace"])
def test_the_next_process_captures_nothing(framework: Any, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    script = SCRIPT.replace("ACCESSOR", "")
    assert forked(framework.__name__, script, framework.__name__, kind, "2.0") == "1 2 {}"
    assert forked(framework.__name__, script, framework.__name__, kind, "2.0") == "0 3 {}"
    assert forked(framework.__name__, script, framework.__name__, kind, "3.0") == "1 2 {}"


def test_another_accessor_in_the_next_process(framework: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    found = [
        forked(framework.__name__, SCRIPT.replace("ACCESSOR", more), framework.__name__, "own", "2.0")
        for more in ("", "+ 1", "")
    ]
    assert found == ["1 2 {}", "1 2 {}", "0 3 {}"]


LIBRARY = """
__version__ = "1.0"

class Config(dict):
    def __getattr__(self, name):
        if name in self:
            return self[name]
        raise AttributeError(name)

    def __setattr__(self, name, value):
        self[name] = value

    def __len__(self):
        return dict.__len__(self)

    def text(self):
        return ",".join(f"{name}={self[name]}" for name in dict.keys(self))

    def own(self):
        return 1 if type(self) is Config else 2

    @property
    def first(self):
        return next(iter(dict.values(self)))
"""


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A class of settings of a library, whose code is known by its version alone."""
    site = tmp_path / "site-packages"
    site.mkdir()
    name = f"settings_of_{tmp_path.name}"
    (site / f"{name}.py").write_text(textwrap.dedent(LIBRARY))
    monkeypatch.syspath_prepend(site)
    found = __import__(name)
    yield found
    sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("look", "single"),
    [
        (lambda config: config.scale, True), (lambda config: config["scale"], True), (len, False),
        (lambda config: len(config.text()), False), (lambda config: config.own(), False),
        (lambda config: config.first, False),
    ],
    ids=["attribute", "item", "length", "text", "class", "property"],
)  # fmt: skip
def test_classes_of_libraries(framework: Any, library: Any, look: Any, single: bool) -> None:
    layer = make(framework, lambda config, y: y * look(config), library.Config(scale=2.0, run="a"))
    ask(framework, layer)
    layer.config.run = "another"
    ask(framework, layer)
    assert counts()["captures"] == (1 if single else 2)
    layer.config.scale = 3.0
    ask(framework, layer)
    layer.config.more = 1
    ask(framework, layer)
    assert counts()["eager_calls"] == 0


_GET, _VALUES, _LOOK_UP = dict.get, dict.values, object.__getattribute__
_OTHERS = {"a": 1.0}


class Methods(Attributes):
    lookup = dict.get
    __call__ = dict.get

    def factor(self) -> Any:
        return self["scale"]

    def total(self) -> Any:
        return sum(each for each in _VALUES(self) if isinstance(each, float))

    def looked(self) -> Any:
        return _GET(self, "scale")


#: What looks at settings past their class, or has another object look at them.
PAST: dict[str, Callable[..., Any]] = {
    "held look-up": lambda net, y: y * _GET(net.config, "scale"),
    "attribute": lambda net, y: y * net.look(net.config, "scale"),
    "of its class": lambda net, y: y * net.config.lookup("scale"),
    "called": lambda net, y: y * net.config("scale"),
    "total": lambda net, y: y * net.config.total(),
    "looked": lambda net, y: y * net.config.looked(),
    "class": lambda net, y: y * Methods.get(net.config, "scale"),
    "class of it": lambda net, y: y * (lambda kind: kind.__getitem__(net.config, "scale"))(net.config.__class__),
    "getattr of dict": lambda net, y: y * getattr(dict, "get")(net.config, "scale"),  # noqa: B009
    "right of ==": lambda net, y: y * (2 if net.before == net.config else 3),
    "in lists": lambda net, y: y * (2 if [net.before] == [net.config] else 3),
    "right of !=": lambda net, y: y * (2 if net.before != net.config else 3),
}


@pytest.mark.torch
@pytest.mark.parametrize("name", PAST)
def test_what_looks_past_its_class(name: str) -> None:
    framework = pytest.importorskip("torch")
    layer = make(framework, lambda config, y: PAST[name](layer, y), Methods(scale=2.0, run="a"))
    object.__setattr__(layer, "before", Methods(scale=2.0, run="a"))
    object.__setattr__(layer, "look", dict.get)
    ask(framework, layer)
    layer.config.scale = 3.0
    ask(framework, layer)


@pytest.mark.torch
@pytest.mark.parametrize(
    "look",
    [
        lambda config, before: 2 if config != before else 3, lambda config, before: 2 if before != config else 3,
        lambda config, before: 2 if before == config else 3, lambda config, before: config.__reduce__()[2]["scale"],
        lambda config, before: _LOOK_UP(config, "scale"), lambda config, before: len(config.__doc__) * config.scale,
    ],
    ids=["unlike", "unlike it", "like it", "reduced", "held look-up", "its text"],
)  # fmt: skip
def test_what_looks_past_a_namespace(look: Any) -> None:
    framework = pytest.importorskip("torch")
    before = types.SimpleNamespace(scale=2.0, run="a")
    layer = make(framework, lambda config, y: y * look(config, before), types.SimpleNamespace(scale=2.0, run="a"))
    ask(framework, layer)
    layer.config.scale = 3.0
    ask(framework, layer)
    assert counts()["eager_calls"] == 0


@pytest.mark.torch
def test_an_attribute_that_hides_a_method() -> None:
    framework = pytest.importorskip("torch")

    class Own(dict[str, Any]):
        def factor(self) -> Any:
            return self["scale"]

    layer = make(framework, lambda config, y: y * config.factor() + config.get("scale"), Own(scale=2.0))
    ask(framework, layer)
    layer.config.factor = lambda: 9.0
    ask(framework, layer)
    layer.config.get = lambda name: 7.0
    ask(framework, layer)


@pytest.mark.torch
def test_attributes_that_are_its_entries() -> None:
    framework = pytest.importorskip("torch")

    class Plain:
        pass

    def way(config: Any, y: Any) -> Any:
        made = Plain()
        made.__dict__ = config
        return y * made.scale

    layer = make(framework, way, Attributes(scale=2.0))
    ask(framework, layer)
    layer.config.scale = 3.0
    ask(framework, layer)


def test_one_that_makes_what_is_missing_is_left_as_it_is(framework: Any) -> None:
    class Auto(dict[str, Any]):
        def __missing__(self, name: str) -> Any:
            self[name] = Auto()
            return self[name]

        __getattr__ = dict.__getitem__

    config = Auto(scale=2.0, inner=Auto(width=2.0), empty=Auto())
    layer = make(framework, lambda config, y: y * config.scale + len(config.empty), config)
    ask(framework, layer)
    assert config == {"scale": 2.0, "inner": {"width": 2.0}, "empty": {}}
