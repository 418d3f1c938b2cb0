"""Operators without a form in ONNX, in terms of others: the results are those of eager, for odd values as well."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch_support import counts, eagerly, same, served, twice

from hybrid_infer import InputSpec, inference
from hybrid_infer.frontends import _torch_decompositions

INF, NAN = float("inf"), float("nan")

METHODS: dict[str, Callable[..., Any]] = {
    "adaptive_avg_pool1d": lambda x: torch.nn.functional.adaptive_avg_pool1d(x, 4),
    "adaptive_avg_pool1d whole": lambda x: torch.nn.functional.adaptive_avg_pool1d(x, 1),
    "adaptive_avg_pool2d": lambda x: torch.nn.functional.adaptive_avg_pool2d(x, (2, 3)),
    "adaptive_avg_pool2d one axis": lambda x: torch.nn.functional.adaptive_avg_pool2d(x, (None, 1)),
    "adaptive_avg_pool2d of doubles": lambda x: torch.nn.functional.adaptive_avg_pool2d(x.double(), (3, 3)),
    "adaptive_avg_pool3d": lambda x: torch.nn.functional.adaptive_avg_pool3d(x.unsqueeze(0).double(), (2, 1, 5)),
    "adaptive_max_pool1d": lambda x: torch.nn.functional.adaptive_max_pool1d(x, 4),
    "adaptive_max_pool1d whole": lambda x: torch.nn.functional.adaptive_max_pool1d(x, 1),
    "adaptive_max_pool2d": lambda x: torch.nn.functional.adaptive_max_pool2d(x, (2, 3)),
    "adaptive_max_pool3d": lambda x: torch.nn.functional.adaptive_max_pool3d(x.unsqueeze(0), (2, 1, 5)),
    "angle": lambda x: x.angle(),
    "angle of complex numbers": lambda x: torch.complex(x, x.flip(-1) * (x > 0)).angle(),
    "angle of whole numbers": lambda x: x.nan_to_num(0, 3, -3).long().angle(),
    "atan2": lambda x: torch.atan2(x, x.flip(-1)),
    "atan2 of zeros": lambda x: torch.atan2(x.nan_to_num(0, 1, -1) * 0.0, x.flip(-1)),
    "atan2 over zeros": lambda x: torch.atan2(x, x.flip(1).nan_to_num(0, 1, -1) * 0.0),
    "atan2 of whole numbers": lambda x: torch.atan2(x.nan_to_num(0, 3, -3).int(), x.flip(-1)),
    "copysign": lambda x: 1 / torch.copysign(x.nan_to_num(0, 1, -1) * 0.0, x.nan_to_num(0, INF, -INF)),
    "copysign of whole numbers": lambda x: 1 / torch.copysign(x.nan_to_num(0, 3, -3).clamp(-9, 9).int(), -0.0),
    "diagonal": lambda x: x.diagonal(dim1=1, dim2=2).clone(),
    "diagonal above": lambda x: x.diagonal(1, -1, 0).clone(),
    "diagonal below": lambda x: x.diagonal(-2, 1, 2).clone(),
    "heaviside": lambda x: torch.heaviside(x, x.flip(-1)),
    "logit": lambda x: x.logit(),
    "logit with bounds": lambda x: x.logit(0.2),
    "power of a half": lambda x: torch.cat([x**0.5, (x.nan_to_num(0, 1, -1) * 0.0) ** -0.5, (x * 0.0) ** 0.5]),
    "signbit": lambda x: torch.stack([x.nan_to_num(0, INF, -INF).signbit(), (x.nan_to_num(0, 1, -1) * 0.0).signbit()]),
    "signbit of whole numbers": lambda x: x.nan_to_num(0, 3, -3).long().signbit(),
    "trace": lambda x: x[0].trace(),
    "cummax": lambda x: x.cummax(1).values,
    "cummin": lambda x: x.cummin(-1)[0],
    "cumprod": lambda x: x.cumprod(1),
    "cumprod of whole numbers": lambda x: (x.nan_to_num(0, 3, -3) * 2).to(torch.int32).cumprod(-1),
    "cumprod of halves": lambda x: x.half().cumprod(-1),
    "hypot": lambda x: torch.hypot(x, x.flip(-1)),
    "kthvalue": lambda x: x.kthvalue(2, 1).values,
    "kthvalue kept": lambda x: x.kthvalue(4, -1, keepdim=True)[0],
    "logcumsumexp": lambda x: x.logcumsumexp(1),
    "masked_select": lambda x: x.masked_select(x[:, :1] > 0),
    "median": lambda x: x.median(),
    "median along": lambda x: x.median(1).values,
    "median of whole numbers": lambda x: (x.nan_to_num(0, 3, -3) * 5).long().median(-1, keepdim=True).values,
    "nanmedian": lambda x: x.nanmedian(),
    "nanmedian along": lambda x: x.nanmedian(-1).values,
    "scatter mean": lambda x: x.scatter_reduce(1, (x > 0).long(), x.flip(0), "mean"),
    "scatter mean of others": lambda x: x.scatter_reduce(-1, (x > 0).long(), x * 2, "mean", include_self=False),
    "scatter mean of whole numbers": lambda x: torch.zeros(6, dtype=torch.long).scatter_reduce(
        0, torch.tensor([1, 1, 3, 1, 3]), (x[0, :, 0].nan_to_num(0, 3, -3) * 7).clamp(-1e6, 1e6).long(), "mean"
    ),
    "scatter mean of one": lambda x: x[0, 0, 0].scatter_reduce(0, torch.tensor(0), x[0, 0, 1], "mean"),
    "sort": lambda x: x.nan_to_num(0, 3, -3).round().sort(dim=1, descending=True, stable=True),
    "sort of halves": lambda x: (x * 2).nan_to_num(0, 3, -3).round().half().sort(stable=True),
    "sort of masks": lambda x: (x > 0).sort(stable=True, dim=0),
    "searchsorted": lambda x: torch.searchsorted(torch.tensor([-1.0, 0.0, 0.5, 0.5, 2.0]), x),
    "searchsorted right": lambda x: torch.searchsorted(torch.tensor([-1.0, 0.0, 0.5, 0.5, 2.0]), x, right=True),
    "searchsorted rows": lambda x: torch.searchsorted(x.cumsum(-1), x, side="right", out_int32=True),
    "searchsorted number": lambda x: torch.searchsorted(x[0, 0], 0.25),
    "searchsorted order": lambda x: torch.searchsorted(x, x * 2, sorter=x.nan_to_num(7.0).argsort(-1)),
}


def _inputs() -> list[torch.Tensor]:
    torch.manual_seed(3)
    plain = torch.randn(3, 5, 6)
    far, zeros, equal = plain * 1e19, plain.clone(), (plain * 2).round() / 2
    zeros[:, 1:3, ::2] = 0.0
    odd = plain.clone()
    odd[0, 2, 3], odd[1, 4, 0], odd[2, 0, 5], odd[2, 1, :] = NAN, INF, -INF, NAN
    return [plain, far, zeros, equal, odd]


@pytest.mark.parametrize("name", METHODS)
def test_the_results_are_those_of_eager(name: str) -> None:
    method = METHODS[name]
    hot = inference(method, backend="onnxruntime")
    for x in _inputs():
        twice(hot, method, x)
    served(captures=1)


#: What a size along which the numbers are taken is told by its value for: the graph differs.
FIXED = {"adaptive_max_pool2d", "adaptive_max_pool3d", "scatter mean of whole numbers"}
VARYING = sorted(METHODS.keys() - FIXED)


@pytest.mark.parametrize("name", VARYING)
def test_sizes_that_vary(name: str) -> None:
    method = METHODS[name]
    hot = inference(method, backend="onnxruntime")
    torch.manual_seed(4)
    with torch.no_grad():
        for sizes in ((3, 5, 6), (2, 7, 8), (4, 6, 9), (2, 9, 11), (3, 4, 16)):
            x = torch.randn(sizes)
            same(hot(x), method(x))
    # Whether a diagonal has one element alone, as that of the second call, is asked while its form is written.
    served(captures=3 if name == "diagonal above" else 2)


def test_what_an_operators_form_assumes_of_sizes_is_a_condition(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's own form of a pooling takes the windows from the example's size, and keeps no guard of that."""
    plain = _torch_decompositions._plain
    monkeypatch.setattr(
        _torch_decompositions, "_plain", lambda: {k: v for k, v in plain().items() if "adaptive_avg" not in str(k)}
    )
    method = lambda x: torch.nn.functional.adaptive_avg_pool2d(x, 3)  # noqa: E731
    hot = inference(method, backend="onnxruntime")
    with torch.no_grad():
        for sizes in ((9, 10), (8, 7), (30, 31), (9, 12), (9, 10), (8, 7)):
            x = torch.arange(float(sizes[0] * sizes[1])).view(1, 1, *sizes)
            same(hot(x), method(x))


def test_products_in_between_may_be_beyond_the_range_of_the_type() -> None:
    method = lambda x: x.cumprod(0)  # noqa: E731
    hot = inference(method, backend="onnxruntime")
    for x in (torch.tensor([1e30, 1e30, 1e-30, 1e-30]), torch.tensor([1e-30, 1e-30, 1e30, 1e30])):
        same(hot(x), method(x))
    served(captures=1)


def test_places_of_equal_values_are_eagers_own() -> None:
    hot = inference(lambda x: torch.median(x, 1), backend="onnxruntime")
    x = torch.ones(3, 5)
    with torch.no_grad():
        same(hot(x), torch.median(x, 1))
    eagerly("ONNX has no form of torch's operator median")


def test_places_that_nobody_uses() -> None:
    def method(x: torch.Tensor) -> torch.Tensor:
        values, _ = torch.median(x, 1)
        peaks, _ = x.cummax(1)
        return peaks - values.unsqueeze(1)

    hot = inference(method, backend="onnxruntime")
    x = torch.randn(3, 5)
    with torch.no_grad():
        same(hot(x), method(x))
    served(captures=1)


def test_of_single_numbers() -> None:
    methods = (
        lambda x: x.cumprod(0), lambda x: x.cummax(0)[0], lambda x: x.median(0)[0], lambda x: x.kthvalue(1)[0],
        lambda x: x.logcumsumexp(0), lambda x: x.nanmedian(0)[0],
    )  # fmt: skip
    for method in methods:
        hot = inference(method, backend="onnxruntime", fallback="error")
        same(hot(torch.tensor(2.5)), method(torch.tensor(2.5)))


def _smoothed(x: Any) -> Any:
    labels, weight = torch.tensor([0, 3, -100, 5]), torch.arange(1.0, 7.0)
    loss = torch.nn.functional.cross_entropy
    return [loss(x, labels, weight, reduction=each, label_smoothing=0.3) for each in ("none", "mean", "sum")]


def _probable(x: Any) -> Any:
    return torch.nn.functional.cross_entropy(x, x.softmax(1))


@pytest.mark.parametrize("method", [_smoothed, _probable])
def test_labels_of_a_cross_entropy_that_are_smoothed_or_probabilities(method: Callable[..., Any]) -> None:
    hot = inference(method, verify="off")
    with torch.no_grad():
        for x in (torch.randn(4, 6), torch.randn(4, 6)):
            same(hot(x), method(x))
    assert counts()["captures"] == 1 and counts()["hits"] >= 1 and not counts()["fallbacks"]


@pytest.mark.parametrize("method", [torch.special.erfcx, lambda x: torch.logdet(x * 1e-20)], ids=["erfcx", "logdet"])
def test_a_form_that_holds_for_some_numbers_alone_is_not_used(method: Callable[..., Any]) -> None:
    twice(inference(lambda x: method(x), backend="onnxruntime"), method, torch.eye(6).expand(2, 6, 6) * 3.0)
    eagerly("for all numbers")


def test_places_of_a_single_number() -> None:
    hot = inference(lambda x: torch.nonzero(x), backend="onnxruntime", verify="off")
    for x in (torch.tensor(1.0), torch.tensor(0.0)):
        assert hot(x).shape == torch.nonzero(x).shape
    eagerly("nonzero of a tensor without axes")


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_numbers_of_the_forms_have_the_type_of_the_tensor(dtype: torch.dtype) -> None:
    """Where the first call meets none of them."""
    first = torch.linspace(0.1, 0.9, 8).to(dtype)
    later = torch.tensor([0.0, 1.0, 0.5, 0.2, -0.3, 0.4, -0.0, 0.7]).to(dtype)
    for method in (
        lambda x: x.logit(1e-6), lambda x: x.angle(), lambda x: torch.atan2(x, x - 0.5), lambda x: x * 2.1 + 0.3,
    ):  # fmt: skip
        hot = inference(method, backend="onnxruntime")  # which has no arc tangent of float64
        with torch.no_grad():
            for x in (first, later):
                torch.testing.assert_close(hot(x), method(x))
    assert counts()["hits"] >= 3


PRODUCTS: dict[str, Callable[..., Any]] = {
    "addbmm": lambda x, a: torch.addbmm(x, a, a.mT, beta=0, alpha=0.5),
    "addmm": lambda x, a: torch.addmm(x, a[0], a[0].mT, beta=0),
    "addmv": lambda x, a: torch.addmv(x[0], a[0], a[0, 0], beta=0, alpha=2),
    "addr": lambda x, a: torch.addr(x, a[0, :, 0], a[1, :, 0], beta=0),
    "baddbmm": lambda x, a: torch.baddbmm(x[None], a, a.mT, beta=0, alpha=0.5),
    "baddbmm of whole numbers": lambda x, a: torch.baddbmm(x[None].int(), a.int(), a.mT.int(), beta=0, alpha=2),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_what_a_product_is_added_to_does_not_count_by_a_beta_of_0(name: str) -> None:
    method = PRODUCTS[name]
    hot = inference(method, backend="onnxruntime", verify="off")
    with torch.no_grad():
        for rows in (4, 5, 4):
            x = torch.tensor([NAN, INF, 1.0]).repeat(rows, rows)[:, :rows].contiguous()
            a = torch.randn(3, rows, 6) * 3
            same(hot(x, a), method(x, a))
    served(captures=2)


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_numbers_are_converted_before_their_softmax(name: str) -> None:
    """What half precision rounds, float32 does not: the type is that of the computation, not of its result alone."""

    def method(x: torch.Tensor, i: torch.Tensor) -> Any:
        return found(x, -1, dtype=torch.float32), found(i, 0, dtype=torch.float64), found(x, 0, dtype=x.dtype)

    found = getattr(torch, name)
    hot, x, i = inference(method, verify="off"), torch.randn(3, 40).half(), torch.randint(-5, 6, (3, 4))
    for _ in range(2):
        for ours, eager in zip(hot(x, i), method(x, i), strict=True):
            torch.testing.assert_close(ours, eager, rtol=2e-3 if eager.dtype is x.dtype else 2e-6, atol=0.0)
    served(captures=1)


def test_whole_numbers_are_converted_before_their_mean() -> None:
    def method(i: torch.Tensor, x: torch.Tensor) -> Any:
        means = i.mean(dtype=torch.float32), i.mean(0, dtype=torch.float64), i.mean((0, 1), True, dtype=torch.float32)
        return *means, (i > 0).mean(1, dtype=torch.float32), x.mean(1, dtype=torch.float64), x.mean(0, dtype=x.dtype)

    hot = inference(method, verify="off")
    for seed in range(2):
        torch.manual_seed(seed)
        i, x = torch.randint(-8, 9, (3, 4)), torch.randn(3, 4)
        same(hot(i, x), method(i, x), tolerance=1e-6)
    served(captures=1)


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
def test_variances_of_fewer_numbers_than_are_taken_off() -> None:
    """torch divides by 0 then; by less than that, a variance was below 0."""

    def method(x: torch.Tensor) -> Any:
        more = x.var(0, correction=-1), x.std(0, correction=0.5)
        return x.var(0, correction=3), x.std(0, correction=3, keepdim=True), *more, *torch.var_mean(x, 0, correction=2)

    spec = [InputSpec([None, 3], "float32", name="x")]
    hot = inference(method, verify="off", input_spec=spec)
    for rows in (4, 2, 3, 7, 0):
        x = torch.randn(rows, 3)
        for ours, eager in zip(hot(x), method(x), strict=True):
            torch.testing.assert_close(ours, eager, equal_nan=True)
    served(captures=2)  # of no numbers by one of its own


def test_whether_any_of_no_elements_are_true() -> None:
    """None are; the largest of no integers is the least of all, which is true."""

    def method(x: torch.Tensor) -> Any:
        seen = x > 0
        many = x.any(-1), seen.any(), seen.any(-1, keepdim=True), seen.any((0, 1)), seen.to(torch.uint8).any(1)
        return *many, torch.where(seen.any(), x.sum(), x.sum() - 1), seen.all(), x.all(-1)

    hot = inference(method, backend="onnxruntime", verify="off")
    for columns in (8, 7, 0, 3, 0):
        for x in (torch.randn(3, columns), torch.zeros(3, columns), torch.full((3, columns), torch.nan)):
            same(hot(x), method(x), tolerance=1e-6)
    served(captures=3)  # of no elements by one of its own


def test_whether_any_of_the_chosen_are_true_where_none_is_chosen() -> None:
    """How many are chosen shows in no size of an argument, so that what chose some is not compared again."""

    def method(x: torch.Tensor) -> Any:
        chosen = x[x > 0]
        return (chosen > 1).any(), (chosen > 1).all(), torch.where((chosen > 1).any(), x + 1, x)

    hot = inference(method, backend="onnxruntime")
    for x in (torch.randn(3, 4), -torch.rand(3, 4), torch.ones(3, 4)):
        same(hot(x), method(x), tolerance=1e-6)
    served(captures=1)


@pytest.mark.parametrize("kind", ["hann_window", "hamming_window", "blackman_window"])
def test_windows_are_those_of_torch(kind: str) -> None:
    window = getattr(torch, kind)

    def method(x: torch.Tensor) -> Any:
        several = [window(length, periodic=periodic) for length in (1, 2, 9, 16) for periodic in (True, False)]
        return [x * each.sum() + each.prod() for each in several], *several, window(5, dtype=torch.float64)

    hot = inference(method, backend="onnxruntime", verify="off")
    for x in (torch.zeros(3), torch.randn(3)):
        same(hot(x), method(x), tolerance=1e-6)
    served(captures=1)


def test_windows_of_other_parts() -> None:
    def method(x: torch.Tensor) -> Any:
        return x * torch.hamming_window(7, False, 0.6), x * torch.hamming_window(7, True, 0.6, 0.3)

    hot = inference(method, backend="onnxruntime", verify="off")
    for x in (torch.zeros(7), torch.randn(7)):
        same(hot(x), method(x), tolerance=1e-6)
    served(captures=1)


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_the_largest_of_none_is_none(dtype: torch.dtype, whole: bool) -> None:
    def method(x: torch.Tensor) -> Any:
        if whole:
            chosen = x[x > 0].to(dtype)
            return chosen.max(), chosen.min()
        chosen = x[x[:, 0] > 0].to(dtype)
        return chosen.max(0).values, chosen.min(0, keepdim=True).values, chosen.max(1)

    hot = inference(method, backend="onnxruntime", verify="off")
    for x in (torch.randn(5, 4).abs(), torch.ones(5, 4), torch.full((5, 4), 7.5)):
        same(hot(x), method(x))
    served(captures=1)
    with pytest.raises((IndexError, RuntimeError), match="Expected reduction dim"):
        hot(-torch.rand(5, 4))


def test_on_the_way_beyond_an_end() -> None:
    """torch goes from the end that is nearer by the size of the weight, which shows in infinities and in digits."""

    def method(x: torch.Tensor, end: torch.Tensor, weight: torch.Tensor) -> Any:
        return torch.lerp(x, end, weight), torch.lerp(x, end, -0.7), x.lerp(end, 0.2)

    hot = inference(method, backend="onnxruntime", verify="off")
    far = torch.tensor([0.0, 1.0, torch.inf, -torch.inf])
    for size in (-2.0, -0.5, -0.3, 0.3, 0.5, 2.0):
        x, end = far.repeat(4), far.repeat_interleave(4)
        same(hot(x, end, torch.full((16,), size)), method(x, end, torch.full((16,), size)), tolerance=1e-6)
    served(captures=1)
