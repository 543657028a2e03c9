"""A gateway that is told to end while it starts."""

from __future__ import annotations

import os
import signal

from gateway import Gateway
from gateway.http.engine import Engine


class Early(Gateway):
    """See the module."""

    async def startup(self) -> Engine:
        os.kill(os.getpid(), signal.SIGTERM)
        return await super().startup()


gateway = Early()
