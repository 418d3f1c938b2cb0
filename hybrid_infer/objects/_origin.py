"""Where a piece of code comes from: the interpreter, an installed distribution, or the user.

Library code is known by its version and is not read. User code is everything else, editable installs and
distributions installed from a local directory among it, since their version says nothing about their content.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

#: Known by version wherever they are installed, and never walked: they are far too large for it.
FRAMEWORKS = frozenset({"torch", "torchvision", "paddle", "numpy", "hybrid_infer"})

USER = ""
PYTHON = "python"

_SITES = re.compile(r"(.*[/\\](?:site|dist)-packages)[/\\]([^/\\]+)(?:[/\\]([^/\\]+))?")
_STDLIB = tuple({os.path.join(folder, "") for folder in (os.path.dirname(os.__file__), os.path.realpath(os.path.dirname(os.__file__)))})  # fmt: skip  # noqa: E501
#: Of code that was typed, or given in a command, wherever it runs.
_TYPED = frozenset({"<stdin>", "<input>", "<console>", "<timeit-src>"})
_by_file: dict[str, str] = {}
_by_module: dict[str, str] = {}
_versions: dict[str, str] = {PYTHON: ".".join(map(str, sys.version_info[:3]))}
_listings: dict[str, dict[str, str]] = {}


def in_every_process(module: str) -> str:
    """The name of a module: a spawned worker has the program's main module under another one."""
    return "__main__" if module == "__mp_main__" else module


def of_module(name: str) -> str:
    """Label of the library that module `name` belongs to; `USER` if it is the user's.

    A module that is not loaded, or has no file and is not built in, is the user's; so is ``__main__``, whose file may
    be that of a library's program which runs the user's code: a prompt, a profiler, a notebook.
    """
    if in_every_process(name) == "__main__":
        return USER
    known = _by_module.get(name)
    if known is not None:
        return known
    label = _of_module(name)
    # A module that is not loaded yet may turn out to be anything.
    if name in sys.modules:
        _by_module[name] = label
    return label


def of_file(filename: str, module: str) -> str:
    """Label of the library that code of `filename`, running in the globals of `module`, belongs to."""
    top = module.partition(".")[0]
    if top in FRAMEWORKS and _is_framework(top):
        return _framework(top)
    if filename.startswith("<"):
        # Made by exec in a module (dataclasses, namedtuple), or frozen into the interpreter.
        if filename in _TYPED:
            return USER
        return PYTHON if filename.startswith("<frozen ") else of_module(module)
    known = _by_file.get(filename)
    if known is None:
        known = _by_file[filename] = _of_file(filename)
    return known


def of_import(parts: Sequence[str]) -> str:
    """Label of the library that an import of a module, whose name is in parts, finds; the same if it is loaded."""
    top = parts[0]
    if top in FRAMEWORKS and _is_framework(top):
        return _framework(top)
    filename = file_of(top)
    if os.path.isdir(filename) and len(parts) > 1:  # a namespace, of whose parts each is a library
        filename = os.path.join(filename, parts[1], "")
    return of_file(filename, "")


def file_of(module: str) -> str:
    """The file of a module, or the folder of a namespace, without an import of a top-level one; empty if there is none.
    """
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return ""
    if spec is None:
        return ""
    if spec.has_location and spec.origin:
        return spec.origin
    return next(iter(spec.submodule_search_locations or ()), f"<frozen {module}>")


def version(label: str) -> str:
    """Version of a library by its label."""
    return _versions[label]


def _of_module(name: str) -> str:
    top = name.partition(".")[0]
    if name in sys.builtin_module_names or name == "builtins":
        return PYTHON
    module = sys.modules.get(name)
    if top in FRAMEWORKS and _is_framework(top):
        return _framework(top)
    filename = getattr(module, "__file__", None)
    if not isinstance(filename, str):
        filename = next(iter(getattr(module, "__path__", ())), None)
    if not isinstance(filename, str):
        origin = getattr(getattr(module, "__spec__", None), "origin", None)
        return PYTHON if origin in ("built-in", "frozen") else _parent(name)
    return of_file(filename, "")


def _parent(name: str) -> str:
    """Submodules that exist only in memory belong to their package; a lone one is the user's."""
    parent = name.rpartition(".")[0]
    return of_module(parent) if parent in sys.modules else USER


def _is_framework(top: str) -> bool:
    return isinstance(getattr(sys.modules.get(top), "__file__", None), str)


def _framework(top: str) -> str:
    if top not in _versions:
        found = getattr(sys.modules[top], "__version__", None) or _version_of(_site_of(top), top)
        _versions[top] = str(found or "unknown")
    return top


def _site_of(top: str) -> str:
    return os.path.dirname(os.path.dirname(sys.modules[top].__file__ or ""))


def _of_file(filename: str) -> str:
    match = _SITES.match(filename)
    if match is None:
        return PYTHON if filename.startswith(_STDLIB) else USER
    site, top, below = match.groups()
    top = top.split(".")[0] if below is None else top
    module = sys.modules.get(top)
    loaded = isinstance(getattr(module, "__file__", None), str)
    if below is not None and not loaded and not os.path.isfile(os.path.join(site, top, "__init__.py")):
        # Parts of a namespace package are installed by different distributions.
        top = f"{top}.{below.split('.')[0]}"
    if top in _versions:
        return top if _versions[top] else USER
    number = _version_of(site, top)
    _versions[top] = number.partition(" ")[2] if top in FRAMEWORKS else number  # as they tell themselves, once loaded
    return top if _versions[top] else USER


def _version_of(site: str, top: str) -> str:
    """``<name> <version>`` of top-level module `top`; empty if its version does not tell its content."""
    listing = _listing(site)
    folder = listing.get(_normal(top))
    known = top if folder is None else folder.partition("-")[0]
    if folder is None:
        declared: Any = getattr(sys.modules.get(top), "__version__", None)
        if isinstance(declared, str):
            return f"{top} {declared}"
        # Under the same name, so that it is known by the same version before it is loaded.
        folder = next((entry for entry in listing.values() if _provides(os.path.join(site, entry), top)), None)
    if folder is None:
        return ""
    number = folder.rpartition(".")[0].partition("-")[2]
    return f"{known} {number}{_revision(os.path.join(site, folder))}" if _by_version(os.path.join(site, folder)) else ""


def _listing(site: str) -> dict[str, str]:
    """Normalised distribution name -> its metadata folder, from one look at `site`."""
    listing = _listings.get(site)
    if listing is None:
        try:
            entries = sorted(os.listdir(site))
        except OSError:
            entries = []
        listing = {
            _normal(entry.partition("-")[0]): entry for entry in entries if entry.endswith((".dist-info", ".egg-info"))
        }
        _listings[site] = listing
    return listing


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "_", name).lower()


def _provides(folder: str, top: str) -> bool:
    path = top.replace(".", "/")
    wanted = re.compile(rf"^{re.escape(path)}(/|\.|$)", re.MULTILINE)
    return any(wanted.search(_read(os.path.join(folder, name))) for name in ("top_level.txt", "RECORD"))


def _direct_url(folder: str) -> dict[str, Any]:
    text = _read(os.path.join(folder, "direct_url.json"))
    try:
        data = json.loads(text) if text else {}
    except ValueError:
        data = {}
    return data if isinstance(data, dict) else {}


def _by_version(folder: str) -> bool:
    # Installed from a directory, the same version can hold other code every time.
    return "dir_info" not in _direct_url(folder)


def _revision(folder: str) -> str:
    """What tells apart builds of one version that came from an address instead of an index."""
    direct = _direct_url(folder)
    detail = direct.get("vcs_info") or direct.get("archive_info")
    return f" {json.dumps(detail, sort_keys=True)}" if detail else ""


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def of_object(value: object) -> str:
    """Label of the library that defines a module, class or builtin function."""
    if isinstance(value, ModuleType):
        return of_module(value.__name__)
    module = getattr(value, "__module__", None)
    return of_module(module) if isinstance(module, str) else PYTHON
