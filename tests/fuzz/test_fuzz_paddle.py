"""Random programs: what a decorated method of Paddle answers is what it answers eagerly, at every call.

Each program is a layer with a method of some statements and six to eight calls of it, of varied sizes, numbers and
weights; `fuzz_grow` says how it comes to be, `fuzz_check` what it has to do. By default some programs are tried, the
same ones in every run. ``HYBRID_INFER_FUZZ=200`` in the environment tries so many drawn by chance instead, which takes
some seconds each (``HYBRID_INFER_FUZZ_SEED=5`` names the first of them)::

    HYBRID_INFER_FUZZ=200 python -m pytest tests/fuzz/test_fuzz_paddle.py -s -o faulthandler_timeout=0

One that goes wrong is made small and printed as the text of a file, which shows the difference when it is run.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from fuzz_sweep import seeds, sweep

pytestmark = [pytest.mark.paddle, pytest.mark.slow]
SEEDS = range(9)


@pytest.mark.timeout(0 if os.environ.get("HYBRID_INFER_FUZZ") else 300)
def test_a_served_method_does_what_it_does_eagerly(tmp_path: Path) -> None:
    total = sweep("paddle", seeds(SEEDS), tmp_path)
    assert total.findings == []
    # Most of them are served, or nothing would have been tried.
    assert total.counts["hits"] > total.counts["eager_calls"]
