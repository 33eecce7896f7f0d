"""The state directory, who holds it and what is deleted from it; ports for servers."""

from __future__ import annotations

import gc
import json
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from trainmaster.devcluster.cluster import Cluster
from trainmaster.devcluster.listener import HOST, free_port
from trainmaster.devcluster.settings import ClusterSettings
from trainmaster.devcluster.state import AlreadyRunning, ClusterRecord, PortInUse, StateDirectory, StateError

RECORD = ClusterRecord(version="1.2", pid=7, port=6443, server="https://127.0.0.1:6443", kubeconfig="/k", parts=("gc",))


@pytest.fixture
def state(tmp_path: Path) -> StateDirectory:
    return StateDirectory(tmp_path / "state")


def test_only_one_can_hold_it_and_everyone_can_see_who(state: StateDirectory) -> None:
    assert state.holder() is None
    with state.hold():
        assert state.holder() is not None
        with pytest.raises(AlreadyRunning, match=r"already running \(pid \d+\)"), state.hold():
            pytest.fail("two hold the same state")
    assert state.holder() is None
    with state.hold():
        pass  # what a holder leaves behind does not keep the next one out


def test_the_record_is_read_as_it_was_written_also_by_a_version_that_told_less(state: StateDirectory) -> None:
    state.prepare()
    assert state.read_record() is None
    state.write_record(RECORD)
    assert state.read_record() == RECORD
    content = json.loads(state.record.read_text())
    del content["networking"]
    state.record.write_text(json.dumps(content))
    assert state.read_record() == RECORD


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": 1}', '{"format": 1, "version": 3, "parts": 5}'])
def test_a_damaged_record_is_an_error_that_names_the_way_out(state: StateDirectory, content: str) -> None:
    state.prepare()
    state.record.write_text(content)
    with pytest.raises(StateError, match="down --purge"):
        state.read_record()


def test_the_token_is_made_once_and_can_be_replaced(state: StateDirectory) -> None:
    state.prepare()
    token = state.ensure_token()
    assert len(token) >= 32
    assert state.ensure_token() == token
    assert state.ensure_token("mine") == "mine"
    assert state.ensure_token() == "mine"


@pytest.mark.parametrize("content", [b"", b"\n", b"two words", b"a\x00b", b"a\nb", b"\xff\xfe", "t\u00f6ken".encode()])
def test_a_token_that_no_client_could_send_is_replaced(state: StateDirectory, content: bytes) -> None:
    state.prepare()
    state.token.write_bytes(content)
    token = state.ensure_token()
    assert len(token) >= 32
    assert state.token.read_bytes() == token.encode()


def test_purging_deletes_what_is_ours_only_and_nothing_of_a_running_cluster(state: StateDirectory) -> None:
    with state.hold():
        state.ensure_token()
        with pytest.raises(AlreadyRunning):
            state.purge()
        assert state.token.exists()
        (state.kubelet / "pods").mkdir(parents=True)
        (state.path / "manager.log.1").write_text("old")
    (state.path / "tokens-of-mine.txt").write_text("keep")
    (state.path / "notes").mkdir()
    state.purge()
    assert sorted(entry.name for entry in state.path.iterdir()) == ["notes", "tokens-of-mine.txt"]


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
