"""Checks of what the Training Operator V1 has left or still does: it and this manager have the same kinds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from trainmaster.controller.cli.crds import definitions_of
from trainmaster.controller.cli.doctor.cluster import images_of, served_versions
from trainmaster.controller.cli.doctor.definitions import compare
from trainmaster.controller.cli.doctor.facts import Facts
from trainmaster.controller.cli.doctor.findings import Finding, fail, ok
from trainmaster.controller.configuration import TrainingOperator
from trainmaster.runtime.jobs.constants import GROUP, VERSION

_MPI_JOBS: Final = "mpijobs.kubeflow.org"


def check_training_operator(facts: Facts) -> Iterator[Finding]:
    """The Training Operator V1: whose are its kinds, and does it still act on them?"""
    settings = facts.target.configuration.training_operator
    names = definitions_of(GROUP)
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
        for name in definitions_of(GROUP)
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
    others = ", ".join(name.partition(".")[0].removesuffix("s") for name in definitions_of(GROUP) if name != _MPI_JOBS)
    yield fail(
        f"{what}, and a cluster has one definition of a name",
        f"leave it: set trainingOperator.enableScheme to [{others}], and apply `trainmaster crds --without mpijobs`",
    )


def _check_deployments(facts: Facts) -> Iterator[Finding]:
    for deployment in facts.training_operators.value:
        where, name = deployment["metadata"]["namespace"], deployment["metadata"]["name"]
        what = f"the Training Operator ({', '.join(images_of(deployment))})"
        if deployment["spec"].get("replicas") == 0:
            yield ok(f"{what} is installed as {where}/{name}, with no replicas; delete it when nobody wants it back")
            continue
        yield fail(
            f"{what} runs as {where}/{name}; it knows no lease, and both would act on its jobs",
            f"kubectl scale deployment {name} -n {where} --replicas=0 before, which jobs that run do not notice",
        )
