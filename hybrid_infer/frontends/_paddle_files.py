"""Static models in Paddle's own files: converted in one child process, run in another for a comparison."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hybrid_infer._errors import StaticModelError, TraceError
from hybrid_infer.frontends._paddle_onnx import converted, run

_log = logging.getLogger("hybrid_infer")

_REFERENCE = Path(__file__).with_name("_paddle_reference.py")


def convert_files(program: str, weights: str) -> bytes:
    """A static model that Paddle has written as ONNX, weights included. Raises StaticModelError."""
    try:
        with tempfile.TemporaryDirectory(prefix="hybrid_infer_") as folder:
            return converted(folder, *_copied(folder, program, weights))
    except TraceError as fault:
        raise StaticModelError(program, str(fault)) from fault
    except (OSError, ValueError) as fault:
        raise StaticModelError(program, f"it cannot be read: {fault}") from fault


def _copied(folder: str, program: str, weights: str) -> tuple[str, str]:
    """Copies under names that hold no character which a child cannot take."""
    copy = os.path.join(folder, f"program{os.path.splitext(program)[1]}")
    beside = os.path.join(folder, "program.pdiparams")
    shutil.copyfile(program, copy)
    shutil.copyfile(weights, beside)
    return copy, beside


def reference(
    program: str, weights: str, choices: Sequence[Mapping[str, Any]]
) -> tuple[int, list[Any]] | None:
    """What Paddle computes from the first of some inputs that it can run with, and which; None if from none."""
    import numpy as np

    with tempfile.TemporaryDirectory(prefix="hybrid_infer_") as folder:
        given = []
        for n, arrays in enumerate(choices):
            given.append(os.path.join(folder, f"given{n}.npz"))
            np.savez(given[-1], **arrays)
        copy, beside = _copied(folder, program, weights)
        found = os.path.join(folder, "found.npz")
        request = {"program": copy, "weights": beside, "given": given, "found": found, "path": sys.path}
        described = os.path.join(folder, "request.json")
        Path(described).write_text(json.dumps(request), encoding="utf-8")
        try:
            status, output = run(["-I", "-W", "ignore", str(_REFERENCE), described], folder)
        except (OSError, subprocess.TimeoutExpired) as fault:
            _log.debug("%s: Paddle could not run it: %s", program, fault)
            return None
        said = output.decode("utf-8", errors="replace")
        ran = re.search(r"^ran (\d+)$", said, re.MULTILINE)
        if status or ran is None or not os.path.exists(found):
            _log.debug("%s: Paddle could not run it: %s", program, said[-2000:])
            return None
        with np.load(found) as held:
            return int(ran[1]), [held[f"arr_{i}"] for i in range(len(held.files))]
