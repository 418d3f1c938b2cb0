"""What an engine prepared for a model that load() gave is kept in the store: no process prepares it again."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from static_support import BOTH, kit, points, run

import hybrid_infer
from hybrid_infer import CacheWarning, InputSpec, StaticModelError, _rewriting, load, save
from hybrid_infer._errors import EngineError
from hybrid_infer.cache import Store

ENGINES = ["onnxruntime", "openvino"]
POINTS = points(5)


class Rewritten:
    """How often a graph was made ready for an engine."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count, own = 0, _rewriting.rewrite

        def rewrite(*given: Any) -> Any:
            self.count += 1
            return own(*given)

        monkeypatch.setattr(_rewriting, "rewrite", rewrite)


@pytest.fixture
def model(tmp_path: Path, cache_directory: Path) -> Path:
    own = kit("torch")
    own.seed(0)
    save(own.Classifier(), tmp_path / "model", [InputSpec([None, 8])], trainable=False)
    assert not cache_directory.exists()
    return tmp_path / "model"


@pytest.fixture
def rewritten(model: Path, monkeypatch: pytest.MonkeyPatch) -> Rewritten:
    return Rewritten(monkeypatch)


def _expected(static: Any) -> Any:
    state = static.state_dict("numpy")
    weight, bias = (next(state[name] for name in state if name.endswith(end)) for end in ("weight", "bias"))
    return POINTS @ (weight.T if weight.shape[1] == 8 else weight) + bias


def _check(static: Any) -> None:
    assert np.abs(static(POINTS) - _expected(static)).max() < 1e-5


CALL = """
import sys
import numpy as np
from hybrid_infer import _rewriting, load
own, count = _rewriting.rewrite, []
_rewriting.rewrite = lambda *given: count.append(1) or own(*given)
found = load("model", backend=sys.argv[1])(np.ones((2, 8), np.float32))
print(len(count), "onnx" in sys.modules, found.tobytes().hex())
"""


@pytest.mark.processes
@pytest.mark.parametrize("framework", BOTH)
@pytest.mark.parametrize("engine", ENGINES)
def test_the_next_process_finds_it_and_needs_no_onnx(engine: str, framework: str, tmp_path: Path) -> None:
    save(kit(framework).Classifier(), tmp_path / "model", [InputSpec([None, 8])], trainable=False)
    before = {path: path.read_bytes() for path in (tmp_path / "model").iterdir()}
    first, second = run(CALL, tmp_path, engine).split(), run(CALL, tmp_path, engine).split()
    assert first[:2] == ["1", "True"] and second[:2] == ["0", "False"] and first[2] == second[2]
    assert run(CALL, tmp_path, engine, without=("torch", "paddle", "onnx", "onnxscript")).split() == second
    assert {path: path.read_bytes() for path in (tmp_path / "model").iterdir()} == before


def test_models_of_one_graph_share_it_whatever_their_weights(rewritten: Rewritten, model: Path, tmp_path: Path) -> None:
    static = load(model)
    _check(static)
    static.set_state_dict({name: array * 3 for name, array in static.state_dict("numpy").items()})
    _check(static)
    save(static, tmp_path / "another")
    another = load(tmp_path / "another")
    _check(another)
    assert rewritten.count == 1 and not np.allclose(another(POINTS), load(model)(POINTS))


def test_another_graph_and_another_way_to_compute_have_their_own(
    rewritten: Rewritten, model: Path, tmp_path: Path, cache_directory: Path
) -> None:
    for _ in range(2):
        _check(load(model))
        _check(load(model, switch_ir_optim=False))
    assert rewritten.count == 2
    (entry,) = Store(cache_directory).entries()
    assert len(Store(cache_directory).plans(entry)) == 2

    class Doubled(kit("torch").Layer):  # type: ignore[name-defined,misc]
        def forward(self, x: Any) -> Any:
            return x * 2

    save(Doubled(), tmp_path / "doubled", [InputSpec([None, 8])], trainable=False)
    for _ in range(2):
        assert np.array_equal(load(tmp_path / "doubled")(POINTS), POINTS * 2)
    assert rewritten.count == 3


def test_another_release_prepares_its_own(rewritten: Rewritten, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _check(load(model))
    monkeypatch.setattr(hybrid_infer, "__version__", "0.0.0")
    _check(load(model))
    assert rewritten.count == 2


def test_nothing_is_kept_where_that_is_not_wanted(rewritten: Rewritten, model: Path, cache_directory: Path) -> None:
    for _ in range(2):
        _check(load(model, cache_static_model=False))
    assert rewritten.count == 2 and not cache_directory.exists()


def test_it_lies_where_it_is_wanted(rewritten: Rewritten, model: Path, tmp_path: Path, cache_directory: Path) -> None:
    for _ in range(2):
        _check(load(model, save_model_dir=tmp_path / "plans"))
    assert rewritten.count == 1 and not cache_directory.exists()


def test_a_model_with_plans_asks_no_store(
    rewritten: Rewritten, model: Path, tmp_path: Path, cache_directory: Path
) -> None:
    save(load(model), tmp_path / "with plans", plans=True)
    made = rewritten.count
    _check(load(tmp_path / "with plans"))
    assert rewritten.count == made and not cache_directory.exists()
    _check(load(model))
    save(load(model), tmp_path / "without")
    assert not list((tmp_path / "without").glob("plan*"))


def test_what_is_computed_for_a_comparison_leaves_nothing(model: Path, tmp_path: Path, cache_directory: Path) -> None:
    load(model).export_onnx(str(tmp_path / "model.onnx"))
    assert not cache_directory.exists()


def test_an_onnx_file_is_prepared_once(rewritten: Rewritten, model: Path, tmp_path: Path) -> None:
    load(model).export_onnx(str(tmp_path / "model.onnx"))
    made = rewritten.count
    for _ in range(2):
        assert np.allclose(load(tmp_path / "model.onnx")(POINTS), _expected(load(model)), atol=1e-5)
    assert rewritten.count == made + 1


def test_a_store_that_cannot_be_written_costs_no_warning(
    rewritten: Rewritten, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("HYBRID_INFER_CACHE_DIR", str(tmp_path / "file" / "store"))
    for _ in range(2):
        _check(load(model))
    assert rewritten.count == 2


def test_a_store_that_is_only_read_is_found(
    rewritten: Rewritten, model: Path, tmp_path: Path, cache_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _check(load(model, save_model_dir=tmp_path / "base"))
    monkeypatch.setenv("HYBRID_INFER_CACHE_READONLY", str(tmp_path / "base"))
    _check(load(model))
    assert rewritten.count == 1 and not cache_directory.exists()


def test_what_is_damaged_is_prepared_anew(rewritten: Rewritten, model: Path, cache_directory: Path) -> None:
    _check(load(model))
    (file,) = cache_directory.rglob("bound.onnx")
    file.write_bytes(bytes(file.stat().st_size))
    with pytest.warns(CacheWarning, match="other content"):
        _check(load(model))
    _check(load(model))
    assert rewritten.count == 2


def test_what_its_engine_refuses_is_prepared_anew_and_replaced(
    rewritten: Rewritten, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels for a GPU of another driver."""
    from hybrid_infer.backends import engine

    _check(load(model))
    runtime = engine("onnxruntime")
    own, refusals = runtime.load, iter([True])

    def refuse(*given: Any) -> Any:
        if next(refusals, False):
            raise EngineError("onnxruntime", "it is of another driver")
        return own(*given)

    monkeypatch.setattr(runtime, "machine_code", True, raising=False)
    monkeypatch.setattr(runtime, "load", refuse)
    with pytest.warns(CacheWarning, match="another driver"):
        _check(load(model))
    _check(load(model))
    assert rewritten.count == 2


def test_what_an_engine_refuses_is_not_prepared_at_each_call(
    rewritten: Rewritten, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hybrid_infer.backends import engine

    def refuse(*_: Any) -> Any:
        raise EngineError("onnxruntime", "has no arithmetic in it")

    runtime = engine("onnxruntime")
    static, own = load(model, backend="onnxruntime"), runtime.prepare
    monkeypatch.setattr(runtime, "prepare", refuse)
    for rows in (1, 2, 2, 3):
        with pytest.raises(StaticModelError, match="onnxruntime has no arithmetic in it"):
            static(POINTS[:rows])
    assert rewritten.count == 1
    monkeypatch.setattr(runtime, "prepare", own)
    static.load_state_dict(static.state_dict())  # which may be one that it takes
    _check(static)


def test_what_fails_for_a_cause_that_passes_is_tried_again(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hybrid_infer.backends import engine

    def lack(*_: Any) -> Any:
        raise EngineError("onnxruntime", "out of memory") from MemoryError()

    runtime = engine("onnxruntime")
    static = load(model, backend="onnxruntime")
    with monkeypatch.context() as while_it_lacks:
        while_it_lacks.setattr(runtime, "prepare", lack)
        with pytest.raises(StaticModelError, match="out of memory"):
            static(POINTS)
    _check(static)


def test_it_is_not_evicted_while_it_is_used(rewritten: Rewritten, model: Path, cache_directory: Path) -> None:
    for _ in range(2):  # of who prepared it, and of who found it
        static = load(model)
        _check(static)
        assert Store(cache_directory).prune(1).in_use == 1
        del static
        gc.collect()
    assert Store(cache_directory).prune(1).removed == 1 and rewritten.count == 1
