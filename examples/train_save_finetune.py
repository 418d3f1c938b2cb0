"""From training to serving and back: a linear classifier is trained, saved, loaded, fine-tuned and saved again.

The images are scikit-learn's digits, 8 x 8 pixels, ordered by who wrote them: accuracy is measured on other hands than
those that the classifier was trained on. Then the scanner moves: every image comes shifted by a pixel. What was loaded
from the file is trained on such images, without the class that it was saved from, and is saved again.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import _table

options = _table.arguments(
    __doc__, lambda parser: parser.add_argument("framework", nargs="?", choices=["torch", "paddle"], default="torch")
)

import numpy as np  # noqa: E402
from sklearn.datasets import load_digits  # noqa: E402

from hybrid_infer import InputSpec, inference, load, save  # noqa: E402

OUT = Path("out/examples")
TRAINED, STEPS = 1280, 300

Train = Callable[[Any, Any, Any], list[float]]


def with_torch() -> tuple[Any, Train]:
    """A classifier of torch, and what trains it or any other: (layer, images, labels) to the loss at each step."""
    import torch

    class Classifier(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(64, 10)

        @inference
        def forward(self, images: Any) -> Any:
            return self.linear(images)

    def train(layer: Any, images: Any, labels: Any) -> list[float]:
        layer.train()
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.5)
        losses = []
        for _ in range(STEPS):
            loss = torch.nn.functional.cross_entropy(layer(torch.from_numpy(images)), torch.from_numpy(labels))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
        return losses

    torch.manual_seed(0)
    return Classifier(), train


def with_paddle() -> tuple[Any, Train]:
    """The same in Paddle."""
    import paddle

    class Classifier(paddle.nn.Layer):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.linear = paddle.nn.Linear(64, 10)

        @inference
        def forward(self, images: Any) -> Any:
            return self.linear(images)

    def train(layer: Any, images: Any, labels: Any) -> list[float]:
        layer.train()
        optimizer = paddle.optimizer.SGD(learning_rate=0.5, parameters=layer.parameters())
        losses = []
        for _ in range(STEPS):
            loss = paddle.nn.functional.cross_entropy(layer(paddle.to_tensor(images)), paddle.to_tensor(labels))
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            losses.append(float(loss))
        return losses

    paddle.seed(0)
    return Classifier(), train


def digits() -> tuple[Any, Any]:
    """Images (n, 64) in 0 to 1, and labels (n,)."""
    found = load_digits()
    return (found.data / 16).astype(np.float32), found.target.astype(np.int64)


def shifted(images: Any) -> Any:
    """The images with every row one pixel further to the right."""
    return np.roll(images.reshape(-1, 8, 8), 1, axis=2).reshape(-1, 64)


def main() -> None:
    images, labels = digits()
    new, wanted = images[TRAINED:], labels[TRAINED:]

    def accuracies(model: Any) -> tuple[str, str]:
        """On images of other hands, as they are and shifted. The model is given arrays, and gives arrays."""
        return tuple(f"{np.mean(model(x).argmax(1) == wanted):.1%}" for x in (new, shifted(new)))  # type: ignore[return-value]

    layer, train = {"torch": with_torch, "paddle": with_paddle}[options.framework]()
    trained = train(layer, images[:TRAINED], labels[:TRAINED])
    save(layer, OUT / "classifier", [InputSpec([None, 64], "float32", "images")])

    static = load(OUT / "classifier")  # from here on, the class above is not used
    print(static)
    before = accuracies(static)

    again = static.as_layer()
    both = np.concatenate([images[:TRAINED], shifted(images[:TRAINED])])
    tuned = train(again, both, np.concatenate([labels[:TRAINED]] * 2))
    save(again, OUT / "classifier_tuned")
    after = accuracies(load(OUT / "classifier_tuned"))

    _table.grid(
        f"a linear classifier of {options.framework} on {len(new)} digits by other hands",
        [("", "as they are", "shifted"), ("trained and saved", *before), ("loaded, fine-tuned, saved", *after)],
    )
    print(f"\n  loss in training      {trained[0]:.2f} to {trained[-1]:.2f}")
    print(f"  loss in fine-tuning   {tuned[0]:.2f} to {tuned[-1]:.2f}")


if __name__ == "__main__":
    main()
