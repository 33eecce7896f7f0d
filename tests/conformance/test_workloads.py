"""Pods and Jobs: defaults, validation and what cannot change, as far as no controller and no kubelet is involved."""

from __future__ import annotations

from typing import Any

import pytest
from support.conformance import STRATEGIC_PATCH, Collection
from support.samples import job, pod, pod_spec

from trainmaster.runtime.jsontree import JsonObject


def _template(**fields: Any) -> JsonObject:
    return {"spec": pod_spec(restartPolicy="Never", **fields)}


async def test_a_pod_gets_its_defaults(pods: Collection) -> None:
    spec = (await pods.made(pod("a")))["spec"]
    expected = {
        "restartPolicy": "Always",
        "dnsPolicy": "ClusterFirst",
        "terminationGracePeriodSeconds": 30,
        "securityContext": {},
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",
        "priority": 0,
    }
    assert {name: spec.get(name) for name in expected} == expected


async def test_a_pod_keeps_its_account_under_both_names(pods: Collection) -> None:
    spec = (await pods.made(pod("a")))["spec"]
    assert (spec["serviceAccountName"], spec["serviceAccount"]) == ("runner", "runner")


async def test_a_pod_tolerates_a_lost_node_for_a_while(pods: Collection) -> None:
    tolerations = (await pods.made(pod("a")))["spec"]["tolerations"]
    assert tolerations == [
        {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        for key in ("not-ready", "unreachable")
    ]


async def test_a_container_gets_its_defaults(pods: Collection) -> None:
    [container] = (await pods.made(pod("a")))["spec"]["containers"]
    assert (container["terminationMessagePath"], container["terminationMessagePolicy"]) == (
        "/dev/termination-log",
        "File",
    )
    assert container["resources"] == {}


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


async def test_ports_and_probes_get_defaults(pods: Collection) -> None:
    probe = {"httpGet": {"port": 80}}
    container = {"name": "c", "image": "i", "ports": [{"containerPort": 80}], "readinessProbe": probe}
    [made] = (await pods.made(pod("a", containers=[container])))["spec"]["containers"]
    assert made["ports"] == [{"containerPort": 80, "protocol": "TCP"}]
    numbers = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
    assert made["readinessProbe"] == {"httpGet": {"port": 80, "path": "/", "scheme": "HTTP"}, **numbers}


async def test_volumes_get_defaults(pods: Collection) -> None:
    volumes = [
        {"name": "empty"},
        {"name": "map", "configMap": {"name": "m"}},
        {"name": "secret", "secret": {"secretName": "s"}},
    ]
    made = (await pods.made(pod("a", volumes=volumes)))["spec"]["volumes"]
    assert made == [
        {"name": "empty", "emptyDir": {}},
        {"name": "map", "configMap": {"name": "m", "defaultMode": 420}},
        {"name": "secret", "secret": {"secretName": "s", "defaultMode": 420}},
    ]


async def test_a_field_reference_gets_its_version(pods: Collection) -> None:
    env = [{"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]
    [container] = (await pods.made(pod("a", containers=[{"name": "c", "image": "i", "env": env}])))["spec"][
        "containers"
    ]
    assert container["env"][0]["valueFrom"]["fieldRef"] == {"apiVersion": "v1", "fieldPath": "metadata.name"}


async def test_a_limit_is_a_request_as_well(pods: Collection) -> None:
    container = {"name": "c", "image": "i", "resources": {"limits": {"cpu": "1"}}}
    [made] = (await pods.made(pod("a", containers=[container])))["spec"]["containers"]
    assert made["resources"] == {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}


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


async def test_a_wrong_quantity_is_a_bad_request(pods: Collection) -> None:
    container = {"name": "c", "image": "i", "resources": {"requests": {"memory": "much"}}}
    (await pods.create(pod("a", containers=[container]))).refused(400, "BadRequest")


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ({}, "BestEffort"),
        ({"requests": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed"),
    ],
)
async def test_a_pod_has_a_class_of_service(pods: Collection, resources: JsonObject, expected: str) -> None:
    made = await pods.made(pod("a", containers=[{"name": "c", "image": "i", "resources": resources}]))
    assert (made["status"]["qosClass"], made["status"]["phase"]) == (expected, "Pending")


@pytest.mark.parametrize(
    ("spec", "field", "reason"),
    [
        ({"containers": [{"name": "c"}]}, None, None),
        ({"containers": [{"image": "i"}]}, "spec.containers[0].name", "FieldValueRequired"),
        ({"containers": [{"name": "A", "image": "i"}]}, "spec.containers[0].name", "FieldValueInvalid"),
        ({"containers": [{"name": "c", "image": "i"}] * 2}, "spec.containers[1].name", "FieldValueDuplicate"),
        ({"restartPolicy": "Sometimes"}, "spec.restartPolicy", "FieldValueNotSupported"),
        ({"dnsPolicy": "Mine"}, "spec.dnsPolicy", "FieldValueNotSupported"),
        ({"activeDeadlineSeconds": 0}, "spec.activeDeadlineSeconds", "FieldValueInvalid"),
        ({"hostname": "a.b"}, "spec.hostname", "FieldValueInvalid"),
        ({"terminationGracePeriodSeconds": -5}, None, None),
        (
            {"containers": [{"name": "c", "image": "i", "imagePullPolicy": "Often"}]},
            "spec.containers[0].imagePullPolicy",
            "FieldValueNotSupported",
        ),
        (
            {"containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 99999}]}]},
            "spec.containers[0].ports[0].containerPort",
            "FieldValueInvalid",
        ),
        (
            {"containers": [{"name": "c", "image": "i", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]},
            "spec.containers[0].volumeMounts[0].name",
            "FieldValueNotFound",
        ),
        ({"volumes": [{"name": "v", "emptyDir": {}}] * 2}, "spec.volumes[1].name", "FieldValueDuplicate"),
    ],
)
async def test_a_pod_is_validated(pods: Collection, spec: JsonObject, field: str | None, reason: str | None) -> None:
    """Tolerance: an image is not needed where a controller fills it in, so a server may accept a pod without one."""
    answer = await pods.create(pod("a", **spec))
    if field is None:
        assert answer.status in {201, 422}
        return
    assert (field, reason) in answer.causes()


async def test_a_pod_needs_a_container(pods: Collection) -> None:
    obj = pod("a")
    obj["spec"]["containers"] = []
    assert ("spec.containers", "FieldValueRequired") in (await pods.create(obj)).causes()


async def test_the_spec_of_a_pod_hardly_changes(pods: Collection) -> None:
    await pods.made(pod("a"))
    answer = await pods.patch("a", {"spec": {"hostname": "other"}})
    assert answer.causes() == [("spec", "FieldValueForbidden")]
    assert "pod updates may not change fields other than" in answer.json["message"]


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


async def test_a_job_gets_its_defaults(jobs: Collection) -> None:
    spec = (await jobs.made(job("a")))["spec"]
    expected = {
        "parallelism": 1,
        "completions": 1,
        "backoffLimit": 6,
        "completionMode": "NonIndexed",
        "suspend": True,
        "podReplacementPolicy": "TerminatingOrFailed",
    }
    assert {name: spec.get(name) for name in expected} == expected


async def test_a_work_queue_has_no_completions(jobs: Collection) -> None:
    spec = (await jobs.made(job("a", parallelism=2)))["spec"]
    assert (spec["parallelism"], "completions" in spec) == (2, False)


async def test_a_job_selects_its_own_pods(jobs: Collection) -> None:
    obj = await jobs.made(job("a"))
    uid = obj["metadata"]["uid"]
    assert obj["spec"]["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    labels = {"controller-uid": uid, "job-name": "a"}
    expected = {**labels, **{f"batch.kubernetes.io/{name}": value for name, value in labels.items()}}
    assert obj["spec"]["template"]["metadata"]["labels"] == expected


async def test_a_job_takes_the_labels_of_its_template(jobs: Collection) -> None:
    obj = await jobs.made(job("a", template={"metadata": {"labels": {"l": "1"}}, **_template()}))
    assert obj["metadata"]["labels"]["l"] == "1"


async def test_the_template_of_a_job_gets_the_defaults_of_a_pod(jobs: Collection) -> None:
    spec = (await jobs.made(job("a")))["spec"]["template"]["spec"]
    assert (spec["dnsPolicy"], spec["terminationGracePeriodSeconds"]) == ("ClusterFirst", 30)
    assert spec["containers"][0]["imagePullPolicy"] == "IfNotPresent"


@pytest.mark.parametrize(
    ("spec", "field", "reason"),
    [
        ({"parallelism": -1}, "spec.parallelism", "FieldValueInvalid"),
        ({"completions": -1}, "spec.completions", "FieldValueInvalid"),
        ({"backoffLimit": -1}, "spec.backoffLimit", "FieldValueInvalid"),
        ({"activeDeadlineSeconds": -1}, "spec.activeDeadlineSeconds", "FieldValueInvalid"),
        ({"ttlSecondsAfterFinished": -1}, "spec.ttlSecondsAfterFinished", "FieldValueInvalid"),
        ({"completionMode": "Indexed", "parallelism": 1}, "spec.completions", "FieldValueRequired"),
        ({"template": {"spec": pod_spec()}}, "spec.template.spec.restartPolicy", "FieldValueRequired"),
        (
            {"template": {"spec": pod_spec(restartPolicy="Always")}},
            "spec.template.spec.restartPolicy",
            "FieldValueRequired",
        ),
        ({"selector": {"matchLabels": {"a": "b"}}}, "spec.selector", "FieldValueInvalid"),
        ({"podReplacementPolicy": "Never"}, "spec.podReplacementPolicy", "FieldValueNotSupported"),
        (
            {"podFailurePolicy": {"rules": []}, "template": {"spec": pod_spec(restartPolicy="OnFailure")}},
            "spec.template.spec.restartPolicy",
            "FieldValueInvalid",
        ),
    ],
)
async def test_a_job_is_validated(jobs: Collection, spec: JsonObject, field: str, reason: str) -> None:
    assert (field, reason) in (await jobs.create(job("a", **spec))).causes()


async def test_the_pods_of_an_indexed_job_need_names(jobs: Collection) -> None:
    answer = await jobs.create(job("x" * 62, completionMode="Indexed", completions=10))
    assert ("metadata.name", "FieldValueInvalid") in answer.causes()


@pytest.mark.parametrize(
    ("field", "value", "where"),
    [
        ("completions", 5, "spec.completions"),
        ("completionMode", "Indexed", "spec.completionMode"),
        ("template", {"spec": {"restartPolicy": "OnFailure"}}, "spec.template.spec"),
    ],
)
async def test_much_of_a_job_cannot_change(jobs: Collection, field: str, value: Any, where: str) -> None:
    await jobs.made(job("a"))
    answer = await jobs.patch("a", {"spec": {field: value}})
    assert where in [path for path, _ in answer.causes()]
    assert "field is immutable" in answer.json["message"]


@pytest.mark.parametrize(
    ("field", "value"),
    [("parallelism", 3), ("activeDeadlineSeconds", 60), ("backoffLimit", 2), ("ttlSecondsAfterFinished", 9)],
)
async def test_some_of_a_job_may_change(jobs: Collection, field: str, value: int) -> None:
    await jobs.made(job("a"))
    assert (await jobs.patch("a", {"spec": {field: value}})).ok(200)["spec"][field] == value


async def test_an_elastic_job_changes_its_size(jobs: Collection) -> None:
    """Tolerance: on by default since 1.27."""
    await jobs.made(job("a", completionMode="Indexed", completions=2, parallelism=2))
    spec = (await jobs.patch("a", {"spec": {"completions": 3, "parallelism": 3}})).ok(200)["spec"]
    assert (spec["completions"], spec["parallelism"]) == (3, 3)


async def test_a_suspended_job_may_be_steered(jobs: Collection) -> None:
    """A queueing system says where the pods go before they start."""
    await jobs.made(job("a"))
    change = {"spec": {"template": {"spec": {"nodeSelector": {"zone": "a"}}}}}
    spec = (await jobs.patch("a", change)).ok(200)["spec"]
    assert spec["template"]["spec"]["nodeSelector"] == {"zone": "a"}
