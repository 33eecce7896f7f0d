"""A way to the API server without TLS, to find out what TLS costs."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

from trainmaster.controller.kube.rest.config import RestConfig


@asynccontextmanager
async def without_tls(access: RestConfig, directory: Path) -> AsyncIterator[Path]:
    """Let the API server be reached without TLS, through this process; returns a kubeconfig."""
    address = urlsplit(access.server)

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            to_server = await asyncio.open_connection(
                address.hostname, address.port, ssl=access.ssl_context, server_hostname=access.server_hostname
            )
            try:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(_pump(reader, to_server[1]))
                    tasks.create_task(_pump(to_server[0], writer))
            finally:
                writer.close()
                to_server[1].close()

    token = (await access.headers())["Authorization"].removeprefix("Bearer ")
    server = await asyncio.start_server(relay, "127.0.0.1", 0)
    async with server:
        cluster = {"server": f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "plain",
            "clusters": [{"name": "plain", "cluster": cluster}],
            "users": [{"name": "plain", "user": {"token": token}}],
            "contexts": [{"name": "plain", "context": {"cluster": "plain", "user": "plain"}}],
        }
        kubeconfig = directory / "without-tls.kubeconfig"
        kubeconfig.write_text(json.dumps(content), encoding="utf-8")
        yield kubeconfig


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(64 * 1024):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
    else:
        writer.close()
