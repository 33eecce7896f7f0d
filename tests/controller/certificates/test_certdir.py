"""Certificates in a directory, and what is watched of the Secret."""

import asyncio
import itertools
import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509
from support.admission import NAMESPACE, SERVICE
from support.certificate_installation import SECRET, CertificateInstallation
from support.certificates import good_secret, quick_keys
from support.stack import api_server
from support.training import until

from trainmaster.controller.certificates import secret
from trainmaster.controller.certificates.ca_injector import ServiceReference
from trainmaster.controller.certificates.certdir import CertDir
from trainmaster.controller.certificates.pki import read_key
from trainmaster.controller.certificates.secret import SecretData, encode
from trainmaster.controller.certificates.watched import WatchedObjects
from trainmaster.controller.kube.clock import SystemClock

NOW = datetime(2026, 5, 1, tzinfo=UTC)


def made() -> SecretData:
    with quick_keys():
        return good_secret(NOW)


def contents(directory: Path) -> dict[str, bytes]:
    return {name: (directory / name).read_bytes() for name in ("ca.crt", "tls.crt", "tls.key")}


def expected(data: SecretData) -> dict[str, bytes]:
    return {"ca.crt": data.ca_certificate, "tls.crt": data.certificate, "tls.key": data.key}


def test_files_are_for_their_owner_without_the_key_of_the_authority_and_are_not_written_again(tmp_path: Path) -> None:
    data, directory = made(), tmp_path / "a/b"
    assert CertDir(directory).write(data) is None
    assert contents(directory) == expected(data)
    for name in contents(directory):
        assert stat.S_IMODE((directory / name).stat().st_mode) == 0o600
    assert not [each for each in tmp_path.rglob("*") if each.is_file() and data.ca_key in each.read_bytes()]
    before = (directory / "..data").readlink()
    assert CertDir(directory).write(data) is None
    assert (directory / "..data").readlink() == before


def test_a_new_set_replaces_files_of_anybody_and_the_set_before_and_leaves_nothing_behind(tmp_path: Path) -> None:
    first, second = made(), made()
    for name in expected(first):
        (tmp_path / name).write_text("old")
    directory = CertDir(tmp_path)
    assert directory.write(first) is None
    assert contents(tmp_path) == expected(first)
    before = sorted(each.name for each in tmp_path.iterdir() if each.is_symlink())
    assert directory.write(second) is None
    assert contents(tmp_path) == expected(second)
    assert sorted(each.name for each in tmp_path.iterdir() if each.is_symlink()) == before
    assert len([each for each in tmp_path.iterdir() if not each.is_symlink()]) == 1


def test_halves_that_do_not_fit_leave_the_old_pair_and_the_new_authorities(tmp_path: Path) -> None:
    first, second = made(), made()
    directory = CertDir(tmp_path)
    directory.write(first)
    assert directory.write(SecretData(second.ca_certificate, second.ca_key, second.certificate, first.key)) is None
    assert contents(tmp_path) == expected(first) | {"ca.crt": second.ca_certificate}
    assert directory.write(SecretData()) is None, "of an empty Secret nothing is taken"
    assert contents(tmp_path)["tls.key"] == first.key


class Killed(BaseException):
    """The process has ended."""


def killed_at(monkeypatch: pytest.MonkeyPatch, step: int, directory: CertDir, data: SecretData) -> None:
    """Write, and end at the replacement of a name."""
    replaced, calls = Path.replace, itertools.count(1)

    def replace(self: Path, target: Path) -> Path:
        if next(calls) == step:
            raise Killed
        return replaced(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", replace)
        with pytest.raises(Killed):
            directory.write(data)


@pytest.mark.parametrize(("step", "first"), [(1, True), (2, True), (3, True), (4, True), (1, False)])
def test_who_ends_in_the_middle_leaves_the_set_before_whole_and_has_it_completed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int, *, first: bool
) -> None:
    before, data = made(), made()
    if not first:
        CertDir(tmp_path).write(before)
    killed_at(monkeypatch, step, CertDir(tmp_path), data)
    assert first or contents(tmp_path) == expected(before)
    assert CertDir(tmp_path).write(data) is None
    assert contents(tmp_path) == expected(data)


def test_a_mounted_secret_is_left_to_its_kubelet(tmp_path: Path) -> None:
    data = made()
    projected = tmp_path / "..2026_05_01"
    projected.mkdir()
    (tmp_path / "..data").symlink_to(projected.name)
    for name, content in expected(data).items():
        (projected / name).write_bytes(content)
        (tmp_path / name).symlink_to(f"..data/{name}")
    assert CertDir(tmp_path).write(data) is None
    problem = CertDir(tmp_path).write(made())
    assert str(problem).startswith(f"{tmp_path} is a mounted volume that still holds other files than the Secret")
    assert contents(tmp_path) == expected(data)


async def test_a_key_is_checked_once_per_change_of_the_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A check holds up the loop for tens of milliseconds, and readiness is asked for all the time."""
    checked = list[bytes]()

    def counting(pem: bytes, certificate: x509.Certificate) -> object:
        checked.append(pem)
        return read_key(pem, certificate)

    monkeypatch.setattr(secret, "read_key", counting)
    with quick_keys():
        first, second = good_secret(), good_secret()
    async with api_server(tmp_path) as stack:
        installed = CertificateInstallation(stack, tmp_path)
        await installed.create_secret(first)
        service = ServiceReference(NAMESPACE, SERVICE)
        watched = WatchedObjects(
            stack.client, service=service, secret_name=SECRET, configurations=(), clock=SystemClock()
        )
        running = asyncio.create_task(watched.run())

        async def holds(data: SecretData) -> bool:
            found = watched.secret_data()
            return found is not None and found.key == data.key

        await until(lambda: holds(first))
        assert [watched.secret_problem() for _ in range(3)] == [None] * 3
        assert checked == [first.key]
        await installed.patch_secret({"data": encode(second)})
        await until(lambda: holds(second))
        assert [watched.secret_problem() for _ in range(3)] == [None] * 3
        assert checked == [first.key, second.key]
        await installed.patch_secret({"data": {"tls.key": encode(first)["tls.key"]}})
        await until(lambda: holds(first))
        problem = watched.secret_problem()
        assert problem is not None
        assert "tls.crt and tls.key are no pair: the key does not belong to the certificate" in problem
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
