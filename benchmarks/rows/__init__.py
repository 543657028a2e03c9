"""The rows of the performance table; each module has `run(repeats) -> Iterator[Report]`."""
