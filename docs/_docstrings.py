"""Turns this library's docstrings, whose sections follow numpydoc and whose entries are ``name : text``, into Markdown.

numpydoc would take the text for a type; here types stand in the signature.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_SECTIONS = ("Parameters", "Returns", "Raises", "Examples")


class Docstrings(griffe.Extension):
    """Rewrites every docstring as it is read."""

    def on_instance(self, *, obj: griffe.Object | griffe.Alias, **kwargs: Any) -> None:
        if not obj.is_alias and obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)


def markdown(text: str) -> str:
    """A docstring as Markdown: sections under bold titles, entries as lists of definitions, examples fenced."""
    found: list[str] = []
    pieces = re.split(rf"^({'|'.join(_SECTIONS)})\n-+\n", text, flags=re.MULTILINE)
    found.append(_prose(pieces[0]))
    for title, body in zip(pieces[1::2], pieces[2::2], strict=True):
        found.append(f"**{title}**")
        if title == "Examples":
            found.append(_examples(body))
        elif title == "Returns":
            found.append(_prose(body))
        else:
            found.append(_entries(body))
    return "\n\n".join(part.strip("\n") for part in found if part.strip())


def _prose(text: str) -> str:
    """Paragraphs; examples between them are fenced."""
    parts = [
        _examples(part) if part.lstrip().startswith(">>>") else part.replace("``", "`")
        for part in re.split(r"\n{2,}", text)
    ]
    return "\n\n".join(parts)


def _examples(text: str) -> str:
    return f"```pycon\n{text.strip()}\n```"


def _entries(text: str) -> str:
    """``names : text``, or a name with its text below it, as a list of definitions."""
    entries: list[tuple[str, list[str]]] = []
    for line in text.strip("\n").splitlines():
        if line and not line.startswith(" "):
            names, _, rest = line.partition(" : ")
            entries.append((names, [rest] if rest else []))
        elif entries:
            entries[-1][1].append(line.strip())
    lines = []
    for names, body in entries:
        shown = ", ".join(f"`{name.strip()}`" for name in names.split(","))
        paragraphs = " ".join(part or "\n\n    " for part in body).replace("``", "`")
        lines.append(f"{shown}\n:   {paragraphs}")
    return "\n\n".join(lines)
