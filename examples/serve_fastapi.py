"""A forecaster behind HTTP: FastAPI answers in several threads, a decorated PyTorch layer computes in an engine.

``python examples/serve_fastapi.py`` serves on http://127.0.0.1:8000 (``/docs`` describes the requests). With
``--check`` it starts that service and an undecorated one on free ports, sends each 64 concurrent requests with series
of many lengths, compares every answer with what the eager layer computes, and ends. The weights are random (with a
fixed seed): what is shown is speed and agreement.
"""

from __future__ import annotations

import contextlib
import json
import math
import random
import socket
import statistics
import threading
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any

import _table


def more(parser: Any) -> None:
    parser.add_argument("--check", action="store_true", help="start, answer concurrent requests, compare and end")
    parser.add_argument("--port", type=int, default=8000, help="to serve on, without --check")


options = _table.arguments(__doc__, more)

import torch  # noqa: E402
import uvicorn  # noqa: E402
from fastapi import FastAPI  # noqa: E402
from pydantic import BaseModel, Field  # noqa: E402
from torch import nn  # noqa: E402

from hybrid_infer import InputSpec, inference, warmup  # noqa: E402

BLOCKS, WIDTH, HEADS, AHEAD, LONGEST = 4, 128, 4, 8, 128
REQUESTS = 64
TOLERANCE = 1e-4


class Forecaster(nn.Module):
    """The program before: the next AHEAD values of series (batch, steps), each in units of its own spread."""

    def __init__(self) -> None:
        super().__init__()
        layers = [nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, batch_first=True) for _ in range(BLOCKS)]
        self.embed, self.blocks, self.head = nn.Linear(3, WIDTH), nn.ModuleList(layers), nn.Linear(WIDTH, AHEAD)

    def forward(self, series: torch.Tensor) -> torch.Tensor:
        mean, spread = series.mean(1, keepdim=True), series.std(1, keepdim=True) + 1e-6
        angle = torch.arange(series.shape[1], dtype=series.dtype).expand(series.shape) / 4
        x = self.embed(torch.stack([(series - mean) / spread, torch.sin(angle), torch.cos(angle)], dim=-1))
        for block in self.blocks:
            x = block(x)
        return self.head(x[:, -1]) * spread + mean


class HybridForecaster(Forecaster):
    """The program after: one line more.

    It names its engine, since which is fastest is not to be measured under load, and hands no cores over from eager
    code to the engine: other requests compute meanwhile.
    """

    @inference(backend="onnxruntime", core_handover=False)
    def forward(self, series: torch.Tensor) -> torch.Tensor:
        return super().forward(series)


class Question(BaseModel):
    series: Annotated[list[float], Field(min_length=2, max_length=LONGEST)]


class Answer(BaseModel):
    forecast: list[float]


def service(model: Forecaster) -> FastAPI:
    """The application; a decorated model is ready before the first request is accepted."""

    @contextlib.asynccontextmanager
    async def ready(_: FastAPI) -> AsyncIterator[None]:
        if isinstance(model, HybridForecaster):
            with torch.no_grad():
                warmup(model, [InputSpec([1, None], "float32")])
        yield

    app = FastAPI(title="Forecaster", lifespan=ready)

    # Not async: FastAPI runs it in a pool of threads. Whether gradients are recorded is a matter of each thread.
    @app.post("/forecast")
    def forecast(question: Question) -> Answer:
        with torch.no_grad():
            return Answer(forecast=model(torch.tensor([question.series]))[0].tolist())

    return app


@contextlib.contextmanager
def running(app: FastAPI) -> Iterator[str]:
    """The address of a server in a thread of this process, on a port that was free."""
    with socket.create_server(("127.0.0.1", 0), backlog=REQUESTS) as listening:
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            while not server.started:
                if not thread.is_alive():
                    raise SystemExit("the server did not start")
                time.sleep(0.01)
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/forecast"
        finally:
            server.should_exit = True
            thread.join()


def ask(address: str, series: list[float]) -> list[float]:
    body = json.dumps({"series": series}).encode()
    request = urllib.request.Request(address, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as reply:
        found: list[float] = json.load(reply)["forecast"]
    return found


def questions() -> list[list[float]]:
    """Noisy waves, each of another length."""
    draw = random.Random(0)
    lengths = [2 + (LONGEST - 2) * n // (REQUESTS - 1) for n in range(REQUESTS)]
    draw.shuffle(lengths)
    return [
        [n % 4 + math.sin(step / 3 + n) + draw.gauss(0, 0.1) for step in range(length)]
        for n, length in enumerate(lengths)
    ]


def check(eager: Forecaster, hybrid: HybridForecaster) -> None:
    asked = questions()
    with torch.no_grad():
        expected = [eager(torch.tensor([series]))[0] for series in asked]
    largest = 0.0

    def round_of(address: str) -> None:
        """All requests at once; every answer is compared."""
        nonlocal largest
        for n, forecast in enumerate(clients.map(lambda series: ask(address, series), asked)):
            difference = float((torch.tensor(forecast) - expected[n]).abs().max())
            if not difference <= TOLERANCE * float(expected[n].abs().max()):
                raise SystemExit(f"the answer to request {n} differs from the eager one by {difference:.1e}")
            largest = max(largest, difference)

    with ThreadPoolExecutor(REQUESTS) as clients, contextlib.ExitStack() as servers:
        starts, addresses = zip(
            *(_table.seconds(lambda m=model: servers.enter_context(running(service(m)))) for model in (eager, hybrid)),
            strict=True,
        )
        plain, served = addresses
        firsts = [_table.seconds(lambda a=address: round_of(a))[0] for address in addresses]
        steady = _table.in_turn(lambda: round_of(plain), lambda: round_of(served), options.seconds)
    medians = [statistics.median(each) for each in steady]
    _table.grid(
        f"{REQUESTS} concurrent requests over HTTP, series of 2 to {LONGEST} values, {BLOCKS} blocks of width {WIDTH}",
        [
            ("", "eager", "decorated"),
            ("start of the service", *map(_table.duration, starts)),
            ("all answered, first time", *map(_table.duration, firsts)),
            (f"steady, median of {len(steady[0])} in turn", *map(_table.duration, medians)),
            ("requests per second", *(f"{REQUESTS / median:.0f}" for median in medians)),
        ],
    )
    counts = _table.served("HybridForecaster.forward")
    print(f"\n  static model from disk   {_table.source(counts)}")
    print(f"  calls of the method      {_table.calls(counts)}")
    print(f"  largest difference       {largest:.1e}, in {2 * REQUESTS * (len(steady[0]) + 1)} answers, all compared")


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)  # requests run side by side, each on one core; engines take the number from PyTorch
    eager, hybrid = Forecaster().eval(), HybridForecaster().eval()
    hybrid.load_state_dict(eager.state_dict())
    if options.check:
        check(eager, hybrid)
    else:
        uvicorn.run(service(hybrid), host="127.0.0.1", port=options.port)


if __name__ == "__main__":
    main()
