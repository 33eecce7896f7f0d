"""Pods and Jobs: defaults, validation and what cannot change, as far as no controller and no kubelet is involved."""

from __future__ import annotations

from typing import Any

import pytest
from support.conformance import STRATEGIC_PATCH, Collection
from support.samples import job, pod, pod_spec

from trainmaster.runtime.jsontree import JsonObject


def _template(**fields: Any) -> JsonObject:
    return {"spec": pod_spec(restartPolicy="Never", **fields)}


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("a", "Always"),
        ("a:latest", "Always"),
        ("a:1", "IfNotPresent"),
        ("registry.test:5000/a", "Always"),
        ("a@sha256:" + "0" * 64, "IfNotPresent"),
    ],
)
async def test_an_image_is_pulled_as_its_tag_says(pods: Collection, image: str, policy: str) -> None:
    [container] = (await pods.made(pod("a", containers=[{"name": "c", "image": image}])))["spec"]["containers"]
    assert container["imagePullPolicy"] == policy


@pytest.mark.parametrize(
    ("given", "canonical"),
    [
        ("0.5", "500m"),
        (2, "2"),
        ("1000m", "1"),
        ("1024Mi", "1Gi"),
        ("0.1", "100m"),
        ("1e3", "1e3"),
        ("1500Mi", "1500Mi"),
    ],
)
async def test_a_quantity_is_printed_in_one_way(pods: Collection, given: Any, canonical: str) -> None:
    container = {"name": "c", "image": "i", "resources": {"requests": {"memory": given}}}
    [made] = (await pods.made(pod("a", containers=[container])))["spec"]["containers"]
    assert made["resources"]["requests"]["memory"] == canonical


async def test_the_image_of_a_pod_may_change(pods: Collection) -> None:
    await pods.made(pod("a"))
    change = {"spec": {"containers": [{"name": "main", "image": "registry.test/image:2"}]}}
    obj = (await pods.patch("a", change, form=STRATEGIC_PATCH)).ok(200)
    assert obj["spec"]["containers"][0]["image"] == "registry.test/image:2"


async def test_a_gated_pod_is_not_scheduled(pods: Collection) -> None:
    obj = await pods.made(pod("a", schedulingGates=[{"name": "example.com/wait"}]))
    [condition] = [each for each in obj["status"]["conditions"] if each["type"] == "PodScheduled"]
    assert (condition["status"], condition["reason"]) == ("False", "SchedulingGated")


async def test_a_gate_may_go_and_none_may_come(pods: Collection) -> None:
    await pods.made(pod("a", schedulingGates=[{"name": "example.com/wait"}]))
    more = {"spec": {"schedulingGates": [{"name": "example.com/wait"}, {"name": "example.com/more"}]}}
    (await pods.patch("a", more)).refused(422, "Invalid")
    assert "schedulingGates" not in (await pods.patch("a", {"spec": {"schedulingGates": None}})).ok(200)["spec"]


async def test_a_job_takes_the_labels_of_its_template(jobs: Collection) -> None:
    obj = await jobs.made(job("a", template={"metadata": {"labels": {"l": "1"}}, **_template()}))
    assert obj["metadata"]["labels"]["l"] == "1"
