"""The entry points of a kernel: one for each width of index, and each number of elements at a time, that calls need."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def entry_points(
    name: str, parameters: str, passed: str, wides: Iterable[bool], threads: int, lanes: Sequence[int] = ()
) -> tuple[dict[tuple[int, bool], str], str]:
    """Their names, by (elements per thread, 64-bit indices), and their source behind that of ``<name>_body``.

    That is a template of the type of an index and, where there are `lanes`, of the elements that a thread takes.
    """
    entries: dict[tuple[int, bool], str] = {}
    text = ""
    for wide in wides:
        index = "long long" if wide else "int"
        for width in lanes or (1,):
            entry = entries[width, wide] = f"{name}_{'l' if wide else 'i'}{width}"
            text += (
                f'\nextern "C" __global__ void __launch_bounds__({threads}) {entry}({parameters}) '
                f"{{ {name}_body<{f'{index}, {width}' if lanes else index}>({passed}); }}"
            )
    return entries, text
