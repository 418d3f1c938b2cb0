"""Rewrites of a captured ONNX graph, one per file, and the manager that runs them before an engine gets the graph."""

from hybrid_infer.passes._manager import NAMES, chosen, run

__all__ = ["NAMES", "chosen", "run"]
