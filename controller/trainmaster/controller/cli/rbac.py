"""`trainmaster rbac`: the roles that a manager needs, with this configuration and the plugins that are installed."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import Any, Final

from trainmaster.controller.cli.configured import effective_of, load_framework
from trainmaster.controller.cli.options import (
    MANAGER_NAMESPACE,
    add_configuration_options,
    refuse_bad_name,
    reporting_errors,
)
from trainmaster.controller.cli.printers import aligned, listed, print_objects
from trainmaster.controller.configuration import Configuration, LeaderElection, Metrics, MetricsAuth, complete
from trainmaster.controller.manager.roles import NAME, roles, scopes_of
from trainmaster.controller.policyrule import PolicyRule
from trainmaster.runtime.names import dns_subdomain

AS_DEPLOYED: Final = Configuration(
    leader_election=LeaderElection(leader_elect=True), metrics=Metrics(auth=MetricsAuth(enabled=True))
)
"""The configuration of our manifests, which a wheel has not."""


def command(commands: Any) -> None:
    """Add the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "rbac",
        description=(
            "Print the roles and bindings that the manager needs with a configuration and the plugins installed here. "
            "No cluster is needed."
        ),
    )
    add_configuration_options(parser, default="that of our manifests")
    parser.add_argument(
        "-n",
        "--namespace",
        default=MANAGER_NAMESPACE,
        metavar="NS",
        help="of the manager; default: %(default)s",
    )
    parser.add_argument(
        "--service-account",
        default=NAME,
        metavar="NAME",
        help="of the manager, and name of the roles; default: %(default)s",
    )
    parser.add_argument(
        "-o", "--output", choices=("yaml", "json", "table"), default="yaml", help="table: who needs what, and why"
    )
    parser.set_defaults(run=reporting_errors(run))


def run(arguments: argparse.Namespace) -> int:
    """Print them; returns the exit code."""
    from trainmaster.controller.job_kinds import job_kinds  # noqa: PLC0415 - not needed for help
    from trainmaster.controller.manager.policy_rules import policy_rules  # noqa: PLC0415 - it needs all of the manager

    refuse_bad_name("--namespace", arguments.namespace)
    refuse_bad_name("--service-account", arguments.service_account, dns_subdomain)
    framework = load_framework(arguments)
    effective = (
        effective_of(arguments) if arguments.config else complete(AS_DEPLOYED, feature_gates=arguments.feature_gates)
    )
    configuration = effective.configuration
    rules = policy_rules(
        configuration,
        features=effective.open_features,
        watches=framework.watches(),
        job_kinds=job_kinds(configuration),
        namespace=arguments.namespace,
    )
    if arguments.output == "table":
        print("\n".join(aligned(table(rules, watch_namespaces=configuration.watch_namespaces))))
    else:
        objects = roles(
            rules,
            namespace=arguments.namespace,
            service_account=arguments.service_account,
            watch_namespaces=configuration.watch_namespaces,
        )
        print_objects(objects, form=arguments.output)
    return 0


def table(rules: Iterable[PolicyRule], *, watch_namespaces: Sequence[str] = ()) -> list[list[str]]:
    """Return who needs which right and why, with a heading; the same need of several is one line."""
    needs: dict[tuple[str, str, str, str], list[str]] = {}
    for rule in rules:
        scopes = scopes_of(rule, watch_namespaces)
        where = ", ".join(f"namespace {scope}" if scope else "the cluster" for scope in scopes)
        group = f".{rule.resource.group}" if rule.resource.group else ""
        what = f"{rule.resource.plural}{group}" + (f"/{rule.subresource}" if rule.subresource else "")
        names = f" {','.join(rule.names)}" if rule.names else ""
        needs.setdefault((f"{what}{names}", ",".join(rule.verbs), where, rule.reason), []).append(rule.needed_by)
    rows = [
        [what, verbs, where, listed(sorted(needed_by)), reason]
        for (what, verbs, where, reason), needed_by in sorted(needs.items())
    ]
    return [["RESOURCE", "VERBS", "IN", "NEEDED BY", "TO"], *rows]
