"""Files for people, beside the entries."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from hybrid_infer._errors import CacheWarning, OptionError
from hybrid_infer.cache import MemoryStore, Store

METHOD = "ab" * 16


def test_they_are_this_users_alone_and_no_entries(tmp_path: Path) -> None:
    store = Store(tmp_path / "store", sync=False, max_bytes=4096)
    for data in (b"first", b"second" * 4096):
        path = store.write_debug(("Layer.forward", "0f"), "0-captured.onnx", data)
        assert path == tmp_path / "store/v1/debug/Layer.forward/0f/0-captured.onnx" and path.read_bytes() == data
    assert [each.name for each in path.parent.iterdir()] == [path.name]
    assert all(stat.S_IMODE(each.stat().st_mode) == 0o700 for each in list(path.parents)[:5])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    # They are larger than the store may be, and drive no entry out.
    assert store.publish(METHOD, {}, {"graph.onnx": b"graph"}) and store.prune().removed == 0
    assert store.methods() == [METHOD] and not store.verify()
    store.clear()
    assert not path.exists()


def test_a_place_that_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    store = Store(tmp_path / "store", sync=False)
    store.publish(METHOD, {}, {"graph.onnx": b"graph"})
    (tmp_path / "other").mkdir()
    (tmp_path / "store/v1/debug").symlink_to(tmp_path / "other")
    with pytest.warns(CacheWarning, match="a.onnx was not written"):
        assert store.write_debug(("f",), "a.onnx", b"data") is None
    store.clear()
    assert (tmp_path / "other").exists() and not list((tmp_path / "store/v1/debug").parent.glob("debug"))


@pytest.mark.parametrize(("folder", "name"), [(("..",), "a"), (("a/b",), "a"), (("a",), "../b"), (("a",), "")])
def test_no_name_leads_elsewhere(tmp_path: Path, folder: tuple[str, ...], name: str) -> None:
    for store in (Store(tmp_path), MemoryStore()):
        with pytest.raises(OptionError):
            store.write_debug(folder, name, b"")


def test_a_store_in_memory_writes_them_to_a_temporary_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    store = MemoryStore()
    one, other = (store.write_debug(("f", "0f"), name, b"graph") for name in ("a.onnx", "b.onnx"))
    assert one is not None and other is not None and one.parent == other.parent
    assert one.is_relative_to(tmp_path) and one.read_bytes() == b"graph"
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    with pytest.warns(CacheWarning, match="a.onnx was not written"):
        assert MemoryStore().write_debug(("f",), "a.onnx", b"graph") is None
