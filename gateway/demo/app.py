"""The gateway that `agui-gateway demo` serves."""

from gateway import Gateway, RemoteAgent
from gateway.demo.person import delete_log, guess_number, plan_trip
from gateway.demo.tools import count_words, download, hash_folder, import_csv, write_log

ABOUT = "An agent by HTTP, without a model: say import, book or read."


def create_demo(agent: str | None = None) -> Gateway:
    """A new gateway with the demo tools, in the order in which the page shows them; `agent` is the URL of its agent."""
    return Gateway(
        tools=[hash_folder, count_words, import_csv, download, write_log, delete_log, guess_number, plan_trip],
        agents={} if agent is None else {"demo": RemoteAgent(agent, description=ABOUT)},
    )
