"""Logging of the server's process. The library itself only writes to loggers; here they get their place to go to."""

from __future__ import annotations

import logging
import sys

__all__ = ["configure_logging"]

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

# At INFO these write a line for each request that a tool makes, with its whole URL: secrets are in query strings.
TALKATIVE = ("asyncio", "httpcore", "httpx")


def configure_logging() -> None:
    """INFO to stderr, unless the application has set logging up itself."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format=FORMAT)
    for name in TALKATIVE:
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.WARNING)
