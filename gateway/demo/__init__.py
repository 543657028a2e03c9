"""The demo: tools that do real work on real input, and the gateway that serves them with the page."""
