"""Saved and loaded again: the results of the eager layer, in its structure, in either framework and without any."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path
from typing import Any

import numpy as np
import passed_constants
import pytest
from passed_constants import Held as Member
from passed_constants import Parts
from static_support import BOTH, Pair, close, kit, points

import hybrid_infer
from hybrid_infer import CaptureError, InputSpec, SpecError, StaticModelError, inference, load, save


@dataclasses.dataclass
class Batch:
    x: Any
    scale: float = 2.0


class Held:
    def __init__(self, x: Any) -> None:
        self.x = x


@pytest.fixture(scope="module", params=BOTH)
def own(request: pytest.FixtureRequest) -> Any:
    return kit(request.param)


def test_a_layer_run_at_one_batch_is_served_at_any(own: Any, tmp_path: Path) -> None:
    layer = own.Classifier()
    with own.no_grad():
        layer(own.tensor(points(16)))
    save(layer, tmp_path / "model", trainable=False)
    static = load(tmp_path / "model")
    assert static.input_spec == [InputSpec([-1, 8], "float32", "x")]
    assert static.output_spec.shape == (-1, 3)
    for batch in (1, 7, 16, 10_000):
        x = points(batch)
        with own.no_grad():
            expected = own.array(layer.linear(own.tensor(x)))
        found = static(own.tensor(x))
        assert type(found) is type(own.tensor(x))
        close(own.array(found), expected)
        given = static(x)
        assert isinstance(given, np.ndarray)
        close(given, expected)


@pytest.mark.parametrize("called", [True, False], ids=["called", "specified"])
def test_a_dataclass_among_the_arguments(own: Any, tmp_path: Path, called: bool) -> None:
    linear = own.Linear(8, 3)

    @inference(backend="onnxruntime")
    def scaled(batch: Any) -> Any:
        return linear(batch.x) * batch.scale

    with own.no_grad():
        for n in (2, 3) if called else ():
            scaled(Batch(own.tensor(points(n))))
        save(scaled, tmp_path / "model", None if called else [Batch(InputSpec([None, 8]))], trainable=False)
        static = load(tmp_path / "model")
        x = own.tensor(points(7))
        close(own.array(static(Batch(x))), own.array(linear(x)) * 2)
    with pytest.raises(SpecError, match="scale"):
        static(Batch(x, 3.0))


@pytest.mark.parametrize("called", [False, True])
def test_constants_of_numpy_slices_and_sets_among_the_arguments(own: Any, tmp_path: Path, called: bool) -> None:
    linear = own.Linear(8, 3)

    @inference(backend="onnxruntime")
    def scaled(x: Any, scale: Any, columns: Any, names: Any = frozenset({2})) -> Any:
        return linear(x)[:, columns] * float(scale) + len(names)

    given = np.float32(2), slice(0, 2), {1, 2}
    with own.no_grad():
        for n in (2, 3) if called else ():
            scaled(own.tensor(points(n)), *given)
        save(scaled, tmp_path / "model", None if called else [InputSpec([None, 8]), *given], trainable=False)
        static = load(tmp_path / "model")
        x = own.tensor(points(7))
        close(own.array(static(x, *given)), own.array(linear(x))[:, :2] * 2 + 2)
    for other in ((2.0, *given[1:]), (np.float32(2), slice(0, 1), {1, 2}), (*given[:2], {1})):
        with pytest.raises(SpecError, match="scale"):
            static(x, *other)


@pytest.mark.parametrize("called", [False, True])
def test_members_of_enumerations_among_the_arguments(
    own: Any, tmp_path: Path, monkeypatch: Any, called: bool
) -> None:
    linear = own.Linear(8, 3)

    @inference(backend="onnxruntime")
    def scaled(x: Any, kind: Any, flags: Any = Parts.ONE, held: Any = Member.ONE) -> Any:
        factor = 2 if kind is passed_constants.Kind.PLAIN else 3
        return linear(x) * factor + flags.value + len(held.text), kind

    kinds, x = [*passed_constants.Kind], own.tensor(points(7))
    with own.no_grad():
        expected = [own.array(scaled(x, kind)[0]) for kind in kinds]
        specs = [[InputSpec([None, 8]), kinds[0], Parts.ONE, Member.ONE]]
        if called:
            scaled(own.tensor(points(2)), kinds[0])
            scaled(own.tensor(points(2)), kinds[1])
        else:
            kinds = kinds[:1]
        save(scaled, tmp_path / "model", None if called else specs[0], trainable=False)
        static = load(tmp_path / "model")
        for kind, wanted in zip(kinds, expected, strict=False):
            for given in ((kind,), (kind, Parts.ONE), (kind, Parts.ONE, Member.ONE)):
                found = static(x, *given)
                close(own.array(found[0]), wanted)
                assert found[1] is kind
    for other in (("plain",), (kinds[0], Parts.TWO), (kinds[0], Parts.ONE, Member.TWO), (kinds[0], 1)):
        with pytest.raises(SpecError, match=r"kind|flags|held"):
            static(x, *other)
    with monkeypatch.context() as gone:
        for name in ("Kind", "Held", "Parts"):
            gone.setattr(passed_constants, name, None)
        static = load(tmp_path / "model")
        close(own.array(static(x, "PLAIN")[0]), expected[0])
        with pytest.raises(SpecError, match="PLAIN"):
            static(x, "OTHER")


def test_a_member_of_an_enumeration_in_the_specs_of_a_decorator(own: Any, tmp_path: Path) -> None:
    linear = own.Linear(8, 3)

    @inference(backend="onnxruntime", input_spec=[InputSpec([None, 8]), passed_constants.Kind.LARGE, [Member.TWO]])
    def scaled(x: Any, kind: Any, held: Any) -> Any:
        return linear(x) * kind.value + len(held[0].text)

    with own.no_grad():
        save(scaled, tmp_path / "model", trainable=False)
        x = own.tensor(points(7))
        found = load(tmp_path / "model")(x, passed_constants.Kind.LARGE, [Member.TWO])
        close(own.array(found), own.array(linear(x)) * 2 + 3)


def test_a_member_of_an_enumeration_among_the_results(own: Any, tmp_path: Path, monkeypatch: Any) -> None:
    linear = own.Linear(8, 3)

    @inference(backend="onnxruntime")
    def kind_of(x: Any) -> Any:
        return linear(x), (Member.ONE, Parts.ONE | Parts.TWO)

    with own.no_grad():
        save(kind_of, tmp_path / "model", [InputSpec([None, 8])], trainable=False)
        x = own.tensor(points(7))
        members = load(tmp_path / "model")(x)[1]
        assert members[0] is Member.ONE and members[1] is Parts.ONE | Parts.TWO
        monkeypatch.setattr(passed_constants, "Held", None)
        monkeypatch.setattr(passed_constants, "Parts", None)
        assert load(tmp_path / "model")(x)[1] == ("ONE", 3)


def test_an_object_that_is_no_dataclass_is_named_as_what_cannot_be_saved(own: Any, tmp_path: Path) -> None:
    linear = own.Linear(8, 3)

    @inference(backend="onnxruntime")
    def of_held(held: Any) -> Any:
        return linear(held.x)

    with own.no_grad():
        of_held(Held(own.tensor(points(2))))
    with pytest.raises(SpecError, match="an object other than a dataclass among the arguments"):
        save(of_held, tmp_path / "model")


def test_of_two_methods_the_one_that_was_not_called_is_told_what_to_do(own: Any, tmp_path: Path) -> None:
    layer = own.Two()
    with pytest.raises(SpecError, match=r"not called by itself .* decorate it with inference.* or save one bound"):
        save(layer, tmp_path / "model")
    with pytest.raises(SpecError, match=r"cannot be told whose.*or save one alone, as by save\(layer\.\w+, path, in"):
        save(layer, tmp_path / "model", [InputSpec([None, 8])])


def test_two_methods_a_flag_and_what_they_share(own: Any, tmp_path: Path) -> None:
    layer = own.Two()
    x = own.tensor(points(4))
    with own.no_grad():
        layer(x), layer(x, True), layer(x, negative=False), layer.encode(own.tensor(points(2)))
    with pytest.raises(SpecError, match="forward, encode"):
        save(layer, tmp_path / "model", [InputSpec([None, 8])])
    save(layer, tmp_path / "model", trainable=False)
    static = load(tmp_path / "model")
    assert list(static.methods) == ["forward", "encode"]
    assert list(static.state_dict()) == ["shared.weight", "shared.bias", "head.weight", "head.bias"]
    with own.no_grad():
        plain, negative = layer(x), layer(x, True)
    close(own.array(static(x)), own.array(plain))
    close(own.array(static(x, negative=True)), own.array(negative))
    close(own.array(static.forward(x, True)), own.array(negative))
    found = static.encode(x)
    assert list(found) == ["code", "given", "size"] and found["given"] is x and found["size"] == 8
    with pytest.raises(SpecError, match=r"`negative`.*3"):
        static(x, 3)
    with pytest.raises(AttributeError, match=r"it has forward, encode"):
        static.decode(x)
    with pytest.raises(TypeError, match="missing"):
        static()
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'negatve'; did you mean `negative`\?"):
        static(x, negatve=True)
    with pytest.raises(TypeError, match="unexpected keyword argument 'y'; its parameters are `x`, `negative`"):
        static(y=x)
    with pytest.raises(TypeError, match=r"3 positional arguments were given, and it takes 2; .* `x`, `negative`"):
        static(x, True, 3)


def test_an_undecorated_forward_beside_a_decorated_method_is_refused(own: Any, tmp_path: Path) -> None:
    class Half(own.Layer):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return x + 1

        @hybrid_infer.inference
        def other(self, x: Any) -> Any:
            return x + 2

    with pytest.raises(SpecError, match=r"other .*forward.*not decorated"):
        save(Half(), tmp_path / "model", [InputSpec([2])])
    layer = Half()
    save(layer.other, tmp_path / "other", [InputSpec([2])], trainable=False)
    close(load(tmp_path / "other")(np.zeros(2, np.float32)), [2, 2])


def test_a_layer_without_a_forward_is_saved_with_its_decorated_methods(own: Any, tmp_path: Path) -> None:
    class Denoiser(own.Layer):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.linear = own.Linear(8, 3)

        @hybrid_infer.inference
        def blocks(self, x: Any) -> Any:
            return self.linear(x)

    class Pair(Denoiser):
        @hybrid_infer.inference
        def other(self, x: Any) -> Any:
            return x + 1

    layer, x = Denoiser(), points(4)
    with own.no_grad():
        expected = own.array(layer.blocks(own.tensor(x)))
    save(layer, tmp_path / "one")
    static = load(tmp_path / "one")
    close(static.blocks(x), expected)
    close(static(x), expected)  # there is no other that a call could mean
    assert list(static.state_dict()) == ["linear.weight", "linear.bias"]
    trained = static.as_layer()
    for call in (trained.eval() or trained, trained.blocks):
        close(own.array(call(own.tensor(x))), expected)
    close(own.array(static.train()(own.tensor(x))), expected)

    both = Pair()
    both.linear = layer.linear
    with own.no_grad():
        both.blocks(own.tensor(x)), both.other(own.tensor(x))
    save(both, tmp_path / "two")
    static = load(tmp_path / "two")
    close(static.blocks(x), expected)
    close(static.other(x), x + 1)
    assert "other" in str(static)
    trained = static.as_layer()
    close(own.array(trained.other(own.tensor(x))), x + 1)
    for ask in (lambda: static(x), lambda: static.input_spec, lambda: static.export_onnx(str(tmp_path / "a.onnx")),
                lambda: trained(own.tensor(x))):  # fmt: skip
        with pytest.raises(StaticModelError, match=r"no forward.*blocks.*other"):
            ask()
    static.export_onnx(str(tmp_path / "a.onnx"), "other")


def test_a_layer_with_nothing_to_save_says_so(own: Any, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="neither a forward nor a decorated method"):
        save(own.Layer(), tmp_path / "none", [InputSpec([2])])


def test_a_call_that_raised_was_a_mistake_and_is_not_saved(own: Any, tmp_path: Path) -> None:
    layer = own.Classifier()
    with own.no_grad():
        for batch in (4, 6):
            layer(own.tensor(points(batch)))
        for wrong in (points(3, 9), points(3, 9), points(3)[0, :5]):
            with pytest.raises((RuntimeError, ValueError, OSError)):
                layer(own.tensor(wrong))
    save(layer, tmp_path / "model", trainable=False)
    assert load(tmp_path / "model").input_spec == [InputSpec([-1, 8], "float32", "x")]


def test_what_a_call_that_raised_was_given_is_saved_once_a_call_succeeds_with_it(own: Any, tmp_path: Path) -> None:
    class Strict(own.Classifier):  # type: ignore[name-defined,misc]
        ready = False

        @hybrid_infer.inference
        def forward(self, x: Any) -> Any:
            if not self.ready:
                raise LookupError("not yet")
            return self.linear(x)

    layer, x = Strict(), own.tensor(points(4))
    with own.no_grad():
        for _ in range(2):
            with pytest.raises(LookupError):
                layer(x)
        with pytest.raises(SpecError, match="was not called"):
            save(layer, tmp_path / "model")
        layer.ready = True
        layer(x)
        layer.ready = False
        with pytest.raises(LookupError):
            layer(x)
    layer.ready = True
    save(layer, tmp_path / "model", trainable=False)
    assert load(tmp_path / "model")(points(4)).shape == (4, 3)


def test_a_method_that_another_one_called_says_how_to_save_without_it(own: Any, tmp_path: Path) -> None:
    class Parts(own.Classifier):  # type: ignore[name-defined,misc]
        @hybrid_infer.inference
        def encode(self, x: Any) -> Any:
            return self.linear(x)

        @hybrid_infer.inference
        def forward(self, x: Any) -> Any:
            return self.encode(x) * 2

    layer = Parts()
    with own.no_grad():
        expected = layer(own.tensor(points(4)))
    with pytest.raises(SpecError, match=r"encode, which was not called by itself .* as in save\(layer.forward, path\)"):
        save(layer, tmp_path / "model")
    save(layer.forward, tmp_path / "model", trainable=False)
    assert np.allclose(load(tmp_path / "model")(points(4)), expected.numpy(), atol=1e-5)


def test_nested_specs_and_results_keep_their_structure(own: Any, tmp_path: Path) -> None:
    layer = own.Nested()
    pairs = [InputSpec([None, 4]), InputSpec([4], name="added")]
    spec = [pairs, {"a": InputSpec([2], "int64"), "b": {"c": InputSpec([3])}}]
    save(layer, tmp_path / "model", spec, trainable=False)
    static = load(tmp_path / "model")
    assert static.input_spec[0] == [InputSpec([-1, 4], name="pair_0"), InputSpec([4], name="added")]
    assert static.input_spec[1]["b"] == {"c": InputSpec([3], name="more_b_c")} and static.input_spec[2] == 2.0
    arrays = [points(5, 4), points(1, 4)[0]], {"a": np.int64([1, 2]), "b": {"c": np.float32([1, 2, 3])}}
    pair = [own.tensor(array) for array in arrays[0]]
    more = {"a": own.tensor(arrays[1]["a"]), "b": {"c": own.tensor(arrays[1]["b"]["c"])}}
    with own.no_grad():
        expected = layer(pair, more)
    found = static(tuple(pair), {"b": more["b"], "a": more["a"]})  # a tuple for a list, and keys in another order
    assert type(found) is Pair and type(found.right) is list
    close(own.array(found.left), own.array(expected.left))
    close(own.array(found.right[0]), own.array(expected.right[0]))
    close(static(*arrays).right[1], own.array(expected.right[1]))
    with pytest.raises(SpecError, match=r"`pair` of forward.*any, 4"):
        static([pair[1], pair[1]], more)
    with pytest.raises(SpecError, match=rf"`pair`\[1\]: an array cannot be passed beside tensors of {own.name}"):
        static([pair[0], arrays[0][1]], more)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ([[InputSpec([None, 4]), InputSpec([4])]], "`more`"),
        ([[InputSpec([None, 4]), InputSpec([4])], {"a": object()}], r"`more`\['a'\]"),
        ([[InputSpec([None, 4]), InputSpec([4])], [InputSpec([2])]], "list indices"),
        (None, "input_spec=.*InputSpec"),
    ],
)
def test_a_wrong_spec_says_what_to_pass(own: Any, tmp_path: Path, spec: Any, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        save(own.Nested(), tmp_path / "model", spec)
    assert not (tmp_path / "model").exists()


def test_nothing_seen_and_no_spec(own: Any, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"not called.*Call it once.*InputSpec"):
        save(own.Classifier(), tmp_path / "model")


def test_a_function_with_what_it_reaches(own: Any, tmp_path: Path) -> None:
    scale = own.Linear(8, 2)

    def scaled(x: Any, *, factor: float = 3.0) -> Any:
        return scale(x) * factor

    save(scaled, tmp_path / "model", [InputSpec([None, 8], name="given")], trainable=False)
    static = load(tmp_path / "model")
    assert list(static.state_dict()) == ["scale.weight", "scale.bias"]
    x = points(3)
    with own.no_grad():
        expected = own.array(scaled(own.tensor(x)))
    close(static(x), expected)
    close(static(x=x, factor=3.0), expected)
    with pytest.raises(SpecError, match="`factor`"):
        static(x, factor=2.0)


def test_many_softmaxes_in_bfloat16(own: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    layer = own.Softmaxes(16)
    with caplog.at_level(logging.WARNING, "hybrid_infer"):
        save(layer, tmp_path / "model", [InputSpec([None, None], "bfloat16")], trainable=False)
    static = load(tmp_path / "model")
    assert static.input_spec[0].shape[0] == -1
    if static.input_spec[0].shape[1] != -1:  # the linear fixes it where the tracer knows sizes
        assert caplog.text.count("axis 1") == 1
    x = own.narrow(own.tensor(points(5, 16)))
    with own.no_grad():  # in float32, since Paddle has no such kernels on a CPU
        expected = own.array(layer(own.widened(x)))
    assert np.abs(own.array(static(x)) - expected).max() < 4e-3
    assert np.abs(static(own.array(x)) - expected).max() < 4e-3


def test_the_name_of_a_spec_is_the_tensors_and_calls_use_the_parameters(own: Any, tmp_path: Path) -> None:
    class Product(own.Layer):  # type: ignore[misc]
        def forward(self, left: Any, right: Any) -> Any:
            return left * right

    specs = [InputSpec([None, 2], name="image"), InputSpec([None, 2])]
    save(Product(), tmp_path / "model", specs, trainable=False)
    static = load(tmp_path / "model")
    assert [spec.name for spec in static.input_spec] == ["image", "right"]
    two, three = np.full((1, 2), 2, np.float32), np.full((1, 2), 3, np.float32)
    assert static(right=three, left=two).tolist() == [[6, 6]]
    with pytest.raises(TypeError, match="'image' is what the tensor is called in the graph, and `left` its parameter"):
        static(image=two, right=three)
    static.export_onnx(str(tmp_path / "model.onnx"))
    assert load(tmp_path / "model.onnx")(image=two, right=three).tolist() == [[6, 6]]


def test_the_live_layer_is_left_as_it_was(own: Any, tmp_path: Path) -> None:
    layer = own.Deep()
    layer.train()
    layer.norm.eval()
    before = {name: own.array(value).copy() for name, value in layer.state_dict().items()}
    keys = set(vars(layer))
    save(layer, tmp_path / "model", [InputSpec([None, 8])])
    assert layer.training and layer.first.training and not layer.norm.training
    assert set(vars(layer)) == keys
    assert all(np.array_equal(before[name], own.array(value)) for name, value in layer.state_dict().items())
    layer.eval()
    x = points(3)
    with own.no_grad():
        close(load(tmp_path / "model")(x), own.array(layer(own.tensor(x))))


def test_each_method_brings_its_own_spec(own: Any, tmp_path: Path) -> None:
    class Specified(own.Layer):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.linear = own.Linear(8, 2)

        @hybrid_infer.inference(input_spec=[InputSpec([3, 8], name="fixed")])
        def forward(self, x: Any) -> Any:
            return self.linear(x)

        @hybrid_infer.inference(input_spec=[InputSpec([2], "int64"), 3])
        def scaled(self, x: Any, factor: int = 1) -> Any:
            return x * factor

    save(Specified(), tmp_path / "model", trainable=False)
    static = load(tmp_path / "model")
    assert static.input_spec == [InputSpec([3, 8], name="fixed")]
    assert static.scaled(np.int64([1, 2]), 3).tolist() == [3, 6]
    with pytest.raises(SpecError, match="`factor`"):
        static.scaled(np.int64([1, 2]))


def test_a_wrapped_layer_and_another_instance_of_its_class(own: Any, tmp_path: Path) -> None:
    """What one instance has seen says nothing of another."""
    first, second = own.Deep(), own.Deep()
    for layer in (first, second):
        layer.eval()
    hybrid_infer.inference(first)
    with own.no_grad():
        first(own.tensor(points(2))), first(own.tensor(points(5)))
    with pytest.raises(SpecError, match="not decorated"):
        save(second, tmp_path / "model")
    save(first, tmp_path / "model", trainable=False)
    x = points(3)
    with own.no_grad():
        close(load(tmp_path / "model")(x), own.array(first(own.tensor(x))))


def test_what_cannot_be_captured_is_an_error_and_leaves_no_file(own: Any, tmp_path: Path) -> None:
    class Counting(own.Layer):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            self.calls = getattr(self, "calls", 0) + 1
            return x + 1

    with pytest.raises(CaptureError, match="calls"):
        save(Counting(), tmp_path / "model", [InputSpec([2])])
    with pytest.raises(TypeError, match="list"):
        save([1], tmp_path / "model")
    assert not list(tmp_path.glob("*"))


def test_print_shows_an_aligned_table(own: Any, tmp_path: Path) -> None:
    save(own.Deep(), tmp_path / "model", [InputSpec([None, 8], name="x")], trainable=False)
    static = load(tmp_path / "model")
    lines = str(static).splitlines()
    (given,) = [line for line in lines if "input" in line]
    (result,) = [line for line in lines if "output" in line]
    assert given.split() == ["input", "x", "float32", "(any,", "8)"] and "(any, 3)" in result
    assert given.index("float32") == result.index("float32")
    (operators,) = [line for line in lines if "operators" in line]
    assert "MatMul" in operators or "Gemm" in operators
    assert lines[-1].startswith("weights") and lines[-1].endswith("bytes")
    assert "forward" in repr(static) and static.dtype == "float32"
