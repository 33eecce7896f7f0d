"""The CA bundle that pods get to trust."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs
from support.authorities import Authority

from trainmaster.controller.statusserver.ca_bundle import CABundle


def test_only_certificates_leave_the_file(tmp_path: Path) -> None:
    authority = Authority()
    _, key = authority.issue(tmp_path)
    (tmp_path / "ca.crt").write_bytes(key.read_bytes() + b"a comment\n" + authority.pem + Authority("next").pem)
    bundle = CABundle(tmp_path)
    assert bundle.refresh()
    text = bundle.current()
    assert text is not None
    assert text.count("BEGIN CERTIFICATE") == 2
    assert "KEY" not in text
    assert "comment" not in text


@pytest.mark.parametrize(
    "content", [b"", b"nothing", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
)
def test_an_unusable_bundle_is_logged_once_and_changes_nothing(tmp_path: Path, content: bytes) -> None:
    authority = Authority()
    (tmp_path / "ca.crt").write_bytes(authority.pem)
    bundle = CABundle(tmp_path)
    assert bundle.refresh()
    assert not bundle.refresh()
    (tmp_path / "ca.crt").write_bytes(content)
    with capture_logs() as logs:
        assert not bundle.refresh()
        assert not bundle.refresh()
    assert [log["event"] for log in logs] == ["the new authority for trainers cannot be used; the old one stays"]
    assert bundle.current() == authority.pem.decode()
    (tmp_path / "ca.crt").unlink()
    assert not bundle.refresh()
    assert bundle.current() == authority.pem.decode()
