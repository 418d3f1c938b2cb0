"""A program of its own: a hundred programs of one graph, and what they take from the machine and give back.

In a process where other tests ran, workers and threads of theirs come and go.
"""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.testing  # by attribute it is imported late, which two threads at once cannot do
from backend_graphs import linear
from backend_machine import settled, thread_count

from hybrid_infer._types import EngineOptions
from hybrid_infer.backends import _threads, engine


def main() -> None:
    options = EngineOptions(threads=3, extra={"workers": 16})
    served = engine("onnxruntime")
    files = served.prepare(linear(), options)
    rng = np.random.default_rng(0)
    weights = [(rng.standard_normal((4, 4), "float32"), rng.standard_normal(4, "float32")) for _ in range(100)]
    before = thread_count()
    programs = [served.load(linear(), each, options, files) for each in weights]
    assert [program.shared for program in programs] == [False] * 6 + [True] * 94
    assert thread_count() - before == 7 * 2  # each of the six with its own session, and the one that is shared
    assert _threads.BUDGET.used == 14
    x = np.arange(12, dtype="float32").reshape(3, 4)

    def check(i: int) -> None:
        np.testing.assert_allclose(programs[i].run([x])[0], x @ weights[i][0].T + weights[i][1], rtol=1e-5, atol=1e-5)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(check, [i for i in range(100) for _ in range(5)]))
    for program in programs[:50]:
        program.close()
    assert _threads.BUDGET.used == 2
    for i in (60, 99):
        check(i)
    del program
    programs.clear()  # without close(): the collector gives back too
    gc.collect()
    assert _threads.BUDGET.used == 0
    assert settled(thread_count, before) <= before


if __name__ == "__main__":
    main()
