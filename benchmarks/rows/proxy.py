"""What it adds to an agent's stream to go through the gateway: CPU an event, delay of the first and of each event."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

from harness import servers
from harness.client import ssec
from harness.measure import Report, Variant, interleave, median
from harness.servers import Server

N = 50_000
RATE = 100
COLUMNS = [("us/event", "{:.2f}"), ("events/s", "{:,.0f}"), ("bytes/event", "{:.0f}")]
PACED = [("p50 ms", "{:.2f}"), ("p99 ms", "{:.2f}"), ("us/event", "{:.1f}"), ("first ms", "{:.2f}")]


def body() -> dict[str, object]:
    message = {"id": "m", "role": "user", "content": "go"}
    return {"threadId": "t", "runId": str(uuid.uuid4()), "state": {}, "messages": [message], "tools": [], "context": []}


def stream(server: Server, path: str) -> Variant:
    """One run with all its events; the CPU is that of `server` alone."""

    def measure() -> dict[str, float]:
        cpu = server.cpu()
        found = ssec(server, path, "-a", body=body())
        cpu = server.cpu() - cpu
        if found["events"] < N:
            raise RuntimeError(f"{path} brought {found['events']} of {N} events:\n{server.log()}")
        return {
            "us/event": cpu / N * 1e6,
            "events/s": N / found["last"],
            "bytes/event": found["bytes"] / N,
        }

    return measure


def paced(server: Server, path: str) -> Variant:
    """100 events a second: from the agent's write to the viewer's read; from the request to the agent's first event."""

    def measure() -> dict[str, float]:
        cpu = server.cpu()
        found = ssec(server, path, "-l", body=body())
        cpu = server.cpu() - cpu
        return {
            "p50 ms": found["p50_us"] / 1e3,
            "p99 ms": found["p99_us"] / 1e3,
            "us/event": cpu / found["samples"] * 1e6,
            "first ms": found["first"] * 1e3,
        }

    return measure


def run(repeats: int) -> Iterator[Report]:
    with servers.agent(N, RATE) as agent:
        url = {"AGENT_URL": f"http://127.0.0.1:{agent.port}"}
        with servers.gateway(app="proxied:gateway", env=url) as ours, servers.peers(env=url) as peers:
            yield bursts(agent, ours, peers, repeats)
            yield slowly(agent, ours, peers, repeats)


def bursts(agent: Server, ours: Server, peers: Server, repeats: int) -> Report:
    samples = interleave(
        {
            "the agent alone": stream(agent, "/clean"),
            "gateway": stream(ours, "/agents/clean"),
            "gateway, every event repaired": stream(ours, "/agents/mended"),
            "gateway, events one by one": stream(ours, "/agents/piecewise"),
            "httpx + official models": stream(peers, "/proxy?path=/clean"),
        },
        repeats,
    )
    report = Report("proxy", samples, COLUMNS)
    report.goal("CPU of the gateway, us an event", median(samples, "gateway", "us/event"), "<=", 12)
    return report


def slowly(agent: Server, ours: Server, peers: Server, repeats: int) -> Report:
    samples = interleave(
        {
            "the agent alone": paced(agent, "/paced"),
            "gateway": paced(ours, "/agents/paced"),
            "httpx + official models": paced(peers, "/proxy?path=/paced"),
        },
        min(repeats, 3),
    )
    report = Report("proxy-delay", samples, PACED)
    first = median(samples, "gateway", "first ms") - median(samples, "the agent alone", "first ms")
    report.goal("the agent's first event, ms added", first, "<=", 1)
    return report
