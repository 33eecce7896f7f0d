"""Checks of other installations: their Deployments, their leases, and webhooks on our kinds."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

from trainmaster.controller.certificates.webhook_names import CONFIGURATIONS, JOB_VALIDATOR
from trainmaster.controller.cli.config.text import KEY, held_files
from trainmaster.controller.cli.doctor.cluster import images_of
from trainmaster.controller.cli.doctor.facts import GO_IMAGE, Facts
from trainmaster.controller.cli.doctor.findings import Finding, fail, ok, warn
from trainmaster.controller.configuration import ConfigurationInvalid, complete, decode_configuration
from trainmaster.controller.configuration.loading import with_files
from trainmaster.controller.manager.roles import NAME
from trainmaster.runtime.api.constants import GROUP
from trainmaster.runtime.jsontree import JsonObject

SELECTOR: Final = {
    "app.kubernetes.io/name": "trainer",
    "app.kubernetes.io/component": "manager",
    "app.kubernetes.io/part-of": "kubeflow",
}
"""The labels by which the Deployment selects its pods, which are the original's: they cannot change."""

OUR_WEBHOOKS: Final = tuple(each.name for each in CONFIGURATIONS)
_TAKEN_OVER: Final = ((2, 1), (2, 2), (2, 3))
_RESOURCES: Final = frozenset({"trainjobs", "trainingruntimes", "clustertrainingruntimes", "*", "*/*"})


def check_managers(facts: Facts) -> Iterator[Finding]:
    """The managers that are installed: the one that is replaced, and others that would go on."""
    managers, namespace = facts.managers.value, facts.target.namespace
    if not managers:
        yield ok("no manager of Trainer is installed")
    for manager in managers:
        where, name = manager["metadata"]["namespace"], manager["metadata"]["name"]
        images = ", ".join(images_of(manager))
        go = GO_IMAGE.search(images)
        what = f"{'the Go manager' if go else 'a manager'} ({images}) is installed as {where}/{name}"
        if where != namespace:
            if manager["spec"].get("replicas") == 0:
                yield warn(
                    f"{what}, with no replicas", f"delete it, or install into {where}: trainmaster doctor -n {where}"
                )
                continue
            if facts.target.configuration.watch_namespaces:
                yield warn(what, "see that it serves other namespaces")
                continue
            yield fail(
                f"{what}; two managers in two namespaces have a lease each, and both would act",
                f"install into {where} in its place (trainmaster doctor -n {where}), or delete that one first",
            )
            continue
        selected = (manager["spec"].get("selector") or {}).get("matchLabels") or {}
        release = (manager["metadata"].get("annotations") or {}).get("meta.helm.sh/release-name")
        if release:
            yield ok(f"{what}, by Helm; `helm upgrade {release}` with our chart takes its place")
        elif name == NAME and selected != SELECTOR:
            yield fail(
                f"{what}; it selects its pods by other labels, which are immutable, so that applying ours is refused",
                f"kubectl delete deployment {name} -n {where} before; running jobs do not notice",
            )
        elif name != NAME:
            yield warn(
                f"{what}, under another name than {NAME}; both would run side by side, and one of them lead",
                f"kubectl delete deployment {name} -n {where} when ours is there",
            )
        elif go and go[1] and (int(go[1]), int(go[2])) not in _TAKEN_OVER:
            yield warn(f"{what}; the take-over is tried from 2.1, 2.2 and 2.3", "update it to 2.3 first")
        else:
            yield ok(f"{what}; ours takes its place")


def check_configuration(facts: Facts) -> Iterator[Finding]:
    """The configuration that is there, which ours would find in its place: can it be used?"""
    config_map = facts.config_map.value
    if config_map is None:
        return
    name = f"{facts.target.namespace}/{config_map['metadata']['name']}"
    files = held_files(config_map)
    if KEY not in (file.name for file in files):
        yield warn(f"the ConfigMap {name} has no key {KEY}", "see who made it; our manifests bring their own")
        return
    try:
        effective = complete(decode_configuration(files))
        problems = list(effective.problems)
    except ConfigurationInvalid as error:
        effective, problems = None, list(error.problems)
    for problem in with_files(problems, files):
        yield fail(f"the configuration in the ConfigMap {name} cannot be used: {problem}", "correct it")
    for notice in effective.notices if effective is not None else ():
        yield warn(f"in the ConfigMap {name}: {notice}")
    if effective is not None and not problems and not effective.notices:
        yield ok(f"the configuration in the ConfigMap {name} can be used")


def is_held(lease: JsonObject, now: datetime) -> bool:
    """Tell whether somebody renews a lease."""
    spec = lease.get("spec") or {}
    age = _age(spec.get("renewTime"), now)
    # Twice its duration: clocks differ.
    return (
        bool(spec.get("holderIdentity")) and age is not None and age < 2 * int(spec.get("leaseDurationSeconds") or 15)
    )


def check_leases(facts: Facts) -> Iterator[Finding]:
    """The leases: does anybody lead now, and in which namespace?"""
    election, namespace = facts.target.configuration.leader_election, facts.target.namespace
    ours = election.resource_namespace or namespace
    leases = facts.leases.value
    if not leases:
        yield ok("nobody leads")
    for lease in leases:
        where, holder = lease["metadata"]["namespace"], (lease.get("spec") or {}).get("holderIdentity")
        alive = is_held(lease, facts.target.now)
        what = f"the lease {where}/{lease['metadata']['name']}"
        if where == ours:
            if alive and not election.leader_elect:
                yield fail(
                    f"{what} is held by {holder}, and this configuration does not elect a leader: both would act",
                    "set leaderElection.leaderElect to true",
                )
            else:
                yield ok(f"{what} is {f'held by {holder}; ours waits for it' if alive else 'free'}")
        elif alive and facts.target.configuration.watch_namespaces:
            yield warn(
                f"{what} is held by {holder}: another manager leads there", "see that it serves other namespaces"
            )
        elif alive:
            yield fail(
                f"{what} is held by {holder}: another manager leads in that namespace, and both would act",
                f"install into {where} (trainmaster doctor -n {where}), or stop that manager first",
            )
        else:
            yield ok(f"{what} is left over from a manager that does not run any more")


def check_webhooks(facts: Facts) -> Iterator[Finding]:
    """The webhooks on our kinds: ours, where they lead, and others."""
    target = facts.target
    service = (target.namespace, target.configuration.cert_management.webhook_service_name)
    others, found = [], set()
    for configuration in facts.webhooks.value:
        name = configuration["metadata"]["name"]
        if name == JOB_VALIDATOR.name and not target.configuration.training_operator.enabled:
            continue
        if name in OUR_WEBHOOKS:
            found.add(name)
            yield from _check_ours(configuration, service)
        else:
            others += [
                f"{name} ({webhook.get('failurePolicy') or 'Fail'})"
                for webhook in configuration.get("webhooks") or []
                if any(_matches(rule) for rule in webhook.get("rules") or [])
            ]
    if not found and facts.installed.known is None:
        yield ok("none of our webhooks is registered yet")
    if others:
        yield warn(
            f"webhooks of others see our kinds, too: {', '.join(dict.fromkeys(others))}",
            "see that they allow what users write, and the manager; one with Fail that does not answer stops writes",
        )


def _check_ours(configuration: JsonObject, service: tuple[str, str]) -> Iterator[Finding]:
    name = configuration["metadata"]["name"]
    elsewhere = set()
    for webhook in configuration.get("webhooks") or []:
        client_config: dict[str, Any] = webhook.get("clientConfig") or {}
        reference = client_config.get("service") or {}
        place = (reference.get("namespace"), reference.get("name"))
        if place != service:
            elsewhere.add(client_config.get("url") or f"the Service {place[0]}/{place[1]}")
    if elsewhere:
        yield warn(
            f"{name} leads to {', '.join(sorted(elsewhere))}, not to the Service {service[0]}/{service[1]}",
            "applying our manifests changes that; whoever made it may change it back",
        )
    else:
        yield ok(f"{name} leads to the Service {service[0]}/{service[1]}")


def _matches(rule: JsonObject) -> bool:
    groups, resources = rule.get("apiGroups") or [], rule.get("resources") or []
    return bool({GROUP, "*"} & set(groups)) and bool(_RESOURCES & set(resources))


def _age(moment: Any, now: datetime) -> float | None:
    try:
        return (now - datetime.fromisoformat(str(moment))).total_seconds()
    except (ValueError, TypeError):
        return None
