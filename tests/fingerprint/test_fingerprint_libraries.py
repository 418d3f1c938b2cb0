"""Installed code counts by its version, and the user's code behind it by content."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from fingerprint_support import differing, run_sources

import hybrid_infer

pytestmark = pytest.mark.processes

LIBRARY = "def g(x): return x * 2\ndef deco(h):\n def inner(x): return h(x)\n return inner\nclass C:\n k = 2\n"
USES_LIBRARY = """
import lib, lib.part
from lib import g, C, deco
K = C()
@deco
def own(x): return x * 5
def f(x): return lib.g(x) + g(x) + lib.part.h(x) + K.k + own(x)
"""


def install(root: Path, version: str, source: str, direct_url: str = "", own: str = "x * 5") -> Any:
    site = root / "site-packages"
    (site / "lib").mkdir(parents=True)
    (site / "lib" / "__init__.py").write_text(source)
    (site / "lib" / "part.py").write_text("def h(x): return x * 2")
    info = site / f"lib-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Name: lib\nVersion: {version}\n")
    if direct_url:
        (info / "direct_url.json").write_text(direct_url)
    path = os.pathsep.join([str(Path(hybrid_infer.__file__).parents[1]), str(site)])
    return run_sources(root, {"uses": USES_LIBRARY.replace("x * 5", own)}, PYTHONPATH=path)["uses"]


def test_libraries_count_by_version(tmp_path: Path) -> None:
    base = install(tmp_path / "a", "1.0", LIBRARY)
    assert base["ingredients"]["library lib"] == "lib 1.0" and base["opaque"] == []
    assert install(tmp_path / "b", "1.0", LIBRARY.replace("* 2", "* 3"))["digest"] == base["digest"]
    newer = install(tmp_path / "c", "1.1", LIBRARY)
    assert differing(base, newer) == ["library lib"] and base["digest"] != newer["digest"]


def test_a_library_s_wrapper_does_not_hide_the_user_s_function(tmp_path: Path) -> None:
    base = install(tmp_path / "a", "1.0", LIBRARY)
    assert base["digest"] != install(tmp_path / "b", "1.0", LIBRARY, own="x * 6")["digest"]


def test_members_of_a_library_are_not_asked_for_their_class(tmp_path: Path) -> None:
    """`torch.distributed.reduce_op` warns of every attribute that is read."""
    odd = "class Odd:\n def __getattribute__(self, name): raise RuntimeError(name)\nodd = Odd()\n"
    base = install(tmp_path / "a", "1.0", LIBRARY + odd, own="[lib, x.odd]")
    assert base["opaque"] == []


@pytest.mark.parametrize(
    ("direct_url", "by_content"),
    [
        ('{"url": "file:///home/lib", "dir_info": {}}', True),
        ('{"url": "https://host/lib", "vcs_info": {"vcs": "git", "commit_id": "aaa"}}', False),
    ],
)
def test_installs_from_a_directory_count_by_content(tmp_path: Path, direct_url: str, by_content: bool) -> None:
    base = install(tmp_path / "a", "1.0", LIBRARY, direct_url)
    edited = install(tmp_path / "b", "1.0", LIBRARY.replace("* 2", "* 3"), direct_url)
    assert (base["digest"] != edited["digest"]) == by_content
    other = install(tmp_path / "c", "1.0", LIBRARY, direct_url.replace("aaa", "bbb"))
    assert (base["digest"] != other["digest"]) == (not by_content)


def test_an_editable_install_counts_by_content(tmp_path: Path) -> None:
    digests = []
    for name, source in (("a", LIBRARY), ("b", LIBRARY.replace("* 2", "* 3")), ("c", LIBRARY + "\n# more\n")):
        root = tmp_path / name
        (root / "source" / "lib").mkdir(parents=True)
        (root / "source" / "lib" / "__init__.py").write_text(source)
        (root / "source" / "lib" / "part.py").write_text("def h(x): return x * 2")
        info = root / "site-packages" / "lib-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Name: lib\nVersion: 1.0\n")
        folders = [Path(hybrid_infer.__file__).parents[1], root / "site-packages", root / "source"]
        found = run_sources(root, {"uses": USES_LIBRARY}, PYTHONPATH=os.pathsep.join(map(str, folders)))["uses"]
        digests.append(found["digest"])
    assert digests[0] != digests[1] and digests[0] == digests[2]


LAZY = """
def f(x):
    import lib, spaces.inner
    from other.part import h
    from lib import part
    return h(part.h(x)) + lib.g(x) + spaces.inner.g(x)
"""


def test_a_library_is_the_same_before_it_is_loaded(tmp_path: Path) -> None:
    """Also where its distribution has another name, and where it is a part of a namespace."""
    root = tmp_path / "a"
    for distribution, package in (("lib", "lib"), ("Py_Other", "other"), ("Spaces_Inner", "spaces/inner")):
        folder = root / "site-packages" / package
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text('__version__ = "1.0"\ndef g(x): return x\n')
        (folder / "part.py").write_text("def h(x): return x\n")
        info = root / "site-packages" / f"{distribution}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Name: {distribution}\nVersion: 1.0\n")
        (info / "RECORD").write_text(f"{package}/__init__.py,,\n")
    path = os.pathsep.join([str(Path(hybrid_infer.__file__).parents[1]), str(root / "site-packages")])
    (tmp_path / "b").mkdir()
    before = run_sources(root, {"uses": LAZY}, PYTHONPATH=path)["uses"]
    loading = "for each in ('lib.part', 'other.part', 'spaces.inner'): __import__(each)\n"
    after = run_sources(tmp_path / "b", {"uses": loading + LAZY}, PYTHONPATH=path)["uses"]
    libraries = {key: value for key, value in before["ingredients"].items() if key.startswith("library ")}
    assert {key.partition(" ")[2] for key in libraries} == {"python", "lib", "other", "spaces.inner"}
    assert before["digest"] == after["digest"], differing(before, after)
