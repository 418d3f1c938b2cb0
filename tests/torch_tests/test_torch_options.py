"""Each option is checked when the decorator is applied, and says what would have been accepted."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from torch_support import Block, counts, twice

from hybrid_infer import HybridInferError, OptionError, inference

X = torch.linspace(-1, 1, 8).reshape(2, 4)

FLAGS = (
    "cache_static_model", "switch_ir_optim", "switch_ir_debug", "enable_cinn", "with_trt", "trt_use_static",
    "collect_shape", "enable_new_ir", "exp_enable_use_cutlass", "skip_prune_program", "background", "core_handover",
)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        *((flag, 2, "True or False") for flag in FLAGS),
        ("save_model_dir", 3, "the path of a directory"),
        ("save_model_dir", "", "the path of a directory"),
        ("save_model_dir", "a\0b", "the path of a directory"),
        ("save_model_dir", b"store", "the path of a directory"),
        ("memory_pool_init_size_mb", -1, "an integer not below 0"),
        ("memory_pool_init_size_mb", True, "an integer not below 0"),
        ("memory_pool_init_size_mb", -0.5, "an integer not below 0"),
        ("memory_pool_init_size_mb", float("inf"), "an integer not below 0"),
        ("precision_mode", "int8", "'float32', 'float16', 'bfloat16'"),
        ("trt_precision_mode", "fp16", "'float32', 'float16', 'bfloat16'"),
        ("delete_pass_lists", "prune", "a list of names"),
        ("delete_pass_lists", [1], "a list of names"),
        ("backend", "tensorflow", "'onnxruntime'"),
        ("backend", [], "'onnxruntime'"),
        ("device", "tpu", "'cpu'"),
        ("device", 0, "'cpu'"),
        ("device", "gpu:x", "'gpu:<index>'"),
        ("device", "gpu:", "'gpu:<index>'"),
        ("device", "cpu:0:1", "'cpu'"),
        ("input_spec", 4, "a list of InputSpec"),
        ("input_spec", [3], "a list of InputSpec"),
        ("input_spec", [X, object()], "a list of InputSpec"),
        ("weights", "frozen", "'auto', 'bound', 'live'"),
        ("weights", [], "'auto', 'bound', 'live'"),
        ("fallback", "raise", "'eager', 'error'"),
        ("verify", True, "'build', 'first', 'always', 'off'"),
        ("rtol", -1e-3, "a finite number not below 0"),
        ("atol", "small", "a finite number not below 0"),
        ("rtol", float("nan"), "a finite number not below 0"),
        ("max_versions", 0, "an integer not below 1"),
        ("max_versions", 2.0, "an integer not below 1"),
        ("cache_key", 7, "None or a string"),
    ],
)
def test_a_bad_value_names_the_option_the_value_and_what_is_allowed(name: str, value: Any, allowed: str) -> None:
    with pytest.raises(OptionError) as caught:
        inference(**{name: value})
    error = caught.value
    assert isinstance(error, ValueError) and isinstance(error, HybridInferError)
    assert error.name == name and (error.value is value or error.value == value)
    assert f"{name}={value!r}" in str(error) and allowed in str(error)


def test_an_unknown_option_is_a_type_error_with_the_nearest_name() -> None:
    with pytest.raises(TypeError, match="no option 'with_tensorrt'"):
        inference(with_tensorrt=True)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="no option 'fallbck'; did you mean 'fallback'"):
        inference(fallbck="error")  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        inference(Block(), *[None] * 16)  # type: ignore[misc]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"enable_new_ir": True}, "internal to Paddle"),
        ({"exp_enable_use_cutlass": True}, "internal to Paddle"),
        ({"delete_pass_lists": ["matmul_add_fuse", "prune"]}, "does not have: matmul_add_fuse"),
        ({"device": "gpu:0"}, "where the tensors of its call are"),
        ({"device": "cuda"}, "where the tensors of its call are"),
        ({"trt_use_static": True, "enable_new_ir": True, "collect_shape": True}, "(for with_trt=True)"),
    ],
)
def test_what_has_no_effect_says_so_in_one_line(
    options: dict[str, Any], words: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "hybrid_infer"):
        inference(**options)
    lines = [r for r in caplog.records if r.name == "hybrid_infer"]
    assert len(lines) == 1 and lines[0].levelno == logging.INFO and words in lines[0].getMessage()
    assert lines[0].getMessage().startswith("hybrid_infer: ")
    assert all(name in lines[0].getMessage() for name in options)


@pytest.mark.parametrize("size", [512.0, 512.5])
def test_the_size_of_the_pool_is_taken_in_whole_megabytes(size: float) -> None:
    from hybrid_infer import _options

    found = _options.make({"memory_pool_init_size_mb": size}).memory_pool_init_size_mb
    assert found == 512 and type(found) is int
    inference(memory_pool_init_size_mb=size)  # type: ignore[arg-type]


def test_options_of_later_capabilities_do_not_fail() -> None:
    layer = inference(
        Block(), with_trt=True, trt_precision_mode="float16", trt_use_static=True, collect_shape=True, enable_cinn=True,
        precision_mode="bfloat16", memory_pool_init_size_mb=10, switch_ir_optim=False, skip_prune_program=True,
    )  # fmt: skip
    with torch.no_grad():
        assert layer(X).shape == (2, 4)
    assert counts()["eager_calls"] == 0


def test_enable_cinn_says_once_that_it_is_for_gpus(caplog: pytest.LogCaptureFixture) -> None:
    from hybrid_infer import _demanded

    _demanded.say_absent.cache_clear()
    layer = inference(Block(), enable_cinn=True)
    with caplog.at_level(logging.WARNING, "hybrid_infer"):
        twice(layer, Block.forward.__get__(layer), X)
    told = [record.getMessage() for record in caplog.records if "enable_cinn" in record.getMessage()]
    assert len(told) == 1 and "on the device 'cpu'" in told[0]
    assert counts()["eager_calls"] == 0


def test_options_by_position_as_the_reference_has_them(tmp_path: Any) -> None:
    layer = inference(Block(), False, str(tmp_path / "d"), 100, "float32", True)
    twice(layer, Block.forward.__get__(layer), X)
    assert not (tmp_path / "d").exists()


def test_without_a_cache_nothing_is_left_in_the_store(store: Any) -> None:
    layer = inference(Block(), cache_static_model=False)
    twice(layer, Block.forward.__get__(layer), X)
    assert not store.exists()


def test_a_device_of_torch_is_taken_as_its_name() -> None:
    for name in ("cpu", "cuda", "cuda:1"):
        method = inference(lambda x: x + 1, device=torch.device(name))
        assert method.__hybrid_infer__.options == inference(lambda x: x, device=name).__hybrid_infer__.options
    for wrong in (torch.device("meta"), torch.ones(1), 0, "Place(cpu)", ["cpu"]):
        with pytest.raises(OptionError, match=r"device must be None, 'cpu', .*device of torch or Paddle"):
            inference(lambda x: x, device=wrong)
