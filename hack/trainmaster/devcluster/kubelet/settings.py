"""What can be chosen about the kubelet of the embedded cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

NetworkingChoice: TypeAlias = Literal["auto", "namespaces", "rewriting"]


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

    fake_gpus: int = 0
    """GPUs that the node claims to have in place of real ones, to try out scheduling. Pods that ask for some are told
    their numbers, as they would be; programs that look for the devices find none."""
