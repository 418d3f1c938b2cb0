"""What is given to ``save()``, to specs and to a loaded model by mistake: the error says what, and what to give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hybrid_infer
from hybrid_infer import InputSpec, SpecError, StaticLayer, load, save

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def static(tmp_path_factory: pytest.TempPathFactory) -> StaticLayer:
    path = tmp_path_factory.mktemp("misuse") / "model"
    save(torch.nn.Linear(4, 3), path, [InputSpec([None, 4])], trainable=False)
    return load(path, backend="onnxruntime")


@pytest.mark.parametrize("given", [InputSpec([None, 4]), torch.ones(2, 4), None.__class__])
def test_a_spec_that_is_in_no_list(tmp_path: Path, given: Any) -> None:
    with pytest.raises(SpecError, match="it must be a list with an entry for each argument of") as error:
        save(torch.nn.Linear(4, 3), tmp_path / "m", given)
    meant = "; did you mean a list of it?" if not isinstance(given, type) else ""
    assert str(error.value).endswith(f"and {'an object' if meant else 'the'} {_name(given)} was given{meant}")
    assert not (tmp_path / "m").exists()


def _name(given: Any) -> str:
    if isinstance(given, type):
        return f"class {given.__module__}.{given.__qualname__}"
    return f"of class {type(given).__module__}.{type(given).__qualname__}"


def test_a_class_in_the_place_of_a_layer(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"was given the class torch\..*Linear for `target`.*Make an instance of it"):
        save(torch.nn.Linear, tmp_path / "m")


def test_weights_in_the_place_of_a_layer(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"OrderedDict for `target`.*These are weights: load them into their layer"):
        save(torch.nn.Linear(4, 3).state_dict(), tmp_path / "m")


@pytest.mark.parametrize(
    ("given", "meant"),
    [("fp32", "float32"), ("FP16", "float16"), ("half", "float16"), ("bf16", "bfloat16"), ("float", "float32"),
     ("double", "float64"), ("long", "int64"), (float, "float32"), (int, "int64"), ("flaot32", "float32"),
     (torch.quint8, "uint8")],
)  # fmt: skip
def test_an_element_type_by_another_name(given: Any, meant: str) -> None:
    with pytest.raises(SpecError, match=rf"is no element type; those are .*; did you mean '{meant}'\?"):
        InputSpec([1], given)


@pytest.mark.parametrize(
    ("sizes", "name"),
    [({"min": "a", "max": [1, 4]}, "min"), ({"min": [1, 4], "max": 5}, "max"),
     ({"min": [1, 4], "max": [8, 4], "opt": [2.5, 4]}, "opt"), ({"min": [1, 4], "max": [8, True]}, "max")],
)  # fmt: skip
def test_a_range_that_is_none_is_named_by_its_end(sizes: dict[str, Any], name: str) -> None:
    with pytest.raises(SpecError, match=rf"^{name}: .*siz"):
        InputSpec([None, 4], **sizes)


def test_an_element_type_that_is_like_none() -> None:
    with pytest.raises(SpecError, match=r"complex128$"):
        InputSpec([1], "text")


@pytest.mark.parametrize("name", ["to", "cuda", "cpu", "named_parameters", "half", "requires_grad_"])
def test_what_a_layer_has_and_a_static_model_has_not(static: StaticLayer, name: str) -> None:
    with pytest.raises(AttributeError) as error:
        getattr(static, name)
    assert str(error.value).startswith(f"this static model has no method {name!r}; it has forward")
    assert str(error.value).endswith("as_layer() gives a layer, if it was saved with trainable=True")
    with pytest.raises(AttributeError, match=r"no method 'encode'; it has forward$"):
        _ = static.encode


def test_a_file_that_is_no_path(static: StaticLayer, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"export_onnx\(\) was given an object of class builtins.int for `file`"):
        static.export_onnx(5)  # type: ignore[arg-type]
    static.export_onnx(tmp_path / "model.onnx")
    x = np.ones((2, 4), np.float32)
    assert np.allclose(load(tmp_path / "model.onnx")(x), static(x), atol=1e-6)


def test_explain_of_what_is_not_decorated(static: StaticLayer) -> None:
    for given in (None, torch.nn.Linear(1, 1), torch.nn.Linear, lambda x: x):
        with pytest.raises(TypeError, match="nothing is decorated; it takes a decorated function or method, or a"):
            hybrid_infer.explain(given)
    with pytest.raises(TypeError, match=r"nothing is decorated; print\(\) tells what a static model takes and gives"):
        hybrid_infer.explain(static)
