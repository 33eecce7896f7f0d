"""Claims that do not exist or are not bound, and whose storage class is at fault."""

from __future__ import annotations

from support.pod_views import claim, event, pod, unscheduled, view, waiting

from trainmaster.controller.explain.cause import Cause
from trainmaster.controller.explain.causes.pods.volumes import volume_pending
from trainmaster.runtime.jsontree import JsonObject

MOUNTS: JsonObject = {
    "containers": [],
    "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
}
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
    assert finding.evidence[1].text.startswith("rank 0: 0/1 nodes are available")


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
