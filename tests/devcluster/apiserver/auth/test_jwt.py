"""Only what this key signed is believed."""

from __future__ import annotations

import base64
import stat
from pathlib import Path

import orjson
import pytest

from trainmaster.devcluster.apiserver.auth.jwt import BadSignature, SigningKey


def test_claims_come_back() -> None:
    key = SigningKey()
    assert key.verify(key.sign({"sub": "me"})) == {"sub": "me"}


def test_the_key_outlives_a_restart_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "pki" / "key"
    token = SigningKey.ensure(path).sign({"sub": "me"})
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert SigningKey.ensure(path).verify(token) == {"sub": "me"}


def test_a_damaged_key_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("damaged")
    first = SigningKey.ensure(path)
    assert SigningKey.ensure(path).id == first.id


def _forged(key: SigningKey, what: str) -> str:
    header, payload, signature = key.sign({"sub": "me"}).split(".")

    def encode(content: object) -> str:
        return base64.urlsafe_b64encode(orjson.dumps(content)).rstrip(b"=").decode()

    match what:
        case "claims":
            return f"{header}.{encode({'sub': 'you'})}.{signature}"
        case "algorithm none":
            return f"{encode({'alg': 'none', 'kid': key.id})}.{payload}."
        case "other key":
            return SigningKey().sign({"sub": "me"})
        case "short signature":
            return f"{header}.{payload}.{signature[:20]}"
        case "not base64":
            return f"{header}.{payload}.{'*' * len(signature)}"
    return what


@pytest.mark.parametrize(
    "what",
    ["claims", "algorithm none", "other key", "short signature", "not base64", "", "..", "a.b.c", "ü.ü.ü"],
)
def test_forgeries_are_refused(what: str) -> None:
    key = SigningKey()
    with pytest.raises(BadSignature):
        key.verify(_forged(key, what))


def test_others_can_verify_by_the_published_key() -> None:
    (published,) = SigningKey().jwks()["keys"]
    assert published.keys() == {"use", "kty", "kid", "crv", "alg", "x", "y"}
    assert len(base64.urlsafe_b64decode(published["x"] + "=")) == 32
