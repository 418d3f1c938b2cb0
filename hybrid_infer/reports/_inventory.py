"""What a store holds, as plain data for the command line: static models, their plans, remembered failures."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from hybrid_infer import _differences
from hybrid_infer._errors import HybridInferError
from hybrid_infer._version import Version
from hybrid_infer.checks import _magnitudes


class NotFound(HybridInferError):
    """No static model, or more than one, has a key that begins like this; ``matches`` are those that do."""

    def __init__(self, prefix: str, matches: list[str]) -> None:
        super().__init__(prefix, matches)
        self.prefix, self.matches = prefix, matches

    def __str__(self) -> str:
        if not self.prefix.strip():
            return "an empty key names no static model; `hybrid-infer cache list` shows the keys"
        if not self.matches:
            return f"no key begins with {self.prefix!r}; `hybrid-infer cache list` shows them"
        shown = ", ".join(each[:16] for each in self.matches[:8])
        return f"{len(self.matches)} keys begin with {self.prefix!r}: {shown}; give more digits"


def find(store: Any, prefix: str) -> list[Any]:
    """The entries that a key, or its first digits, names: one static model, or all of one method key.

    Raises NotFound.
    """
    wanted = prefix.strip().lower()
    entries = list(store.entries())
    versions = [entry for entry in entries if wanted and entry.version.startswith(wanted)]
    methods = sorted({entry.method for entry in entries if wanted and entry.method.startswith(wanted)})
    if len(versions) == 1 and not methods:
        return versions
    if len(methods) == 1 and not versions:
        return [entry for entry in entries if entry.method == methods[0]]
    raise NotFound(prefix, [entry.version for entry in versions] + methods)


def summaries(store: Any, entries: Collection[Any]) -> list[dict[str, Any]]:
    """Static models, each in a line, the most recently used first. ``wider``: see `_wider`."""
    wider = _wider(entries, _refused(store, entries))
    found = [{**summary(store, entry), "wider": wider.get(entry.version, "")} for entry in entries]
    return sorted(found, key=lambda each: (-each["used"], each["key"]))


def _refused(store: Any, entries: Iterable[Any]) -> set[str]:
    """The keys of static models that engines refused: narrower ones may be served in their place."""
    records = (record for method in {entry.method for entry in entries} for record in store.failures(method))
    return {str(record["failed"]) for record in records if record.get("failed")}


def _wider(entries: Iterable[Any], but: Collection[str]) -> dict[str, str]:
    """Which static models are of no more use: their keys, and that of the widest one that answers all their calls.

    Those in `but` answer none for sure.
    """
    methods: dict[str, list[tuple[str, Version]]] = defaultdict(list)
    for entry in entries:
        version = version_of(entry)
        if version is not None and version.graph is not None:
            methods[entry.method].append((entry.version, version))
    found: dict[str, str] = {}
    for versions in methods.values():
        for key, mine in versions:
            covering = [(other.width, name) for name, other in versions if name not in but and _replaces(other, mine)]
            if covering:
                found[key] = max(covering)[1]
    return found


def _replaces(wide: Version, narrow: Version) -> bool:
    told = len(narrow.example) == len(narrow.tensors)
    return told and wide.weights == narrow.weights and wide.covers(narrow)


def version_of(entry: Any) -> Version | None:
    """The version that an entry holds; None where it was written by another release."""
    try:
        return Version.from_meta(entry.meta)
    except (KeyError, TypeError, ValueError):
        return None


def items_of(entry: Any) -> list[tuple[str, str]]:
    """The ingredients of an entry's key."""
    return [(str(label), str(digest)) for label, digest in entry.meta.get("key", ())]


def summary(store: Any, entry: Any) -> dict[str, Any]:
    """One static model in a line."""
    version = version_of(entry)
    return {
        "key": entry.version,
        "method_key": entry.method,
        "method": str(entry.meta.get("method", "")),
        "inputs": _inputs(version),
        "plans": sorted({str(plan.meta["engine"]) for plan in store.plans(entry) if plan.files}),
        "size": entry.size,
        "created": entry.created,
        "used": entry.used,
        "path": str(entry.path),
        "read_only": not entry.path.is_relative_to(store.root),
    }


def _inputs(version: Version | None) -> list[str]:
    if version is None:
        return []
    numbers = ["int" if n is None else f"int {n}" for n in version.ints]
    return [*map(_differences.spec, version.tensors), *numbers]


def _engine(meta: Mapping[str, Any], is_plan: bool) -> str:
    """Whose plan it is, or what a record beside the plans says."""
    if is_plan:
        return str(meta.get("engine", "?"))
    if "left_out" in meta:
        return f"(left out: {', '.join(meta['left_out'])})"
    if "verified" not in meta:
        return f"(choice: {meta.get('choice', '?')})"
    sizes = _magnitudes.text(meta.get("magnitudes", ()))
    return f"(verified: {meta.get('engine', '?')}{f', at {sizes}' if sizes else ''})"


def details(store: Any, entry: Any) -> dict[str, Any]:
    """All that is known of one static model."""
    version = version_of(entry)
    plans = [
        {
            "key": plan.plan,
            "engine": _engine(plan.meta, bool(plan.files)),
            "version": plan.meta.get("version", ""),
            "size": sum(plan.files.values()),
            "created": plan.created,
            "path": str(plan.path),
        }
        for plan in store.plans(entry)
    ]
    results = [] if version is None or version.graph is None else version.graph.output_specs
    alike = list(store.versions(entry.method))
    return {
        **summary(store, entry),
        "wider": _wider(alike, _refused(store, alike)).get(entry.version, ""),
        "made_with": dict(entry.meta.get("versions", {})),
        "files": dict(entry.files),
        "guards": {} if version is None else _differences.guards(version),
        "results": [_differences.spec(each) for each in results],
        "plans": plans,
        "ingredients": dict(items_of(entry)),
    }


def failures(store: Any) -> list[dict[str, Any]]:
    """What could not be done, by method, and is not tried again for a while. What a method was found to carry from call
    to call (see `_carry`) is no failure where a static model carries it.
    """
    carried = {(str(entry.meta.get("method")), str(entry.meta.get("carries"))) for entry in store.entries()}
    found: list[dict[str, Any]] = []
    for method in store.methods():
        for record in store.failures(method):
            row = {"method_key": method, **_failure(record)}
            known = record.get("carries") and (row["method"], str(record["carries"])) in carried
            if not known and row not in found:
                found.append(row)
    return found


def _failure(record: Mapping[str, Any]) -> dict[str, Any]:
    """`static_model`: the key of the one that engines refused; empty where none was made."""
    said = {name: str(record.get(name, "")) for name in ("method", "kind", "reason", "remedy")}
    return {**said, "static_model": str(record.get("failed", ""))}


def compare(first: Any, second: Any) -> dict[str, Any]:
    """In which ingredients of their keys, and in which guards, two entries differ."""
    one, two = version_of(first), version_of(second)
    guards = [] if one is None or two is None else _differences.of_guards(one, two)
    ingredients = _differences.of_keys(items_of(first), items_of(second))
    return {
        "first": {"key": first.version, "method_key": first.method, "method": first.meta.get("method", "")},
        "second": {"key": second.version, "method_key": second.method, "method": second.meta.get("method", "")},
        "ingredients": [each._asdict() for each in ingredients],
        "guards": [each._asdict() for each in guards],
    }
