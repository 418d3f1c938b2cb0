"""One module of a package is imported without what the package imports first, which takes longer than all the rest."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hybrid_infer.backends.native._module_alone import module_alone

PACKAGE = "a_package_of_many_libraries"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package whose own imports are noticed, and the folder of those of its modules that bind libraries."""
    folder = tmp_path / PACKAGE / "bindings"
    (folder / "inner").mkdir(parents=True)
    (folder.parent / "__init__.py").write_text(f"from {PACKAGE} import slow\nfrom {PACKAGE}.bindings import one\n")
    (folder.parent / "slow.py").write_text("")
    (folder / "__init__.py").write_text(f"from {PACKAGE}.bindings import one, two\n")
    (folder / "inner" / "__init__.py").write_text("")
    (folder / "inner" / "calls.py").write_text("")
    (folder / "one.py").write_text(f"from {PACKAGE}.bindings.inner import calls\n")
    (folder / "two.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield folder
    for name in [each for each in sys.modules if each.partition(".")[0] == PACKAGE]:
        del sys.modules[name]


def loaded() -> set[str]:
    return {name.removeprefix(PACKAGE).lstrip(".") for name in sys.modules if name.partition(".")[0] == PACKAGE}


def test_only_what_the_module_imports_itself_is_loaded(package: Path) -> None:
    one = module_alone(f"{PACKAGE}.bindings.one")
    assert one.__name__ == f"{PACKAGE}.bindings.one" and one.calls
    assert loaded() == {"bindings.one", "bindings.inner", "bindings.inner.calls"}
    assert module_alone(f"{PACKAGE}.bindings.one") is one


def test_whoever_imports_the_package_later_gets_all_of_it_with_the_same_module(package: Path) -> None:
    one = module_alone(f"{PACKAGE}.bindings.one")
    whole = importlib.import_module(PACKAGE)
    assert whole.slow and whole.bindings.one is one and whole.bindings.two
    assert Path(str(whole.__file__)) == package.parent / "__init__.py"


def test_a_package_that_is_imported_already_is_used_as_it_is(package: Path) -> None:
    whole = importlib.import_module(PACKAGE)
    assert module_alone(f"{PACKAGE}.bindings.one") is whole.bindings.one
    assert sys.modules[PACKAGE] is whole


def test_a_module_that_needs_its_package_has_it(package: Path) -> None:
    """As another release may be put together."""
    (package / "one.py").write_text(f"import {PACKAGE}.slow\nslow = {PACKAGE}.slow\nassert {PACKAGE}.__file__\n")
    assert module_alone(f"{PACKAGE}.bindings.one").slow is sys.modules[PACKAGE].slow


def test_another_thread_that_imports_the_package_meanwhile_gets_all_of_it(package: Path) -> None:
    (package.parent / "__init__.py").write_text(f"from {PACKAGE} import slow\nCOUNT = 3\n")
    (package / "one.py").write_text(
        "from concurrent.futures import ThreadPoolExecutor\n"
        f"def theirs():\n    import {PACKAGE} as found\n    from {PACKAGE} import COUNT\n"
        f"    return found.slow, COUNT, found.bindings\n"
        "with ThreadPoolExecutor(1) as pool: found = pool.submit(theirs).result(30)\n"
    )
    (package / "__init__.py").write_text("")
    (package.parent / "slow.py").write_text(f"import {PACKAGE}.bindings.two\n")
    slow, count, bindings = module_alone(f"{PACKAGE}.bindings.one").found
    assert slow is sys.modules[f"{PACKAGE}.slow"] and count == 3
    assert bindings is sys.modules[f"{PACKAGE}.bindings"] and bindings.two
    assert sys.modules[PACKAGE].slow is slow


def test_what_is_not_installed_is_said(package: Path) -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_package"):
        module_alone("no_such_package.bindings.one")
    with pytest.raises(ModuleNotFoundError, match="three"):
        module_alone(f"{PACKAGE}.bindings.three")
