"""The tree of the time as a PNG; the one file that uses matplotlib, which is optional."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hybrid_infer.reports import _time_tree
from hybrid_infer.reports._time_tree import Part


def write(tree: Part, seconds: float, path: Path) -> None:
    """Draw the tree. Needs matplotlib; no display is used."""
    import importlib

    figure_module: Any = importlib.import_module("matplotlib.figure")
    importlib.import_module("matplotlib.backends.backend_agg")
    patches: Any = importlib.import_module("matplotlib.patches")
    drawn = _time_tree.bars(tree, seconds)
    figure = figure_module.Figure(figsize=(12, 0.34 * len(drawn) + 1.3), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    names = max(len(bar.text) + 2 * bar.depth for bar in drawn) * 0.0145
    for n, bar in enumerate(drawn):
        axes.barh(n, max(bar.share, 0.002), left=bar.start, height=0.74, color=bar.colour)
        axes.text(-names + 0.024 * bar.depth, n, bar.text, va="center", fontsize=9.5,
                  fontweight="bold" if bar.kind == "gains" else "normal")  # fmt: skip
        axes.text(bar.start + bar.share + 0.008, n, bar.figures, va="center", fontsize=9, color="#44516a")
    axes.set_xlim(-names, 1.27)
    axes.set_ylim(len(drawn) - 0.4, -0.6)
    axes.axis("off")
    handles = [patches.Patch(color=colour, label=meaning) for colour, meaning in _time_tree.COLOURS.values()]
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), frameon=False, fontsize=9.5)
    figure.savefig(path, format="png")
