"""Benchmarks as pictures, in docs/benchmarks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks import _measure

FOLDER = _measure.REPOSITORY / "docs" / "benchmarks"
_COLOURS = ("#d1495b", "#30638e", "#5f9ea0", "#8d96a3", "#b8bfc6", "#6b5876")


def bars(results: Sequence[dict[str, Any]], setting: str, names: Sequence[str], file: str) -> None:
    """Gains over eager, one group of bars for each model, with quartiles; eager is the line at 1."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(11, 4.2), layout="constrained")
    width = 0.84 / max(sum(name in result["gain"][setting] for name in names) for result in results)
    for n, name in enumerate(names):
        places, heights, low, high = [], [], [], []
        for i, result in enumerate(results):
            there = [each for each in names if each in result["gain"][setting]]  # some are of one framework only
            if name not in there:
                continue
            gain = result["gain"][setting][name]
            places.append(i + (there.index(name) + 0.5 - len(there) / 2) * width)
            heights.append(gain["ratio"])
            low.append(max(0.0, gain["ratio"] - gain["low"]))
            high.append(max(0.0, gain["high"] - gain["ratio"]))
        axes.bar(places, heights, width * 0.92, label=name, color=_COLOURS[n % len(_COLOURS)])
        axes.errorbar(places, heights, yerr=[low, high], fmt="none", ecolor="#333333", elinewidth=0.8, capsize=1.5)
    axes.axhline(1.0, color="#333333", linewidth=1)
    axes.set_xlim(-0.5, len(results) - 0.35)
    axes.text(len(results) - 0.36, 1.01, "eager", ha="right", va="bottom", fontsize=8, color="#333333")
    axes.set_xticks(range(len(results)), [result["model"] for result in results], fontsize=9)
    axes.set_ylabel("times as fast as eager")
    axes.set_title(f"float32, {_measure.machine()['cores']} cores, {setting}", loc="left", fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(ncols=len(names), frameon=False, fontsize=8, loc="upper left")
    axes.set_ylim(0, axes.get_ylim()[1] * 1.12)
    FOLDER.mkdir(parents=True, exist_ok=True)
    figure.savefig(FOLDER / f"{file}.png", dpi=130)
    pyplot.close(figure)
