"""The election as the configuration wants it, and who looks for a second installation."""

from __future__ import annotations

from collections.abc import Callable

from trainmaster.controller.configuration import Configuration, seconds
from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.leaderelection.election_thread import (
    USER_AGENT_SUFFIX,
    Election,
    ElectionInThread,
    ElectionOnLoop,
)
from trainmaster.controller.kube.leaderelection.elector import LeaderElector
from trainmaster.controller.kube.leaderelection.lease import LeaseClient
from trainmaster.controller.kube.leaderelection.other_leaders import OtherLeaders
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.config import RestConfig
from trainmaster.controller.manager.clients import USER_AGENT, NewClient
from trainmaster.controller.operator_namespace import pod_namespace


def lease_namespace(configuration: Configuration, rest_config: RestConfig) -> str:
    """Return the namespace of the lease: as configured, else that of the pod, else that of the kubeconfig."""
    return configuration.leader_election.resource_namespace or pod_namespace() or rest_config.namespace


def new_election(
    configuration: Configuration,
    new_client: NewClient,
    *,
    namespace: str,
    identity: str,
    clock: Clock,
    in_thread: bool,
) -> Election | None:
    """Make the election, unless there is to be none.

    Args:
        configuration: Its times, and the name of the lease.
        new_client: Makes its client, which is its own.
        namespace: The namespace of the lease.
        identity: Who this replica is.
        clock: The time.
        in_thread: Whether it has a thread of its own.
    """
    settings = configuration.leader_election
    if not settings.leader_elect:
        return None

    def make_elector(client: LeaseClient, on_overrun: Callable[[], None]) -> LeaderElector:
        return LeaderElector(
            client,
            lease_namespace=namespace,
            lease_name=settings.resource_name,
            identity=identity,
            lease_duration=seconds(settings.lease_duration),
            renew_deadline=seconds(settings.renew_deadline),
            retry_period=seconds(settings.retry_period),
            clock=clock,
            on_overrun=on_overrun,
        )

    # The elector has its own idea of when to try again.
    client = new_client(user_agent=USER_AGENT + USER_AGENT_SUFFIX, guard=None, tries=1)
    return (ElectionInThread if in_thread else ElectionOnLoop)(client, make_elector)


def other_leaders(configuration: Configuration, client: KubeClient, namespace: str, clock: Clock) -> list[OtherLeaders]:
    """Return who looks for a second installation; one of named namespaces has no right to look at the others."""
    settings = configuration.leader_election
    if not settings.leader_elect or configuration.watch_namespaces:
        return []
    return [OtherLeaders(client, namespace=namespace, name=settings.resource_name, clock=clock)]
