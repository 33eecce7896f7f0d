"""Workloads, PodGroups and groups of pods: the API server answers as kube-apiserver 1.36.2 did, request by request."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from support.conformance import JSON, MERGE_PATCH, connected
from support.devcluster.envtest import start_environment
from support.golden import GOLDEN, load_yaml

from trainmaster.controller.kube.auth.loader import load_config
from trainmaster.controller.kube.rest.config import RestConfig
from trainmaster.runtime.jsontree import JsonObject

RECORDED = load_yaml((GOLDEN / "workloads/validation.yaml").read_text())
DIFFERING: dict[str, set[Any]] = {"all_gates_on": set(), "gates_off": set(), "only_GenericWorkload": {"gw-17"}}
"""Cases that are answered otherwise: one setting opens all gates, so that a priority without a class is refused."""
_OF_OTHER_GATES = ("priority", "priorityClassName", "resourceClaims", "disruptionMode", "schedulingConstraints")
_VOLATILE = ("uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "managedFields", "namespace")


def judged(code: int, body: JsonObject) -> tuple[int, list[tuple[str, str]]]:
    causes = body.get("causes") or (body.get("details") or {}).get("causes") or ()
    return code, [(each["field"], each["reason"]) for each in causes]


def kept(obj: JsonObject, gates: str) -> JsonObject:
    """What is compared of an object that was returned: of pods and Jobs what was recorded, and no closed gate."""
    if obj.get("kind") not in ("Workload", "PodGroup"):
        return {"schedulingGroup": (obj.get("spec (part)") or obj.get("spec") or {}).get("schedulingGroup")}
    metadata = {key: value for key, value in obj["metadata"].items() if key not in _VOLATILE}
    if "generateName" in metadata:
        del metadata["name"]
    closed = () if gates == "all_gates_on" else _OF_OTHER_GATES
    spec = {key: value for key, value in obj["spec"].items() if key not in closed}
    if "podGroupTemplates" in spec:
        spec["podGroupTemplates"] = [
            {key: value for key, value in each.items() if key not in closed} for each in spec["podGroupTemplates"]
        ]
    return {**obj, "metadata": metadata, "spec": spec}


async def access(directory: Path) -> RestConfig:
    return await load_config(kubeconfig=str(directory / "kubeconfig"))


@pytest.mark.golden
@pytest.mark.parametrize("gates", RECORDED)
async def test_answers(tmp_path: Path, gates: str) -> None:
    differing: set[Any] = set()
    served = start_environment(tmp_path, workload_aware_scheduling=gates != "gates_off")
    async with served, connected(await access(tmp_path)) as client:
        (await client.send("POST", "/api/v1/namespaces", {"metadata": {"name": "ns"}})).ok()
        for name, value in (("low", 10), ("high", 1000)):
            body = {"metadata": {"name": name}, "value": value}
            (await client.send("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", body)).ok()
        for case in RECORDED[gates]:
            request, result = case["request"], case["result"]
            url = urlsplit(request["path"].replace("/NS/", "/ns/"))
            content_type = request.get("contentType", MERGE_PATCH if request["method"] == "PATCH" else JSON)
            query = dict(parse_qsl(url.query))
            answer = await client.send(
                request["method"], url.path, request.get("body"), content_type=content_type, **query
            )
            body = answer.json if answer.headers["Content-Type"].startswith(JSON) else {}
            if judged(answer.status, body) != judged(result["code"], result):
                differing.add(case["id"])
            elif result.get("stored"):
                assert kept(body, gates) == kept(result["stored"], gates), case["title"]
    assert differing == DIFFERING[gates]


async def test_a_closed_gate_drops_groups_from_templates_too(tmp_path: Path) -> None:
    template = {"spec": {"containers": [{"name": "c", "image": "x"}], "schedulingGroup": {"podGroupName": "g"}}}
    job = {"metadata": {"name": "j"}, "spec": {"template": template}}
    template["spec"]["restartPolicy"] = "Never"
    async with start_environment(tmp_path), connected(await access(tmp_path)) as client:
        stored = (await client.send("POST", "/apis/batch/v1/namespaces/default/jobs", job)).ok()
    assert "schedulingGroup" not in stored["spec"]["template"]["spec"]
