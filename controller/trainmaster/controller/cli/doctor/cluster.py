"""Checks of the cluster, of what others have installed in it, and of the rights of whoever installs. The Training
Operator V1 and this manager have the same kinds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from trainmaster.controller.certificates.webhook_names import CONFIGURATIONS, JOB_VALIDATOR
from trainmaster.controller.cli.config.text import KEY, held_files
from trainmaster.controller.cli.crds import definitions_of
from trainmaster.controller.cli.doctor.definitions import compare
from trainmaster.controller.cli.doctor.facts import (
    COSCHEDULING,
    GO_IMAGE,
    JOBSETS,
    KUEUE,
    VOLCANO,
    Fact,
    Facts,
    Finding,
    Review,
    fail,
    images_of,
    ok,
    warn,
)
from trainmaster.controller.configuration import ConfigurationInvalid, TrainingOperator, complete, decode_configuration
from trainmaster.controller.configuration.loading import with_files
from trainmaster.controller.explain.causes.controllers import is_held
from trainmaster.controller.manager.roles import NAME
from trainmaster.controller.policyrule import VERBS
from trainmaster.runtime.api.constants import GROUP, JOBSET_API_VERSION
from trainmaster.runtime.jobs.constants import GROUP as JOBS_GROUP
from trainmaster.runtime.jobs.constants import VERSION
from trainmaster.runtime.jsontree import JsonObject

OLDEST: Final = 31
"""The minor version from which on the original's chart runs."""

NEWEST: Final = 37
"""The minor version of which the schemas here are."""

_JOBSET_INSTALL: Final = "install JobSet, https://jobset.sigs.k8s.io, before any TrainJob runs"

_ESCALATE: Final = "escalate"
"""The verb that lets somebody create roles with rights that he has not."""

SELECTOR: Final = {
    "app.kubernetes.io/name": "trainer",
    "app.kubernetes.io/component": "manager",
    "app.kubernetes.io/part-of": "kubeflow",
}
"""The labels by which the Deployment selects its pods, which are the original's: they cannot change."""

OUR_WEBHOOKS: Final = tuple(each.name for each in CONFIGURATIONS)
_TAKEN_OVER: Final = ((2, 1), (2, 2), (2, 3))
_RESOURCES: Final = frozenset({"trainjobs", "trainingruntimes", "clustertrainingruntimes", "*", "*/*"})

_MPI_JOBS: Final = "mpijobs.kubeflow.org"


def check_version(facts: Facts) -> Iterator[Finding]:
    """Kubernetes: is it of a version that this manager knows?"""
    version = facts.version.value
    parsed = re.match(r"v?1\.(\d+)", version)
    if parsed is None:
        yield warn(f"{version} is no version that is known here", f"use Kubernetes 1.{OLDEST} to 1.{NEWEST}")
    elif int(parsed[1]) < OLDEST:
        yield fail(f"Kubernetes {version} is older than 1.{OLDEST}", f"use Kubernetes 1.{OLDEST} or later")
    elif int(parsed[1]) > NEWEST:
        yield warn(
            f"Kubernetes {version} is newer than 1.{NEWEST}, the newest one that is known here",
            "look for a newer Trainmaster; fields of pods that are new in it are not merged by name",
        )
    else:
        yield ok(f"Kubernetes {version}")


def check_jobset(facts: Facts) -> Iterator[Finding]:
    """JobSet: is there the version that TrainJobs become, and does its controller run?"""
    if not any(rule.resource.name == JOBSETS for rule in facts.target.rules):
        yield ok("JobSet is not needed: no plugin of the configuration builds JobSets")
        return
    definition = facts.definitions[JOBSETS].value
    if definition is None:
        yield fail("JobSet is not installed, and TrainJobs become JobSets", _JOBSET_INSTALL)
        return
    wanted = JOBSET_API_VERSION.rpartition("/")[2]
    served = served_versions(definition)
    if wanted not in served:
        yield fail(f"JobSet is served in {', '.join(served)}, and {wanted} is needed", "install another JobSet release")
        return
    controllers = facts.jobset_controllers.value
    if not controllers:
        yield warn(
            f"JobSet {wanted} is served, but no Deployment of its controller is known by its usual name",
            "see that its controller runs; otherwise JobSets get no pods",
        )
    for each in controllers:
        name = f"{each['metadata']['namespace']}/{each['metadata']['name']}"
        image = images_of(each)
        if not (each.get("status") or {}).get("availableReplicas"):
            yield fail(f"JobSet's controller {name} ({image}) has no available replica", "see why its pods do not run")
        else:
            yield ok(f"JobSet {wanted}, its controller {name} runs ({image})")


def check_schedulers(facts: Facts) -> Iterator[Finding]:
    """Gang schedulers, Kueue: what is there."""
    gangs = {COSCHEDULING: "coscheduling (scheduler plugins)", VOLCANO: "Volcano"}
    there = [name for definition, name in gangs.items() if facts.definitions[definition].value is not None]
    yield ok(f"gang scheduling: {', '.join(there) if there else 'no PodGroups; runtimes cannot have a podGroupPolicy'}")
    if facts.definitions[KUEUE].value is not None:
        yield ok("Kueue is there; it admits TrainJobs if its configuration names trainer.kubeflow.org/trainjob")


def check_namespace(facts: Facts) -> Iterator[Finding]:
    """The namespace: is it there, and will it take the pod?"""
    name, namespace = facts.target.namespace, facts.namespace.value
    if namespace is None:
        yield warn(f"there is no namespace {name}", f"kubectl create namespace {name}, unless your manifests bring it")
        return
    if namespace["metadata"].get("deletionTimestamp"):
        yield fail(f"the namespace {name} is being deleted", "wait until it is gone, or see what holds it up")
        return
    labels = namespace["metadata"].get("labels") or {}
    level = labels.get("pod-security.kubernetes.io/enforce", "privileged")
    yield ok(f"the namespace {name} is there; its pod security level is {level}, which the manager's pod fits")


def served_versions(definition: JsonObject) -> list[str]:
    """Return the versions that a definition serves."""
    return [each["name"] for each in definition["spec"]["versions"] if each.get("served")]


def check_installer(facts: Facts) -> Iterator[Finding]:
    """The rights of whoever asks: do they suffice to install?"""
    missing = missing_rights(
        {review: allowed for review, allowed in facts.may_install.items() if review[0] != _ESCALATE}
    )
    if missing:
        yield fail(f"you may not {'; '.join(missing)}", "have somebody install who may, or ask for these rights")
    elif all(allowed.value for review, allowed in facts.may_install.items() if review[0] == _ESCALATE):
        yield ok("you may apply all that the manifests hold")
    else:
        yield warn(
            "you may apply all that the manifests hold, but roles only with rights that you have yourself",
            f"see that you have all of `trainmaster rbac -n {facts.target.namespace}`, or ask for `escalate` on roles",
        )


def missing_rights(reviews: Mapping[Review, Fact[bool]]) -> list[str]:
    """Return what is not allowed, as the end of "may not": verbs by resource."""
    verbs: dict[str, list[str]] = {}
    for (verb, group, resource, subresource, namespace, name), allowed in reviews.items():
        if not allowed.value:
            what = f"{resource}{f'.{group}' if group else ''}{f'/{subresource}' if subresource else ''}"
            place = f"{f' {name}' if name else ''}{f' in namespace {namespace}' if namespace else ''}"
            verbs.setdefault(f"{what}{place}", []).append(verb)
    return [f"{', '.join(sorted(each, key=VERBS.index))} {what}" for what, each in verbs.items()]


def check_managers(facts: Facts) -> Iterator[Finding]:
    """The managers that are installed: the one that is replaced, and others that would go on."""
    managers, namespace = facts.managers.value, facts.target.namespace
    if not managers:
        yield ok("no manager of Trainer is installed")
    for manager in managers:
        where, name = manager["metadata"]["namespace"], manager["metadata"]["name"]
        images = images_of(manager)
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
    service, others, found = service_of(facts), [], set()
    for configuration in facts.webhooks.value:
        name = configuration["metadata"]["name"]
        if name == JOB_VALIDATOR.name and not facts.target.configuration.training_operator.enabled:
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


def _check_ours(configuration: JsonObject, service: str) -> Iterator[Finding]:
    name = configuration["metadata"]["name"]
    elsewhere = called_by(configuration) - {service}
    if elsewhere:
        yield warn(
            f"{name} leads to {', '.join(sorted(elsewhere))}, not to {service}",
            "applying our manifests changes that; whoever made it may change it back",
        )
    else:
        yield ok(f"{name} leads to {service}")


def service_of(facts: Facts) -> str:
    """Return the Service by which the API server calls our webhooks."""
    return f"the Service {facts.target.namespace}/{facts.target.configuration.cert_management.webhook_service_name}"


def called_by(configuration: JsonObject) -> set[str]:
    """Return what the webhooks of a configuration call."""
    called = [webhook.get("clientConfig") or {} for webhook in configuration.get("webhooks") or []]
    services = [each.get("service") or {} for each in called]
    return {
        each.get("url") or f"the Service {service.get('namespace')}/{service.get('name')}"
        for each, service in zip(called, services, strict=True)
    }


def _matches(rule: JsonObject) -> bool:
    groups, resources = rule.get("apiGroups") or [], rule.get("resources") or []
    return bool({GROUP, "*"} & set(groups)) and bool(_RESOURCES & set(resources))


def check_training_operator(facts: Facts) -> Iterator[Finding]:
    """The Training Operator V1: whose are its kinds, and does it still act on them?"""
    settings = facts.target.configuration.training_operator
    names = definitions_of(JOBS_GROUP)
    there = [name for name in names if facts.definitions[name].value is not None]
    chosen = [name for name in names if is_served(name, settings)]
    if not chosen:
        if there:
            yield ok(
                "the kinds of the Training Operator V1 are there; trainingOperator.enabled is false: they are left"
            )
        return
    yield from _check_mpi_operator(facts, chosen)
    ours = [name for name in chosen if not _is_mpi_operators(facts, name)]
    yield from compare(facts, ours, of="the Training Operator")
    yield from _check_deployments(facts)


def has_webhook(facts: Facts) -> bool:
    """Tell whether kinds are served here that the webhook of jobs is for; of MPIJobs there is none."""
    settings = facts.target.configuration.training_operator
    return any(
        is_served(name, settings) and facts.definitions[name].value is not None
        for name in definitions_of(JOBS_GROUP)
        if name != _MPI_JOBS
    )


def is_served(name: str, settings: TrainingOperator) -> bool:
    """Tell whether the manager serves a kind, if its definition is there."""
    kind = name.partition(".")[0].removesuffix("s")
    return settings.enabled and (not settings.enable_scheme or kind in settings.enable_scheme)


def _is_mpi_operators(facts: Facts, name: str) -> bool:
    live = facts.definitions[name].value
    return name == _MPI_JOBS and live is not None and VERSION not in served_versions(live)


def _check_mpi_operator(facts: Facts, chosen: list[str]) -> Iterator[Finding]:
    if not _is_mpi_operators(facts, _MPI_JOBS):
        return
    versions = ", ".join(served_versions(facts.definitions[_MPI_JOBS].value or {}))
    what = f"{_MPI_JOBS} is that of the MPI Operator ({versions})"
    if _MPI_JOBS not in chosen:
        yield ok(f"{what}, and left to it: mpijob is not in trainingOperator.enableScheme")
        return
    others = ", ".join(
        name.partition(".")[0].removesuffix("s") for name in definitions_of(JOBS_GROUP) if name != _MPI_JOBS
    )
    yield fail(
        f"{what}, and a cluster has one definition of a name",
        f"leave it: set trainingOperator.enableScheme to [{others}], and apply `trainmaster crds --without mpijobs`",
    )


def _check_deployments(facts: Facts) -> Iterator[Finding]:
    for deployment in facts.training_operators.value:
        where, name = deployment["metadata"]["namespace"], deployment["metadata"]["name"]
        what = f"the Training Operator ({images_of(deployment)})"
        if deployment["spec"].get("replicas") == 0:
            yield ok(f"{what} is installed as {where}/{name}, with no replicas; delete it when nobody wants it back")
            continue
        yield fail(
            f"{what} runs as {where}/{name}; it knows no lease, and both would act on its jobs",
            f"kubectl scale deployment {name} -n {where} --replicas=0 before, which jobs that run do not notice",
        )
