"""Views of tensors of varying sizes in a trace: as torch has them, in less time."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from support import counts

torch = pytest.importorskip("torch")

from torch import _refs  # noqa: E402

from hybrid_infer import inference  # noqa: E402
from hybrid_infer.frontends import _torch_views  # noqa: E402

pytestmark = pytest.mark.torch
NAME = "_reshape_view_helper_core_alg"


class Windows(torch.nn.Module):
    """A picture padded to whole windows, taken apart into them and put together again, as Swin's layers do."""

    def forward(self, x: Any) -> Any:
        batch, height, width, channels = x.shape
        x = torch.nn.functional.pad(x, (0, 0, 0, -width % 4, 0, -height % 4))
        h, w = x.shape[1:3]
        windows = x.view(batch, h // 4, 4, w // 4, 4, channels).permute(0, 1, 3, 2, 4, 5).contiguous()
        windows = torch.softmax(windows.view(-1, 16, channels), 1)
        x = windows.view(batch, h // 4, w // 4, 4, 4, channels).permute(0, 1, 3, 2, 4, 5).reshape(batch, h, w, channels)
        return x[:, :height, :width]


class Turned(torch.nn.Module):
    """Views of what lies with gaps or in another order, where they are views, and copies where they are not."""

    def forward(self, x: Any) -> Any:
        turned = x.transpose(1, 2)
        halves = turned.view(*turned.shape[:2], 2, -1)
        cut = x[:, :, :4].reshape(x.shape[0], -1)
        return halves.sum(2) + turned.reshape(x.shape[0], -1).sum() + cut.sum(), x.expand(3, *x.shape).reshape(-1)


def cases() -> list[Any]:
    return [
        pytest.param(Windows, [(1, 10, 10, 2), (1, 13, 14, 2), (1, 17, 18, 2), (1, 30, 9, 2)], id="windows"),
        pytest.param(Turned, [(2, 4, 6), (2, 6, 7), (2, 8, 5), (2, 4, 9)], id="turned"),
    ]


@pytest.mark.parametrize(("kind", "shapes"), cases())
def test_each_size_is_answered_by_one_graph(kind: Any, shapes: list[tuple[int, ...]]) -> None:
    layer, eager = inference(kind(), fallback="error"), kind()
    with torch.no_grad():
        for shape in shapes:
            x = torch.randn(shape)
            torch.testing.assert_close(layer(x), eager(x))
    assert counts()["captures"] == 2 and counts()["eager_calls"] == 0


def test_torch_is_asked_for_no_view_of_a_contiguous_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    plain = vars(_refs)[NAME]

    def noted(tensor: Any, *args: Any) -> Any:
        if any(type(size) is not int for size in tensor.shape):
            asked.append(tensor.is_contiguous())
        return plain(tensor, *args)

    monkeypatch.setattr(_refs, NAME, noted)
    layer = inference(Windows(), fallback="error")
    with torch.no_grad():
        for size in (10, 14):
            layer(torch.randn(1, size, size, 2))
    assert True not in asked


def test_what_torch_has_is_back_and_other_threads_have_it_meanwhile() -> None:
    plain, found = vars(_refs)[NAME], []
    x = torch.arange(6.0).reshape(2, 3)
    with _torch_views.by_shape():
        assert vars(_refs)[NAME] is not plain
        thread = threading.Thread(target=lambda: found.append(_refs.reshape(x, 3, 2)))
        thread.start()
        thread.join()
        torch.testing.assert_close(_refs.reshape(x, 3, 2), x.reshape(3, 2))
    torch.testing.assert_close(found[0], x.reshape(3, 2))
    assert vars(_refs)[NAME] is plain
