"""Certificates and kubeconfig: who can read them, when they are made again, whether TLS clients accept them."""

from __future__ import annotations

import base64
import ssl
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from cryptography import x509

from trainmaster.devcluster.certificates import ensure_certificates, write_private
from trainmaster.devcluster.kubeconfig import write_kubeconfig

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
