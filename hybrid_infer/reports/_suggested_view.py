"""Suggestions as text for a terminal and as a page of HTML with the tree of the time."""

from __future__ import annotations

import html
from typing import Any

from hybrid_infer._choice import MARGIN
from hybrid_infer.reports import _colour, _tables, _time_tree

_DECORATED = "decorated already"
_NOTHING = f"Nothing that was tried gains {MARGIN - 1:.0%} or more."
_HEADS = ("WHERE", "CLASS", "CALLS", "SHARE", "OUTCOME", "GAIN")


def text(found: Any, *, colour: bool = False, width: int | None = None) -> str:
    """A table, the reasons of what is refused, and the lines to add; with colours where a terminal shows them.

    `width`: of the terminal, to which the table is folded.
    """
    rows = [_cells(row, f": {row.reason}" if row.reason else "") for row in found.rows]
    paint = _colour.painter(colour)
    kinds = ["head", *("good" if _worth(row) else "bad" if row.outcome == "refused" else "faint" for row in found.rows)]
    blocks = _tables.blocks(_HEADS, rows, width=width)
    table = [paint(line, kind) for block, kind in zip(blocks, kinds, strict=True) for line in block]
    refused = [row for row in found.rows if row.reason and row.outcome == "refused"]
    why = [f"{paint(row.where, 'bad')}: {row.reason}" for row in refused]
    best = list(filter(_worth, found.rows))
    add = [f"    {paint(row.line, 'good')}{_found_at(row)}" for row in best]
    again = [paint(line, "bad") for line in _doubt(found)]
    told = ["", "Add:", *add] if add else [] if again else ["", _NOTHING]  # figures that mean little tell of no gain
    return "\n".join([*table, *why, *again, *told])


def _found_at(row: Any) -> str:
    """Where a decorator goes; of a layer that is wrapped, which may be made elsewhere, where its class computes."""
    forward = "" if row.line.startswith("@") else "its forward: "
    return f"    # {forward}{row.place}" if row.place else ""


def _doubt(found: Any) -> list[str]:
    """A line that says which figures mean little, where some do."""
    rows = [row.where for row in found.rows if not row.steady]
    where = ", ".join(rows[:4]) + (" and others" if len(rows) > 4 else "")
    return [f"The machine was busy: the figures of {where} mean little. Run this again when it is not."] if rows else []


def _worth(row: Any) -> bool:
    """Does the whole program gain more than what two runs of it may differ by?"""
    return bool(row.line) and (row.gain or 0.0) >= MARGIN


def _cells(row: Any, why: str = "") -> tuple[str, ...]:
    """`why` follows the words that a row was not tried, where no column of its own has the reason."""
    gain = "-" if row.gain is None else f"{row.gain:.2f}x"
    outcome = row.outcome or (f"not tried{why}" if row.reason != _DECORATED else row.reason)
    where = row.where + (f" ({row.count})" if row.count > 1 else "")
    return where, row.kind, str(row.calls), f"{row.share:.0%}", outcome, gain


_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 75em; margin: 2em auto; padding: 0 1em; color: #1c2430;
       background: #fff }
table { border-collapse: collapse; margin: 1em 0 } td, th { padding: .2em 1.2em .2em 0; text-align: left;
       vertical-align: top } th { color: #5c6b80; font-weight: 600 } tr { border-bottom: 1px solid #e5e9ef }
pre { background: #f2f5f9; padding: .8em 1em; overflow-x: auto } code, pre { font-size: .95em }
svg { width: 100%; height: auto }
"""


def page(found: Any) -> str:
    """A page that refers to nothing outside of itself and has no script."""
    rows = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in (*_cells(row), row.reason)) + "</tr>\n"
        for row in found.rows
    )
    heads = "".join(f"<th>{head.capitalize()}</th>" for head in (*_HEADS, "REASON"))
    best = list(filter(_worth, found.rows))
    lines = "\n".join(f"{row.line}{f'    # {row.place}' if row.place else ''}" for row in best)
    doubt = "".join(f"<p>{html.escape(line)}</p>\n" for line in _doubt(found))
    nothing = "" if doubt else f"<p>{_NOTHING}</p>"
    add = f"<h2>Add</h2>\n<pre>{html.escape(lines)}</pre>\n" if best else nothing
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>hybrid_infer: where the time goes'
        f"</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<h1>Where the time goes</h1>\n"
        f"{_time_tree.svg(found.tree, found.seconds)}\n<h2>What was tried</h2>\n<table>\n<tr>{heads}</tr>\n{rows}"
        f"</table>\n{doubt}{add}\n</body>\n</html>\n"
    )
