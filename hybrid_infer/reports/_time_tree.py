"""The time of a program as a tree: a bar for each layer and method, drawn under what calls it."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from hybrid_infer.reports._profile import Node, Recording

_LEAST = 0.01  # of the time: what takes less is left to the bar above it
_MOST = 60  # bars

#: By what became of a part. Blue, orange and greys, which people tell apart who see no red or green.
COLOURS = {
    "gains": ("#0b63b5", "an engine is faster"), "eager": ("#9aa7b8", "eager is as fast"),
    "refused": ("#e08214", "cannot be captured"), "": ("#cfd7e2", "not tried"),
}  # fmt: skip


@dataclass
class Part:
    """``label``: where; ``kind``: the class; ``count``: how many equal ones; times in seconds of one run."""

    label: str = ""
    kind: str = ""
    count: int = 0
    calls: int = 0
    seconds: float = 0.0
    outcome: str = ""
    parts: list[Part] = field(default_factory=list)


def build(
    recording: Recording, label: Callable[[Node], str], outcomes: Mapping[tuple[str, str], str], runs: int
) -> Part:
    """The tree of a recording, equal blocks in one part, the longest first."""

    def part(nodes: list[Node]) -> Part:
        first = nodes[0]
        found = Part(label(first), type(first.owner).__name__, len({id(each.owner) for each in nodes}))
        found.calls = sum(each.calls for each in nodes) // runs
        found.seconds = sum(each.seconds for each in nodes) / runs
        found.outcome = outcomes.get((found.label, found.kind), "")
        found.parts = parts([child for each in nodes for child in each.children.values()])
        return found

    def parts(nodes: list[Node]) -> list[Part]:
        groups: dict[tuple[str, str], list[Node]] = {}
        for node in nodes:
            groups.setdefault((label(node), type(node.owner).__name__), []).append(node)
        return sorted((part(each) for each in groups.values()), key=lambda each: -each.seconds)

    top = list(recording.top.children.values())
    return Part("program", calls=1, seconds=recording.seconds / runs, parts=parts(top))


class Bar(NamedTuple):
    """One line of the picture; ``start`` and ``share`` are parts of the whole time."""

    depth: int
    text: str
    figures: str
    start: float
    share: float
    colour: str
    kind: str


def bars(tree: Part, seconds: float) -> list[Bar]:
    """What to draw, from top to bottom: each bar lies below its caller's, inside of its width."""
    found = list(_bars(tree, max(seconds, 1e-12), 0, 0.0))
    least = sorted((bar.share for bar in found), reverse=True)[:_MOST][-1]
    return [bar for bar in found if bar.share >= least][: 2 * _MOST]


def _bars(part: Part, seconds: float, depth: int, start: float) -> Iterator[Bar]:
    share = min(part.seconds / seconds, 1.0 - start)
    if depth and share < _LEAST:
        return
    kind = part.outcome if part.outcome in ("eager", "refused", "") else "gains"
    name = part.label if part.label == "program" else f"{part.label}  {part.kind}"
    if part.count > 1:
        name += f" ×{part.count}"  # noqa: RUF001
    calls = f" · {part.calls} calls" if part.calls > 1 else ""
    yield Bar(depth, name, f"{share:.0%} · {_time(part.seconds)}{calls}", start, share, COLOURS[kind][0], kind)
    for child in part.parts:
        yield from _bars(child, seconds, depth + 1, start)
        start += child.seconds / seconds


def _time(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.3g} s"
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} µs"


_ROW, _NAMES, _BARS, _AFTER = 26, 430, 560, 200


def svg(tree: Part, seconds: float) -> str:
    """The picture, for a page of HTML."""
    drawn = bars(tree, seconds)
    height = _ROW * (len(drawn) + 2)
    out = [
        f'<svg viewBox="0 0 {_NAMES + _BARS + _AFTER} {height}" role="img" aria-label="Time by layer and method" '
        'xmlns="http://www.w3.org/2000/svg" font-family="system-ui, sans-serif" font-size="13">'
    ]
    left = 0
    for colour, meaning in COLOURS.values():
        out.append(f'<rect x="{left}" y="6" width="13" height="13" rx="2" fill="{colour}"/>')
        out.append(f'<text x="{left + 19}" y="17" fill="#44516a">{meaning}</text>')
        left += 175
    for n, bar in enumerate(drawn):
        y = _ROW * (n + 1.5)
        indent = 14 * bar.depth
        room = max(8, int((_NAMES - 16 - indent) / (8.6 if bar.kind == "gains" else 7.6)))
        name = bar.text if len(bar.text) <= room else "…" + bar.text[1 - room :]  # its end tells more
        x, width = _NAMES + _BARS * bar.start, max(1.5, _BARS * bar.share)
        weight = ' font-weight="600"' if bar.kind == "gains" else ""
        out.append(
            f"<g><title>{html.escape(f'{bar.text}: {bar.figures}')}</title>"
            f'<text x="{indent}" y="{y + 15:.0f}" fill="#1c2430"{weight}>{html.escape(name)}</text>'
            f'<rect x="{x:.1f}" y="{y:.0f}" width="{width:.1f}" height="{_ROW - 6}" rx="2" fill="{bar.colour}"/>'
            f'<text x="{x + width + 6:.1f}" y="{y + 15:.0f}" fill="#44516a">{html.escape(bar.figures)}</text></g>'
        )
    return "\n".join([*out, "</svg>"])
