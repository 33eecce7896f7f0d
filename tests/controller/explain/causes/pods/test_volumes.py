"""Pods that cannot start: images, claims, containers as they are written, init containers, ranks that do not fit."""

from typing import Any

import pytest
from support.pod_views import claim, event, pod, unscheduled, view, waiting

from trainmaster.controller.explain.cause import Cause
from trainmaster.controller.explain.causes.pods.container_config import container_config_error
from trainmaster.controller.explain.causes.pods.images import image_pull_failed
from trainmaster.controller.explain.causes.pods.init_containers import init_container_runs
from trainmaster.controller.explain.causes.pods.volumes import volume_pending
from trainmaster.controller.explain.causes.pods.world_size import world_size_mismatch
from trainmaster.controller.explain.explanation import explain
from trainmaster.controller.explain.findings import Certainty, Finding, parse_time
from trainmaster.controller.explain.view import JobView
from trainmaster.runtime.jsontree import JsonObject

MOUNTS: JsonObject = {"containers": [], "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}
UNBOUND = unscheduled("0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims.")
STANDARD = {"metadata": {"name": "standard"}, "provisioner": "example.com/disks"}


def test_a_claim_that_does_not_exist_or_is_bound() -> None:
    waits = pod(spec=MOUNTS, **unscheduled('0/1 nodes are available: persistentvolumeclaim "data" not found.'))
    nobody_looked: list[JsonObject] | None = None
    for claims in ([], nobody_looked):
        (finding,) = volume_pending(view(waits, claims=claims))
        assert finding.cause is Cause.VOLUME_PENDING
        assert (finding.evidence[0].object.name, finding.evidence[0].text) == ("data", "it does not exist")
        assert "create the claim data in the namespace ns" in finding.what_next[0]
    # A bound claim and a job that runs are as they should be.
    assert not list(volume_pending(view(pod(spec=MOUNTS), claims=[claim("data", "Bound")], storage_classes=[])))
    assert not list(volume_pending(view(pod(phase="Running", spec=MOUNTS), claims=[], storage_classes=[])))


def test_a_storage_class_that_does_not_exist() -> None:
    note = 'storageclass.storage.k8s.io "fast" not found'
    told = [event("PersistentVolumeClaim", "data", "ProvisioningFailed", note)]
    known = {"claims": [claim("data", storageClassName="fast")], "storage_classes": [STANDARD], "events": told}
    (finding,) = volume_pending(view(pod(spec=MOUNTS, **UNBOUND), **known))
    assert finding.evidence[0].text == (
        f"it is Pending: its storage class fast does not exist: {note}; there are: standard"
    )
    assert finding.evidence[1].text.startswith("node 0: 0/1 nodes are available")


def test_a_claim_that_is_not_provisioned_says_why() -> None:
    # No storage class and none is the default.
    (finding,) = volume_pending(view(pod(spec=MOUNTS, **UNBOUND), claims=[claim("data")], storage_classes=[STANDARD]))
    assert "it names no storage class, and none is the default" in finding.evidence[0].text
    # Why a claim is not provisioned is told.
    told = [event("PersistentVolumeClaim", "data", "ProvisioningFailed", "quota of disks exceeded")]
    claims = [claim("data", storageClassName="standard")]
    (finding,) = volume_pending(
        view(pod(spec=MOUNTS, **UNBOUND), claims=claims, storage_classes=[STANDARD], events=told)
    )
    assert finding.evidence[0].text == "it is Pending: quota of disks exceeded"
    assert finding.what_next == ["see why it is not bound: kubectl describe pvc data -n ns"]
    # A claim that lost its volume.
    (finding,) = volume_pending(view(pod(spec=MOUNTS), claims=[claim("data", "Lost", volumeName="pv-1")]))
    assert finding.evidence[0].text == "it is Lost: its volume pv-1 is gone"


def test_a_claim_that_waits_for_its_first_pod_is_as_it_should_be() -> None:
    late = {**STANDARD, "volumeBindingMode": "WaitForFirstConsumer"}
    waits = pod(spec=MOUNTS, **unscheduled("0/1 nodes are available: 1 Insufficient cpu."))
    claims = [claim("data", storageClassName="standard")]
    assert not list(volume_pending(view(waits, claims=claims, storage_classes=[late])))
    note = "waiting for first consumer to be created before binding"
    told = [event("PersistentVolumeClaim", "data", "WaitForFirstConsumer", note, warning=False)]
    assert not list(volume_pending(view(waits, claims=claims, storage_classes=None, events=told)))


def test_a_volume_that_cannot_be_mounted() -> None:
    note = 'MountVolume.SetUp failed for volume "nfs" : mount failed: exit status 32: Connection timed out'
    told = [event("Pod", "t-node-0-0", "FailedMount", note)]
    (finding,) = volume_pending(view(pod(**waiting("ContainerCreating")), events=told))
    assert "exit status 32" in finding.evidence[0].text
    missing = [event("Pod", "t-node-0-0", "FailedMount", 'MountVolume.SetUp failed: configmap "a" not found')]
    assert not list(volume_pending(view(pod(**waiting("ContainerCreating")), events=missing)))


@pytest.mark.parametrize(
    ("message", "advice"),
    [
        ('secret "token" not found', "create the Secret token in the namespace ns"),
        ("couldn't find key HF_TOKEN in Secret ns/token", "put the key HF_TOKEN into the Secret token"),
        ("container has runAsNonRoot and image will run as root", "correct what the message names"),
    ],
)
def test_what_is_missing_and_where(message: str, advice: str) -> None:
    (finding,) = container_config_error(view(pod(**waiting("CreateContainerConfigError", message))))
    assert finding.cause is Cause.CONTAINER_CONFIG_ERROR
    assert message in finding.evidence[0].text
    assert advice in finding.what_next[0]


def test_a_pod_that_waits_for_the_devices_of_others_is_written_well() -> None:
    message = "container 'node' asks for 1 nvidia.com/gpu, and 0 are free until others have ended"
    (finding,) = container_config_error(view(pod(**waiting("CreateContainerError", message))))
    assert finding.cause is Cause.UNSCHEDULABLE
    assert finding.what_next == ["wait until those have ended that have the devices: the pods go on by themselves then"]
    message += "; GPU 0 has been given to a pod of another cluster, that in /a b/.trainmaster"
    (finding,) = container_config_error(view(pod(**waiting("CreateContainerError", message))))
    assert message in finding.evidence[0].text
    assert finding.what_next[1].endswith(": trainmaster list -A --kubeconfig '/a b/.trainmaster/kubeconfig'")


def test_a_volume_that_cannot_be_mounted_otherwise_is_another_cause() -> None:
    told = [event("Pod", "t-node-0-0", "FailedMount", "MountVolume.SetUp failed: mount.nfs: Connection timed out")]
    assert not list(container_config_error(view(pod(**waiting("ContainerCreating")), events=told)))
    note = 'MountVolume.SetUp failed for volume "cfg" : configmap "settings" not found'
    told = [event("Pod", "t-node-0-0", "FailedMount", note)]
    (finding,) = container_config_error(view(pod(**waiting("ContainerCreating")), events=told))
    assert "create the ConfigMap settings" in finding.what_next[0]
    assert not list(container_config_error(view(pod(phase="Running"), events=told))), "it came in the meantime"


LONG_AGO, JUST_NOW = "2026-11-23T11:50:05Z", "2026-11-23T11:59:45Z"


def initializing(rank: int = 0, *, started: str = LONG_AGO, **container: Any) -> JsonObject:
    status = {"name": "wait-for-data", "restartCount": 0, "state": {"running": {"startedAt": started}}}
    spec = {"initContainers": [{"name": "wait-for-data", "image": "busybox", **container}]}
    return pod(rank, spec={"nodeName": "n1", **spec}, initContainerStatuses=[status])


def test_an_init_container_that_does_not_end_is_named_with_what_it_said_last() -> None:
    logs = {("t-node-0-0", "wait-for-data"): ("waiting for /data/READY", "")}
    (found,) = explain(view(initializing(0), initializing(1), logs=logs)).findings
    assert (found.cause, found.certainty) == (Cause.INIT_CONTAINER_FAILED, Certainty.LIKELY)
    assert [each.text for each in found.evidence] == [
        "rank 0 and 1 other: init container wait-for-data still runs, and the others start when it has ended",
        "it said last: waiting for /data/READY",
    ]
    assert found.evidence[0].at == found.since == parse_time(LONG_AGO)
    assert found.what_next == ("see what it waits for: kubectl logs t-node-0-0 -c wait-for-data -n ns",)


def test_one_that_has_just_started_and_one_that_goes_on_beside_the_others_are_well() -> None:
    assert not list(init_container_runs(view(initializing(started=JUST_NOW))))
    assert not list(init_container_runs(view(initializing(restartPolicy="Always"))))


def told(rank: int, **variables: str) -> JsonObject:
    env: list[JsonObject] = [{"name": name, "value": value} for name, value in variables.items()]
    env.append({"name": "PET_NODE_RANK", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}})
    return pod(rank, phase="Running", spec={"containers": [{"name": "node", "image": "i", "env": env}]})


def jobset(nodes: int) -> JsonObject:
    job = {"name": "node", "replicas": 1, "template": {"spec": {"parallelism": nodes}}}
    return {"kind": "JobSet", "metadata": {"name": "t", "namespace": "ns"}, "spec": {"replicatedJobs": [job]}}


def test_ranks_that_disagree_with_each_other_or_with_the_number_of_pods() -> None:
    pods = [told(0, WORLD_SIZE="4"), told(1, WORLD_SIZE="4"), told(2, WORLD_SIZE="2")]
    (finding,) = world_size_mismatch(view(*pods))
    assert finding.cause is Cause.WORLD_SIZE_MISMATCH
    assert finding.evidence[0].text == "WORLD_SIZE=4 in rank 0 and 1 other; WORLD_SIZE=2 in rank 2"
    assert "WORLD_SIZE" in finding.what_next[0]
    # Another number than there are pods.
    (finding,) = world_size_mismatch(view(told(0, PET_NNODES="4"), told(1, PET_NNODES="4"), jobsets=[jobset(2)]))
    assert finding.evidence[0].text == "PET_NNODES=4 in rank 0 and 1 other, while the job has 2 pods that train"


@pytest.mark.parametrize("nodes", ["2", "1:4", "$(NODES)"])
def test_what_agrees_or_is_a_range_is_as_it_should_be(nodes: str) -> None:
    pods = [told(rank, PET_NNODES=nodes, WORLD_SIZE="2") for rank in range(2)]
    assert not list(world_size_mismatch(view(*pods, jobsets=[jobset(2)])))


def test_pods_of_an_attempt_that_is_over_are_not_compared() -> None:
    old = told(0, WORLD_SIZE="2")
    old["metadata"]["deletionTimestamp"] = "2026-11-23T11:59:00Z"
    assert not list(world_size_mismatch(view(old, told(0, WORLD_SIZE="4"), told(1, WORLD_SIZE="4"))))


IMAGE = "example.com/train:1"
MISSING = "Unable to retrieve some image pull secrets (regcred); attempting to pull the image may not succeed."
RESOLVE = f'failed to pull and unpack image "{IMAGE}": failed to resolve reference "{IMAGE}": '


def found(view: JobView) -> Finding:
    (finding,) = image_pull_failed(view)
    assert (finding.cause, finding.certainty) == (Cause.IMAGE_PULL_FAILED, Certainty.CERTAIN)
    return finding


@pytest.mark.parametrize(
    ("reason", "message", "advice"),
    [
        ("ErrImagePull", f"rpc error: code = NotFound desc = {RESOLVE}{IMAGE}: not found",
         "the registry does not have it"),
        ("ImagePullBackOff",
         f'Back-off pulling image "{IMAGE}": ErrImagePull: {RESOLVE}unexpected status from HEAD: 401 Unauthorized',
         "imagePullSecrets"),
        ("ErrImagePull",
         f"{RESOLVE}pull access denied, repository does not exist or may require authorization: server message: x",
         "imagePullSecrets"),
        ("ErrImagePull", f"{RESOLVE}429 Too Many Requests - Server message: toomanyrequests: rate limit", "limits"),
        ("ErrImagePull", f"{RESOLVE}tls: failed to verify certificate: x509: certificate signed by unknown authority",
         "trust the certificate"),
        ("ErrImagePull", f"{RESOLVE}dial tcp 10.0.0.1:443: i/o timeout", "nodes reach the registry"),
        ("ErrImagePull", f"{RESOLVE}no match for platform in manifest: not found", "architecture"),
        ("ErrImageNeverPull", f'Container image "{IMAGE}" is not present with pull policy of Never', "imagePullPolicy"),
    ],
)  # fmt: skip
def test_what_the_registry_says_and_what_helps(reason: str, message: str, advice: str) -> None:
    finding = found(view(pod(**waiting(reason, message))))
    assert IMAGE in finding.evidence[0].text
    assert "rpc error" not in finding.evidence[0].text
    assert advice in finding.what_next[0], finding.what_next


def test_older_kubelets_say_it_by_an_event_only() -> None:
    note = (
        f'Failed to pull image "{IMAGE}": rpc error: code = Unknown desc = Error response from daemon: manifest unknown'
    )
    told = event("Pod", "t-node-0-0", "Failed", note)
    waits = waiting("ImagePullBackOff", f'Back-off pulling image "{IMAGE}"')
    finding = found(view(pod(**waits), events=[told]))
    assert "Error response from daemon: manifest unknown" in finding.evidence[0].text
    # One rank of many and its number.
    others = [pod(0, phase="Running"), pod(1, **waiting("ContainerCreating"))]
    finding = found(view(*others, pod(3, **waiting("ErrImagePull", "denied"))))
    assert finding.evidence[0].text.startswith("rank 3: container node: ")
    # A credential that a registry quotes is not shown.
    words = "denied: Authorization: Bearer abcdefghij0123456789abcdefghij0123456789"
    assert "abcdefghij0123456789" not in found(view(pod(**waiting("ErrImagePull", words)))).evidence[0].text


def test_the_credentials_are_told() -> None:
    containers = [{"name": "node", "image": IMAGE}]
    missing = [event("Pod", "t-node-0-0", "FailedToRetrieveImagePullSecret", MISSING)]
    for secrets, events, text in (
        ([], [], "it has no pull secrets"),
        ([{"name": "regcred"}], [], "its pull secrets: regcred"),
        ([{"name": "regcred"}], missing, MISSING),
    ):
        spec: JsonObject = {"containers": containers, "imagePullSecrets": secrets}
        finding = found(view(pod(spec=spec, **waiting("ErrImagePull", "denied")), events=events))
        assert finding.evidence[-1].text == text
