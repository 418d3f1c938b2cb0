"""Where things lie in a store, and which names may become part of a path."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from hybrid_infer._errors import OptionError

MANIFEST = "manifest.json"
PLANS = "plans"
FAILURES = "failures"

_DIGEST = re.compile(r"[0-9a-f]{16,128}")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,126}[A-Za-z0-9_+-]|[A-Za-z0-9_]")
# Windows opens a device for these names, whatever extension follows.
_DEVICES = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE)


def is_digest(text: str) -> bool:
    return _DIGEST.fullmatch(text) is not None


def is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None and _DEVICES.fullmatch(text) is None


def digest_name(parameter: str, value: object) -> str:
    """`value` if it is a lower-case hex digest; raises OptionError otherwise."""
    if not isinstance(value, str) or not is_digest(value):
        raise OptionError(parameter, value, "a lower-case hexadecimal digest of 16 to 128 characters")
    return value


def safe_name(parameter: str, value: object) -> str:
    """`value` if it names one file on every platform; raises OptionError otherwise."""
    if not isinstance(value, str) or not is_name(value):
        allowed = "1 to 128 ASCII letters, digits, '_', '-', '+' or '.', not led or ended by '.', and no device name"
        raise OptionError(parameter, value, allowed)
    return value


def file_names(names: Iterable[object]) -> list[str]:
    """The names of an entry's files, checked one by one and against each other; raises OptionError."""
    checked = [safe_name("files", name) for name in names]
    folded = {name.casefold() for name in checked}
    if len(folded) != len(checked):
        raise OptionError("files", checked, "names that also differ where case does not count")
    if taken := folded & {MANIFEST, PLANS}:
        raise OptionError("files", checked, f"without {', '.join(sorted(taken))}, which the store writes itself")
    return checked


class Layout:
    """The paths of one store, as strings: they are joined in the path of every look-up."""

    __slots__ = ("damaged", "debug", "locks", "methods", "root", "shared", "staging", "top", "usage")

    def __init__(self, root: str) -> None:
        self.root = root
        self.top = os.path.join(root, "v1")
        self.methods = os.path.join(self.top, "methods")
        self.locks = os.path.join(self.top, "locks")
        self.staging = os.path.join(self.top, "staging")
        self.damaged = os.path.join(self.top, "damaged")
        self.debug = os.path.join(self.top, "debug")
        self.usage = os.path.join(self.top, "usage")
        self.shared = os.path.join(self.top, "shared")

    def shard(self, method: str) -> str:
        return os.path.join(self.methods, method[:2])

    def method(self, method: str) -> str:
        return os.path.join(self.methods, method[:2], method)

    def version(self, method: str, version: str) -> str:
        return os.path.join(self.methods, method[:2], method, version)

    def plan(self, method: str, version: str, plan: str) -> str:
        return os.path.join(self.version(method, version), PLANS, plan)

    def failures(self, method: str) -> str:
        return os.path.join(self.method(method), FAILURES)

    def lock(self, name: str) -> str:
        return os.path.join(self.locks, f"{name}.lock")
