"""The gateway that `agui-gateway demo` serves."""

from gateway import Gateway
from gateway.demo.person import delete_log, guess_number, plan_trip
from gateway.demo.tools import count_words, download, hash_folder, import_csv, write_log


def create_demo() -> Gateway:
    """A new gateway with the demo tools, in the order in which the page shows them."""
    return Gateway(
        tools=[hash_folder, count_words, import_csv, download, write_log, delete_log, guess_number, plan_trip]
    )
