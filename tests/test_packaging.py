"""Every kind of install holds the rooms that the package reaches through links."""

from __future__ import annotations

import importlib.metadata
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

REPOSITORY = Path(__file__).resolve().parent.parent
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
BUILD = ["--no-build-isolation", "--no-deps", "--no-index"]

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what git tracks, links kept as links: builds leave files beside the source."""
    copy = tmp_path_factory.mktemp("source") / "hybrid_infer"
    ignore = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist", "out", "tests", "docs")
    shutil.copytree(REPOSITORY, copy, symlinks=True, ignore=ignore)
    return copy


@pytest.fixture(scope="module")
def sdist(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sdist")
    run([sys.executable, "setup.py", "--quiet", "sdist", "--dist-dir", str(folder)], source)
    (archive,) = folder.glob("*.tar.gz")
    return archive


def run(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def modules(source: Path) -> set[str]:
    """Every module of the package, as a path within it; the links are followed."""
    found = {path.relative_to(source) for path in (source / "hybrid_infer").glob("**/*.py")}
    for room in ("cache", "backends"):
        found |= {Path("hybrid_infer", path.relative_to(source)) for path in (source / room).glob("**/*.py")}
    return {path.as_posix() for path in found}


def wheel(project: Path, folder: Path) -> set[str]:
    run([*PIP, "wheel", *BUILD, "--wheel-dir", str(folder), str(project)], folder)
    (archive,) = folder.glob("*.whl")
    return set(zipfile.ZipFile(archive).namelist())


def test_what_is_pinned_for_python_3_10_supports_it() -> None:
    lines = (REPOSITORY / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [Requirement(line) for line in lines if line and not line.startswith("#")]
    held = {each.metadata["Name"].lower().replace("_", "-"): each for each in importlib.metadata.distributions()}
    found = [
        str(pin)
        for pin in pins
        if (pin.marker is None or pin.marker.evaluate({"python_version": "3.10", "python_full_version": "3.10.13"}))
        and (each := held.get(pin.name)) is not None
        and pin.specifier.contains(each.version)
        and "3.10.13" not in SpecifierSet(each.metadata["Requires-Python"] or "")
    ]
    assert found == []


def test_the_rooms_are_relative_links() -> None:
    for room in ("cache", "backends"):
        link = REPOSITORY / "hybrid_infer" / room
        assert link.is_symlink()
        assert link.readlink() == Path("..", room)


def test_a_wheel_holds_every_module_and_nothing_else(source: Path, tmp_path: Path) -> None:
    names = wheel(source, tmp_path)
    expected = modules(source)
    assert {"hybrid_infer/cache/__init__.py", "hybrid_infer/backends/__init__.py"} <= expected
    assert {name for name in names if name.endswith(".py")} == expected
    assert "hybrid_infer/py.typed" in names
    assert any(name.endswith(".dist-info/entry_points.txt") for name in names)


def test_an_sdist_holds_every_module_and_builds_the_same_wheel(source: Path, sdist: Path, tmp_path: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert modules(source) <= names
    assert {"LICENSE", "README.md", "pyproject.toml", "setup.py"} <= names
    assert {name for name in wheel(sdist, tmp_path) if name.endswith(".py")} == modules(source)


@pytest.mark.parametrize("editable", [False, True], ids=["regular", "editable"])
def test_an_install_imports_the_rooms(source: Path, tmp_path: Path, editable: bool) -> None:
    # Without --ignore-installed, pip would take away the install that runs this test.
    options = [*BUILD, "--ignore-installed", "--prefix", str(tmp_path), *(["--editable"] if editable else [])]
    run([*PIP, "install", *options, "."], source)
    (packages,) = tmp_path.glob("lib*/python*/site-packages")
    # -ES: no .pth file is read but that of the install under test, and no PYTHONPATH of the one who runs it.
    program = (
        f"import site, sys; site.addsitedir({str(packages)!r}); sys.path.append({sysconfig.get_path('purelib')!r}); "
        "import hybrid_infer.cache, hybrid_infer.backends; print(hybrid_infer.cache.__file__)"
    )
    where = Path(run([sys.executable, "-ES", "-c", program], tmp_path).strip())
    assert where.is_relative_to(source if editable else packages)
