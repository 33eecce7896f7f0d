"""Certificates as they are made, and what others make of them."""

from __future__ import annotations

import shutil
import ssl
import subprocess
import warnings
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from support.certificates import go_secret, quick_keys

from trainmaster.controller.certificates.pki import (
    BACKDATE,
    CA_NAME,
    CA_VALIDITY,
    SERVING_VALIDITY,
    Authority,
    KeyPair,
    Unreadable,
    dns_names,
    is_authority,
    is_issued_by,
    new_authority,
    new_serving_pair,
    read_certificates,
    read_key,
    serves_tls,
    to_pem,
)

NOW = datetime(2026, 5, 1, tzinfo=UTC)
NAMES = ["manager.kubeflow.svc", "manager.kubeflow.svc.cluster.local"]


@pytest.fixture(scope="module")
def made() -> tuple[Authority, KeyPair]:
    return new_authority(now=NOW)


def test_an_authority_is_one_that_cert_controller_takes_for_its_own(made: tuple[Authority, KeyPair]) -> None:
    authority, written = made
    certificate = authority.certificate
    assert is_authority(certificate)
    assert dns_names(certificate) == [CA_NAME]
    assert certificate.subject.rfc4514_string() == "CN=kubeflow-trainer-ca,O=kubeflow-trainer"
    assert written.key.startswith(b"-----BEGIN RSA PRIVATE KEY-----"), "it reads PKCS #1 only"
    assert is_issued_by(certificate, certificate)
    assert (certificate.not_valid_before_utc, certificate.not_valid_after_utc) == (NOW - BACKDATE, NOW + CA_VALIDITY)
    assert read_certificates(written.certificate) == [certificate]


def test_a_serving_certificate_is_for_servers_of_these_names_and_ends_with_its_authority_which_it_is_not(
    made: tuple[Authority, KeyPair],
) -> None:
    authority, _ = made
    pair = new_serving_pair(authority, NAMES, now=NOW)
    [certificate] = read_certificates(pair.certificate)
    assert dns_names(certificate) == NAMES
    assert serves_tls(certificate)
    assert not is_authority(certificate)
    assert is_issued_by(certificate, authority.certificate)
    assert (certificate.not_valid_before_utc, certificate.not_valid_after_utc) == (
        NOW - BACKDATE,
        NOW + SERVING_VALIDITY,
    )
    read_key(pair.key, certificate)
    with quick_keys():
        last = new_serving_pair(authority, NAMES, now=NOW + CA_VALIDITY - timedelta(days=3))
    assert read_certificates(last.certificate)[0].not_valid_after_utc == NOW + CA_VALIDITY


@pytest.mark.nightly
def test_openssl_verifies_what_is_made(tmp_path: Path) -> None:
    authority, written = new_authority(now=datetime.now(UTC))
    pair = new_serving_pair(authority, NAMES, now=datetime.now(UTC))
    (tmp_path / "tls.crt").write_bytes(pair.certificate)
    (tmp_path / "tls.key").write_bytes(pair.key)
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    program = shutil.which("openssl")
    if program is None:
        pytest.skip("openssl is not installed")
    (tmp_path / "ca.crt").write_bytes(written.certificate)
    arguments = ["verify", "-x509_strict", "-purpose", "sslserver", "-verify_hostname", NAMES[0]]
    done = subprocess.run(
        [program, *arguments, "-CAfile", str(tmp_path / "ca.crt"), str(tmp_path / "tls.crt")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_authority_of_a_go_manager_is_read_although_its_serial_number_is_zero() -> None:
    found = go_secret(now=NOW)
    [certificate] = read_certificates(found.ca_certificate)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that of cryptography, from version 44 on; ours does not pass it on
        assert certificate.serial_number == 0
    assert is_authority(certificate)
    assert dns_names(certificate) == [CA_NAME]
    read_key(found.ca_key, certificate)


def test_certificates_are_read_each_once_and_garbage_is_passed_over() -> None:
    with quick_keys():
        first, second = (new_authority(now=NOW)[0].certificate for _ in range(2))
    mixed = (
        b"# hello\n"
        + to_pem([first, second, first])
        + b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    )
    assert read_certificates(mixed) == [first, second]
    assert read_certificates(b"") == read_certificates(b"\xff\x00") == []


def test_a_key_that_does_not_fit_is_told_without_a_word_of_it(made: tuple[Authority, KeyPair]) -> None:
    authority, written = made
    with quick_keys():
        other, foreign = new_authority(now=NOW)
    encrypted = other.key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"word")
    )
    for key in (b"", b"garbage", foreign.key, encrypted, written.key[:-40]):
        with pytest.raises(Unreadable, match=r"^the key (cannot be read|does not belong to the certificate)$"):
            read_key(key, authority.certificate)
