"""What is wrong with a Secret, and that nothing of it is told."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta

import pytest
from support.certificates import go_secret, good_secret, names, quick_keys

from trainmaster.controller.certificates.pki import CA_VALIDITY, SERVING_VALIDITY
from trainmaster.controller.certificates.secret import SecretData, encode

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


def test_an_authority_of_another_name_is_foreign(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainmaster.controller.certificates.pki.CA_NAME", "company-root")
    with quick_keys():
        foreign = good_secret(NOW)
    assert foreign.signer_problem(NOW) == "the authority in ca.crt is foreign: it is not named kubeflow-trainer-ca"


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
