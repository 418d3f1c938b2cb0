"""One model in the three forms that are compared: eager, decorated, and as a bare engine's session."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hybrid_infer
from benchmarks import _bare, _measure, models
from hybrid_infer import _stats


@dataclasses.dataclass(frozen=True)
class Subject:
    """`work` is eager work of the same cost as the method, for programs that take turns with it."""

    eager: _measure.Run
    decorated: _measure.Run
    bare: _measure.Run
    work: _measure.Run
    difference: float


def no_grad(framework: str) -> Any:
    if framework == "torch":
        import torch

        return torch.no_grad()
    return models.import_paddle().no_grad()


@contextmanager
def subject(case: models.Case, backend: str = "onnxruntime") -> Iterator[Subject]:
    """Build the forms of a case, each with its own layer and equal weights, in an empty store."""
    with _measure.store(), tempfile.TemporaryDirectory() as folder, no_grad(case.framework):
        eager, work, plain = case.build(), case.build(), case.build()
        fast = dataclasses.replace(plain, layer=hybrid_infer.inference(plain.layer, backend=backend))
        session = _bare.session(_bare.export(case, case.build(), Path(folder)), _bare.threads(case.framework))
        feed = _bare.feed(session, eager.tensors())
        for _ in range(2):  # the second call is served from memory
            found = models.first_tensor(fast.call())
        difference = float((found - models.first_tensor(eager.call())).abs().max())
        yield Subject(eager.call, fast.call, lambda: session.run(None, feed), work.call, difference)


def served(decorated: Any) -> str:
    """Which engines serve a decorated layer or method, or that the eager one does, or why, for a table."""
    reasons = fallbacks()
    if reasons and reasons.keys() <= {_stats.SLOWER, _stats.RECORDED}:
        return "the eager method"
    return "; ".join(reasons) or ", ".join(each for each in engines(decorated) if each != "eager")


def engines(decorated: Any) -> list[str]:
    """What serves the versions of a decorated layer or method, by name; "eager" where that was chosen."""
    methods = hybrid_infer.explain(decorated).to_dict()["methods"]
    return sorted({engine for each in methods for version in each["versions"] for engine in version["served_by"]})


def fallbacks() -> dict[str, int]:
    """Why calls were answered eagerly in this process, and how often: empty if an engine served them all."""
    reasons: dict[str, int] = {}
    for counts in hybrid_infer.stats().values():
        for reason, count in counts["fallbacks"].items():
            reasons[reason] = reasons.get(reason, 0) + count
        if counts["eager_calls"] and not counts["fallbacks"]:
            reasons["eager calls"] = counts["eager_calls"]
    return reasons
