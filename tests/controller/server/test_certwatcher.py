"""Certificates that are replaced while they are served."""

from __future__ import annotations

import os
import shutil
import ssl
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from support.authorities import Authority

from trainmaster.controller.configuration import Tls
from trainmaster.controller.server.certwatcher import CertWatcher, server_context


class Mounted:
    """A directory as Kubernetes mounts a Secret."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "mounted"
        self.directory.mkdir()
        self._issued = directory / "issued"
        self._issued.mkdir()

    def put(self, authority: Authority, *, certificate: bool = True, key: bool = True) -> None:
        paths = authority.issue(self._issued)
        if certificate:
            shutil.copy(paths[0], self.directory / "tls.crt")
        if key:
            shutil.copy(paths[1], self.directory / "tls.key")


@pytest.fixture
def mounted(tmp_path: Path) -> Mounted:
    return Mounted(tmp_path)


@pytest.fixture
def certs(mounted: Mounted) -> CertWatcher:
    return CertWatcher(mounted.directory, Tls())


def trusts(authority: Authority, certs: CertWatcher) -> bool:
    """Shake hands with a server that has these certificates, in memory."""
    client_in, server_in = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context(cadata=authority.pem.decode())
    client = context.wrap_bio(client_in, server_in, server_hostname="server")
    server = certs.server_context().wrap_bio(server_in, client_in, server_side=True)
    try:
        for _ in range(4):
            for side in (client, server):
                try:
                    side.do_handshake()
                except ssl.SSLWantReadError:
                    continue
    except ssl.SSLCertVerificationError:
        return False
    return True


@pytest.mark.guarantee("H-10")
def test_files_that_are_not_there_are_named_and_taken_when_they_come(mounted: Mounted, certs: CertWatcher) -> None:
    assert not certs.read_certificate()
    assert certs.error == f"cannot read {mounted.directory / 'tls.crt'}: No such file or directory"
    authority = Authority()
    mounted.put(authority)
    assert certs.read_certificate()
    assert certs.error is None
    assert trusts(authority, certs)
    assert not trusts(Authority(), certs)


@pytest.mark.guarantee("H-10")
def test_a_new_pair_is_taken_once_its_halves_fit(mounted: Mounted, certs: CertWatcher) -> None:
    old, new = Authority("old"), Authority("new")
    mounted.put(old)
    certs.read_certificate()
    mounted.put(new, key=False)
    assert certs.read_certificate(), "the old pair is gone"
    assert "are no pair of certificate and key" in str(certs.error)
    assert trusts(old, certs)
    mounted.put(new)
    assert certs.read_certificate()
    assert certs.error is None
    assert trusts(new, certs)
    assert not trusts(old, certs)


@pytest.mark.guarantee("H-10")
def test_unchanged_damaged_or_lost_files_leave_the_old_pair(mounted: Mounted, certs: CertWatcher) -> None:
    authority = Authority()
    mounted.put(authority)
    certs.read_certificate()
    before = certs._current
    os.utime(mounted.directory / "tls.crt")
    certs.read_certificate()
    assert certs._current is before
    for damage in (b"", b"not a certificate", b"-----BEGIN CERTIFICATE-----\nAAAA\n"):
        (mounted.directory / "tls.crt").write_bytes(damage)
        assert certs.read_certificate()
    (mounted.directory / "tls.crt").unlink()
    assert certs.read_certificate()
    assert trusts(authority, certs)


@pytest.mark.parametrize(
    ("called", "told"), [("server", False), ("localhost", False), ("trainer.kubeflow.svc", True), (None, False)]
)
def test_a_certificate_for_another_name_is_told_of_once_and_served(
    mounted: Mounted, called: str | None, told: bool
) -> None:
    mounted.put(Authority())
    certs = CertWatcher(mounted.directory, Tls(), called=called)
    with capture_logs() as logs:
        assert certs.read_certificate()
        assert certs.read_certificate()
    found = [each for each in logs if each["event"].startswith("the certificate is not for the name")]
    assert [(each["names"], each["called"]) for each in found] == told * [(["localhost", "server"], called)]


def test_tls_as_go_describes_it() -> None:
    assert server_context(Tls()).minimum_version is ssl.TLSVersion.TLSv1_2
    assert server_context(Tls(min_version="1.3")).minimum_version is ssl.TLSVersion.TLSv1_3
    assert server_context(Tls(min_version="")).minimum_version is ssl.TLSVersion.TLSv1_2
    suites = ["TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256"]
    chosen = server_context(Tls(cipher_suites=suites)).get_ciphers()
    assert {suite["name"] for suite in chosen if not suite["name"].startswith("TLS_")} == {
        "ECDHE-RSA-AES256-GCM-SHA384"
    }
