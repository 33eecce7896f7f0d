"""Ports for servers that are started a moment later."""

from __future__ import annotations

import socket
from contextlib import ExitStack

import pytest

from trainmaster.devcluster.listener import HOST, free_port


def test_a_free_port_is_given_to_nobody_who_asks_for_any() -> None:
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


def test_a_free_port_is_taken_by_one_server_only() -> None:
    port = free_port()
    with socket.create_server((HOST, port)), pytest.raises(OSError, match="in use"):
        socket.create_server((HOST, port)).close()
