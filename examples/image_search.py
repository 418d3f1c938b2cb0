"""Search by image: PyTorch trains a small network and saves it, a process without PyTorch searches with it.

The images are scikit-learn's digits, 8 x 8 pixels, ordered by who wrote them: the queries are by other hands than the
images that the network is trained on and that are searched. The search runs in a fresh process, ``image_search.py
search``, which runs none of the network's code and does not import PyTorch: the static model takes arrays and gives
arrays. It writes a picture of queries beside their nearest neighbours to out/examples/image_search.png.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import _table

options = _table.arguments(
    __doc__,
    lambda parser: parser.add_argument(
        "command", nargs="?", choices=["train", "search"], default="train",
        help="train (the default): train, save, search in a fresh process and compare; search: only that",
    ),
)  # fmt: skip

import numpy as np  # noqa: E402
from sklearn.datasets import load_digits  # noqa: E402

from hybrid_infer import InputSpec, load, save  # noqa: E402

OUT = Path("out/examples")
MODEL, FOUND, PICTURE = OUT / "image_search", OUT / "image_search.npz", OUT / "image_search.png"
SEARCHED, BATCH, NEIGHBOURS, WIDTH = 1280, 64, 5, 32
STEPS, TEMPERATURE = 200, 0.1
ROUNDING = 5e-6  # images whose cosines differ by less may change places in a ranking


def digits() -> tuple[Any, Any, Any, Any]:
    """Images (n, 1, 8, 8) in 0 to 1 and labels (n,): those that are searched, then the queries."""
    found = load_digits()
    images = (found.images[:, None] / 16).astype(np.float32)
    return images[:SEARCHED], found.target[:SEARCHED], images[SEARCHED:], found.target[SEARCHED:]


def embed(model: Any, images: Any) -> Any:
    """The model's vectors, (images, WIDTH), computed in batches."""
    return np.concatenate([model(images[start : start + BATCH]) for start in range(0, len(images), BATCH)])


def rank(vectors: Any, queries: Any) -> tuple[Any, Any]:
    """Cosines (queries, images), and for each query the images by falling cosine."""
    unit, wanted = (each / np.linalg.norm(each, axis=1, keepdims=True) for each in (vectors, queries))
    cosines = wanted @ unit.T
    return cosines, np.argsort(-cosines, axis=1, kind="stable")


def right(ranking: Any, labels: Any, wanted: Any, first: int) -> str:
    """How many of the `first` neighbours of each query show the query's digit."""
    return f"{np.mean(labels[ranking[:, :first]] == wanted[:, None]):.1%}"


def search() -> None:
    """What a program does that has the static model and no more."""
    images, labels, queries, wanted = digits()
    loading, model = _table.seconds(lambda: load(MODEL))
    first, _ = _table.seconds(lambda: model(queries[:BATCH]))
    vectors, of_queries = embed(model, images), embed(model, queries)
    cosines, ranking = rank(vectors, of_queries)
    if "torch" in sys.modules:
        raise SystemExit("the search has imported PyTorch")
    np.savez(FOUND, vectors=np.concatenate([vectors, of_queries]), ranking=ranking, load=loading, first=first)
    picture(images, labels, queries, wanted, cosines, ranking)
    print(f"{len(queries)} queries among {len(images)} images, without PyTorch: {PICTURE}")


def picture(images: Any, labels: Any, queries: Any, wanted: Any, cosines: Any, ranking: Any) -> None:
    """Six rows in two halves: one query of each digit, then two whose nearest neighbour is wrong, if there are any."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    wrong = labels[ranking[:, 0]] != wanted
    rows = [int(np.flatnonzero(~wrong & (wanted == digit))[0]) for digit in range(10)]
    rows += np.flatnonzero(wrong)[:2].tolist()
    halves = [*[1] * (NEIGHBOURS + 1), 0.4, *[1] * (NEIGHBOURS + 1)]
    figure, axes = pyplot.subplots(6, len(halves), figsize=(13.4, 8.4), layout="constrained", width_ratios=halves)
    for axis in axes.flat:
        axis.set_axis_off()
    for place, query in enumerate(rows):
        line = axes[place % 6][(place // 6) * (NEIGHBOURS + 2) :][: NEIGHBOURS + 1]
        shown = [(queries[query], f"query: {wanted[query]}", "black")]
        for index in ranking[query, :NEIGHBOURS]:
            colour = "tab:green" if labels[index] == wanted[query] else "tab:red"
            shown.append((images[index], f"{labels[index]}  ({cosines[query, index]:.3f})", colour))
        for axis, (image, title, colour) in zip(line, shown, strict=True):
            axis.imshow(image[0], cmap="gray_r", vmin=0, vmax=1)
            axis.set_title(title, color=colour, fontsize=10)
    figure.suptitle("Queries and their nearest neighbours (cosine); red: another digit than the query's")
    figure.savefig(PICTURE, dpi=100)


def trained(images: Any, labels: Any) -> Any:
    """A network that puts images of one digit close together, (n, 1, 8, 8) to (n, WIDTH), in evaluation mode."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
        nn.Flatten(), nn.Dropout(0.2), nn.Linear(32 * 4 * 4, WIDTH),
    )  # fmt: skip
    x, y = torch.from_numpy(images), torch.from_numpy(labels)
    optimizer = torch.optim.AdamW(network.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=4e-3, total_steps=STEPS)
    for _ in range(STEPS):
        chosen = torch.randint(len(x), (2 * BATCH,))
        dy, dx = torch.randint(-1, 2, (2,)).tolist()
        unit = F.normalize(network(x[chosen].roll((dy, dx), (2, 3))))
        # Supervised contrast (Khosla et al., 2020): of all others in the batch, those of the same digit are meant.
        itself = torch.eye(len(chosen), dtype=torch.bool)
        log_shares = (unit @ unit.T / TEMPERATURE).masked_fill(itself, -1e9).log_softmax(dim=1)
        same = (y[chosen, None] == y[None, chosen]) & ~itself
        loss = -(log_shares * same).sum() / same.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return network.eval()


def train() -> None:
    """Train and save, search in a fresh process, and compare what it found with what the eager network finds."""
    import torch

    torch.set_num_threads(1)  # images so small keep no second one busy; static models take the number from PyTorch
    images, labels, queries, wanted = digits()
    training, network = _table.seconds(lambda: trained(images, labels))
    saving, _ = _table.seconds(lambda: save(network, MODEL, [InputSpec([None, 1, 8, 8], "float32", "images")]))
    subprocess.run([sys.executable, __file__, "search"], check=True)

    def eager(batch: Any) -> Any:
        with torch.no_grad():
            return network(torch.from_numpy(batch)).numpy()

    with np.load(FOUND) as file:
        found = dict(file)
    vectors = embed(eager, np.concatenate([images, queries]))
    cosines, ranking = rank(vectors[:SEARCHED], vectors[SEARCHED:])
    difference = float(np.abs(vectors - found["vectors"]).max() / np.abs(vectors).max())
    falling = np.take_along_axis(cosines, found["ranking"], axis=1)
    if not difference <= ROUNDING or np.diff(falling, axis=1).max() > ROUNDING:
        raise SystemExit(f"the static model does not rank as the eager one: their vectors differ by {difference:.1e}")
    swapped = f"{int((ranking != found['ranking']).sum())} of {ranking.size} places swapped by rounding"

    static, batch = load(MODEL), torch.from_numpy(queries[:BATCH])
    with torch.no_grad():
        static(batch)
        times = _table.in_turn(lambda: network(batch), lambda: static(batch), options.seconds)
    durations = [_table.duration(float(np.median(each))) for each in times]
    _, by_pixels = rank(images.reshape(SEARCHED, -1), queries.reshape(len(queries), -1))
    orders = (by_pixels, ranking, found["ranking"])
    _table.grid(
        f"{len(queries)} queries among {SEARCHED} images of digits, network of {WIDTH} dimensions",
        [
            ("", "pixels", "eager", "static"),
            ("nearest neighbour right", *(right(order, labels, wanted, 1) for order in orders)),
            (f"{NEIGHBOURS} nearest right", *(right(order, labels, wanted, NEIGHBOURS) for order in orders)),
            (f"batch of {BATCH}, median of {len(times[0])} in turn", "", *durations),
        ],
    )
    print(f"\n  training, saving         {_table.duration(training)}, {_table.duration(saving)}")
    fresh = f"load {_table.duration(float(found['load']))}, first batch {_table.duration(float(found['first']))}"
    print(f"  in the fresh process     {fresh}")
    print(f"  largest difference       {difference:.1e} of the largest element of a vector")
    print(f"  ranking                  the same as eager's: {swapped}")
    print(f"  picture                  {PICTURE}")


if __name__ == "__main__":
    {"train": train, "search": search}[options.command]()
