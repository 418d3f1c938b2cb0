"""What keeps a file from being a program of ``torch.export``, told by its archive, before torch reads it."""

from __future__ import annotations

import os
import re
import zipfile

from hybrid_infer._errors import StaticModelError

#: Of torch 2.8 and later, and of those before.
_PROGRAM = re.compile(r"(^|/)(models/[^/]+\.json|serialized_exported_program\.json)$")
_CODE = re.compile(r"(^|/)code/")
_REMEDY = "It takes what torch.export.save() wrote"
_AGAIN = "Write it anew by torch.export.save(), or copy it again"


def check(path: str) -> None:
    """Raises StaticModelError. Data is compared with its checksums: torch loads weights without asking for theirs."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            reason = _not_a_program(names)
            damaged = None if reason else archive.testzip()
    except zipfile.BadZipFile as fault:
        raise StaticModelError(path, *_no_archive(path)) from fault
    except (OSError, NotImplementedError, RuntimeError) as fault:  # encrypted, or packed in a way that zipfile has not
        raise StaticModelError(path, f"it cannot be read: {fault}") from fault
    if reason:
        raise StaticModelError(path, reason, _REMEDY)
    if damaged is not None:
        reason = f"it is damaged: {damaged!r} in it does not have the checksum it was given"
        raise StaticModelError(path, reason, _AGAIN)


def _no_archive(path: str) -> tuple[str, str]:
    if os.path.getsize(path) == 0:
        return "it is empty", _AGAIN
    with open(path, "rb") as file:
        begins = file.read(4) == b"PK\x03\x04"
    if begins:
        return "it is damaged: the end of its archive is missing, as of a copy that was cut short", _AGAIN
    return "it is no program of torch.export, which is an archive (zip)", _REMEDY


def _not_a_program(names: list[str]) -> str:
    """Empty where there is one."""
    if any(map(_PROGRAM.search, names)):
        return ""
    if any(map(_CODE.search, names)):
        return "it holds TorchScript, no program of torch.export"
    if any(name.rpartition("/")[2] == "data.pkl" for name in names):
        return "it holds weights or pickled objects, as torch.save() writes them, and no program of torch.export"
    return "it is an archive without a program of torch.export"
