"""Checks of the cluster itself, and of what others have installed in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from trainmaster.controller.cli.doctor.facts import COSCHEDULING, JOBSETS, KUEUE, VOLCANO, Facts
from trainmaster.controller.cli.doctor.findings import Finding, fail, ok, warn
from trainmaster.runtime.api.constants import JOBSET_API_VERSION
from trainmaster.runtime.jsontree import JsonObject

OLDEST: Final = 31
"""The minor version from which on the original's chart runs."""

NEWEST: Final = 37
"""The minor version of which the schemas here are."""

_JOBSET_INSTALL: Final = "install JobSet, https://jobset.sigs.k8s.io, before any TrainJob runs"


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
        image = ", ".join(images_of(each))
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


def images_of(deployment: JsonObject) -> list[str]:
    """Return the images of a Deployment."""
    containers = deployment["spec"]["template"]["spec"].get("containers") or []
    return [str(each.get("image", "")) for each in containers]
