"""Managers that make their own certificates, on a real API server which calls their webhooks."""

import asyncio
import base64
import shutil
from collections.abc import Callable, MutableMapping
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs
from support import enforcement
from support.admission import NAMESPACE, SERVICE, job_manifest
from support.authorities import Authority
from support.certificate_installation import SECRET, CertificateInstallation
from support.certificates import go_secret, good_secret, names
from support.series import value_of
from support.training import until

from trainmaster.controller.certificates.pki import SERVING_VALIDITY, read_certificates
from trainmaster.controller.certificates.secret import SecretData
from trainmaster.controller.certificates.webhook_names import (
    DEFAULTER,
    JOB_VALIDATOR,
    VALIDATING,
    VALIDATOR,
    ConfigurationName,
)
from trainmaster.controller.configuration import CertManagement, TrainingOperator
from trainmaster.controller.kube.clock import SystemClock
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.resources import EVENTS
from trainmaster.runtime.jsontree import JsonObject


def set_bundles(name: ConfigurationName, bundle: str) -> list[JsonObject]:
    """A patch by which all webhooks of a configuration trust the same."""
    return [
        {"op": "add", "path": f"/webhooks/{place}/clientConfig/caBundle", "value": bundle} for place in places(name)
    ]


def places(name: ConfigurationName) -> range:
    """The places of the webhooks in a configuration."""
    return range({DEFAULTER: 1, VALIDATOR: 3, JOB_VALIDATOR: 5}[name])


@pytest.mark.guarantee("H-11")
async def test_an_empty_secret_is_filled_and_webhooks_work(installed_with_slow_keys: CertificateInstallation) -> None:
    installed = installed_with_slow_keys
    async with installed.manager() as probes:
        await probes.says(
            f"[-]ca-bundle failed: the Secret {NAMESPACE}/{SECRET} does not exist; "
            f"kubectl create secret generic {SECRET} -n {NAMESPACE}; it is filled in by itself\n"
        )
        await installed.create_secret()
        await probes.ready()
        assert await installed.admits()
        found = await installed.secret()
        assert await installed.is_trusted(4)
        assert (probes.files / "tls.crt").read_bytes() == found.certificate
        assert (probes.files / "ca.crt").read_bytes() == found.ca_certificate
        assert not any(found.ca_key in each.read_bytes() for each in probes.files.rglob("*") if each.is_file())
        before = await installed.versions()

        async def told() -> bool:
            events = (await installed.client.list(EVENTS, NAMESPACE))["items"]
            return {each["reason"] for each in events if each["regarding"]["name"] == SECRET} == {
                "AuthorityRotated",
                "CertificateRotated",
            }

        await until(told)
    async with installed.manager() as again:
        await again.ready()
        assert await installed.admits()
        assert await installed.versions() == before, "what is settled is written again"
        assert len(read_certificates(found.ca_certificate)) == 1


@pytest.mark.guarantee("H-11")
async def test_what_a_go_manager_has_left_is_taken_over_as_it_is(installed: CertificateInstallation) -> None:
    theirs = go_secret(now=datetime.now(UTC))
    await installed.create_secret(theirs)
    bundle = base64.b64encode(theirs.ca_certificate).decode()
    for name in (DEFAULTER, VALIDATOR):
        await installed.patch_webhooks(name, set_bundles(name, bundle), manager="trainer-controller-manager")
    before = await installed.versions()
    async with installed.manager() as probes:
        await probes.ready()
        assert await installed.admits()
        assert await installed.versions() == before
    assert await installed.secret() == theirs


@pytest.mark.guarantee("H-11")
async def test_replicas_that_all_lead_agree(installed: CertificateInstallation) -> None:
    await installed.create_secret()
    async with installed.manager("one") as one, installed.manager("other") as other:
        await asyncio.gather(one.ready(), other.ready())
        found = await installed.secret()

        async def agree() -> bool:
            return {(each.files / "tls.crt").read_bytes() for each in (one, other)} == {found.certificate}

        await until(agree)
        assert set(await installed.bundles()) == {found.ca_certificate}
        assert await installed.admits()
        assert found.serving_problem(names(), datetime.now(UTC)) is None


async def test_a_bundle_that_somebody_changes_is_put_right_and_they_are_named(
    installed: CertificateInstallation,
) -> None:
    """Only the entries that call our Service are written."""
    elsewhere = {"op": "replace", "path": "/webhooks/1/clientConfig", "value": {"url": "https://example.com/validate"}}
    await installed.patch_webhooks(VALIDATOR, [elsewhere])
    await installed.create_secret(good_secret())
    emptied = [{"op": "replace", "path": "/webhooks/2/clientConfig/caBundle", "value": ""}]
    with capture_logs() as logs:
        async with installed.manager() as probes:
            await probes.ready()
            right = await installed.bundles()
            assert [bool(each) for each in right] == [True, True, False, True]

            async def is_right() -> bool:
                return await installed.bundles() == right

            for _ in range(2):
                await installed.patch_webhooks(VALIDATOR, emptied, manager="argocd-controller")
                await until(is_right)
    told = [each for each in logs if "somebody" in each["event"]]
    assert [each["by"] for each in told] == [["argocd-controller"]] * 2
    assert "keeps changing" in told[1]["event"]
    assert {each["name"] for each in told} == {"validator.trainer.kubeflow.org"}


async def test_the_webhooks_of_another_installation_are_left_alone(installed: CertificateInstallation) -> None:
    for name in (DEFAULTER, VALIDATOR):
        await installed.patch_webhooks(
            name,
            [
                {"op": "replace", "path": f"/webhooks/{place}/clientConfig/service/namespace", "value": "elsewhere"}
                for place in places(name)
            ],
        )
    await installed.create_secret()
    before = await installed.versions()
    with capture_logs() as logs:
        async with installed.manager() as probes:
            await probes.says("calls the Service elsewhere/kubeflow-trainer-controller-manager and not the Service ")
            await probes.says("[+]webhook ok")
            after = await installed.versions()
    assert after.pop(SECRET) != before.pop(SECRET)
    assert after == before
    told = [each["reason"] for each in logs if each["event"].endswith("is not ours to write")]
    assert len(told) == 2, "each is told once"
    assert all("it belongs to another installation" in each for each in told)


async def test_the_webhooks_of_jobs_are_trusted_with_the_others(installed: CertificateInstallation) -> None:
    """Also those that are applied while the manager runs; it is ready without them, and not while they trust nobody."""
    await installed.create_secret()
    async with installed.manager() as probes:
        await probes.ready()
        await installed.create_webhooks(jobs=True)
        await until(lambda: installed.is_trusted(9))
        await probes.ready()
        before = await installed.versions()
    annotation = {"op": "add", "path": "/metadata/annotations", "value": {"cert-manager.io/inject-ca-from": "a/b"}}
    await installed.patch_webhooks(JOB_VALIDATOR, [*set_bundles(JOB_VALIDATOR, ""), annotation])
    async with installed.manager() as probes:
        await probes.says(f"failed: the ValidatingWebhookConfiguration {JOB_VALIDATOR.name} has no caBundle yet: ")
        await installed.patch_webhooks(JOB_VALIDATOR, [{"op": "remove", "path": "/metadata/annotations"}])
        await probes.ready()
        assert await installed.is_trusted(9)
        assert (await installed.versions()).keys() == before.keys()


async def test_webhooks_of_a_training_operator_are_left_to_it_before_ours(installed: CertificateInstallation) -> None:
    """It keeps the bundle itself, and nothing is wrong with this manager while it does."""
    theirs = {"name": "training-operator", "namespace": "kubeflow"}
    await installed.create_webhooks(jobs=True)
    own = set_bundles(JOB_VALIDATOR, "Z28=")
    for field, value in theirs.items():
        own += [
            {"op": "replace", "path": f"/webhooks/{place}/clientConfig/service/{field}", "value": value}
            for place in range(5)
        ]
    await installed.patch_webhooks(JOB_VALIDATOR, own)
    await installed.create_secret()
    with capture_logs() as logs:
        async with installed.manager() as probes:
            await probes.ready()
            assert await installed.admits()
            assert await installed.is_trusted(4, *[b"go"] * 5)
            [ours] = job_manifest()
            await installed.client.apply(VALIDATING, ours, field_manager="kubectl")
            await until(lambda: installed.is_trusted(9))
            await probes.ready()
    [told] = [each["reason"] for each in logs if each["event"].endswith("is not ours to write")]
    assert told.startswith(
        f"{JOB_VALIDATOR} calls the Service kubeflow/training-operator and not the Service {NAMESPACE}/{SERVICE} of "
        "this manager: it belongs to another installation and is left alone; set trainingOperator.enabled to false "
        "here, or "
    )


async def test_without_jobs_their_webhooks_are_not_looked_at(installed: CertificateInstallation) -> None:
    await installed.create_webhooks(jobs=True)
    await installed.create_secret(good_secret())
    async with installed.manager(training_operator=TrainingOperator(enabled=False)) as probes:
        await probes.ready()
        assert all((await installed.bundles())[:4])
        assert not any((await installed.bundles())[4:])


async def test_a_bundle_that_cert_manager_injects_is_left_to_it(installed: CertificateInstallation) -> None:
    annotation = {"metadata": {"annotations": {"cert-manager.io/inject-ca-from": "kubeflow/serving"}}}
    await installed.patch_webhooks(DEFAULTER, annotation)
    await installed.create_secret(good_secret())
    with capture_logs() as logs:
        async with installed.manager() as probes:
            await probes.says("failed: the MutatingWebhookConfiguration defaulter.trainer.kubeflow.org has no caBundle")
            assert (await installed.bundles())[0] == b""
            foreign = base64.b64encode(Authority().pem).decode()
            await installed.patch_webhooks(DEFAULTER, set_bundles(DEFAULTER, foreign))
            await probes.says(
                f"[-]webhook failed: the webhooks are served with a certificate that callers of {names()[0]} refuse: "
            )
            assert (await installed.bundles())[0] == base64.b64decode(foreign)
    assert any("cert-manager.io/inject-ca-from=kubeflow/serving" in each.get("reason", "") for each in logs)


DAMAGES: list[tuple[dict[str, str | None] | None, str]] = [
    ({"tls.key": "Z2FyYmFnZQ=="}, "tls.crt and tls.key are no pair: the key cannot be read"),
    ({"tls.crt": None, "tls.key": None}, "there is no serving certificate yet"),
    ({"ca.key": "Z2FyYmFnZQ=="}, "ca.crt and ca.key are no authority: the key cannot be read"),
    (None, "there is no authority yet"),
]


async def test_what_somebody_damages_is_made_again_while_webhooks_answer(installed: CertificateInstallation) -> None:
    await installed.create_secret(good_secret())

    async def repaired() -> bool:
        assert await installed.admits()
        found, now = await installed.secret(), datetime.now(UTC)
        return found.signer_problem(now) is None and found.serving_problem(names(), now) is None

    async with installed.manager() as probes:
        await probes.ready()
        for damage, reason in DAMAGES:
            with capture_logs() as logs:
                await installed.patch_secret({"data": damage})
                await until(repaired)
                await until(lambda: installed.is_trusted(4))
            assert reason in {each.get("reason") for each in logs}


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (lambda: good_secret(datetime.now(UTC) - SERVING_VALIDITY - timedelta(days=1)),
         "the certificate in tls.crt has ended at "),
        (lambda: good_secret(of=["elsewhere.kubeflow.svc"]),
         f"the certificate in tls.crt is not for {SERVICE}.{NAMESPACE}.svc"),
    ],
)  # fmt: skip
async def test_a_certificate_that_nobody_accepts_is_replaced(
    installed: CertificateInstallation, found: Callable[[], SecretData], reason: str
) -> None:
    await installed.create_secret(found())
    with capture_logs() as logs:
        async with installed.manager() as probes:
            await probes.ready()
            assert await installed.admits()
    assert any(str(each.get("reason")).startswith(reason) for each in logs)


class JumpedClock(SystemClock):
    """A machine whose clock is wrong by years."""

    def __init__(self, *, days: float) -> None:
        self._wrong = timedelta(days=days)

    def now(self) -> datetime:
        return super().now() + self._wrong


@pytest.mark.parametrize("days", [-4000, 4000])
async def test_a_clock_that_is_wrong_by_years_breaks_nothing(installed: CertificateInstallation, days: float) -> None:
    await installed.create_secret(good_secret())
    async with installed.manager() as probes:
        await probes.ready()
        before = await installed.versions()
    with capture_logs() as logs:
        async with installed.manager(clock=JumpedClock(days=days)) as probes:
            await probes.ready()
            assert await installed.admits()
            assert await installed.versions() == before
            await installed.patch_secret({"data": {"tls.crt": None}})

            async def repaired() -> bool:
                return (await installed.secret()).serving_problem(names(), datetime.now(UTC)) is None

            await until(repaired)
            assert await installed.admits()
    told = [each for each in logs if "differs from that of the API server" in each["event"]]
    assert [each["log_level"] for each in told] == ["warning"]


async def test_of_a_read_only_directory_the_remedy_is_told(installed: CertificateInstallation, tmp_path: Path) -> None:
    await installed.create_secret(good_secret())
    (tmp_path / "certs").write_text("a file where a directory has to be")
    with capture_logs() as logs:
        async with installed.manager() as probes:
            await probes.says("[-]ca-bundle failed: cannot write ")
            (tmp_path / "certs").unlink()
            await installed.patch_secret({"metadata": {"labels": {"look": "again"}}})
            await probes.ready()
    [told] = [each["error"] for each in logs if "cannot be put where they look for it" in each["event"]]
    assert told.startswith(f"cannot write {tmp_path / 'certs'}: ")
    assert told.endswith(
        "; mount an emptyDir at webhook.certDir, writable for the user of the manager, or set another webhook.certDir"
    )


async def test_a_renewal_by_cert_manager_is_taken_up(installed: CertificateInstallation, tmp_path: Path) -> None:
    """Without management of our own: the kubelet swaps `..data`, and the bundle is cert-manager's business."""
    mounted = tmp_path / "certs"
    mounted.mkdir()
    authority = Authority()

    def project(version: int) -> None:
        made = mounted / f"..{version}"
        made.mkdir()
        certificate, key = authority.issue(made, name=names()[0])
        certificate.rename(made / "tls.crt")
        key.rename(made / "tls.key")
        (made / "ca.crt").write_bytes(authority.pem)
        (mounted / "..data_tmp").symlink_to(made.name)
        (mounted / "..data_tmp").rename(mounted / "..data")
        for name in ("ca.crt", "tls.crt", "tls.key"):
            if not (mounted / name).is_symlink():
                (mounted / name).symlink_to(f"..data/{name}")

    project(1)
    bundle = base64.b64encode(authority.pem).decode()
    for name in (DEFAULTER, VALIDATOR):
        await installed.patch_webhooks(name, set_bundles(name, bundle))
    with capture_logs() as logs:
        async with installed.manager(cert_management=CertManagement(enable=False)) as probes:
            await probes.ready()
            assert "ca-bundle" not in (await probes.ask())[1]
            assert await installed.admits()
            project(2)
            shutil.rmtree(mounted / "..1")
            await until(lambda: any(each["event"] == "a new certificate is served" for each in logs))
            assert await installed.admits()


@pytest.mark.parametrize("older", [False, True])
@pytest.mark.usefixtures("impatient")
async def test_the_granted_rights_are_enough(older: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also to find the Secret by its name alone, and to write webhook configurations by theirs.

    Roles of an earlier version do not name the webhooks of jobs, without which everything else works.
    """
    monkeypatch.setenv("POD_NAMESPACE", enforcement.NAMESPACE)
    async with enforcement.enforced(tmp_path) as cluster:
        installed = CertificateInstallation(
            cluster.stack, tmp_path, access=cluster.access, namespace=enforcement.NAMESPACE
        )
        await installed.create_webhooks()
        await installed.create_webhooks(jobs=True)
        await installed.create_secret()
        shipped = enforcement.shipped_objects()
        for rule in [rule for obj in shipped if older for rule in obj.get("rules", ())]:
            if rule.get("resourceNames") == [JOB_VALIDATOR.name]:
                rule["resourceNames"] = ["another"]
        await cluster.apply(shipped)
        with capture_logs() as logs:
            async with installed.manager() as probes:
                await probes.ready()
                assert await installed.admits()
    told = [each for each in logs if each["event"].startswith("webhook configurations are not ours to read")]
    assert [list(each["reasons"]) for each in told] == ([[str(JOB_VALIDATOR)]] if older else [])
    assert older or not [each for each in logs if "orbidden" in str(each)]


async def test_a_deleted_configuration_is_told_and_the_others_are_served(installed: CertificateInstallation) -> None:
    """Also one of jobs of `kubeflow.org/v1`, which need not be there from the start."""
    await installed.create_webhooks(jobs=True)
    await installed.create_secret(good_secret())
    deleted, client = list[JsonObject](), installed.client
    with capture_logs() as logs:
        async with installed.manager() as probes:
            await probes.ready()
            for name, switch in ((DEFAULTER, "webhook.enabled"), (JOB_VALIDATOR, "trainingOperator.enabled")):
                deleted.append(await client.get(name.resource, None, name.name))
                await client.delete(name.resource, None, name.name)
                again = f"apply the manifests of this installation again, or set {switch} to false"
                note = f"the {name} does not exist: {again}"
                await probes.says(note)
                await until(partial(_is_told, client, note))
                assert value_of("trainmaster_webhook_configuration_missing", {"configuration": str(name)}) == 1
                assert (await probes.ask())[0] == 200, "the others are served"
            for name, obj in zip((DEFAULTER, JOB_VALIDATOR), deleted, strict=True):
                await client.create(name.resource, {**obj, "metadata": {"name": name.name}})
            await until(partial(_logged, logs, "a webhook configuration is there again", 2))
            assert value_of("trainmaster_webhook_configuration_missing", {"configuration": str(DEFAULTER)}) == 0
            assert await installed.admits()
    missing = [each for each in logs if each["event"].startswith("a webhook configuration is missing")]
    assert [each["name"] for each in missing] == [str(DEFAULTER), str(JOB_VALIDATOR)]


async def _is_told(client: KubeClient, note: str) -> bool:
    events = (await client.list(EVENTS, NAMESPACE))["items"]
    return ("WebhookConfigurationMissing", note) in {(each["reason"], each["note"]) for each in events}


def _logged(logs: list[MutableMapping[str, Any]], event: str, count: int) -> bool:
    return [each["event"] for each in logs].count(event) == count
