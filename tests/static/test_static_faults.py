"""Damaged, foreign and forged files: a clear error each, and nothing half-loaded."""

from __future__ import annotations

import concurrent.futures
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from static_support import close, kit, points, run

import hybrid_infer
from hybrid_infer import InputSpec, OptionError, StaticModelError, load, save
from hybrid_infer.static import _artefact, _model, _tensors

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("original") / "model"
    save(kit("torch").Classifier(), path, [InputSpec([None, 8], name="x")])
    return path


@pytest.fixture
def model(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "model"))


def file(model: Path, part: str) -> Path:
    (found,) = [path for path in model.iterdir() if part in path.name]
    return found


def rewrite(model: Path, change: Callable[[Any], Any]) -> None:
    """Change the body of the manifest, and give it the digest that belongs to it."""
    path = model / "manifest.json"
    outer = json.loads(path.read_text())
    change(outer["model"])
    outer["xxh3"] = _artefact.digest(json.dumps(outer["model"], indent=1, sort_keys=True).encode())
    path.write_text(json.dumps(outer))


def replace(model: Path, role: str, data: bytes) -> None:
    """Put other bytes in the place of a file, with the digest that belongs to them."""

    def change(body: Any) -> None:
        entry = body["files"][role]
        (model / entry["name"]).write_bytes(data)
        entry.update(size=len(data), xxh3=_artefact.digest(data))

    rewrite(model, change)


def test_a_newer_format_names_the_remedy(model: Path) -> None:
    path = model / "manifest.json"
    outer = json.loads(path.read_text())
    outer["format"], outer["library"] = 99, "9.0"
    path.write_text(json.dumps(outer))
    with pytest.raises(StaticModelError, match=r"hybrid_infer 9\.0.*format 99.*Upgrade"):
        load(model)


@pytest.mark.parametrize("part", ["weights", "manifest"])
def test_a_truncated_file(model: Path, part: str) -> None:
    path = file(model, part)
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(StaticModelError, match=r"truncated|damaged"):
        load(model)


@pytest.mark.parametrize("part", ["weights", "manifest"])
def test_a_flipped_bit(model: Path, part: str) -> None:
    path = file(model, part)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(StaticModelError, match=r"digest|damaged"):
        load(model)


@pytest.mark.parametrize("part", ["graph0", "trainable0_train"])
def test_damage_is_found_before_it_is_used(model: Path, part: str) -> None:
    path = file(model, part)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(StaticModelError, match=rf"{part}.*truncated"):
        load(model)


def test_a_damaged_program_for_training(model: Path) -> None:
    replace(model, "trainable0_train.bin", b"no program")
    static = load(model)
    assert static(points(2)).shape == (2, 3)
    with pytest.raises(StaticModelError, match="torch cannot load it"):
        static.train()
    assert static(points(2)).shape == (2, 3)


def test_a_missing_file_and_a_missing_folder(model: Path, tmp_path: Path) -> None:
    file(model, "weights").unlink()
    with pytest.raises(StaticModelError, match=r"it has no weights"):
        load(model)
    with pytest.raises(StaticModelError, match=r"no such file.*\.pdmodel.*\.onnx.*\.pt2"):
        load(tmp_path / "nothing")
    (tmp_path / "text.txt").write_text("text")
    with pytest.raises(StaticModelError, match="no form that is known"):
        load(tmp_path / "text.txt")
    with pytest.raises(StaticModelError, match="folder holds no static model"):
        load(tmp_path)


@pytest.mark.parametrize("name", ["../weights.bin", "/etc/hostname", "a/b.bin", "..", ".bin", "a\\b.bin", "C:x.bin"])
def test_a_name_that_leads_outside(model: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "weights.bin").write_bytes(b"outside")
    rewrite(model, lambda body: body["files"]["weights.safetensors"].update(name=name))
    with pytest.raises(StaticModelError, match="outside"):
        load(model)


def test_a_link_that_leads_outside(model: Path, tmp_path: Path) -> None:
    path = file(model, "weights")
    shutil.move(path, tmp_path / "elsewhere")
    os.symlink(tmp_path / "elsewhere", path)
    with pytest.raises(StaticModelError, match="link"):
        load(model)


def test_weights_of_another_shape_type_or_name(model: Path) -> None:
    zeros = {"linear.weight": np.zeros((3, 8), np.float32), "linear.bias": np.zeros(3, np.float32)}
    kinds = {name: ("float32", value) for name, value in zeros.items()}
    for name, other, words in (
        ("linear.bias", ("float32", np.zeros(4, np.float32)), r"linear.bias is float32 \(4,\).*\(3,\)"),
        ("linear.bias", ("float64", np.zeros(3)), "linear.bias is float64"),
        ("linear.bias", None, "no weight linear.bias"),
    ):
        given = {**kinds, name: other}
        replace(model, "weights.safetensors", _tensors.dump({k: v for k, v in given.items() if v is not None}))
        with pytest.raises(StaticModelError, match=words):
            load(model)


@pytest.mark.parametrize(
    "data", [b"", b"1234567", b"\xff" * 8 + b"{}", b"\5" + b"\0" * 7 + b"{]}}}", b"\2" + b"\0" * 7 + b"[]"]
)
def test_a_file_of_weights_that_is_none(model: Path, data: bytes) -> None:
    replace(model, "weights.safetensors", data)
    with pytest.raises(StaticModelError, match="weights are damaged"):
        load(model)


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body.pop("methods"),
        lambda body: body.update(order=["nothing"]),
        lambda body: body.update(methods=[]),
        lambda body: body["methods"]["forward"].update(versions=[]),
        lambda body: body["methods"]["forward"]["versions"][0].update(version={}),
        lambda body: body["methods"]["forward"]["versions"][0].update(graph="nothing"),
        lambda body: body["methods"]["forward"].update(parameters=[["x"]]),
        lambda body: body.update(state=[["linear.weight", "nothing"]]),
        lambda body: body["files"].clear(),
        lambda body: body.update(files={"weights.safetensors": {}}),
    ],
)
def test_a_manifest_that_describes_no_model(model: Path, change: Callable[[Any], Any]) -> None:
    rewrite(model, change)
    with pytest.raises(StaticModelError):
        load(model)


def test_a_manifest_of_something_else(tmp_path: Path) -> None:
    for text in ("{}", "[]", "null", '{"kind": "other", "format": 1, "library": "1"}', "[" * 100_000):
        (tmp_path / "manifest.json").write_text(text)
        with pytest.raises(StaticModelError):
            load(tmp_path)


def test_no_class_that_a_file_names_is_imported(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "evil.py").write_text("raise SystemExit('it ran')\n")
    monkeypatch.syspath_prepend(tmp_path)

    def change(body: Any) -> None:
        version = body["methods"]["forward"]["versions"][0]["version"]
        version["results"] = ["D", "evil:Out", ["logits"], [version["results"]]]

    rewrite(model, change)
    found = load(model)(points(2))
    assert type(found).__name__ == "Record" and found.logits.shape == (2, 3)
    with pytest.raises(AttributeError, match="it has logits"):
        _ = found.other


def test_saving_over_what_is_no_static_model_is_refused(model: Path, tmp_path: Path) -> None:
    static = load(model)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "text.txt").write_text("mine")
    for path in (tmp_path / "notes", tmp_path / "notes" / "text.txt"):
        with pytest.raises(StaticModelError, match=r"no static model.*another path"):
            save(static, path)
    assert (tmp_path / "notes" / "text.txt").read_text() == "mine"
    (tmp_path / "empty").mkdir()
    save(static, tmp_path / "empty")
    close(load(tmp_path / "empty")(points(2)), static(points(2)))


def test_a_save_that_fails_leaves_what_was_there(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    static = load(model)
    expected = static(points(2))
    static.set_state_dict({name: value + 1 for name, value in static.state_dict("numpy").items()})
    before = sorted(path.name for path in model.iterdir())
    rename = os.replace

    def full(source: str, target: str) -> None:
        if target.endswith("manifest.json"):
            raise OSError(28, "No space left on device")
        rename(source, target)

    with monkeypatch.context() as patch, pytest.raises(StaticModelError, match="No space left"):
        patch.setattr(os, "replace", full)
        save(static, model)
    assert set(before) <= {path.name for path in model.iterdir()}
    close(load(model)(points(2)), expected)
    save(static, model)
    assert len(list(model.iterdir())) == len(before)
    assert abs(load(model)(points(2)) - expected).max() > 0.5


def test_a_state_dict_is_taken_as_a_whole_or_not_at_all(model: Path) -> None:
    static = load(model)
    expected, state = static(points(2)), static.state_dict("numpy")
    for wrong, words in (
        ({**state, "linear.bias": np.zeros(4, np.float32)}, r"linear.bias is of shape \(3,\), and \(4,\)"),
        ({**state, "linear.bias": np.zeros(3)}, "linear.bias is float32, and float64"),
        ({**state, "linear.bias": [0, 0, 0]}, "linear.bias is given as a list"),
        ({"linear.weight": state["linear.weight"] + 1}, "missing: linear.bias"),
        ({**state, "other": state["linear.bias"]}, "unexpected: other"),
    ):
        with pytest.raises(StaticModelError, match=words):
            static.set_state_dict(wrong)
        close(static(points(2)), expected)
    assert static.set_state_dict({"linear.bias": state["linear.bias"] + 1, "other": 0}, strict=False) == (
        ["linear.weight"], ["other"],
    )  # fmt: skip
    close(static(points(2)), expected + 1)


def test_the_options_of_a_load(model: Path) -> None:
    x = points(16)
    exact = load(model)(x)
    narrow = load(model, precision_mode="bfloat16", switch_ir_optim=False)(x)
    assert narrow.dtype == np.float32
    assert 0 < abs(narrow - exact).max() < 0.1
    close(load(model, backend=["openvino", "onnxruntime"], core_handover=False)(x), exact)


def test_wrong_options_and_wrong_calls(model: Path) -> None:
    with pytest.raises(OptionError, match="backend"):
        load(model, backend="nothing")
    with pytest.raises(OptionError, match="precision_mode"):
        load(model, precision_mode="int3")
    static = load(model, backend="onnxruntime", device="cpu")
    with pytest.raises(hybrid_infer.SpecError, match=r"`x` of forward.*float64 \(2, 8\).*float32 \(any, 8\)"):
        static(points(2).astype(np.float64))
    with pytest.raises(hybrid_infer.SpecError, match="`x`"):
        static("text")
    with pytest.raises(StaticModelError, match="null"):
        load(model, backend="null")(points(2))
    assert _model.WEIGHTS in json.loads((model / "manifest.json").read_text())["model"]["files"]


def test_what_was_loaded_outlives_what_is_written_over_it(model: Path, tmp_path: Path) -> None:
    static = load(model)
    changed = load(model)
    changed.set_state_dict({name: value * 0 for name, value in static.state_dict("numpy").items()})
    save(changed, model, trainable=False)
    assert not load(model)(points(2)).any()
    assert static(points(2)).any() and static.as_layer() is not None


@pytest.mark.processes
def test_processes_that_write_and_read_one_path(model: Path, tmp_path: Path) -> None:
    program = """
import sys, numpy as np
from hybrid_infer import load, save
static = load("model")
state = static.state_dict("numpy")
number = int(sys.argv[1])
for _ in range(30):
    static.set_state_dict({name: np.full_like(value, number) for name, value in state.items()})
    save(static, "shared")
    found = load("shared").state_dict("numpy")
    kinds = {float(value) for array in found.values() for value in array.reshape(-1)}
    assert len(kinds) == 1, kinds
"""
    with concurrent.futures.ThreadPoolExecutor() as pool:
        jobs = [pool.submit(run, program, tmp_path, str(number)) for number in (1, 2, 3)]
        for job in jobs:
            job.result()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "shared"]
    body = json.loads((tmp_path / "shared" / "manifest.json").read_text())["model"]
    assert {path.name for path in (tmp_path / "shared").iterdir()} == {
        "manifest.json", *(entry["name"] for entry in body["files"].values())
    }  # fmt: skip


def test_a_file_in_the_place_of_a_folder_is_named(model: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StaticModelError, match=r"cannot be written: .*file is no folder"):
        save(load(model), tmp_path / "file" / "inside" / "model")
