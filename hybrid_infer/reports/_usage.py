"""Wrong usage of the command line: the error of a parser, with what was most likely meant."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

_COMMAND = re.compile(r"argument COMMAND: invalid choice: '([^']+)'")
_OPTION = re.compile(r"(?<![\w-])--?[a-z][\w-]*")


class Parser(argparse.ArgumentParser):
    """Its parsers of commands are of this class too. `rooms`: what these are registered with, the outer one first."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.rooms: Sequence[Any] = ()

    def parse(self, arguments: Sequence[str] | None, **defaults: Any) -> argparse.Namespace:
        """As ``parse_args``; what is not known is an error of the command that it was given to.

        `defaults`: of options that may stand before and behind the command, and have none of their own.
        """
        given, unknown = self.parse_known_args(arguments, argparse.Namespace(**defaults))
        if unknown:
            parser: argparse.ArgumentParser = getattr(given, "parser", self)
            parser.error(f"unrecognized arguments: {' '.join(unknown)}")
        return given

    def error(self, message: str) -> NoReturn:
        told = message.removesuffix(", ...")  # what a script is given, which may be nothing
        super().error(told + self._meant(message))

    def _meant(self, message: str) -> str:
        found = _COMMAND.search(message)
        if found is not None:
            meant = _command(found[1], self.prog, [room.choices for room in self.rooms])
        else:
            listed = message.partition("unrecognized arguments: ")[2].split()
            meant = _nearest(listed[0].partition("=")[0], _OPTION.findall(self.format_help())) if listed else ""
        return f"; did you mean `{meant}`?" if meant else ""


def _command(given: str, prog: str, rooms: Sequence[Mapping[str, argparse.ArgumentParser]]) -> str:
    """The command that a name means in `prog`, which is looked for among its own commands first."""
    name = given.lower()
    if name in ("help", "version"):
        return f"{prog if name == 'help' else prog.partition(' ')[0]} --{name}"
    own = [room for room in rooms if any(parser.prog.rpartition(" ")[0] == prog for parser in room.values())]
    ordered = [*own, *(room for room in rooms if room not in own)]
    exact = next((room[name].prog for room in ordered if name in room), "")
    if exact:
        return exact
    if name.endswith(".py"):
        return f"{prog.partition(' ')[0]} run {given}"
    for room in ordered:
        near = _nearest(name, list(room))
        if near:
            return room[near].prog
    return ""


def _nearest(name: str, known: Sequence[str]) -> str:
    import difflib

    return next(iter(difflib.get_close_matches(name, known, 1)), "")
