"""What models of pydantic check and convert, as its core in C keeps it: by the schema that it was made of.

In a schema, types that are used again are known by names with addresses in them, another one in each process.
"""

from __future__ import annotations

import re
from typing import Any

KINDS = frozenset({"pydantic_core._pydantic_core.SchemaValidator", "pydantic_core._pydantic_core.SchemaSerializer"})
_NAMES = frozenset({"ref", "schema_ref"})
_ADDRESS = re.compile(r":\d+")


def of(value: Any) -> Any:
    """Schema and settings of a validator or a serializer, the addresses in it numbered as they are met."""
    return _renamed(value.__reduce__()[1], {}, ())


def _renamed(value: Any, numbers: dict[str, int], above: tuple[int, ...]) -> Any:
    kind = type(value)
    if kind not in (dict, list, tuple) or id(value) in above:
        return value
    above = (*above, id(value))
    if kind is not dict:
        return kind(_renamed(each, numbers, above) for each in value)

    def number(found: re.Match[str]) -> str:
        return f":#{numbers.setdefault(found[0], len(numbers))}"

    made = {}
    for key, held in value.items():
        if key in _NAMES and type(held) is str:
            held = _ADDRESS.sub(number, held)
        elif key != "default" or value.get("type") != "default":  # that one is the program's
            held = _renamed(held, numbers, above)
        made[key] = held
    return made
