"""What a user is told who decorates, names or passes the wrong thing: which, why, and what is allowed. No framework."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import hybrid_infer
from hybrid_infer import OptionError, inference, to_static


def test_a_misspelled_engine_in_the_environment_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYBRID_INFER_BACKEND", "onnxruntime, opnvino")
    words = r"HYBRID_INFER_BACKEND='onnxruntime, opnvino' is not allowed: .*'auto'.*onnxruntime, openvino.*commas"
    with pytest.raises(OptionError, match=words):
        inference(lambda x: x)
    monkeypatch.setenv("HYBRID_INFER_BACKEND", "auto")
    inference(lambda x: x)


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


def test_what_dir_lists_is_the_public_interface() -> None:
    assert dir(hybrid_infer) == sorted(hybrid_infer.__all__) and len(dir(hybrid_infer)) > 20
    for name in dir(hybrid_infer):
        value = getattr(hybrid_infer, name)
        assert value.__doc__ and value.__doc__.strip(), f"{name} has nothing for help()"
