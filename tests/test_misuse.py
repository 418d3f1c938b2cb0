"""What a user is told who decorates, names or passes the wrong thing: which, why, and what is allowed. No framework."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hybrid_infer
from hybrid_infer import InputSpec, OptionError, SpecError, _options, inference, load, release, save, to_static


def test_a_misspelled_engine_in_the_environment_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYBRID_INFER_BACKEND", "onnxruntime, opnvino")
    words = r"HYBRID_INFER_BACKEND='onnxruntime, opnvino' is not allowed: .*'auto'.*onnxruntime, openvino.*commas"
    with pytest.raises(OptionError, match=words):
        inference(lambda x: x)
    monkeypatch.setenv("HYBRID_INFER_BACKEND", "auto")
    inference(lambda x: x)


@pytest.mark.parametrize(
    "value, meant",
    [("onnx", "'onnxruntime'"), ("trt", "'tensorrt'"), ("OpenVINO", "'openvino'"), ("opnvino", "'openvino'"),
     (["ort", "native"], r"\['onnxruntime', 'native'\]")],
)  # fmt: skip
def test_an_engine_by_another_name(value: Any, meant: str) -> None:
    with pytest.raises(OptionError, match=rf"not allowed.*did you mean {meant}\?"):
        inference(lambda x: x, backend=value)


def test_what_is_offered_as_an_engine_is_for_users(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OptionError, match="'onnxruntime', 'openvino', 'native', 'tensorrt'; did you") as raised:
        inference(lambda x: x, backend="onnxruntme")
    assert "null" not in str(raised.value)
    with pytest.raises(OptionError, match="must be 'auto'") as raised:
        inference(lambda x: x, backend="nul")
    assert "null" not in str(raised.value)
    monkeypatch.setenv("HYBRID_INFER_BACKEND", "onnxruntme")
    with pytest.raises(OptionError, match="onnxruntime, openvino, native, tensorrt, separated") as raised:
        inference(lambda x: x)
    assert "null" not in str(raised.value)
    inference(lambda x: x, backend="null")


@pytest.mark.parametrize("value", ["tvm", [], [3], 3, ["onnx", "tvm"]])
def test_an_engine_that_comes_near_none(value: Any) -> None:
    with pytest.raises(OptionError, match="must be 'auto'") as raised:
        inference(lambda x: x, backend=value)
    assert "did you mean" not in str(raised.value)


@pytest.mark.parametrize(
    "value, meant",
    [({"x": InputSpec([2])}, "not by name: give a list of them in the order of the parameters"),
     ((3, 8), r"did you mean \[InputSpec\(\[3, 8\]\)\]\?"), (InputSpec([2]), r"did you mean a list of it\?"),
     ([(None, 8), [4]], r"did you mean \[InputSpec\(\[None, 8\]\), InputSpec\(\[4\]\)\]\?")],
)  # fmt: skip
def test_specs_that_are_spelled_otherwise(value: Any, meant: str) -> None:
    with pytest.raises(OptionError, match=meant):
        inference(lambda x: x, input_spec=value)


@pytest.mark.parametrize("value", [[], [None], [1.5], 3, "x"])
def test_specs_that_come_near_none(value: Any) -> None:
    with pytest.raises(OptionError) as raised:
        inference(lambda x: x, input_spec=value)
    assert "did you mean" not in str(raised.value)


@pytest.mark.parametrize(
    "value, meant",
    [("openvino", "; options are given by name: did you mean backend='openvino'?"),
     ("float16", "; options are given by name: did you mean precision_mode='float16'?"),
     ("error", "; options are given by name: did you mean fallback='error'?"), ("folder", "")],
)  # fmt: skip
def test_an_option_without_its_name(value: str, meant: str) -> None:
    with pytest.raises(OptionError) as raised:
        inference(lambda x: x, value)
    assert str(raised.value).endswith(f"must be True or False{meant}")


@pytest.mark.parametrize("value", ["onnxruntime", True])
def test_an_option_in_the_place_of_the_function(value: Any) -> None:
    with pytest.raises(TypeError, match=r"Options are given by name, such as `inference\(backend="):
        inference(value)


@pytest.mark.parametrize(
    "name, value, meant",
    [("background", "yes", "; did you mean background=True?"),
     ("core_handover", "off", "; did you mean core_handover=False?"),
     ("with_trt", "maybe", ""), ("background", 2, ""), ("background", None, "")],
)  # fmt: skip
def test_a_flag_that_is_said_otherwise(name: str, value: Any, meant: str) -> None:
    with pytest.raises(OptionError) as raised:
        inference(lambda x: x, **{name: value})
    assert str(raised.value) == f"{name}={value!r} is not allowed: {name} must be True or False{meant}"


@pytest.mark.parametrize(
    "call, words",
    [(lambda: load("m", bakend="auto"), r"load\(\) has no option 'bakend'; did you mean 'backend'\?"),
     (lambda: save(len, "m", plan=True), r"save\(\) has no option 'plan'; did you mean 'plans'\?"),
     (lambda: load("m", zzz=1), "load.. has no option 'zzz'; its options are path, backend, device"),
     (lambda: load(None), r"load\(\) was given None for `path`; it takes a string or an os.PathLike"),
     (lambda: load(b"m"), r"load\(\) was given an object of class builtins.bytes for `path`; it takes a string"),
     (lambda: save(len, 3), r"save\(\) was given an object of class builtins.int for `path`; [^;]*$"),
     (lambda: save("m", len), "for `path`; it takes .*; the layer or function comes first, then the path"),
     (lambda: save("m", "n"), r"save\(\) was given an object of class builtins.str for `target`; it takes a torch")],
)  # fmt: skip
def test_save_and_load_name_what_is_wrong(call: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        call()


class Called:
    def __call__(self, x: Any) -> Any:
        return x


@pytest.mark.parametrize(
    "target, remedy",
    [(len, r"of your own: `def f\(x\): return len\(x\)`"), ([].append, r"`def f\(x\): return append\(x\)`"),
     (functools.partial(max, 3), r"in a function: `def f\(x\): return max\(\.\.\., x\)`"),
     (Called(), r"`__call__` of its class, .*`inference\(it.__call__\)`"), (3, "paddle.nn.Layer$")],
)  # fmt: skip
def test_what_can_be_called_and_is_no_function_of_python(target: Any, remedy: str) -> None:
    with pytest.raises(TypeError, match=rf"a function written in Python, a bound method.*{remedy}"):
        inference(target)
    assert hybrid_infer.is_inference_mode(inference(Called().__call__))


class Doubling:
    def doubled(self, x: Any) -> Any:
        return x * 2


@pytest.mark.parametrize(
    "target, remedy",
    [(functools.lru_cache(lambda x: x), r"Give it the function that it is around \(<lambda>\)"),
     (functools.partialmethod(Doubling.doubled, 3), "Write it out as a method of the class"),
     (operator.itemgetter(0), r"`def f\(x\): return it\(x\)`")],
)  # fmt: skip
def test_what_is_around_a_function_and_objects_in_c_say_what_to_decorate(target: Any, remedy: str) -> None:
    for decorator in (inference, to_static):
        with pytest.raises(TypeError, match=remedy) as raised:
            decorator(target)
        assert "__call__" not in str(raised.value)


def test_a_decorated_property_says_where_the_decorator_goes() -> None:
    with pytest.raises(TypeError, match="below @property"):
        inference(property(lambda self: self))


@pytest.mark.parametrize("decorator", [inference, inference(), to_static, to_static()])
def test_functions_whose_call_gives_no_tensor_are_refused_where_they_are_decorated(decorator: Any) -> None:
    async def fetched(x: Any) -> Any:
        return x

    def steps(x: Any) -> Iterator[Any]:
        yield x

    async def stream(x: Any) -> Any:
        yield x

    for function, what in ((fetched, "coroutine"), (steps, "generator"), (stream, "asynchronous generator")):
        with pytest.raises(TypeError, match=rf"{function.__name__}, which is an? {what}.*[Dd]ecorate the part"):
            decorator(function)


def test_a_class_method_is_refused_and_a_static_method_is_not() -> None:
    with pytest.raises(TypeError, match=r"class method .*made.*no weights.*static method"):

        class Wrong:
            @inference
            @classmethod
            def made(cls, x: Any) -> Any:
                return x

    class Model:
        @classmethod
        def made(cls, x: Any) -> Any:
            return x

    for decorator in (inference, inference(), to_static, to_static()):
        with pytest.raises(TypeError, match=r"class method .*Model.made: a class has no weights"):
            decorator(Model.made)

    class Right:
        @inference
        @staticmethod
        def doubled(x: Any) -> Any:
            return x + x

    assert Right.doubled(2) == 4 and Right().doubled(2) == 4


def test_a_class_method_around_a_decorated_function_says_so(caplog: pytest.LogCaptureFixture) -> None:
    class Made:
        @classmethod
        @inference
        def made(cls, x: Any) -> Any:
            return x + 1

    assert Made.made(1) == 2
    assert "it is a class method" in caplog.text and "no layer or tensor" not in caplog.text
    assert "Decorate a method of its instances, a static method or a function (see" in caplog.text
    assert "docs/troubleshooting.md#class-methods" in caplog.text


def test_what_dir_lists_is_the_public_interface() -> None:
    assert dir(hybrid_infer) == sorted(hybrid_infer.__all__) and len(dir(hybrid_infer)) > 20
    for name in dir(hybrid_infer):
        value = getattr(hybrid_infer, name)
        assert value.__doc__ and value.__doc__.strip(), f"{name} has nothing for help()"


def test_each_function_is_named_in_what_it_refuses() -> None:
    class Model:
        pass

    for asked in (inference, to_static):
        with pytest.raises(TypeError, match=rf"^{asked.__name__}\(\) was given the class .*Model; .*wrap an instance"):
            asked(Model)


def test_a_directory_below_the_users_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HYBRID_INFER_CACHE_DIR", "~/models")
    assert _options.store_root(_options.make({})) == tmp_path / "models"
    assert _options.store_root(_options.make({"save_model_dir": "~/mine"})) == tmp_path / "mine"


def test_a_user_without_a_home_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    pwd = pytest.importorskip("pwd")

    def unknown(number: int) -> Any:
        raise KeyError(number)

    for name in ("HOME", "XDG_CACHE_HOME", "HYBRID_INFER_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert _options.store_root(_options.make({})) == Path("/.cache/hybrid_infer")
    assert _options.store_root(_options.make({"save_model_dir": "~/mine"})) == Path("/mine")
    monkeypatch.setenv("HYBRID_INFER_CACHE_DIR", "~")
    assert _options.store_root(_options.make({})) == Path("/")
    monkeypatch.setenv("HYBRID_INFER_CACHE_READONLY", "~")
    assert _options.store_bases(Path("/elsewhere")) == [Path("/")]


def test_the_function_that_was_called_is_named() -> None:
    with pytest.raises(TypeError, match=r"^to_static\(\) has no option 'bakend'; did you mean 'backend'\?"):
        to_static(bakend="auto")
    with pytest.raises(TypeError, match=r"^warmup\(\) was given Called.__call__, which is not decorated"):
        hybrid_infer.warmup(Called().__call__, 3)
    with pytest.raises(TypeError, match=r"^warmup\(\) was given an object of class Called, which is not decorated"):
        hybrid_infer.warmup(Called(), 3)


@pytest.mark.parametrize("make", [InputSpec.from_tensor, InputSpec.from_numpy])
def test_a_spec_of_what_is_no_tensor(make: Any) -> None:
    with pytest.raises(SpecError, match=r"(tensor|ndarray): \[1, 2\] is no tensor, and no array"):
        make([1, 2])


def test_what_is_given_is_not_compared() -> None:
    class Equal:
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = None  # type: ignore[assignment]

        def twice(self, x: Any) -> Any:
            return x * 2

    with pytest.raises(TypeError, match=r"^inference\(\) was given an object of class .*Equal; it takes"):
        inference(Equal())


def test_none_is_no_layer() -> None:
    def mine(function: Any = None, **options: Any) -> Any:
        return inference(function, **options)

    made = (inference(), inference(None), inference(function=None), inference(None, backend="null"), mine())
    for decorator in made:
        with pytest.raises(TypeError, match=r"^inference\(\) was given None; it takes"):
            decorator(None)
        assert hybrid_infer.is_inference_mode(decorator(lambda x: x))
        for given in ([np.ones(3)], [np.ones(3), None]):  # of a layer that a function forgot to return
            with pytest.raises(TypeError, match=r"inference\(None\) is a decorator too: where a layer .* it was None"):
                decorator(*given)


@pytest.mark.parametrize(
    "option, value, meant",
    [("precision_mode", "fp16", "; did you mean 'float16'?"), ("precision_mode", "BF16", "; did you mean 'bfloat16'?"),
     ("verify", "biuld", "; did you mean 'build'?"), ("fallback", "Eager", "; did you mean 'eager'?"),
     ("precision_mode", "int8", "'bfloat16'"), ("verify", True, "'off'")],
)  # fmt: skip
def test_a_choice_by_another_name(option: str, value: Any, meant: str) -> None:
    with pytest.raises(OptionError) as raised:
        inference(lambda x: x, **{option: value})
    assert str(raised.value).endswith(meant)


@pytest.mark.parametrize("name", ["model.pt", "model.pdparams", "model.safetensors"])
def test_a_file_of_weights_is_no_static_model(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"weights")
    with pytest.raises(hybrid_infer.StaticModelError, match=r"hold weights.*framework's own load\(\), weights into"):
        load(tmp_path / name)


@pytest.mark.parametrize("target", [None, "x", 3, b"x", [object()], (), {}, set(), functools, functools.partial(len)])
def test_what_holds_nothing_to_release(target: Any) -> None:
    words = r"release\(\) was given .*; it takes a layer or what inference\(\) returned"
    with pytest.raises(TypeError, match=words):
        release(target)


def test_layers_are_released_one_by_one() -> None:
    with pytest.raises(TypeError, match=r"builtins.list; .*Go through it: `for each in layers: release\(each\)`"):
        release([object(), object()])
    release(object())  # of any class: it may be what a decorated function was given


def test_layers_are_decorated_one_by_one() -> None:
    for several in ([object()], (object(),)):
        with pytest.raises(TypeError, match=r"Go through it: `for each in layers: inference\(each\)`"):
            inference(several)
    with pytest.raises(TypeError, match=r"Go through its values: `for each in layers\.values\(\): inference\(each\)`"):
        inference({"a": object()})


@pytest.mark.parametrize("options", [{}, {"backend": "onnxruntime"}])
@pytest.mark.parametrize("given", [(), (len, 3)], ids=["nothing", "two"])
def test_a_decorator_that_is_called_with_anything_but_a_function(options: Any, given: Any) -> None:
    words = rf"What inference\(\) made of its options was given {len(given)} arguments; it takes one: a function"
    with pytest.raises(TypeError, match=words):
        inference(**options)(*given)
    with pytest.raises(TypeError, match="it takes one: a function"):
        inference(**options)(lambda x: x, backend="openvino")
