"""nginx with nchan, the fastest event server there is in C, where Debian's packages are installed.

`apt install nginx libnginx-mod-nchan`; without them the rows go on without it.
"""

from __future__ import annotations

import http.client
import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from payload import timed

from harness.servers import Server, free_port

MODULE = Path("/usr/lib/nginx/modules/ngx_nchan_module.so")
CONFIG = """
load_module {module};
daemon off; worker_processes 1; worker_rlimit_nofile 20000;
pid {folder}/nginx.pid; error_log {folder}/error.log warn;
events {{ worker_connections 12000; }}
http {{
  access_log off; tcp_nodelay on; keepalive_requests 10000000; nchan_shared_memory_size 256M;
  client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    location ~ /pub/(.+)$ {{
      nchan_publisher; nchan_channel_id $1; nchan_message_buffer_length 1000000; nchan_message_timeout 1h;
    }}
    location ~ /sub/(.+)$ {{
      nchan_subscriber eventsource; nchan_channel_id $1; nchan_subscriber_first_message oldest;
      nchan_eventsource_ping_interval 15;
    }}
  }}
}}
"""


@contextmanager
def server() -> Iterator[Server | None]:
    nginx = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if nginx is None or not MODULE.exists():
        yield None
        return
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        port = free_port()
        config = Path(folder) / "nginx.conf"
        config.write_text(CONFIG.format(module=MODULE, folder=folder, port=port))
        with Server([nginx, "-e", f"{folder}/error.log", "-c", str(config)], port, workers=True) as running:
            yield running


def publish(server: Server, channel: str, n: int, rate: float) -> None:
    """Events with the moment of their publication, on one kept connection."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    start = time.monotonic()
    for step in range(n):
        time.sleep(max(start + step / rate - time.monotonic(), 0))
        event = {"type": "CUSTOM", "name": "progress", "value": timed(step, n)}
        connection.request("POST", f"/pub/{channel}", json.dumps(event, separators=(",", ":")))
        connection.getresponse().read()
    connection.close()
