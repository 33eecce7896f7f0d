"""The rotator on an API server that refuses, and whose answers are lost."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from support.certificate_installation import CertificateInstallation
from support.certificates import names, quick_keys
from support.stack import api_server
from support.training import apply_runtime, runtime, until

from trainmaster.controller.certificates.pki import new_authority, new_serving_pair
from trainmaster.controller.certificates.secret import SecretData, encode
from trainmaster.controller.certificates.webhook_names import JOB_VALIDATOR, VALIDATOR
from trainmaster.devcluster.testing.faults import Faults, Refuse, Reset


@pytest.fixture
async def installed(tmp_path: Path, impatient: None) -> AsyncIterator[CertificateInstallation]:
    async with api_server(tmp_path) as stack:
        await apply_runtime(stack.client, runtime())
        made = CertificateInstallation(stack, tmp_path)
        await made.create_webhooks()
        await made.create_secret()
        with quick_keys():
            yield made


@pytest.fixture
def faults(installed: CertificateInstallation) -> Faults:
    assert installed.stack.cluster is not None
    return installed.stack.cluster.faults


async def test_a_right_that_is_missing_is_told_once_and_nothing_ends(
    installed: CertificateInstallation, faults: Faults
) -> None:
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


async def test_while_the_api_server_fails_nothing_is_taken_for_trusted(
    installed: CertificateInstallation, faults: Faults
) -> None:
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
