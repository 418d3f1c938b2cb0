"""A file that is edited while the program runs: methods do what they did when it was loaded, as they do eagerly."""

from __future__ import annotations

import importlib
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from paddle_support import same, served

from hybrid_infer import inference
from hybrid_infer.frontends import _paddle_outdated

paddle = pytest.importorskip("paddle")
pytestmark = pytest.mark.paddle

X = paddle.to_tensor([1.0, -2.0])

SOURCE = """\
import paddle
from hybrid_infer import inference

class Layer(paddle.nn.Layer):
    def first(self, x):
        return x + 1

    def second(self, x):
        return x * 3

    @inference(backend="onnxruntime", verify="off")
    def forward(self, x):
        return self.second(x) - 1
"""

WRAPPER = """

def doubled(method):
    @functools.wraps(method)
    def call(x):
        return method(x) * 2
    return call
"""


def kept(x: Any) -> Any:
    return paddle.nn.functional.relu(x) if x.sum() < 9 else x


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module of the program's, and its file."""
    file = tmp_path / "edited_meanwhile.py"
    file.write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield importlib.import_module(file.stem), file
    del sys.modules[file.stem]


@pytest.mark.parametrize(
    "edited",
    ["#\n#\n#\n" + SOURCE, SOURCE.replace("x * 3", "x * 5"), SOURCE.replace("- 1", "- 2"), SOURCE + "class (", ""],
    ids=["lines are shifted", "what is called is another", "the method is another", "half written", "emptied"],
)
def test_a_method_is_served_as_it_was_loaded(edited: str, loaded: Any) -> None:
    module, file = loaded
    file.write_text(edited)
    layer = module.Layer()
    layer.eval()
    for _ in range(2):
        same(layer(X), X * 3 - 1)
    served(captures=1)


def test_a_wrapper_of_what_another_file_has_is_served_as_it_was_loaded(loaded: Any) -> None:
    module, file = loaded
    file.write_text("import functools\n" + SOURCE + WRAPPER)
    module = importlib.reload(module)
    method = module.doubled(kept)
    file.write_text(file.read_text().replace("* 2", "* 7"))

    def around(x: Any) -> Any:
        return method(x) + 1

    hot, inside = (inference(each, backend="onnxruntime", verify="off") for each in (method, around))
    for _ in range(2):
        same(hot(X), kept(X) * 2)
        same(inside(X), kept(X) * 2 + 1)


def test_a_file_that_is_as_it_was_is_rewritten(loaded: Any) -> None:
    module, file = loaded
    functions = [each for each in vars(module.Layer).values() if isinstance(each, types.FunctionType)]
    assert len(functions) >= 2 and not any(map(_paddle_outdated.outdated, functions))
    file.write_text(SOURCE + "\n\nafter = 1\n")  # no line of theirs is another one
    assert not any(map(_paddle_outdated.outdated, functions))


def test_what_is_made_in_other_ways_than_from_its_file_is_not_asked() -> None:
    space: dict[str, Any] = {"__name__": __name__}
    exec("def made(x):\n    return x", space)
    assert not _paddle_outdated.outdated(space["made"]) and not _paddle_outdated.outdated(len)
    assert not _paddle_outdated.outdated(test_a_file_that_is_as_it_was_is_rewritten)  # which pytest has changed
