"""The manifest of an entry, a plan or a failure: JSON that carries its own digest."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hybrid_infer.cache import _files, _layout

FORMAT = 1

# The digest stands at a fixed place before all that it covers, so that bytes are checked before they are parsed.
_HEAD = b'{"digest":"'
_BODY = len(_HEAD) + 32 + len(b'",')


class Newer(Exception):
    """Written by a later version of this library: neither usable nor damaged."""


@dataclass(frozen=True)
class Manifest:
    """``identity`` says what the manifest belongs to; ``files`` maps each name to its size and digest."""

    identity: Mapping[str, str]
    created: float
    meta: dict[str, Any]
    files: Mapping[str, tuple[int, str]]


def plain(meta: Mapping[str, Any]) -> dict[str, Any]:
    """`meta` as every reader will get it (tuples become lists); raises TypeError or ValueError if it is not JSON."""
    copy: dict[str, Any] = json.loads(json.dumps(dict(meta)))
    return copy


def content_digest(method: str, meta: Mapping[str, Any], files: Mapping[str, tuple[int, str]]) -> str:
    """Digest of what an entry says, wherever and whenever it was written."""
    content = {"format": FORMAT, "method": method, "meta": meta, "files": files}
    return _files.digest(json.dumps(content, sort_keys=True, separators=(",", ":")).encode())


def encode(manifest: Manifest) -> bytes:
    body = {
        "format": FORMAT,
        "identity": dict(manifest.identity),
        "created": manifest.created,
        "meta": manifest.meta,
        "files": {name: list(facts) for name, facts in manifest.files.items()},
    }
    text = json.dumps(body, separators=(",", ":")).encode()[1:]
    return _HEAD + _files.digest(text).encode() + b'",' + text


def decode(raw: bytes, identity: Mapping[str, str]) -> Manifest:
    """Parse a manifest that must belong to `identity`; raises Newer or Damage."""
    intact = raw.startswith(_HEAD) and raw[len(_HEAD) : _BODY - 2] == _files.digest(raw[_BODY:]).encode()
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise _files.Damage("has a manifest that is not JSON") from error
    version = body.get("format") if isinstance(body, dict) else None
    # A later format may compute its digest otherwise, so this comes first.
    if isinstance(version, int) and version > FORMAT:
        raise Newer(f"format {version}")
    if not intact:
        raise _files.Damage("has a manifest that does not match its own digest")
    if version != FORMAT or body.get("identity") != dict(identity):
        raise _files.Damage(f"has the manifest of something else ({body.get('identity')})")
    try:
        files = {name: (int(size), str(digest)) for name, (size, digest) in body["files"].items()}
        # The digest keeps out accidents, not somebody who computes it: no name from a manifest is believed either.
        _layout.file_names(files)
        return Manifest(body["identity"], float(body["created"]), dict(body["meta"]), files)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _files.Damage(f"has a manifest that this library did not write ({error})") from error
