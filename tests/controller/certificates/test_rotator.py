"""The rotator and the Secret that it keeps, also where clocks are wrong or jump."""

import base64
import shutil
import ssl
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from structlog.testing import capture_logs
from support.certificate_installation import CertificateInstallation
from support.certificates import go_secret, good_secret, names, quick_keys
from support.devcluster.faults import Faults, Refuse, Reset
from support.training import until
from support.virtualtime import VirtualClock

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
    new_authority,
    new_serving_pair,
    read_certificates,
    read_key,
    to_pem,
)
from trainmaster.controller.certificates.secret import SecretData, encode
from trainmaster.controller.certificates.server_time import ServerTime
from trainmaster.controller.certificates.webhook_names import JOB_VALIDATOR, VALIDATOR


@pytest.fixture
async def installed(installed: CertificateInstallation) -> CertificateInstallation:
    await installed.create_secret()
    return installed


@pytest.fixture
def faults(installed: CertificateInstallation) -> Faults:
    assert installed.stack.cluster is not None
    return installed.stack.cluster.faults


async def test_missing_rights_are_told_once_and_end_nothing(installed: CertificateInstallation, faults: Faults) -> None:
    refused = faults.add(Refuse(403), verb="patch", resource="secrets", user_agent="trainmaster/")
    with capture_logs() as logs:
        async with installed.manager() as probes:
            await until(lambda: refused.count >= 2)
            await probes.says("there is no serving certificate yet; whoever leads fills it in")
            refused.remove()
            await probes.ready()
    [told] = [each for each in logs if each["event"].startswith("certificates cannot be kept up to date")]
    assert "403 Forbidden" in told["error"]
    assert told["hint"] == "the role in deploy/rbac grants what this needs"


async def test_without_the_right_to_inject_a_certificate_is_served_all_the_same(
    installed: CertificateInstallation, faults: Faults
) -> None:
    """Metrics are served with it too, and say what is missing."""
    refused = faults.add(Refuse(403), verb="patch", resource="mutatingwebhookconfigurations")
    async with installed.manager() as probes:
        await probes.says("[-]ca-bundle failed: the MutatingWebhookConfiguration defaulter.trainer.kubeflow.org has no")

        async def served() -> bool:
            return (probes.files / "tls.crt").exists()

        await until(served)
        refused.remove()
        await probes.ready()
        assert await installed.admits()


async def test_nothing_is_trusted_while_a_server_fails(installed: CertificateInstallation, faults: Faults) -> None:
    """A configuration that could not be read yet may trust the old authority alone."""
    now = datetime.now(UTC)
    theirs, kept = new_authority(now=now - timedelta(days=2))
    _, made = new_authority(now=now - timedelta(days=1))
    pair = new_serving_pair(theirs, names(), now=now)
    rotating = SecretData(made.certificate + kept.certificate, made.key, pair.certificate, pair.key)
    await installed.patch_secret({"data": encode(rotating)})
    failing = faults.add(Refuse(500), verb="watch,list", resource="validatingwebhookconfigurations")
    async with installed.manager() as probes:
        await until(lambda: failing.count >= 3)
        assert await installed.secret() == rotating
        failing.remove()
        await probes.ready()
        assert set(await installed.bundles()) == {rotating.ca_certificate}

        async def signed() -> bool:
            return (await installed.secret()).certificate != pair.certificate

        await until(signed)


async def test_configurations_that_may_not_be_read_are_told_and_a_certificate_is_served(
    installed: CertificateInstallation, faults: Faults
) -> None:
    refused = faults.add(Refuse(403), verb="watch,list", resource="validatingwebhookconfigurations")
    with capture_logs() as logs:
        async with installed.manager() as probes:
            await probes.says(
                "failed: the ValidatingWebhookConfiguration validator.trainer.kubeflow.org cannot be read: "
            )
            await probes.says("[+]webhook ok")
            refused.remove()
            await probes.ready()
            assert await installed.admits()
    told = [each for each in logs if each["event"].startswith("webhook configurations are not ours to read")]
    assert [list(each["reasons"]) for each in told] == [[str(VALIDATOR), str(JOB_VALIDATOR)]]


@pytest.mark.parametrize("fault", [Reset("after"), Reset("before"), Refuse(409), Refuse(503)])
async def test_whatever_becomes_of_each_first_write_everybody_agrees_in_the_end(
    installed: CertificateInstallation, faults: Faults, fault: Refuse | Reset
) -> None:
    struck = [
        faults.add(fault, verb="patch", resource=each, user_agent="trainmaster/", times=1)
        for each in ("secrets", "mutatingwebhookconfigurations", "validatingwebhookconfigurations")
    ]
    async with installed.manager() as probes:
        await probes.ready()
        assert [each.count for each in struck] == [1] * 3
        assert await installed.admits()
        found = await installed.secret()
        assert len(found.authorities) == 1
        assert found.certificate == (probes.files / "tls.crt").read_bytes()
        assert names()[0] in str(found.serving and found.serving.subject)
        assert set(await installed.bundles()) == {found.ca_certificate}
        before = await installed.versions()
    assert await installed.versions() == before


THEIRS = datetime(2026, 5, 1, 12, 0, 0, tzinfo=UTC)
DATE = {"Date": "Fri, 01 May 2026 12:00:00 GMT"}


class Jumping(VirtualClock):
    """A clock that somebody sets."""

    def __init__(self) -> None:
        super().__init__(start=THEIRS)
        self.wrong = timedelta()

    def now(self) -> datetime:
        return super().now() + self.wrong


def test_until_it_is_told_it_is_the_time_of_this_machine() -> None:
    clock = Jumping()
    time = ServerTime(clock)
    for headers in ({}, {"Date": ""}, {"Date": "yesterday"}, {"Date": "99 Foo 2026"}):
        time.observe(headers)
        assert time.now() == clock.now()


async def test_a_clock_that_is_set_forward_or_back_changes_nothing() -> None:
    clock = Jumping()
    time = ServerTime(clock)
    time.observe(DATE)
    for jump in (timedelta(days=4000), timedelta(days=-4000)):
        clock.wrong = jump
        assert time.now() == THEIRS
    await clock.advance(3600)
    assert time.now() == THEIRS + timedelta(hours=1)


def test_a_clock_that_differs_is_told_once_until_it_is_right() -> None:
    clock = Jumping()
    time = ServerTime(clock)
    with capture_logs() as logs:
        clock.wrong = timedelta(minutes=4)
        time.observe(DATE)
        for minutes in (-90, -90, 0, 90):
            clock.wrong = timedelta(minutes=minutes)
            time.observe(DATE)
    assert [each["seconds"] for each in logs] == [-5400, 5400]


NOW = datetime(2026, 5, 1, tzinfo=UTC)
NAMES = names()
DAY = timedelta(days=1)


@pytest.fixture(scope="module")
def good() -> SecretData:
    with quick_keys():
        return good_secret(NOW)


@pytest.fixture(scope="module")
def other() -> SecretData:
    with quick_keys():
        return good_secret(NOW, of=["elsewhere.kubeflow.svc"])


def test_what_is_written_is_read_again_and_good_as_is_what_a_go_manager_has_written(good: SecretData) -> None:
    assert SecretData.of({"data": encode(good)}) == good
    for found in (good, go_secret(now=NOW)):
        assert found.signer_problem(NOW) is None
        assert found.serving_problem(NAMES, NOW) is None


def test_a_secret_without_anything_of_use_is_empty() -> None:
    useless: list[object] = [None, {}, [], {"ca.crt": 1, "ca.key": None, "tls.crt": "%%%", "tls.key": []}]
    for data in useless:
        assert SecretData.of({"data": data}) == SecretData()
    assert SecretData().signer_problem(NOW) == "there is no authority yet"
    assert SecretData().serving_problem(NAMES, NOW) == "there is no serving certificate yet"


def test_what_is_wrong_with_an_authority_is_told(good: SecretData, other: SecretData) -> None:
    serving_as_authority = SecretData(good.certificate, good.key)
    assert serving_as_authority.signer_problem(NOW) == "the first certificate of ca.crt is not that of an authority"
    mixed = SecretData(good.ca_certificate, other.ca_key)
    assert mixed.signer_problem(NOW) == (
        "ca.crt and ca.key are no authority: the key does not belong to the certificate"
    )
    garbage = SecretData(b"garbage", b"garbage")
    assert garbage.signer_problem(NOW) == "ca.crt and ca.key are no authority: there is no certificate in ca.crt"
    assert "has ended at 2036-" in str(good.signer_problem(NOW + CA_VALIDITY + DAY))
    assert "begins only at 2026-" in str(good.signer_problem(NOW - 2 * DAY))


def test_what_is_wrong_with_a_serving_certificate_is_told(good: SecretData, other: SecretData) -> None:
    assert other.serving_problem(NAMES, NOW) == f"the certificate in tls.crt is not for {NAMES[0]}"
    foreign = SecretData(other.ca_certificate, other.ca_key, good.certificate, good.key)
    assert str(foreign.serving_problem(NAMES, NOW)).startswith("no authority in ca.crt has signed")
    halves = SecretData(good.ca_certificate, good.ca_key, good.certificate, other.key)
    assert halves.serving_problem(NAMES, NOW) == (
        "tls.crt and tls.key are no pair: the key does not belong to the certificate"
    )
    authority = SecretData(good.ca_certificate, good.ca_key, good.ca_certificate, good.ca_key)
    assert "is not for" in str(authority.serving_problem(NAMES, NOW))
    assert "has ended at 2027-" in str(good.serving_problem(NAMES, NOW + SERVING_VALIDITY + DAY))


def test_nothing_of_a_secret_is_in_its_words(good: SecretData) -> None:
    assert repr(good) == "SecretData(ca_certificate, ca_key, certificate, key)"
    assert repr(SecretData(b"x")) == "SecretData(ca_certificate)"
    for value in encode(good).values():
        assert base64.b64decode(value).decode()[40:60] not in f"{good!r} {good}"


PKI_NAMES = ["manager.kubeflow.svc", "manager.kubeflow.svc.cluster.local"]


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
    assert (certificate.not_valid_before_utc, certificate.not_valid_after_utc) == (NOW - BACKDATE, NOW + CA_VALIDITY)


def test_a_serving_certificate_is_for_servers_of_these_names_and_ends_with_its_authority_which_it_is_not(
    made: tuple[Authority, KeyPair],
) -> None:
    authority, written = made
    pair = new_serving_pair(authority, PKI_NAMES, now=NOW)
    assert (
        SecretData(written.certificate, written.key, pair.certificate, pair.key).serving_problem(PKI_NAMES, NOW) is None
    )
    [certificate] = read_certificates(pair.certificate)
    assert dns_names(certificate) == PKI_NAMES
    assert not is_authority(certificate)
    valid = (NOW - BACKDATE, NOW + SERVING_VALIDITY)
    assert (certificate.not_valid_before_utc, certificate.not_valid_after_utc) == valid
    with quick_keys():
        last = new_serving_pair(authority, PKI_NAMES, now=NOW + CA_VALIDITY - timedelta(days=3))
    assert read_certificates(last.certificate)[0].not_valid_after_utc == NOW + CA_VALIDITY


@pytest.mark.nightly
def test_openssl_verifies_what_is_made(tmp_path: Path) -> None:
    authority, written = new_authority(now=datetime.now(UTC))
    pair = new_serving_pair(authority, PKI_NAMES, now=datetime.now(UTC))
    (tmp_path / "tls.crt").write_bytes(pair.certificate)
    (tmp_path / "tls.key").write_bytes(pair.key)
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    program = shutil.which("openssl")
    if program is None:
        pytest.skip("openssl is not installed")
    (tmp_path / "ca.crt").write_bytes(written.certificate)
    arguments = ["verify", "-x509_strict", "-purpose", "sslserver", "-verify_hostname", PKI_NAMES[0]]
    done = subprocess.run(
        [program, *arguments, "-CAfile", str(tmp_path / "ca.crt"), str(tmp_path / "tls.crt")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_certificates_are_read_each_once_and_garbage_is_passed_over() -> None:
    with quick_keys():
        first, second = (new_authority(now=NOW)[0].certificate for _ in range(2))
    garbage = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    assert read_certificates(b"# hello\n" + to_pem([first, second, first]) + garbage) == [first, second]
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
