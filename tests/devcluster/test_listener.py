"""Ports for servers that are started a moment later."""

from __future__ import annotations

import gc
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from trainmaster.devcluster.cluster import Cluster
from trainmaster.devcluster.listener import HOST, free_port
from trainmaster.devcluster.settings import ClusterSettings
from trainmaster.devcluster.state import PortInUse, StateDirectory


def test_a_free_port_is_given_to_nobody_who_asks_for_any_and_to_one_server_only() -> None:
    port = free_port()
    with ExitStack() as stack:
        target = stack.enter_context(socket.create_server((HOST, 0), backlog=2048)).getsockname()
        for _ in range(2000):
            taken = stack.enter_context(socket.socket())
            taken.bind((HOST, 0))
            assert taken.getsockname()[1] != port
            connected = stack.enter_context(socket.create_connection(target))
            assert connected.getsockname()[1] != port
        stack.enter_context(socket.create_server((HOST, port)))
        with pytest.raises(OSError, match="in use"):
            socket.create_server((HOST, port)).close()


async def test_of_two_clusters_that_take_the_same_port_at_once_one_lets_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both may bind it while neither listens. A socket that is left open would be a warning, which fails tests."""
    port = free_port()
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind((HOST, port))

        class Late(socket.socket):
            def listen(self, *arguments: Any) -> None:
                if self.getsockname() == (HOST, port):
                    other.listen()
                super().listen(*arguments)

        monkeypatch.setattr(socket, "socket", Late)
        settings = ClusterSettings(state=StateDirectory(tmp_path / "state"), port=port, parts=frozenset())
        with pytest.raises(PortInUse, match=f"cannot listen on 127.0.0.1:{port}: Address already in use"):
            await Cluster(settings).start()
    gc.collect()
