"""`trainmaster doctor` answers two questions, told apart.

1. May the cluster take an installation: what would stand in the way, and what would change?
2. Is the installation that is there healthy?

Exit codes: 0 nothing fails (there may be warnings, and what is not known); 1 something does, of either question; 2 the
cluster could not be asked, or wrong arguments.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, Literal, NamedTuple

from trainmaster.controller.cli.cluster import running_cluster
from trainmaster.controller.cli.config.text import held_files
from trainmaster.controller.cli.configured import framework_of, load_framework
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
from trainmaster.controller.cli.options import CommandError, add_configuration_options, reporting_errors
from trainmaster.controller.cli.printers import print_json
from trainmaster.controller.cli.rbac import AS_DEPLOYED
from trainmaster.controller.configuration import (
    ConfigurationInvalid,
    EffectiveConfiguration,
    complete,
    decode_configuration,
    effective_configuration,
)
from trainmaster.controller.job_kinds import job_kinds
from trainmaster.controller.kube.auth.loader import load_config
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.config import RestConfig
from trainmaster.controller.kube.rest.errors import KubeError
from trainmaster.controller.log_config import configure_logs
from trainmaster.controller.manager.policy_rules import policy_rules
from trainmaster.runtime.api.constants import GROUP
from trainmaster.runtime.framework import Framework, PluginInvalid
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.names import dns_label
from trainmaster.runtime.version import __version__

FAILURE: Final = 1
DEFAULT_NAMESPACE: Final = "kubeflow"

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
    "service-account": cluster.check_service_account,
}
"""Those of what an installation finds; of one that is there `health` has stricter ones."""

Question = Literal["cluster", "installation"]
_QUESTIONS: Final[dict[Question, str]] = {
    "cluster": "May the cluster take an installation in the namespace {}?",
    "installation": "Is the installation in the namespace {} healthy?",
}

_TRIES: Final = 2


class Line(NamedTuple):
    """One line of the report."""

    question: Question
    check: str
    status: Status
    message: str
    what_next: str


def command(commands: Any) -> None:
    """Add the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "doctor",
        description="Answer two questions, told apart. Before Trainmaster is installed or updated, or takes over from "
        "the Go manager: what in the cluster would stand in the way, what would change, and what to do. Afterwards: is "
        "the installation healthy? What may not be read is told as unknown. Nothing is written. Exit codes: 0 nothing "
        "fails, 1 something does, 2 the cluster could not be asked.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--kubeconfig",
        metavar="FILE",
        help="the cluster; default: $KUBECONFIG, the embedded one if it runs here, else as kubectl finds it",
    )
    parser.add_argument(
        "-n",
        "--namespace",
        default=DEFAULT_NAMESPACE,
        metavar="NS",
        help=f"where it is installed, or is to be; default: {DEFAULT_NAMESPACE}",
    )
    add_configuration_options(parser, default="that of the installation, else that of our manifests")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="default: text")
    parser.set_defaults(run=reporting_errors(run))


def run(arguments: argparse.Namespace) -> int:
    """Look at the cluster, and report; returns the exit code."""
    # What may not be read is told in the report, not by whoever tries in vain.
    configure_logs(level=logging.CRITICAL, style="console")
    problems = dns_label(arguments.namespace)
    if problems:
        raise CommandError(f"--namespace {arguments.namespace!r} cannot be a name: {', '.join(problems)}")
    framework = load_framework(arguments)
    try:
        effective = (
            effective_configuration(*arguments.config, feature_gates=arguments.feature_gates)
            if arguments.config
            else None
        )
        server, lines = asyncio.run(_run(arguments, effective, framework))
    except (ConfigurationInvalid, KubeError, PluginInvalid) as error:
        raise CommandError(str(error)) from error
    counts = Counter(line.status for line in lines)
    if arguments.output == "json":
        report = {
            "server": server,
            "version": __version__,
            "summary": counts,
            "findings": [each._asdict() for each in lines],
        }
        print_json(report)
    else:
        for question, heading in _QUESTIONS.items():
            print(heading.format(arguments.namespace))
            for line in (each for each in lines if each.question == question):
                what_next = f"; {line.what_next}" if line.what_next else ""
                print(f"{line.status:<8} {line.check:<18} {line.message}{what_next}")
            print()
        summary = ", ".join(f"{counts[status]} {status}" for status in ("ok", "warn", "fail", "unknown"))
        print(f"{server}: {summary}")
    return FAILURE if counts["fail"] else 0


async def _run(
    arguments: argparse.Namespace, effective: EffectiveConfiguration | None, framework: Framework
) -> tuple[str, list[Line]]:
    rest_config = await running_cluster(arguments.kubeconfig) or await load_config()
    lines = await look(
        rest_config, effective, framework, namespace=arguments.namespace, feature_gates=arguments.feature_gates
    )
    return rest_config.server, lines


async def look(
    rest_config: RestConfig,
    effective: EffectiveConfiguration | None,
    framework: Framework,
    *,
    namespace: str,
    feature_gates: str = "",
) -> list[Line]:
    """Look at a cluster in which a manager is installed, or is to be.

    Args:
        rest_config: The cluster.
        effective: The configuration of the manager; None for that of the installation, or of our manifests.
        framework: The plugins, if there is no installation to say which.
        namespace: That of the manager.
        feature_gates: The flag, for a configuration that is found.

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
    is_installed = health.is_installed(facts)
    checks = CHECKS if is_installed else CHECKS | BEFORE
    lines = [line for name, check in checks.items() for line in _lines(name, partial(check, facts))]
    lines += _lines("trainjobs", lambda: trainjobs.check_take_over(planned.value))
    lines += _lines("gang-scheduling", lambda: trainjobs.check_gangs(planned.value, _absent_gangs(facts)))
    lines += _lines("runtimes", lambda: trainjobs.check_policies(planned.value, framework))
    lines += _lines("stored-objects", lambda: _stored(facts, planned, lost))
    after = health.CHECKS if is_installed else {"installation": health.check_absence}
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
    for name in definitions_of(GROUP):
        facts.definitions[name].require()
    planned.require()
    return lost.findings()


def _lines(name: str, check: Callable[[], Iterable[Finding]], question: Question = "cluster") -> Iterator[Line]:
    try:
        for finding in check():
            yield Line(question, name, *finding)
    except Unknown as error:
        yield Line(question, name, "unknown", str(error), error.what_next)
