"""The checks of `trainmaster doctor`: the table of all of them, and how a cluster is looked at."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Final, Literal, NamedTuple

from trainmaster.controller.cli.cluster import reachable_cluster
from trainmaster.controller.cli.config.text import held_files
from trainmaster.controller.cli.configured import effective_of, framework_of, load_framework
from trainmaster.controller.cli.crds import definitions_of
from trainmaster.controller.cli.doctor import certificates, cluster, definitions, health, trainjobs
from trainmaster.controller.cli.doctor.facts import (
    COSCHEDULING,
    VOLCANO,
    Fact,
    Facts,
    Finding,
    Status,
    Target,
    Unknown,
    collect,
    fetch_installed,
    fetch_version,
)
from trainmaster.controller.cli.options import CommandError
from trainmaster.controller.cli.rbac import AS_DEPLOYED
from trainmaster.controller.configuration import (
    ConfigurationInvalid,
    EffectiveConfiguration,
    complete,
    decode_configuration,
)
from trainmaster.controller.job_kinds import job_kinds
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.config import RestConfig
from trainmaster.controller.kube.rest.errors import KubeError
from trainmaster.controller.manager.policy_rules import policy_rules
from trainmaster.runtime.api.constants import GROUP
from trainmaster.runtime.framework import Framework, PluginInvalid
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.version import __version__

CHECKS: Final[dict[str, Callable[[Facts], Iterable[Finding]]]] = {
    "kubernetes": cluster.check_version,
    "namespace": cluster.check_namespace,
    "rights": cluster.check_installer,
    "definitions": definitions.check_definitions,
    "jobset": cluster.check_jobset,
    "schedulers": cluster.check_schedulers,
    "training-operator": cluster.check_training_operator,
    "managers": cluster.check_managers,
    "configuration": cluster.check_configuration,
    "leases": cluster.check_leases,
    "webhooks": cluster.check_webhooks,
}
"""The checks of the cluster, by name and in order; what concerns TrainJobs follows."""

BEFORE: Final[dict[str, Callable[[Facts], Iterable[Finding]]]] = {
    "certificates": certificates.check_certificates,
    "service-account": health.check_rights,
}
"""Those of what an installation finds; of one that is there `health` has stricter ones."""

Question = Literal["cluster", "installation"]

_TRIES: Final = 2


class Line(NamedTuple):
    """One line of the report."""

    question: Question
    check: str
    status: Status
    message: str
    what_next: str


async def examine(arguments: argparse.Namespace) -> tuple[str, list[Line]]:
    """Look at the cluster of a command line; returns its server as well.

    Raises:
        CommandError: It cannot be asked, or the configuration or a plugin cannot be used.
    """
    framework = load_framework(arguments)
    effective = effective_of(arguments) if arguments.config else None
    try:
        access = await reachable_cluster(arguments.kubeconfig)
        lines = await look(
            access, effective, framework, namespace=arguments.namespace, feature_gates=arguments.feature_gates
        )
    except (KubeError, PluginInvalid) as error:
        raise CommandError(str(error)) from error
    return access.server, lines


async def look(
    rest_config: RestConfig,
    effective: EffectiveConfiguration | None,
    framework: Framework,
    *,
    namespace: str,
    feature_gates: str = "",
) -> list[Line]:
    """Look at a cluster in which a manager is installed, or is to be.

    `effective` is the configuration of the manager, None for that of the installation, or of our manifests; `framework`
    has the plugins if there is no installation to say which, and `feature_gates` is the flag for a configuration that
    is found.

    Raises:
        KubeError: The cluster does not answer, or not to us.
    """
    async with KubeClient(rest_config, user_agent=f"trainmaster-doctor/{__version__}", tries=_TRIES) as client:
        version = await fetch_version(client)
        managers, installed, config_map = await fetch_installed(client, namespace)
        if effective is None:
            there: Fact[JsonObject | None] = config_map if isinstance(installed.known, dict) else Fact(None)
            effective, framework = _as_installed(there, framework, feature_gates)
        rules = policy_rules(
            effective.configuration,
            features=effective.open_features,
            watches=framework.watches(),
            job_kinds=job_kinds(effective.configuration),
            namespace=namespace,
        )
        target = Target(namespace, effective.configuration, rules, datetime.now(UTC))
        facts = await collect(client, version, target, managers=managers, installed=installed, config_map=config_map)
        live = [fact.known for fact in (facts.definitions[name] for name in definitions_of(GROUP))]
        lost = definitions.LostFields(each for each in live if isinstance(each, dict))
        planned = await _take_over(client, framework, facts, lost.look)
    checks = CHECKS if facts.deployment else CHECKS | BEFORE
    lines = [line for name, check in checks.items() for line in _lines(name, partial(check, facts))]
    lines += _lines("trainjobs", lambda: trainjobs.check_take_over(planned.value))
    lines += _lines("gang-scheduling", lambda: trainjobs.check_gangs(planned.value, _absent_gangs(facts)))
    lines += _lines("runtimes", lambda: trainjobs.check_policies(planned.value, framework))
    lines += _lines("stored-objects", lambda: _stored(facts, planned, lost))
    after = health.CHECKS if facts.deployment else {"installation": health.check_absence}
    lines += [line for name, check in after.items() for line in _lines(name, partial(check, facts), "installation")]
    return lines


def _as_installed(
    config_map: Fact[JsonObject | None], framework: Framework, feature_gates: str
) -> tuple[EffectiveConfiguration, Framework]:
    """Return the configuration of an installation with its plugins, if it can be used: what is wrong is told later."""
    try:
        files = held_files(config_map.value or {})
        effective = complete(decode_configuration(files) if files else AS_DEPLOYED, feature_gates=feature_gates)
    except (Unknown, ConfigurationInvalid):
        return complete(AS_DEPLOYED, feature_gates=feature_gates), framework
    try:
        return effective, framework_of(effective) if files else framework
    except PluginInvalid:
        return effective, framework


async def _take_over(
    client: KubeClient, framework: Framework, facts: Facts, look: Callable[[JsonObject], object]
) -> Fact[trainjobs.TakeOver]:
    there = [facts.definitions[name].known for name in definitions_of(GROUP) if not name.startswith("optimization")]
    if None in there:  # nor any objects of theirs
        return Fact(trainjobs.TakeOver())
    return await trainjobs.plan_take_over(
        client,
        framework,
        namespaces=facts.target.configuration.watch_namespaces,
        now=facts.target.now,
        look=look,
    )


def _absent_gangs(facts: Facts) -> dict[str, str]:
    """Return the gang schedulers that are not there: the field that chooses one, and its definition."""
    by_field = {"coscheduling": COSCHEDULING, "volcano": VOLCANO}
    return {field: name for field, name in by_field.items() if facts.definitions[name].value is None}


def _stored(facts: Facts, planned: Fact[trainjobs.TakeOver], lost: definitions.LostFields) -> Iterator[Finding]:
    """Say what stored objects would lose, if definitions and objects could be read."""
    _ = [facts.definitions[name].value for name in definitions_of(GROUP)], planned.value
    return lost.findings()


def _lines(name: str, check: Callable[[], Iterable[Finding]], question: Question = "cluster") -> Iterator[Line]:
    try:
        for finding in check():
            yield Line(question, name, *finding)
    except Unknown as error:
        yield Line(question, name, "unknown", str(error), error.what_next)
