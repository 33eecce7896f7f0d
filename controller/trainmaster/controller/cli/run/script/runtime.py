"""The runtime that a program runs on: the one that was named, or that of its framework, as the cluster has it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from trainmaster.controller.cli.run.script.errors import ProgramError
from trainmaster.controller.cli.run.script.frameworks import FRAMEWORKS, TORCH, Framework, framework_of, imported_of
from trainmaster.controller.cli.run.script.options import Options
from trainmaster.controller.cli.run.script.program import Program
from trainmaster.controller.cli.run.script.trainjob import Runtime
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import ApiError, NotFound
from trainmaster.controller.resources import CLUSTER_TRAINING_RUNTIMES, TRAINING_RUNTIMES
from trainmaster.runtime.api.constants import (
    ANCESTOR_LABEL,
    CLUSTER_TRAINING_RUNTIME_KIND,
    NODE,
    TRAINER_ANCESTOR,
)
from trainmaster.runtime.jsontree import JsonObject

_LAUNCHERS_OF_THEIR_OWN: Final = ("mpi", "flux")
"""Policies of runtimes whose command starts all nodes: it would have to be another one than that of a program."""


async def find_runtime(
    program: Program,
    options: Options,
    client: KubeClient | None,
    *,
    namespace: str,
    report: Callable[[str], None],
) -> Runtime:
    """Return the runtime of a program, and say which it is; one that is nowhere is left to the cluster to refuse.

    Raises:
        ProgramError: It is none for programs.
        TransportError: The cluster cannot be reached.
    """
    framework = framework_of(program.imports.installed)
    name = options.runtime or (framework or TORCH).runtime
    kind, live = CLUSTER_TRAINING_RUNTIME_KIND, None
    if client is not None:
        kind, live = await _look_up(client, name, namespace)
    policy = _policy(name) if live is None else (live.get("spec") or {}).get("mlPolicy") or {}
    for launcher in _LAUNCHERS_OF_THEIR_OWN:
        if policy.get(launcher) is not None:
            raise ProgramError(
                f"the runtime {name} starts its nodes by {launcher}, and a program is started on each node by itself\n"
                f"  what next: name another one by --runtime, or write the TrainJob with the command for {launcher}"
            )
    torchrun = framework is TORCH and policy.get(TORCH.name) is not None
    report(_description(program, options, framework, name, torchrun=torchrun))
    return Runtime(kind=kind, name=name, job=_training_job(live or {}), torchrun=torchrun)


async def _look_up(client: KubeClient, name: str, namespace: str) -> tuple[str, JsonObject | None]:
    for resource, place in ((CLUSTER_TRAINING_RUNTIMES, None), (TRAINING_RUNTIMES, namespace)):
        try:
            return resource.kind, await client.get(resource, place, name)
        except NotFound:
            continue
        except ApiError:
            break  # whoever may not read runtimes may use them
    return CLUSTER_TRAINING_RUNTIME_KIND, None


def _policy(name: str) -> dict[str, Any]:
    """Return the policy of a runtime that is only known by its name."""
    return next(({each.name: {}} for each in FRAMEWORKS if each.runtime == name), {TORCH.name: {}})


def _training_job(live: JsonObject) -> str:
    """Return the name of the ReplicatedJob that trains."""
    template = (live.get("spec") or {}).get("template") or {}
    for job in (template.get("spec") or {}).get("replicatedJobs") or []:
        labels = ((job.get("template") or {}).get("metadata") or {}).get("labels") or {}
        if labels.get(ANCESTOR_LABEL) == TRAINER_ANCESTOR:
            return str(job["name"])
    return NODE


def _description(program: Program, options: Options, framework: Framework | None, name: str, *, torchrun: bool) -> str:
    launcher = "torchrun" if torchrun else "python"
    if framework is None:
        why = "it imports no framework that is known"
    else:
        why = f"it imports {imported_of(framework, program.imports.installed)}"
    nodes = "1 node" if options.nodes == 1 else f"{options.nodes} nodes"
    return f"{program.title}: {launcher} on {nodes}, runtime {name}{f' ({why})' if options.runtime is None else ''}"
