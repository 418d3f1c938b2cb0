"""The examples run as they stand, an engine serves them, and their second run traces nothing."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hybrid_infer import _stats

REPOSITORY = Path(__file__).resolve().parent.parent

pytestmark = [pytest.mark.processes, pytest.mark.slow]


def _needs(name: str) -> list[pytest.MarkDecorator]:
    absent = importlib.util.find_spec(name) is None
    return [getattr(pytest.mark, name), pytest.mark.skipif(absent, reason=f"needs {name}")]


TORCH, PADDLE = _needs("torch"), _needs("paddle")
FRAMEWORKS = [pytest.param("torch", marks=TORCH), pytest.param("paddle", marks=PADDLE)]


def run(example: str, cache: Path, folder: Path, *more: str) -> str:
    """What the example prints; it exits with an error if a call was answered eagerly or a result differs."""
    script = REPOSITORY / "examples" / f"{example}.py"
    command = [sys.executable, str(script), "--cache", str(cache), "--seconds", "0", *more]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("example", "tables"),
    [
        pytest.param("sentence_embedding", 1, id="torch_sentence_embedding", marks=TORCH),
        pytest.param("text_generation", 1, id="torch_text_generation", marks=TORCH),
        pytest.param("transformer_blocks", 1, id="paddle_transformer_blocks", marks=PADDLE),
        pytest.param("reference_example", 2, id="paddle_and_torch_reference_example", marks=[*TORCH, *PADDLE]),
    ],
)
def test_an_example_is_served_and_its_second_run_comes_from_disk(example: str, tables: int, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    first = run(example, cache, tmp_path)
    assert first.count("static model from disk   no:") == tables
    second = run(example, cache, tmp_path)
    assert second.count("static model from disk   yes:") == tables
    assert second.count("nothing traced") == tables


@pytest.mark.timeout(300)
def test_a_search_without_the_framework_ranks_as_the_network_that_was_trained(tmp_path: Path) -> None:
    told = run("image_search", tmp_path / "cache", tmp_path)
    assert "without PyTorch" in told and "the same as eager's" in told
    rows = [line.split() for line in told.splitlines() if " right " in line]
    assert [row[:-3] for row in rows] == [["nearest", "neighbour", "right"], ["5", "nearest", "right"]]
    for *_, pixels, eager, static in rows:
        assert eager == static and float(static.rstrip("%")) > float(pixels.rstrip("%"))
    assert (tmp_path / "out" / "examples" / "image_search.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.timeout(300)
def test_a_layer_for_tensorrt_says_what_is_missing_and_is_served_by_the_next_engine(tmp_path: Path) -> None:
    told = run("tensorrt_layer", tmp_path / "cache", tmp_path, "--width", "32")
    assert told.count("largest difference from eager") == 4
    last = told.splitlines()[-1]
    assert last.startswith("served by: ")
    assert ("tensorrt" in last) != ("TensorRT did not serve the layer: " in told)


@pytest.mark.timeout(300)
def test_a_service_answers_concurrent_requests_as_the_eager_layer_does(tmp_path: Path) -> None:
    told = run("serve_fastapi", tmp_path / "cache", tmp_path, "--check")
    assert "in 256 answers, all compared" in told  # 64 by each of two services, once and then once in turn
    assert "0 eager, 0 fallbacks" in told and "no: 1 captured" in told


@pytest.mark.timeout(300)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_classifier_is_trained_saved_fine_tuned_and_saved_again(framework: str, tmp_path: Path) -> None:
    told = run("train_save_finetune", tmp_path / "cache", tmp_path, framework)
    rows = {line[:30].strip(): [float(cell.rstrip("%")) for cell in line.split()[-2:]]
            for line in told.splitlines() if line.endswith("%")}  # fmt: skip
    (plain, moved), (tuned, again) = rows["trained and saved"], rows["loaded, fine-tuned, saved"]
    assert plain > 85 and moved < plain - 20 and tuned > 80 and again > moved + 20
    assert "input" in told and "images" in told and "(any, 64)" in told


@pytest.mark.timeout(300)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_what_can_be_saved_answers_as_the_eager_one(framework: str, tmp_path: Path) -> None:
    told = run("saved_methods", tmp_path / "cache", tmp_path, framework)
    for case in ("two methods", "a function", "nested arguments", "a flag with two values", "softmaxes in bfloat16"):
        assert case in told
    assert "forward, encode; 4 weights" in told and "pair_0, pair_1, more_gain" in told


def test_a_method_that_stays_eager_by_choice_is_no_failure_of_an_example(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(REPOSITORY / "examples"))
    import _table

    import hybrid_infer

    counts = {"hits": 0, "eager_calls": 3, "fallbacks": {_stats.SLOWER: 3}}
    monkeypatch.setattr(hybrid_infer, "stats", lambda: {"there.Layer.forward": counts})
    assert _table.calls(_table.served("Layer.forward")).startswith("0 from memory, 3 eager: no engine is faster")
    counts["fallbacks"] = {_stats.SLOWER: 2, "it cannot be captured": 1}
    with pytest.raises(SystemExit, match="was not served by an engine"):
        _table.served("Layer.forward")
