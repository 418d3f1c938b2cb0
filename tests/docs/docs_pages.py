"""The code blocks of README.md and docs/, and what they are checked against."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
#: In the order of a reader. What is measured and drawn by `make bench` holds no code.
PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("**/*.md"))]

_FENCE = re.compile(r"^(?P<indent> *)```(?P<info>[^\n`]*)\n(?P<body>.*?)^(?P=indent)```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """``kind``: the first word of the fence; ``line``: of the first line in it, from 1; ``output``: what it prints."""

    kind: str
    text: str
    line: int
    output: str | None = None
    measured: bool = False

    @property
    def framework(self) -> str:
        return "paddle" if re.search(r"^\s*import paddle\b|\bpaddle\.", self.text, re.MULTILINE) else "torch"


@dataclass
class Session:
    """Blocks of one page that share a namespace: those about Paddle, and the others."""

    page: Path
    framework: str
    blocks: list[Block] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.page.relative_to(REPOSITORY).as_posix()}-{self.framework}"


def blocks(page: Path) -> list[Block]:
    """Every fenced block; a block of kind ``text`` right below one of Python is what that one prints."""
    text = page.read_text(encoding="utf-8")
    found: list[Block] = []
    end = 0
    for match in _FENCE.finditer(text):
        kind, *attributes = match["info"].split() or [""]
        body, line = textwrap.dedent(match["body"]), text.count("\n", 0, match.start()) + 2
        follows = found and found[-1].kind == "python" and not text[end : match.start()].strip()
        if kind == "text" and follows:
            above = found[-1]
            found[-1] = Block(above.kind, above.text, above.line, body, "{.measured}" in attributes)
        else:
            found.append(Block(kind, body, line))
        end = match.end()
    return found


def sessions() -> Iterator[Session]:
    """The Python of every page."""
    for page in PAGES:
        by_framework: dict[str, Session] = {}
        for block in blocks(page):
            if block.kind == "python":
                name = block.framework
                by_framework.setdefault(name, Session(page, name)).blocks.append(block)
        yield from by_framework.values()


def commands() -> Iterator[tuple[Path, str]]:
    """Every line of the shell blocks of every page, without comments."""
    for page in PAGES:
        for block in blocks(page):
            if block.kind == "sh":
                for line in block.text.replace("\\\n", " ").splitlines():
                    command = re.sub(r"(^|\s)#.*", "", line).strip()
                    if command:
                        yield page, command
