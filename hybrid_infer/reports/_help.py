"""Help of the command line, as wide as the terminal: paragraphs are filled, and columns of what is listed kept."""

from __future__ import annotations

import argparse
import re
import textwrap

_LISTED = re.compile(r"(  +\S.*?  +)(\S.*)")  # what is listed, and what it is
_BELOW = " " * 6
_SECOND = 28  # columns that what it is has at least beside it, else it stands below


class Formatter(argparse.HelpFormatter):
    """Takes a description or an epilog of several paragraphs, of which lines led by spaces are kept lines."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n".join(_filled(part, width - len(indent)) for part in re.split(r"\n(?=\n|  )|(?<=:)\n", text))


def _filled(part: str, width: int) -> str:
    if not part.strip():
        return ""
    before, part = ("\n", part[1:]) if part.startswith("\n") else ("", part)
    listed = _LISTED.fullmatch(part)
    if listed is None:
        return before + (part if part.startswith(" ") else textwrap.fill(part, width))
    left, right = listed.groups()
    if width - len(left) < _SECOND:
        below = textwrap.fill(right, width, initial_indent=_BELOW, subsequent_indent=_BELOW)
        return f"{before}{left.rstrip()}\n{below}"
    return before + textwrap.fill(right, width, initial_indent=left, subsequent_indent=" " * len(left))
