"""One row's speeds and errors, in a process of its own: eager's and native's first, as a line of JSON, then all peers'.

Whoever stops it, or what ends it, costs what was not told yet.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from benchmarks import _gpu_measure, _gpu_peers
from benchmarks._gpu_models import MODELS, drawn, of_a_row
from benchmarks._gpu_peers import NATIVE, PEERS
from benchmarks._gpu_served import UNSERVED, served


def measure(
    name: str, dtype: str, batch: int, rounds: int, without: Collection[str] = (), device: str = "cuda",
    patience: float | None = None,
) -> Iterator[dict[str, Any]]:
    """See `_gpu_measure.compare`, with who answered native's calls: see `_gpu_served.served`."""
    ours: list[Any] = []

    def native(layer: Any, given: Sequence[Any]) -> Any:
        ours.append(_gpu_peers.native(layer, given))
        return ours[-1]

    peers = {each: native if each == NATIVE else peer for each, peer in PEERS.items() if each not in without}
    found = _gpu_measure.compare(
        drawn(name, device), lambda: MODELS[name].arguments(batch), dtype, peers, rounds, [NATIVE], patience
    )
    for each in found:
        yield {**each, **(served(ours[-1]) if ours else UNSERVED)}


if __name__ == "__main__":
    parser = of_a_row(__doc__ or "")
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--without", action="append", default=[], choices=list(PEERS))
    parser.add_argument("--patience", type=float)
    asked = parser.parse_args()
    of = (asked.model, asked.dtype, asked.batch, asked.rounds, asked.without)
    for told in measure(*of, patience=asked.patience):
        print(json.dumps(told), flush=True)
