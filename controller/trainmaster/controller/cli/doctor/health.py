"""Checks of an installation that is there: does it serve, and will it go on?

They are told apart from what an installation would meet: a manager may be missing, and a cluster fit for one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from trainmaster.controller.certificates.webhook_names import CONFIGURATIONS, DEFAULTER, JOB_VALIDATOR
from trainmaster.controller.cli.crds import definition, definitions_of
from trainmaster.controller.cli.doctor.certificates import check_certificates, decoded, trusts
from trainmaster.controller.cli.doctor.cluster import (
    OUR_WEBHOOKS,
    called_by,
    has_webhook,
    is_served,
    missing_rights,
    served_versions,
    service_of,
)
from trainmaster.controller.cli.doctor.definitions import APPLY, serve_alike
from trainmaster.controller.cli.doctor.facts import (
    AGAIN,
    Facts,
    Finding,
    Unknown,
    fail,
    images_of,
    ok,
    pod_spec,
    some,
    unknown,
    warn,
)
from trainmaster.controller.explain.causes.controllers import is_held
from trainmaster.controller.manager.roles import NAME
from trainmaster.runtime.api.constants import GROUP
from trainmaster.runtime.jobs.constants import GROUP as JOBS_GROUP
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.version import __version__


def check_absence(facts: Facts) -> Iterator[Finding]:
    """No manager of ours: is nothing left that needs one?"""
    namespace = facts.target.namespace
    if isinstance(facts.installed.known, Unknown):
        reason = facts.installed.known
        raise Unknown(f"whether Trainmaster is installed in {namespace} is not known: {reason}", reason.what_next)
    go = [each for each in facts.managers.value if each["metadata"]["namespace"] == namespace]
    left = [name for name, each in _registered(facts).items() if service_of(facts) in called_by(each)]
    if go:
        yield ok(f"no manager of Trainmaster is installed in the namespace {namespace}, but the Go manager")
    elif left:
        yield fail(
            f"there is no Deployment of a manager in the namespace {namespace}, and {', '.join(left)} asks one about "
            "each write of a job",
            f"{AGAIN}; or delete what is left of it (docs/install.md, Removing it)",
        )
    else:
        yield ok(f"no manager of Trainmaster is installed in the namespace {namespace}")


def check_deployment(facts: Facts) -> Iterator[Finding]:
    """The Deployment: are its replicas available?"""
    deployment = _deployment(facts)
    namespace, name = deployment["metadata"]["namespace"], deployment["metadata"]["name"]
    status = deployment.get("status") or {}
    wanted, available = deployment["spec"].get("replicas", 1), status.get("availableReplicas") or 0
    trouble = [
        str(each.get("message"))
        for each in status.get("conditions") or []
        if (each.get("type"), each.get("status")) in {("ReplicaFailure", "True"), ("Progressing", "False")}
    ]
    what = f"the Deployment {namespace}/{name} ({images_of(deployment)})"
    look = f"see why: kubectl -n {namespace} describe pods; /readyz of a pod says what it waits for"
    if wanted == 0:
        yield fail(f"{what} has no replicas", f"kubectl -n {namespace} scale deployment {name} --replicas=1")
    elif available < wanted:
        because = f": {'; '.join(trouble)}" if trouble else ""
        finding = warn if available else fail
        yield finding(f"of {what} {available} of {wanted} replicas are available{because}", look)
    elif (status.get("updatedReplicas") or 0) < wanted:
        yield warn(f"of {what} {status.get('updatedReplicas') or 0} of {wanted} replicas are as it says now", look)
    else:
        yield ok(f"of {what} {available} of {wanted} replicas are available")


def check_service(facts: Facts) -> Iterator[Finding]:
    """The Service: is it there?"""
    name = service_of(facts)
    if facts.service.value is None:
        yield fail(
            f"there is no {name.removeprefix('the ')}, by which webhooks and the status server are called", AGAIN
        )
    else:
        yield ok(f"{name} is there")


def check_registration(facts: Facts) -> Iterator[Finding]:
    """The webhook configurations: are they there, do they lead to the manager, and do they trust its certificate?"""
    if not facts.target.configuration.webhook.enabled:
        yield ok("webhook.enabled is false: no webhook configuration is needed")
        return
    service, registered = service_of(facts), _registered(facts)
    for each in CONFIGURATIONS:
        if each == JOB_VALIDATOR and not has_webhook(facts):
            continue
        found = registered.get(each.name)
        if found is None or not found.get("webhooks"):
            jobs = "jobs of kubeflow.org/v1" if each == JOB_VALIDATOR else "TrainJobs"
            lack = "get no defaults" if each == DEFAULTER else "are admitted unchecked"
            yield fail(f"there is no {each}: {jobs} {lack}", AGAIN)
        elif called_by(found) != {service}:
            yield fail(f"{each} leads to another server than {service}", AGAIN)
        else:
            yield from _check_trust(facts, found, str(each))


def _check_trust(facts: Facts, configuration: JsonObject, what: str) -> Iterator[Finding]:
    management = facts.target.configuration.cert_management
    secret = facts.secret.known
    name = f"the Secret {facts.target.namespace}/{management.webhook_secret_name}"
    if isinstance(secret, Unknown):
        yield unknown(
            f"{what} is registered; whether its caBundle fits the certificate is not known: {secret}", secret.what_next
        )
    elif secret is None or not decoded(secret).get("tls.crt"):
        yield unknown(
            f"{what} is registered; whether its caBundle fits is not known: there is no certificate in {name}",
            f"see that it trusts the one in webhook.certDir{', when there is one again' if management.enable else ''}",
        )
    elif trusts(configuration, decoded(secret)):
        yield ok(f"{what} is registered, and its caBundle fits the certificate in {name}")
    else:
        yield fail(
            f"{what} does not trust the certificate in {name}: the API server calls no webhook of it",
            "see in the log of the manager that leads why it does not write the caBundle"
            if management.enable
            else "put the authority of that certificate into its caBundle",
        )


def check_rights(facts: Facts) -> Iterator[Finding]:
    """The service account: does it have all rights that this configuration and its plugins need?"""
    namespace, deployment = facts.target.namespace, facts.deployment
    name = pod_spec(deployment).get("serviceAccountName") if deployment else None
    account = f"the service account {namespace}/{name or NAME}"
    missing = missing_rights(facts.manager_may)
    if facts.service_account.value is None and deployment is None:
        yield ok(f"{account} is not there yet; the manifests bring it and its roles")
    elif facts.service_account.value is None:
        yield fail(f"{account} is gone, so that no pod of the manager can be made", AGAIN)
    elif missing:
        gone = [kind for kind, found in facts.bindings.items() if found.known is None]
        because = f", and there is no {' nor '.join(gone)} of its name" if gone else ""
        finding = fail if deployment else warn
        yield finding(
            f"{account} may not {some(missing, separator='; ')}{because}",
            "apply our roles, with the --config and --feature-gates of the manager: "
            f"trainmaster rbac -n {namespace} | kubectl apply --server-side -f -",
        )
    else:
        yield ok(f"{account} may do all that this configuration needs")


def check_kinds(facts: Facts) -> Iterator[Finding]:
    """The definitions: are they there, and of this version?"""
    settings = facts.target.configuration.training_operator
    jobs = [name for name in definitions_of(JOBS_GROUP) if is_served(name, settings)]
    there = [name for name in jobs if facts.definitions[name].value is not None]
    names = definitions_of(GROUP)
    absent = [name for name in names if facts.definitions[name].value is None]
    if absent:
        finding = warn if absent == names and there else fail
        yield finding(f"not there: {', '.join(absent)}", APPLY)
    if not there and jobs:
        yield ok("no kind of kubeflow.org/v1 is there, so that none is served")
    others = []
    for name in [each for each in names if each not in absent] + there:
        live = facts.definitions[name].value or {}
        versions = [each["name"] for each in definition(name)["spec"]["versions"]]
        if live["metadata"].get("deletionTimestamp"):
            yield fail(f"{name} is being deleted, and all of its objects with it", "see what holds it up")
        elif not set(versions) & set(served_versions(live)):
            yield fail(f"{name} is not served in {', '.join(versions)}", APPLY)
        elif not serve_alike(definition(name), live):
            others.append(name)
    if others:
        yield warn(
            f"other definitions than those of Trainmaster {__version__}: {', '.join(others)}",
            f"if the manager is of this version: {APPLY}",
        )
    elif not absent:
        yield ok(f"the definitions are those of Trainmaster {__version__}")


def check_lease(facts: Facts) -> Iterator[Finding]:
    """The lease: does somebody lead?"""
    election, namespace = facts.target.configuration.leader_election, facts.target.namespace
    if not election.leader_elect:
        yield ok("leaderElection.leaderElect is false: there is no lease")
        return
    where = election.resource_namespace or namespace
    found = [each for each in facts.leases.value if each["metadata"]["namespace"] == where]
    what = f"the lease {where}/{election.resource_name}"
    if not found:
        yield fail(f"nobody leads: there is no {what.removeprefix('the ')}", "see in the log of the manager why")
        return
    spec = found[0].get("spec") or {}
    if is_held(found[0], facts.target.now):
        yield ok(f"{what} is held by {spec['holderIdentity']}, renewed {spec.get('renewTime')}")
    else:
        holder = spec.get("holderIdentity")
        held = f"{holder} has not renewed it since {spec.get('renewTime')}" if holder else "it is free"
        yield fail(f"nobody leads: of {what} {held}", "see in the log of the manager why no replica takes it")


def _registered(facts: Facts) -> dict[str, JsonObject]:
    return {each["metadata"]["name"]: each for each in facts.webhooks.value if each["metadata"]["name"] in OUR_WEBHOOKS}


def _deployment(facts: Facts) -> JsonObject:
    assert facts.deployment is not None  # noqa: S101 - these checks are for an installation
    return facts.deployment


CHECKS: Final[dict[str, Callable[[Facts], Iterable[Finding]]]] = {
    "deployment": check_deployment,
    "service": check_service,
    "registration": check_registration,
    "certificate": check_certificates,
    "manager-rights": check_rights,
    "kinds": check_kinds,
    "lease": check_lease,
}
"""All checks of an installation, by name and in order."""
