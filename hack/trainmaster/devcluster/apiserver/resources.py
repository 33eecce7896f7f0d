"""Names of the resources that the embedded cluster serves by itself.

A resource is named by its API group and plural, as in a URL; versions are a matter of `kinds`.
"""

from __future__ import annotations

from typing import NamedTuple


class GroupResource(NamedTuple):
    """A resource without its version; the core group is the empty string."""

    group: str
    resource: str

    def __str__(self) -> str:
        return f"{self.resource}.{self.group}" if self.group else self.resource


NAMESPACES = GroupResource("", "namespaces")
PODS = GroupResource("", "pods")
CONFIGMAPS = GroupResource("", "configmaps")
SECRETS = GroupResource("", "secrets")
SERVICES = GroupResource("", "services")
SERVICE_ACCOUNTS = GroupResource("", "serviceaccounts")
EVENTS = GroupResource("", "events")
NODES = GroupResource("", "nodes")
PERSISTENT_VOLUME_CLAIMS = GroupResource("", "persistentvolumeclaims")

DEPLOYMENTS = GroupResource("apps", "deployments")
REPLICA_SETS = GroupResource("apps", "replicasets")
HORIZONTAL_POD_AUTOSCALERS = GroupResource("autoscaling", "horizontalpodautoscalers")
JOBS = GroupResource("batch", "jobs")
ENDPOINT_SLICES = GroupResource("discovery.k8s.io", "endpointslices")
LEASES = GroupResource("coordination.k8s.io", "leases")
EVENTS_V1 = GroupResource("events.k8s.io", "events")
"""Events under their newer name; they share one storage with `EVENTS`."""
CRDS = GroupResource("apiextensions.k8s.io", "customresourcedefinitions")
PRIORITY_CLASSES = GroupResource("scheduling.k8s.io", "priorityclasses")
WORKLOADS = GroupResource("scheduling.k8s.io", "workloads")
WORKLOAD_POD_GROUPS = GroupResource("scheduling.k8s.io", "podgroups")
"""Groups that Kubernetes itself schedules."""
RUNTIME_CLASSES = GroupResource("node.k8s.io", "runtimeclasses")
MUTATING_WEBHOOKS = GroupResource("admissionregistration.k8s.io", "mutatingwebhookconfigurations")
VALIDATING_WEBHOOKS = GroupResource("admissionregistration.k8s.io", "validatingwebhookconfigurations")
ROLES = GroupResource("rbac.authorization.k8s.io", "roles")
ROLE_BINDINGS = GroupResource("rbac.authorization.k8s.io", "rolebindings")
CLUSTER_ROLES = GroupResource("rbac.authorization.k8s.io", "clusterroles")
CLUSTER_ROLE_BINDINGS = GroupResource("rbac.authorization.k8s.io", "clusterrolebindings")

JOBSETS = GroupResource("jobset.x-k8s.io", "jobsets")
POD_GROUPS = GroupResource("scheduling.x-k8s.io", "podgroups")
"""Groups of the coscheduling plugin."""
VOLCANO_POD_GROUPS = GroupResource("scheduling.volcano.sh", "podgroups")
VOLCANO_QUEUES = GroupResource("scheduling.volcano.sh", "queues")
TRAINJOBS = GroupResource("trainer.kubeflow.org", "trainjobs")
TRAINING_RUNTIMES = GroupResource("trainer.kubeflow.org", "trainingruntimes")
CLUSTER_TRAINING_RUNTIMES = GroupResource("trainer.kubeflow.org", "clustertrainingruntimes")
