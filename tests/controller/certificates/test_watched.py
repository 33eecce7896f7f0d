"""What is watched of certificates: the Secret, read once however often probes ask."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from cryptography import x509
from support.admission import NAMESPACE, SERVICE
from support.certificate_installation import SECRET, CertificateInstallation
from support.certificates import good_secret, quick_keys
from support.stack import api_server
from support.training import until

from trainmaster.controller.certificates import secret
from trainmaster.controller.certificates.pki import read_key
from trainmaster.controller.certificates.secret import SecretData, encode
from trainmaster.controller.certificates.watched import WatchedObjects
from trainmaster.controller.certificates.webhook_configuration import ServiceReference
from trainmaster.controller.kube.clock import SystemClock


async def test_a_key_is_checked_once_for_each_change_of_the_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
