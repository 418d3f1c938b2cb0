"""Draws the diagram of how-it-works.md, once for each scheme of the theme: ``python docs/_diagram.py``."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "assets"
SCHEMES = {
    "light": {
        "text": "#1f2933", "soft": "#5a6b7b", "line": "#8795a1", "box": "#ffffff", "edge": "#b8c4ce",
        "lane": "#f3f6f8", "engine": "#d7efe9", "engine_edge": "#2a9d8f", "disk": "#e3ecf7", "disk_edge": "#4573a8",
        "eager": "#fbeee0", "eager_edge": "#c9853c",
    },
    "dark": {
        "text": "#e4e9ee", "soft": "#a3b1bf", "line": "#7b8a99", "box": "#323945", "edge": "#4d5a68",
        "lane": "#272d36", "engine": "#1d443f", "engine_edge": "#4cc2b2", "disk": "#223650", "disk_edge": "#6f9fd8",
        "eager": "#47341f", "eager_edge": "#dca062",
    },
}  # fmt: skip
WIDTH, HEIGHT = 940, 500
BOX, TALL, STEP = 150, 56, 182  # width and height of a box, and from one to the next
FIRST = 196  # where the first box of a lane begins


class Drawing:
    """Elements of one SVG, in the colours of a scheme."""

    def __init__(self, scheme: str) -> None:
        self.colours = SCHEMES[scheme]
        self.parts: list[str] = []

    def text(self, x: float, y: float, text: str, colour: str = "text", **more: object) -> None:
        told = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in more.items())
        self.parts.append(f'<text x="{x}" y="{y}" fill="{self.colours[colour]}"{told}>{text}</text>')

    def lane(self, y: float, height: float, title: str, line: str) -> None:
        fill = self.colours["lane"]
        self.parts.append(f'<rect x="8" y="{y}" width="{WIDTH - 16}" height="{height}" rx="10" fill="{fill}"/>')
        self.text(24, y + height / 2 - 4, title, font_weight="600")
        self.text(24, y + height / 2 + 15, line, "soft", font_size="12")

    def box(self, x: float, y: float, lines: tuple[str, ...], kind: str = "", width: float = BOX) -> None:
        fill, edge = (kind or "box"), (f"{kind}_edge" if kind else "edge")
        self.parts.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{TALL}" rx="7" fill="{self.colours[fill]}" '
            f'stroke="{self.colours[edge]}" stroke-width="1.4"/>'
        )
        top = y + TALL / 2 + 4.5 - 8.5 * (len(lines) - 1)
        for n, line in enumerate(lines):
            self.text(x + width / 2, top + 17 * n, line, text_anchor="middle")

    def arrow(self, path: str, label: str = "", at: tuple[float, float] = (0, 0), anchor: str = "middle") -> None:
        line = self.colours["line"]
        self.parts.append(
            f'<path d="{path}" fill="none" stroke="{line}" stroke-width="1.6" marker-end="url(#head)"/>'
        )
        if label:
            self.text(*at, label, "soft", text_anchor=anchor, font_size="12")

    def svg(self) -> str:
        line = self.colours["line"]
        title = "How a call of a decorated method is answered"
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}" '
            'font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif" font-size="13.5">\n'
            f"<title>{title}</title>\n"
            '<defs><marker id="head" viewBox="0 0 10 10" refX="8.5" refY="5" markerWidth="7" markerHeight="7" '
            f'orient="auto-start-reverse"><path d="M0 0.8 L9 5 L0 9.2 z" fill="{line}"/></marker></defs>\n'
            + "\n".join(self.parts)
            + "\n</svg>\n"
        )


def draw(scheme: str) -> str:
    """One call, from the top: each lane is taken only where the one above has no answer."""
    d = Drawing(scheme)
    one, two, three, four = (FIRST + n * STEP for n in range(4))
    memory, disk, capture, eager = 14, 132, 250, 404
    d.lane(memory, 104, "Every later call", "no look-up, no trace")
    d.lane(disk, 104, "First call of a process", "nothing is traced")
    d.lane(capture, 104, "First call ever", "once for each kind of call")
    d.lane(eager, 88, "Not served", "answered all the same")

    top, middle, low = memory + 24, disk + 24, capture + 24
    d.box(one, top, ("Known kind of call?", "Nothing changed?"))
    d.box(three, top, ("Engine runs the", "static model"), "engine")
    d.box(four, top, ("The result, as the", "method returns it"))
    d.arrow(f"M{one + BOX} {top + 28} H{three - 3}", "yes", ((one + BOX + three) / 2, top + 20))
    d.arrow(f"M{three + BOX} {top + 28} H{four - 3}")

    d.box(one, middle, ("A static model in", "the cache on disk?"), "disk")
    d.box(three, middle, ("Load it, bind the", "live weights"))
    d.arrow(f"M{one + 75} {top + TALL} V{middle - 3}", "no", (one + 86, memory + 111), "start")
    d.arrow(f"M{one + BOX} {middle + 28} H{three - 3}", "yes", ((one + BOX + three) / 2, middle + 20))
    d.arrow(f"M{three + 75} {middle} V{top + TALL + 3}")

    d.box(one, low, ("Trace a copy of the", "layer, no weights"))
    d.box(two, low, ("Passes; each engine", "builds its plan"))
    d.box(three, low, ("Compare and time", "against eager"))
    d.box(four, low, ("Keep graph, plan", "and choice on disk"), "disk")
    d.arrow(f"M{one + 75} {middle + TALL} V{low - 3}", "no", (one + 86, disk + 111), "start")
    for left, right in ((one, two), (two, three), (three, four)):
        d.arrow(f"M{left + BOX} {low + 28} H{right - 3}")
    d.arrow(f"M{three + 75} {low} V{middle + TALL + 3}")

    told = (
        "The eager method answers. The reason is logged once, counted in stats(),",
        "and kept, so that the next process does not try again in vain.",
    )
    d.box(one, eager + 16, told, "eager", 3 * STEP + BOX)
    for x, label in ((one, "cannot be traced"), (two, "no engine takes it"), (three, "differs, or is slower")):
        d.arrow(f"M{x + 75} {low + TALL} V{eager + 13}", label, (x + 84, capture + 128), "start")
    return d.svg()


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for scheme in SCHEMES:
        (FOLDER / f"how-it-works-{scheme}.svg").write_text(draw(scheme), encoding="utf-8")
