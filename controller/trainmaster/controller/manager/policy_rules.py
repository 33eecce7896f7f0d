"""The rights that a manager needs, for a configuration and its plugins: what each part of it declares, collected.

Guarantee: nothing is asked of a cluster, and nobody has to keep a list. A part that is switched off needs nothing, and
neither does a plugin that is disabled.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from trainmaster.controller.certificates import webhook_names as certificates
from trainmaster.controller.configuration import OFF, Configuration, manages_certificates
from trainmaster.controller.diagnosis import reading
from trainmaster.controller.kube.rest.resources import EVENTS, LEASES
from trainmaster.controller.manager import caches, other_leaders, rights, training_operator
from trainmaster.controller.policyrule import TRAINING_OPERATOR, PolicyRule
from trainmaster.controller.reconciling import runtimes
from trainmaster.controller.reconciling.trainjobs import observe
from trainmaster.controller.resilience import log_reader, lost_nodes
from trainmaster.controller.resources import CLUSTER_TRAINING_RUNTIMES
from trainmaster.controller.server import authentication
from trainmaster.controller.statusserver import authorizer
from trainmaster.runtime.api.constants import TRAIN_JOB_STATUS_GATE
from trainmaster.runtime.jobs.interface import JobKind
from trainmaster.runtime.listers import Watch


def policy_rules(
    configuration: Configuration,
    *,
    features: Collection[str],
    watches: Iterable[Watch],
    job_kinds: Iterable[JobKind] = (),
    namespace: str,
) -> list[PolicyRule]:
    """Return all rights that a manager needs."""
    rules = [
        *_policy_rules(configuration, features, [*caches.OWN_WATCHES, *watches], namespace),
        *(replace(each, role=TRAINING_OPERATOR) for each in training_operator.policy_rules(configuration, job_kinds)),
    ]
    if not configuration.watch_namespaces:
        return rules
    # Who serves some namespaces may have no right to anything beyond them.
    return [replace(rule, optional=rule.optional or rule.resource == CLUSTER_TRAINING_RUNTIMES) for rule in rules]


def _policy_rules(
    configuration: Configuration, features: Collection[str], watches: list[Watch], namespace: str
) -> Iterator[PolicyRule]:
    yield from caches.policy_rules(watches, configuration.watch_namespaces)
    yield from rights.trainjob_rules(watches)
    yield from observe.POLICY_RULES
    yield from reading.policy_rules(watches)
    yield from log_reader.policy_rules(watches)
    if not configuration.watch_namespaces:
        yield from lost_nodes.policy_rules(watches)
    yield from runtimes.POLICY_RULES
    yield from event_rules(namespace)
    election = configuration.leader_election
    if election.leader_elect:
        yield from lease_rules(namespace=election.resource_namespace or namespace, name=election.resource_name)
        if not configuration.watch_namespaces:
            yield from other_leaders.policy_rules(name=election.resource_name)
    if configuration.metrics.auth.enabled and configuration.metrics.bind_address != OFF:
        yield from authentication.METRICS_RULES
    if TRAIN_JOB_STATUS_GATE in features:
        yield from authorizer.policy_rules(watches)
    if manages_certificates(configuration, status_server=TRAIN_JOB_STATUS_GATE in features):
        yield from certificates.policy_rules(configuration, namespace=namespace)


def event_rules(namespace: str) -> Iterator[PolicyRule]:
    """Return the rights to record events; `namespace` is that of the manager's pod."""
    for where, reason in (
        ("", "tell the owners of TrainJobs what happens; repeats are counted in the event that is there"),
        (namespace, "tell operators what becomes of the manager's own objects, for instance its certificate"),
    ):
        yield PolicyRule(resource=EVENTS, verbs=("create", "patch"), needed_by="events", reason=reason, namespace=where)


def lease_rules(*, namespace: str, name: str) -> tuple[PolicyRule, ...]:
    """Return the rights that an election on a lease needs; a request that creates it cannot be limited to its name."""
    who = "leader election"
    return (
        PolicyRule(
            resource=LEASES,
            verbs=("get", "update"),
            needed_by=who,
            reason="take, renew and release the lease",
            names=(name,),
            namespace=namespace,
        ),
        PolicyRule(resource=LEASES, verbs=("create",), needed_by=who, reason="make the lease", namespace=namespace),
    )
