"""Jobs of `kubeflow.org/v1` while nobody answers their webhooks: what the API server does not ask about goes on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from support.admission import CONFIGURATIONS, Answer, Requests, job_manifest, requests_to
from support.job_kinds import job_object
from support.stack import api_server

from trainmaster.devcluster.crds.install import TRAINING_OPERATOR_DEFINITIONS, install_definitions
from trainmaster.runtime.jobs.loader import load_job_kinds
from trainmaster.runtime.jsontree import JsonObject

KINDS = {kind.kind: kind for kind in load_job_kinds()}
JUDGED = ("JAXJob", "PaddleJob", "PyTorchJob", "TFJob", "XGBoostJob")
MERGE = "application/merge-patch+json"


@pytest.fixture
async def requests(tmp_path: Path) -> AsyncIterator[Requests]:
    """An API server that has jobs, and webhooks that lead nowhere."""
    async with api_server(tmp_path, definitions=False) as stack:
        if stack.cluster is None:
            pytest.skip("a real cluster may serve other jobs")
        await install_definitions(stack.cluster.api, TRAINING_OPERATOR_DEFINITIONS)
        async with requests_to(stack) as requests:
            for kind in JUDGED:
                job = made(kind)
                job["metadata"]["finalizers"] = ["example.com/kept"]
                assert (await requests.send("POST", path(kind), job)).code == 201
            [configuration] = job_manifest()
            assert (
                await requests.send("POST", f"{CONFIGURATIONS}/validatingwebhookconfigurations", configuration)
            ).code == 201
            yield requests


def made(kind: str, name: str = "job") -> JsonObject:
    job = job_object(KINDS[kind], {"Worker": 1}, name=name, namespace="default")
    del job["metadata"]["uid"]
    return job


def path(kind: str, name: str = "") -> str:
    return f"/apis/kubeflow.org/v1/namespaces/default/{KINDS[kind].plural}{f'/{name}' if name else ''}"


async def patch(requests: Requests, kind: str, body: dict[str, Any]) -> Answer:
    return await requests.send("PATCH", path(kind, "job"), body, kind=MERGE)


@pytest.mark.defect("V1-B36")
async def test_what_is_not_the_spec_can_be_edited_and_the_spec_cannot(requests: Requests) -> None:
    for kind in JUDGED:
        refusals = [
            await requests.send("POST", path(kind), made(kind, "another")),
            await patch(requests, kind, {"spec": {"runPolicy": {"backoffLimit": 1}}}),
            await patch(requests, kind, {"spec": None}),
        ]
        for refusal in refusals:
            assert refusal.code == 500, kind
            assert (
                f'failed calling webhook "validator.{kind.lower()}.training-operator.kubeflow.org"' in refusal.message
            )
        assert (await patch(requests, kind, {"metadata": {"labels": {"a": "b"}}})).code == 200
        assert (await requests.send("DELETE", path(kind, "job"))).code == 200
        assert (await requests.send("GET", path(kind, "job"))).body["metadata"]["deletionTimestamp"]
        assert (await patch(requests, kind, {"metadata": {"finalizers": None}})).code == 200
        assert (await requests.send("GET", path(kind, "job"))).code == 404
