"""Gives the tests of TensorRT the graphs of the other engines' tests."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "backends"))
