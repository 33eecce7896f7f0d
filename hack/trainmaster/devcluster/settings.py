"""What can be chosen about a cluster and its kubelet, and the parts that may run beside its API server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypeAlias

from trainmaster.devcluster.state import StateDirectory

NetworkingChoice: TypeAlias = Literal["auto", "namespaces", "rewriting"]

Entrypoints: TypeAlias = Mapping[str, tuple[str, ...]]
"""What images run by themselves, by image; the name of an image without its tag stands for all its tags."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletSettings:
    """The defaults suit a laptop: fast restarts, and nothing of the host that a pod did not bring itself."""

    restart_backoff: float = 1.0
    """Seconds before the first restart of a container; doubles with each further one. A real kubelet takes 10 s."""

    retry_interval: float = 1.0
    """Seconds between attempts to mount a volume or to build an environment whose ConfigMap or Secret is missing."""

    networking: NetworkingChoice = "auto"
    """How pods find each other and their volumes: in namespaces of their own (Linux), or by rewriting what they are
    told. By default the first where it works, else the second."""

    nodes: int = 1
    """Node objects, which share what the machine has. All their pods run side by side, by the one kubelet."""

    fake_gpus: int = 0
    """GPUs that the nodes claim to have in place of real ones, to try out scheduling. Pods that ask for some are told
    their numbers, as they would be; programs that look for the devices find none."""

    entrypoints: Entrypoints = field(default_factory=dict)
    """Commands of containers that have none, by their image: images are never pulled."""


FAILED_ANNOTATION: Final = "trainmaster.dev/failed"
"""On a Node, whatever its value: the node fails as if its power went, and is back when the annotation is removed."""

NODE_MONITOR_GRACE_PERIOD: Final = 50.0
"""The default of kube-controller-manager."""

RESERVED_DOMAIN: Final = ".invalid"
"""How names end of what never exists, by RFC 2606: registries of images, and storage classes. Of other names nothing is
known here, so that any will do.
"""

CONTROLLERS: Final = "controllers"
GARBAGE_COLLECTION: Final = "gc"
KUBELET: Final = "kubelet"
MANAGER: Final = "manager"

PARTS: Final = (CONTROLLERS, GARBAGE_COLLECTION, KUBELET, MANAGER)
"""Each of them can be left out: JobSet, Job, scheduling and service accounts; garbage collection, the end
of namespaces, volume claims and PodGroups; pods as processes; the Trainmaster controller."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """What can be chosen about a cluster."""

    state: StateDirectory
    port: int | None = None
    """None: the port that this cluster had before, or a free one."""

    parts: frozenset[str] = frozenset(PARTS)
    token: str | None = None
    """The token of the administrator; None: a random one, kept in the state directory."""

    kubeconfig: Path | None = None
    """Where to write the kubeconfig; None: into the state directory."""

    manager_config: Path | None = None
    """The configuration file of the manager; None: what the cluster needs and defaults."""

    audit_log: Path | None = None
    """Where to write a line for each request, see `apiserver.filters.audit`; None: nowhere."""

    rbac: bool = False
    """Whether roles decide what service accounts and impersonated users may do; else they may do everything."""

    elastic_jobsets: bool = False
    """Whether JobSets may change their size, as with JobSet's feature gate ElasticJobSet."""

    workload_aware_scheduling: bool = False
    """Whether Workloads and PodGroups are served and scheduled by, as with all their feature gates of Kubernetes but
    WorkloadWithJob."""

    endpoint_lag: float = 0.0
    """Seconds by which connections to Services follow changes of their endpoints; for tests, see `proxy.resolver`."""

    node_monitor_grace_period: float = NODE_MONITOR_GRACE_PERIOD
    """Seconds after which a node that has failed counts as lost."""

    kubelet: KubeletSettings = field(default_factory=KubeletSettings)
