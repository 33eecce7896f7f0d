"""What a deployed manager tells through the API server to whoever shows a token: its history, which the overlay of that
name has on a volume, its web page, its metrics and `/debug/`."""

import json
import tarfile
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
import yaml
from support.commands import eventually, trainmaster
from support.deployed import NAME, NAMESPACE, Deployed, deployed, rendered
from support.training import runtime, trainjob

from trainmaster.controller.kube.auth.loader import load_config
from trainmaster.controller.kube.rest.resources import FORWARDED_AUTHORIZATION, Resource
from trainmaster.runtime.jsontree import JsonObject

pytestmark = [
    pytest.mark.kubectl,
    pytest.mark.timeout(300),
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.usefixtures("told"),
]

CLAIMS = Resource("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", namespaced=True)
CONFIGURATION = "controller_manager_config.yaml"
SERVICE = f"/api/v1/namespaces/{NAMESPACE}/services/https:{NAME}:metrics/proxy"
READER = """
apiVersion: v1
kind: ServiceAccount
metadata: {name: ada, namespace: default}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: history-reader}
rules:
- {nonResourceURLs: ["/history/*", "/web/", "/metrics", "/debug/*"], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: history-reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: history-reader}
subjects: [{kind: ServiceAccount, name: ada, namespace: default}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: trainjobs, namespace: default}
rules:
- {apiGroups: [trainer.kubeflow.org], resources: [trainjobs], verbs: [list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: trainjobs, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: trainjobs}
subjects: [{kind: ServiceAccount, name: ada, namespace: default}]
"""


def configured(manifests: str, **options: Any) -> str:
    """Manifests in which the configuration of the manager says something else as well."""
    objects = list(yaml.safe_load_all(manifests))
    (config_map,) = (each for each in objects if CONFIGURATION in (each.get("data") or {}))
    read = yaml.safe_load(config_map["data"][CONFIGURATION])
    config_map["data"][CONFIGURATION] = yaml.safe_dump(read | options)
    return yaml.safe_dump_all(objects)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Deployed]:
    manifests = configured(rendered("history"), web={"enabled": True}, enableDebuggingHandlers=True)
    async with deployed(tmp_path_factory.mktemp("reading"), manifests) as running:
        await running.create(runtime())
        await running.apply(READER)
        await running.create(trainjob("good", trainer={"command": ["true"]}))
        await running.completed("good")
        await running.kubectl("delete", "trainjob", "good")
        yield running


async def history(cluster: Deployed, *words: str) -> dict[str, JsonObject]:
    options = ("-o", "json", "--kubeconfig", str(cluster.kubeconfig))
    done = await trainmaster("history", *words, *options, cwd=cluster.home)
    assert (done.code, done.err) == (0, "")
    return {each["name"]: each for each in json.loads(done.out)["items"]}


async def page(cluster: Deployed, path: str, *, token: str = "") -> tuple[int, str]:
    config = await load_config(kubeconfig=str(cluster.kubeconfig))
    headers = {**await config.headers(), **({FORWARDED_AUTHORIZATION: f"Bearer {token}"} if token else {})}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.get(config.server + path, ssl=config.ssl_context or True) as answer,
    ):
        return answer.status, await answer.text()


async def restarted(cluster: Deployed) -> None:
    await cluster.kubectl("rollout", "restart", f"deployment/{NAME}", "-n", NAMESPACE)
    await cluster.rolled_out()
    await cluster.admits()  # until then the API server reaches nobody, for what is read through it as well


async def test_a_job_that_is_gone_is_in_the_history(cluster: Deployed) -> None:
    async def recorded() -> JsonObject | None:
        return (await history(cluster)).get("good")

    assert (await eventually(recorded))["result"] == "Succeeded"


async def test_records_outlive_their_pod(cluster: Deployed) -> None:
    (before,) = await cluster.pods()
    await restarted(cluster)
    (after,) = await cluster.pods()
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert "good" in await history(cluster)
    (claim,) = await cluster.items(CLAIMS, namespace=NAMESPACE)
    assert claim["metadata"]["name"] == "kubeflow-trainer-history"


async def test_who_shows_a_token_sees_their_namespaces(cluster: Deployed) -> None:
    token = (await cluster.kubectl("create", "token", "ada")).strip()
    file = cluster.home / "token"
    file.write_text(token)
    assert "good" in await history(cluster, "--token-file", str(file))
    options = ("-n", "kubeflow", "--token-file", str(file), "--kubeconfig", str(cluster.kubeconfig))
    done = await trainmaster("history", *options, cwd=cluster.home)
    assert done.code == 1
    assert "you may not list TrainJobs in namespace kubeflow" in done.err

    status, body = await page(cluster, f"{SERVICE}/web/", token=token)
    assert (status, ">good<" in body) == (200, True)
    status, body = await page(cluster, f"{SERVICE}/web/")
    assert (status, "good" in body, "Log in" in body) == (401, False, True), "the proxy lets nobody in"


async def test_the_bundle_has_metrics_and_debug_for_a_token_that_may_read_them(cluster: Deployed) -> None:
    (pod,) = await cluster.pods()
    pages = f"manager/{NAMESPACE}/pages/{pod['metadata']['name']}"
    files, index = await bundle(cluster)
    assert not [file for file in files if file.startswith(pages)]
    (missing,) = (each for each in index["missing"] if each["what"].startswith(pages))
    assert "401" in missing["reason"]

    token = cluster.home / "token"
    token.write_text(await cluster.kubectl("create", "token", "ada"))
    files, _ = await bundle(cluster, "-m", NAMESPACE, "--token-file", str(token))
    assert b"controller_runtime_reconcile_total{" in files[f"{pages}/metrics.txt"]
    assert b"trainjob" in files[f"{pages}/debug/queue"]
    assert not [file for file, content in files.items() if token.read_bytes().strip() in content]


async def bundle(cluster: Deployed, *words: str) -> tuple[dict[str, bytes], JsonObject]:
    path = cluster.home / "bundle.tar.gz"
    options = ("-o", str(path), "--force", "--kubeconfig", str(cluster.kubeconfig))
    done = await trainmaster("support-bundle", *words, *options, cwd=cluster.home)
    assert done.code == 0, done.err
    with tarfile.open(path) as archive:
        files = {
            member.name.partition("/")[2]: found.read() for member in archive if (found := archive.extractfile(member))
        }
    index: JsonObject = json.loads(files["index.json"])
    return files, index


async def doctor(cluster: Deployed) -> tuple[int, list[JsonObject]]:
    done = await trainmaster("doctor", "-o", "json", "--kubeconfig", str(cluster.kubeconfig), cwd=cluster.home)
    found = json.loads(done.out)["findings"]
    return done.code, [each for each in found if (each["question"], each["status"]) != ("installation", "ok")]


async def test_doctor_tells_whether_the_installation_is_healthy(cluster: Deployed) -> None:
    """With the configuration of the installation: that of its ConfigMap, in which components have files."""
    code, found = await doctor(cluster)
    assert (code, [each for each in found if each["question"] == "installation"]) == (0, [])
    name = "validator.trainer.kubeflow.org"
    (webhooks,) = (each for each in yaml.safe_load_all(rendered("history")) if each["metadata"]["name"] == name)
    await cluster.kubectl("delete", "validatingwebhookconfiguration", name)
    try:
        code, found = await doctor(cluster)
    finally:
        await cluster.apply(yaml.safe_dump(webhooks))
        await cluster.admits()
    failed = [each["message"] for each in found if each["status"] == "fail"]
    assert (code, failed) == (
        1,
        [f"there is no ValidatingWebhookConfiguration {name}: TrainJobs are admitted unchecked"],
    )
