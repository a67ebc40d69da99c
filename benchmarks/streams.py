"""`make bench-streams`: many streams at a time through one server process, and what the way through it costs.

On the database of DATABASE_URL or a temporary SQLite file, with a pool of ten connections. The model is the scripted
server, which sends a word a second. Fails when a stream breaks, stalls, or the process grows beyond its limit.
"""

import asyncio
import statistics
import sys
import time
from argparse import ArgumentParser
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from benchmarks.database import configure, temporary_database
from memorygw.testing import ScriptedModelServer
from memorygw.testing.answers import Piece

LIMIT_MB = 512
LONGEST_GAP_SECONDS = 5.0
_PROBES = 200


@dataclass
class Heard:
    """When the pieces of one stream came, in seconds after it was asked for."""

    at: list[float] = field(default_factory=list)
    text: str = ""

    @property
    def longest_gap(self) -> float:
        return max((later - earlier for earlier, later in zip(self.at, self.at[1:], strict=False)), default=0.0)


async def listen(client: httpx.AsyncClient, url: str, headers: dict[str, str], question: str) -> Heard:
    body: dict[str, Any] = {"model": "main", "stream": True, "messages": [{"role": "user", "content": question}]}
    heard, started = Heard(), time.monotonic()
    async with client.stream("POST", url, json=body, headers=headers) as response:
        response.raise_for_status()
        async for line in response.aiter_lines():
            if line.startswith("data: {"):
                heard.at.append(time.monotonic() - started)
            heard.text += line
    return heard


async def listen_to_all(url: str, headers: list[dict[str, str]]) -> list[Heard]:
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(limits=limits, timeout=60) as client:
        return await asyncio.gather(
            *(listen(client, url, named, f"Count, {index}.") for index, named in enumerate(headers))
        )


async def first_words(url: str, headers: dict[str, str]) -> list[float]:
    """How long the first piece takes, one stream after another."""
    async with httpx.AsyncClient(timeout=60) as client:
        return [(await listen(client, url, headers, f"Hi, {index}.")).at[0] for index in range(_PROBES)]


def peak_mb(pid: int) -> float:
    """The most memory the process has had (Linux)."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--seconds", type=int, default=30)
    options = parser.parse_args()
    configure()
    from benchmarks.server import serving_model

    with temporary_database(), ScriptedModelServer() as model:
        words: list[Piece] = [piece for n in range(options.seconds) for piece in (f"word {n} ", 1.0)]
        with serving_model(model.base_url, threads=options.streams + 16) as (process, address, key):
            headers = [
                {"Authorization": f"Bearer {key}", "X-Memorygw-User": f"user-{n}"} for n in range(options.streams)
            ]
            model.default = "Yes."
            url = f"{address}/v1/chat/completions"
            direct = asyncio.run(first_words(f"{model.base_url}/chat/completions", {}))
            through = asyncio.run(first_words(url, headers[0]))
            model.stream(*words, model="main", times=options.streams)
            heard = asyncio.run(listen_to_all(url, headers))
            peak = peak_mb(process.pid)
    report(direct, through, heard, peak)
    whole = all(f"word {options.seconds - 1} " in one.text and "[DONE]" in one.text for one in heard)
    if not whole or peak > LIMIT_MB or max(one.longest_gap for one in heard) > LONGEST_GAP_SECONDS:
        sys.exit("A stream broke or stalled, or the process is too large.")


def report(direct: list[float], through: list[float], heard: list[Heard], peak: float) -> None:
    for name, times in (("straight to the model", direct), ("through memorygw", through)):
        median, p99 = statistics.median(times), statistics.quantiles(times, n=100)[98]
        print(f"first piece, {name}: median {median * 1000:.1f} ms, p99 {p99 * 1000:.1f} ms")
    firsts = sorted(one.at[0] for one in heard)
    print(f"{len(heard)} streams at a time: the last one's first piece after {firsts[-1]:.2f} s")
    print(f"longest gap in a stream: {max(one.longest_gap for one in heard):.2f} s; peak memory: {peak:.0f} MB")


if __name__ == "__main__":
    main()
