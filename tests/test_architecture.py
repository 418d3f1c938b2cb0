"""Which module may import which, and what may stand in none of them."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
PACKAGE = REPOSITORY / "hybrid_infer"
ROOMS = ("backends", "cache", "frontends", "passes")
LEAVES = tuple(
    f"hybrid_infer.{name}"
    for name in (
        "_types", "_errors", "_fork_safe", "_installed", "_unwarned", "_own_thread", "_wrapping", "_interrupts",
    )
)
#: The rooms of the call path, from the outside in: a room imports those further right, and itself.
INNER = ("reports", "static", "checks", "capture", "state", "fingerprint", "objects")
#: Of the modules beside the rooms, what the last three import: none of them knows of calls and static models.
GROUND = {
    "_types", "_errors", "_fork_safe", "_unwarned", "_own_thread", "_wrapping", "_keys", "_structure", "_parameters",
    "_signature", "_profiler", "_busy",
}  # fmt: skip
#: The modules that import the first two; for all others these are not there.
DOORS = ("__init__", "cli", "_warmup")
#: From the outside in: a module imports those further right, never those further left.
ORDERS = (
    ("_api", "_method", "_dispatch", "_miss", "_resolve", "_serve", "_candidates", "_router", "_compile"),
    ("_serve", "_outcomes", "_compile"),
    ("_dispatch", "_call_keys", "_signature"),
    ("_serve", "_gradients", "_signature", "_unsupported"),
    ("_compile", "_engines", "_request", "_subject", "_reach", "_undo", "_state"),
    ("_resolve", "_tracing", "_request"),
    ("_tracing", "_twin", "_assigned", "_reads"),
    ("_subject", "_fingerprint", "_walk", "_classes", "_objects", "_namespaces"),
    ("_walk", "_outline", "_code", "_keys"),
    ("_objects", "_state", "_origin"),
)
HEAVY = ("torch", "paddle", "onnx", "onnxruntime", "openvino", "cupy", "tensorrt", "numpy", "onnxscript", "paddle2onnx")
#: The one file of each framework or engine; those beside it whose names begin likewise belong to it.
SERVED = {
    "torch": "frontends/", "paddle": "frontends/", "paddle2onnx": "frontends/", "onnxscript": "frontends/",
    "onnxruntime": "backends/", "openvino": "backends/", "cupy": "frontends/", "tensorrt": "backends/",
}  # fmt: skip

# Path.rglob does not follow the links by which two of the rooms are reached.
FILES = sorted(
    path for room in (PACKAGE, PACKAGE / "cache", PACKAGE / "backends") for path in room.rglob("*.py")
)  # fmt: skip
EVERY = pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))


def imports(path: Path, *, lazily: bool = True) -> Iterator[str]:
    """Modules and names that a file imports; without `lazily`, only those that are imported with the file."""
    tree = ast.parse(path.read_text())
    nodes = ast.walk(tree) if lazily else _outside_functions(tree)
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno} imports relatively"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _outside_functions(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            continue
        yield child
        yield from _outside_functions(child)


def place_of(name: str) -> str:
    """Under which name a module is imported, given that of its file."""
    (path,) = [path for path in FILES if path.stem == name and path.parent.name in (PACKAGE.name, *INNER)]
    return ".".join(path.relative_to(REPOSITORY).with_suffix("").parts)


def calls(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            yield node.lineno, ast.unparse(node.func)


def test_there_is_something_to_check() -> None:
    names = {str(path.relative_to(PACKAGE)) for path in FILES}
    assert {"_api.py", "cache/store.py", "backends/onnxruntime.py", "frontends/torch.py", "passes/prune.py"} <= names


def test_importing_the_library_loads_no_framework_and_no_engine() -> None:
    program = f"import sys, json, hybrid_infer; print(json.dumps(sorted(set(sys.modules) & set({HEAVY!r}))))"
    path = os.pathsep.join([str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []


@EVERY
def test_rooms_import_leaves_and_themselves_only(path: Path) -> None:
    room = path.relative_to(PACKAGE).parts[0]
    if room not in ROOMS:
        return
    for name in imports(path):
        if name.startswith("hybrid_infer"):
            assert name.startswith((*LEAVES, f"hybrid_infer.{room}")), f"{path.name} imports {name}"


@EVERY
def test_rooms_of_the_call_path_are_imported_in_one_direction(path: Path) -> None:
    room, _, module = str(path.relative_to(PACKAGE).with_suffix("")).rpartition("/")
    for name in imports(path):
        parts = name.split(".")
        if parts[0] != "hybrid_infer" or len(parts) == 1:
            continue
        if parts[1] in INNER:
            if room in INNER:
                assert INNER.index(parts[1]) >= INNER.index(room), f"{room}/{module} imports {name}"
            elif parts[1] in INNER[:2]:
                assert not room and module in DOORS, f"{module} imports {name}"
        elif room in INNER[-3:]:
            assert parts[1] in GROUND, f"{room}/{module} imports {name}"


def test_the_documentation_names_every_room() -> None:
    page = (REPOSITORY / "docs" / "how-it-works.md").read_text(encoding="utf-8")
    table = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    assert table == [*INNER, "frontends", "passes", "backends", "cache"]
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert folders == {*table, "incubate"}


def test_a_name_tells_where_a_module_is() -> None:
    found = [path.stem for path in FILES if path.parent.name in (PACKAGE.name, *INNER) and path.stem != "__init__"]
    assert len(found) == len(set(found))


@EVERY
def test_nobody_imports_a_room_by_its_bare_name(path: Path) -> None:
    for name in imports(path):
        assert name.partition(".")[0] not in ROOMS, f"{path.name} imports {name}"


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: f"{order[0]} to {order[-1]}")
def test_modules_are_imported_in_one_direction(order: tuple[str, ...]) -> None:
    for n, name in enumerate(order):
        outer = {place_of(each) for each in order[:n]}
        for found in imports(REPOSITORY / f"{place_of(name).replace('.', '/')}.py"):
            assert not any(found == each or found.startswith(f"{each}.") for each in outer), f"{name} imports {found}"


def test_leaves_import_nothing_of_ours() -> None:
    for leaf in ("_types", "_errors", "_fork_safe", "_installed", "_own_thread", "_interrupts"):
        assert not [name for name in imports(PACKAGE / f"{leaf}.py") if name.startswith("hybrid_infer")]


@EVERY
def test_a_framework_is_imported_by_its_own_room_alone(path: Path) -> None:
    place = str(path.relative_to(PACKAGE))
    for name in imports(path):
        home = SERVED.get(name.partition(".")[0])
        assert home is None or place.startswith(home), f"{place} imports {name}"
    # Private files of a room are imported when they are used; what their public neighbours import is imported at once.
    if not path.name.startswith("_"):
        eager = {name.partition(".")[0] for name in imports(path, lazily=False)}
        assert not eager & {*HEAVY}, f"{place} imports {sorted(eager & {*HEAVY})} before it is used"


#: Beside the options: what is no setting of ours.
ENVIRONMENT = {
    "_options.py": "the settings of this library",
    "state/_environment.py": "watches what a method has read of it",
    "capture/_outside.py": "watches who reads it",
    "capture/_moment.py": "recognises the object, and reads nothing of it",
    "fingerprint/_objects.py": "recognises the object, and reads nothing of it",
    "backends/_cores.py": "the user's own settings of the OpenMP runtime, which are left alone",
    "frontends/_tf32.py": "NVIDIA's own switch, which its libraries read",
    "backends/onnxruntime.py": "the engine's own switch, set around its import",
}


@EVERY
def test_settings_are_read_from_the_environment_in_one_place(path: Path) -> None:
    place = str(path.relative_to(PACKAGE))
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ("os.environ", "os.getenv", "os.environb"):
            assert place in ENVIRONMENT, f"{place}:{node.lineno} reads the environment"
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("HYBRID_INFER_"):
            assert place == "_options.py", f"{place}:{node.lineno} names a setting"


@EVERY
def test_nothing_is_pickled_evaluated_or_printed(path: Path) -> None:
    banned = ("eval", "exec", "compile", "breakpoint")
    for line, name in calls(path):
        assert name not in banned, f"{path.name}:{line} calls {name}()"
        assert name != "print" or path.name in ("cli.py", "__main__.py"), f"{path.name}:{line} prints"
    for name in imports(path):
        top = name.partition(".")[0]
        assert top not in ("pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal", "joblib"), name


@EVERY
def test_no_exception_is_swallowed_in_silence(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ExceptHandler):
            broad = node.type is None or ast.unparse(node.type) in ("Exception", "BaseException")
            silent = len(node.body) == 1 and isinstance(node.body[0], ast.Pass)
            assert not (broad and silent), f"{path.name}:{node.lineno}"
