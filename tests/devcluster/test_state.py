"""The state directory, its certificates and kubeconfig, and ports for servers."""

import base64
import gc
import json
import socket
import ssl
import stat
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509

from trainmaster.devcluster.certificates import ensure_certificates, write_private
from trainmaster.devcluster.cluster import Cluster
from trainmaster.devcluster.kubeconfig import write_kubeconfig
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
        for name in ("manager.log.1", "history.sqlite-wal"):
            (state.path / name).write_text("old")
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
            assert stack.enter_context(socket.create_connection(target)).getsockname()[1] != port
        stack.enter_context(socket.create_server((HOST, port)))
        with pytest.raises(OSError, match="in use"):
            socket.create_server((HOST, port)).close()


async def test_of_two_clusters_at_the_same_port_one_lets_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


_NOW = datetime(2026, 6, 1, tzinfo=UTC)


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_set_is_private_kept_and_has_no_key_of_its_authority(tmp_path: Path) -> None:
    directory = tmp_path / "new" / "directory"
    files = ensure_certificates(directory, now=_NOW)
    assert _mode(directory) == 0o700
    assert [_mode(path) for path in (files.authority, files.certificate, files.key)] == [0o600] * 3
    assert sorted(path.name for path in directory.iterdir()) == ["ca.crt", "server.crt", "server.key"]
    names = x509.load_pem_x509_certificate(files.certificate.read_bytes()).extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    assert "kubernetes.default.svc" in names.value.get_values_for_type(x509.DNSName), "pods may use that"
    before = files.authority_pem
    assert ensure_certificates(directory, now=_NOW + timedelta(days=200)).authority_pem == before


@pytest.mark.parametrize("damage", ["missing", "garbage", "other key", "late", "early", "other hosts", "mixed"])
def test_a_set_that_cannot_be_used_is_replaced(tmp_path: Path, damage: str) -> None:
    files = ensure_certificates(tmp_path / "a", now=_NOW)
    other = ensure_certificates(tmp_path / "b", now=_NOW)
    before = files.authority_pem
    now, hosts = _NOW, ["localhost"]
    match damage:
        case "missing":
            files.certificate.unlink()
        case "garbage":
            files.key.write_bytes(b"garbage")
        case "other key":
            files.key.write_bytes(other.key.read_bytes())
        case "late":
            now += timedelta(days=300)
        case "early":
            now -= timedelta(days=1)
        case "other hosts":
            hosts = ["example.com"]
        case "mixed":
            files.certificate.write_bytes(other.certificate.read_bytes())
            files.key.write_bytes(other.key.read_bytes())
    renewed = ensure_certificates(tmp_path / "a", now=now, hosts=hosts)
    assert renewed.authority_pem != before
    renewed.server_context()
    assert ensure_certificates(tmp_path / "a", now=now, hosts=hosts).authority_pem == renewed.authority_pem


def test_strict_clients_accept_the_certificate(tmp_path: Path) -> None:
    """Python 3.13 turns on strict verification, which wants key usages and key identifiers."""
    files = ensure_certificates(tmp_path, now=datetime.now(UTC))
    client = ssl.create_default_context(cafile=str(files.authority))
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client_side = client.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    server_side = files.server_context().wrap_bio(outgoing, incoming, server_side=True)
    finished: set[ssl.SSLObject] = set()
    for _ in range(10):
        for side in (client_side, server_side):
            try:
                side.do_handshake()
                finished.add(side)
            except ssl.SSLWantReadError:
                continue
    assert finished == {client_side, server_side}


def test_a_failed_write_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(OSError, match="taken"):
        write_private(tmp_path / "taken", b"x")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_the_kubeconfig_is_complete_and_private(tmp_path: Path) -> None:
    path = tmp_path / "new" / "config"
    write_kubeconfig(path, server="https://127.0.0.1:1", authority_pem=b"PEM", token="t")
    write_kubeconfig(path, server="https://127.0.0.1:2", authority_pem=b"PEM", token="t")
    document = yaml.safe_load(path.read_text())
    assert _mode(path) == 0o600
    (context,) = document["contexts"]
    assert context["name"] == document["current-context"]
    assert context["context"] == {"cluster": "trainmaster", "user": "trainmaster", "namespace": "default"}
    cluster = document["clusters"][0]["cluster"]
    assert cluster["server"] == "https://127.0.0.1:2"
    assert base64.b64decode(cluster["certificate-authority-data"]) == b"PEM"
    assert document["users"][0]["user"] == {"token": "t"}
