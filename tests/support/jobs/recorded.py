"""Recorded cases of V1 jobs: their cluster with its definitions and webhooks, and the settings of the original."""

import argparse
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, Final
from unittest.mock import AsyncMock, patch
from urllib.parse import urlsplit

from support.admission import job_manifest
from support.golden import GOLDEN, load_yaml, recorded_cases
from support.original_crds import original_job_definitions
from support.sim.world import jobs_registry, quiet, registry_with

from trainmaster.controller.cli.config.flags import (
    add_training_operator_flags,
    overrides_of_environment,
    overrides_of_flags,
)
from trainmaster.controller.configuration import Configuration, complete
from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.webhooks.handlers import AdmissionHandlers
from trainmaster.controller.webhooks.server import review
from trainmaster.controller.webhooks.workers import Workers
from trainmaster.devcluster.apiserver.admission.webhook.accessors import WebhookAccessor
from trainmaster.devcluster.apiserver.admission.webhook.client import LocalServices, WebhookClient
from trainmaster.devcluster.apiserver.admission.webhook.dispatcher import WebhookDispatcher
from trainmaster.devcluster.apiserver.registry import Registry
from trainmaster.devcluster.apiserver.registry.generic import Api
from trainmaster.devcluster.apiserver.resources import CRDS, VALIDATING_WEBHOOKS
from trainmaster.devcluster.crds.install import (
    GANG_DEFINITIONS,
    JOBSET_DEFINITIONS,
    TRAINER_DEFINITIONS,
    install_definitions,
)
from trainmaster.runtime.framework import Framework
from trainmaster.runtime.jobs.interface import JobKind
from trainmaster.runtime.jsontree import JsonObject, copy_tree

ABSENT: Final = "<absent>"
_SAME: Final = "="
_WHOLE: Final = ("results", "events")
"""Sections that are lists, and written down in full at each stage."""

Stages = dict[str, JsonObject]
"""By stage: sections, and in each of them objects by name."""


@dataclass(frozen=True)
class Case:
    """One recorded case."""

    name: str
    """With its number, as `016-pytorch-restart-onfailure-worker`."""

    profile: str
    namespace: str
    """`NS` stands for one of its own."""

    objects: list[JsonObject]
    steps: list[JsonObject]
    expected: Stages
    varies: list[JsonObject]


def load_case(name: str) -> Case:
    """Load a case, with every stage in full."""
    data = load_yaml(recorded_cases("v1")[name])
    given = data["given"]
    return Case(
        name=name,
        profile=given.get("profile", "none"),
        namespace=given.get("namespace", "NS"),
        objects=given.get("objects") or [],
        steps=data["steps"],
        expected=_expanded(data["expect"]),
        varies=data.get("varies") or [],
    )


def _expanded(stages: Stages) -> Stages:
    """Put in the place of `=` what the stage before has."""
    full: Stages = {}
    before: JsonObject = {}
    for stage, sections in stages.items():
        seen: JsonObject = {}
        for section, objects in sections.items():
            if section in _WHOLE:
                seen[section] = objects
                continue
            known = before.get(section, {})
            seen[section] = {name: _filled_in(obj, known.get(name)) for name, obj in objects.items()}
        full[stage] = seen
        before = {**before, **seen}
    return full


def _filled_in(obj: Any, before: Any) -> Any:
    if obj == _SAME:
        return copy_tree(before)
    return {key: copy_tree(before[key] if value == _SAME else value) for key, value in obj.items()}


def settled(stages: Stages, varies: list[JsonObject]) -> Stages:
    """Leave out what differed between runs of the original, if it has one of the values that it had there.

    And when a job that waits for its gang was looked at last: whether it was seen waiting is a matter of who is faster.
    """
    stages = copy_tree(stages)
    for sections in stages.values():
        for job in sections.get("jobs", {}).values():
            job["status"].pop("lastReconcileTime", None)
    for each in varies:
        *parents, last = each["path"]
        node: Any = stages
        for key in parents:
            node = node.get(key) if isinstance(node, dict) else None
        if isinstance(node, dict) and node.get(last, ABSENT) in each["values"]:
            node.pop(last, None)
    return {
        stage: {section: objects for section, objects in sections.items() if objects or section in ("jobs", "results")}
        for stage, sections in stages.items()
    }


_OTHERS: Final = (*JOBSET_DEFINITIONS, *TRAINER_DEFINITIONS, *GANG_DEFINITIONS)


@cache
def registry_by(schemas: str) -> Registry:
    """Return what a cluster serves whose definitions of V1 jobs are `ours`, or `original`."""
    return jobs_registry() if schemas == "ours" else registry_with(_install_original)


async def _install_original(api: Api) -> None:
    await install_definitions(api, _OTHERS)
    for definition in original_job_definitions().values():
        await api.create(CRDS, definition, namespace=None)


@asynccontextmanager
async def admitting_jobs(api: Api, kinds: Sequence[JobKind], clock: Clock) -> AsyncIterator[None]:
    """Have jobs judged by their webhooks while the block runs."""
    with closing(Workers()) as workers:
        # They judge jobs by nothing but the jobs themselves.
        handlers = AdmissionHandlers(
            Framework([]), {}, AsyncMock(), job_kinds=kinds, workers=workers, clock=clock
        ).handlers()

        async def call(_: WebhookClient, webhook: WebhookAccessor, body: bytes) -> bytes:
            path = urlsplit(webhook.url).path
            return await review(body, handlers[path], path=path, workers=workers, clock=clock)

        for configuration in job_manifest():
            await api.create(VALIDATING_WEBHOOKS, configuration, namespace=None)
        dispatcher = WebhookDispatcher(api, LocalServices())
        api.admit_by(dispatcher)
        with patch.object(WebhookClient, "call", call):
            yield
        await dispatcher.close()


_TEMPLATE: Final = GOLDEN.resolve() / "init-container-template.yaml"

FLAGS: Final = MappingProxyType(
    {
        "none": (),
        "volcano": ("--gang-scheduler-name=volcano",),
        "scheduler-plugins": ("--gang-scheduler-name=scheduler-plugins-scheduler",),
        "custom": (
            "--pytorch-init-container-image=registry.example/tools/busybox:9",
            "--pytorch-init-container-max-tries=7",
            "--mpi-kubectl-delivery-image=registry.example/kd:v3",
        ),
        "template": (f"--pytorch-init-container-template-file={_TEMPLATE}",),
    }
)
"""By profile."""

ENVIRONMENT: Final = MappingProxyType({"custom": {"CUSTOM_CLUSTER_DOMAIN": "corp.example"}})


def configuration_of(profile: str) -> Configuration:
    """Return the configuration of a profile, without servers and election."""
    parser = argparse.ArgumentParser()
    add_training_operator_flags(parser)
    given = (
        *overrides_of_environment(ENVIRONMENT.get(profile, {})),
        *overrides_of_flags(parser.parse_args(FLAGS[profile])),
    )
    return complete(quiet(elects=False), overrides=given).configuration
