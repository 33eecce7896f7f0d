"""From a program to the manifests that run it on a cluster, with what is worth knowing before it is submitted.

- It runs on the runtime that was named, or on that of its framework, as the cluster has it.
- The ConfigMap of a program belongs to its TrainJob: it is there before it, and goes with it.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from trainmaster.controller.cli.files.manifests import Manifest, Source
from trainmaster.controller.cli.follow.job_status import FollowedJob
from trainmaster.controller.cli.printers import counted, to_yaml
from trainmaster.controller.cli.responses import FIELD_MANAGER
from trainmaster.controller.cli.run.script.files import IGNORE_FILE, Files, collect_files, shown_size
from trainmaster.controller.cli.run.script.imports import (
    FRAMEWORKS,
    TORCH,
    Framework,
    advice_for_missing,
    framework_of,
    imported_of,
    is_module_in,
    is_this,
    missing_modules,
)
from trainmaster.controller.cli.run.script.options import Options, ProgramError, warnings_of
from trainmaster.controller.cli.run.script.program import LAUNCHERS, SCRIPT, Program
from trainmaster.controller.cli.run.script.trainjob import (
    Runtime,
    claim,
    claim_name,
    copied,
    job_name,
    labels,
    mounted,
    source_directory,
)
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import ApiError, KubeError, NotFound
from trainmaster.controller.kube.rest.resources import CONFIGMAPS, Resource
from trainmaster.controller.resources import CLUSTER_TRAINING_RUNTIMES, TRAINING_RUNTIMES
from trainmaster.runtime.api.constants import (
    ANCESTOR_LABEL,
    API_VERSION,
    CLUSTER_TRAINING_RUNTIME_KIND,
    NODE,
    TORCH_RESERVED_ENV,
    TRAINER_ANCESTOR,
    TRAINJOB_KIND,
    XGBOOST_RESERVED_ENV,
)
from trainmaster.runtime.jsontree import JsonObject

_LAUNCHERS_OF_THEIR_OWN: Final = ("mpi", "flux")
"""Policies of runtimes whose command starts all nodes: it would have to be another one than that of a program."""

_OF_TORCHRUN: Final = frozenset({"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"})

_RESERVED: Final = {"torch-distributed": TORCH_RESERVED_ENV, "xgboost-distributed": XGBOOST_RESERVED_ENV}
"""Variables that are refused to jobs of a built-in runtime."""

CLAIMS: Final = Resource("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", namespaced=True)
_SHOWN: Final = 8


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
    from trainmaster.runtime.resilience import own_failure_policy  # noqa: PLC0415 - has pydantic

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
    torchrun = (framework is TORCH or program.launcher is not None) and policy.get(TORCH.name) is not None
    report(_description(program, options, framework, name, torchrun=torchrun))
    spec = (live or {}).get("spec") or {}
    template = (spec.get("template") or {}).get("spec") or {}
    restarts = bool(spec.get("resiliencePolicy")) or own_failure_policy(template) is not None
    return Runtime(kind=kind, name=name, job=_training_job(live or {}), torchrun=torchrun, restarts=restarts)


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
    if program.launcher is not None:
        launcher = " ".join(program.launcher) or "as it is"
    if framework is not None:
        why = f"it imports {imported_of(framework, program.imports.installed)}"
    elif program.launcher is None:
        why = "it imports no framework that is known"
    else:
        why = "the default; --runtime names another one"
    nodes = "1 node" if options.nodes == 1 else f"{options.nodes} nodes"
    return f"{program.title}: {launcher} on {nodes}, runtime {name}{f' ({why})' if options.runtime is None else ''}"


async def find_claim(
    options: Options, client: KubeClient | None, *, namespace: str, report: Callable[[str], None]
) -> list[JsonObject]:
    """Return the claim for checkpoints that is to be made, if there is none, and say which it is."""
    if options.checkpoints is None:
        return []
    name = claim_name(options.checkpoints)
    exists = False
    if client is not None:
        try:
            await client.get(CLAIMS, namespace, name)
            exists = True
        except NotFound:
            pass
        except ApiError:
            exists = True  # whoever may not read claims may use one, and hardly make one
    report(f"checkpoints: {'' if exists else 'new '}PersistentVolumeClaim {namespace}/{name}; it stays")
    return [] if exists else [claim(options, name)]


def selector(job: str) -> str:
    """Return the selector of the ConfigMaps of a job."""
    return ",".join(f"{key}={value}" for key, value in labels(job).items())


def config_maps(manifests: list[Manifest]) -> list[str]:
    """Return the names of the ConfigMaps among the objects of a program."""
    return [manifest.object["metadata"]["name"] for manifest in manifests if manifest.kind == CONFIGMAPS.kind]


async def give(client: KubeClient, names: list[str], job: FollowedJob, *, report: Callable[[str], None]) -> None:
    """Make a TrainJob the owner of ConfigMaps; where that fails, their end is left to the user."""
    owner = {"apiVersion": API_VERSION, "kind": TRAINJOB_KIND, "name": job.name, "uid": job.uid}
    patch = {"metadata": {"ownerReferences": [owner]}}
    for name in names:
        try:
            await client.patch(CONFIGMAPS, job.namespace, name, patch, field_manager=FIELD_MANAGER)
        except NotFound:
            continue
        except KubeError:
            report(f"warning: ConfigMap {job.namespace}/{name} stays when the TrainJob is deleted; delete it by hand")


async def discard_predecessors(client: KubeClient, names: list[str], job: FollowedJob) -> None:
    """Delete ConfigMaps that belonged to a program of the same name which was replaced, and to nobody now."""
    if not names:
        return
    try:
        found = await client.list(CONFIGMAPS, job.namespace, label_selector=selector(job.name))
    except KubeError:
        return
    left = [item["metadata"] for item in found["items"] if not item["metadata"].get("ownerReferences")]
    await discard(client, [each["name"] for each in left if each["name"] not in names], job.namespace)


async def discard(client: KubeClient, names: list[str], namespace: str) -> None:
    """Delete ConfigMaps whose TrainJob was not created, as far as that is possible."""
    for name in names:
        try:
            await client.delete(CONFIGMAPS, namespace, name)
        except NotFound:
            continue
        except KubeError:
            return


def check_program(program: Program, options: Options, *, python: str | None, report: Callable[[str], None]) -> None:
    """Tell what is wrong with a program as far as it can be known before it runs.

    `python` is the interpreter that runs it; None if that is in an image.

    Raises:
        ProgramError: The interpreter that runs this runs it as well, and cannot read it; its module is nowhere; or it
            is given a variable that the runtime sets.
    """
    runtime = options.runtime or (framework_of(program.imports.installed) or TORCH).runtime
    if taken := sorted(_RESERVED.get(runtime, frozenset()) & options.env.keys()):
        raise ProgramError(
            f"--env {taken[0]}: the runtime {runtime} sets {' and '.join(taken)}; leave out what it sets: "
            "--nodes and --nproc say how many nodes and processes there are"
        )
    if program.syntax_error:
        if python is not None and is_this(python):
            raise ProgramError(program.syntax_error)
        report(f"warning: this is no Python to {python or 'the version of this command'}: {program.syntax_error}")
    for place in program.script.left_out if program.script is not None else ():
        report(f"warning: {program.title}: {place}: left out, since only Jupyter knows what it means")
    for absent in program.imports.absent:
        report(f"warning: {program.title}: {absent}")
    for doubt in warnings_of(options):
        report(f"warning: {doubt}")
    is_alone = program.launcher is None and framework_of(program.imports.installed) is not TORCH
    if options.nproc not in (None, 1) and options.runtime is None and is_alone:
        report(
            f"warning: --nproc {options.nproc} has no effect: torchrun alone starts several processes on a node, and "
            f"{program.title} is run without it, since it does not import torch; to start it so all the same: "
            f"trainmaster run --nproc {options.nproc} -- torchrun {program.title}"
        )
    if (is_alone or _is_plain_python(program)) and options.runtime is None:
        _warn_of_torchrun(program, options, report)
    if python is None or options.pip or options.requirements:
        return  # nobody knows what the image has, or what will be installed
    needed = [name for name, is_needed in program.imports.installed.items() if is_needed]
    if framework_of(program.imports.installed) is TORCH and TORCH.name not in needed:
        needed.append(TORCH.name)  # torchrun is a part of it
    searched = [program.directory / each for each in options.env.get("PYTHONPATH", "").split(os.pathsep) if each]
    there = [name for name in needed if any(is_module_in(name, place) for place in searched)]
    missing = missing_modules([name for name in needed if name not in there], python=python)
    if program.is_module and (name := program.entry[1].partition(".")[0]) in missing:
        raise ProgramError(
            f"{program.title}: there is no module {name}: {name}.py does not exist in {program.directory}, and the "
            "Python of the cluster has not got it"
        )
    if missing:
        root, project = program.imports.root or program.directory, program.directory
        advice = [advice_for_missing(name, root=root, project=project, python=python) for name in missing]
        report(
            f"warning: {program.title} needs {', '.join(missing)}, and the Python of the cluster has not got "
            f"{'it' if len(missing) == 1 else 'them'}" + "".join(f"\n  what next: {each}" for each in advice)
        )


def _is_plain_python(program: Program) -> bool:
    """Whether it is a command that has Python alone run a script."""
    words = program.entry
    return program.launcher == () and words[0] in LAUNCHERS[1:] and words[1:2] != () and words[1].endswith(SCRIPT)


def _warn_of_torchrun(program: Program, options: Options, report: Callable[[str], None]) -> None:
    """Warn of variables that a program reads, and that are not there without torchrun."""
    unset = ", ".join(sorted(program.imports.variables & _OF_TORCHRUN - options.env.keys()))
    if not unset:
        return
    words = program.entry if program.launcher is None else program.entry[1:]
    again = f"to start it so: trainmaster run -- torchrun {shlex.join((*words, *options.arguments))}; "
    report(
        f"warning: {program.title} reads {unset}, which torchrun sets, and is started without torchrun; "
        f"{again if program.script is None else ''}"
        "without it there are PET_NODE_RANK, PET_NNODES, PET_MASTER_ADDR and PET_MASTER_PORT"
    )


def local_objects(program: Program, options: Options, runtime: Runtime) -> list[Manifest]:
    """Return the objects of a program on an embedded cluster of this machine."""
    return manifests_of(program, mounted(program, options, options.name or job_name(program), runtime))


def remote_objects(
    program: Program, options: Options, runtime: Runtime, *, report: Callable[[str], None]
) -> list[Manifest]:
    """Return the objects of a program on any other cluster, with its files.

    Raises:
        ProgramError: The files cannot be brought along.
    """
    made = {} if program.script is None else {program.entry[0]: program.script.text}
    directory = source_directory(program)
    needed = sorted(path.resolve() for path in program.imports.local)
    requirements = [Path(file).resolve() for file in options.requirements]
    if outside := [file for file in requirements if not file.is_relative_to(directory)]:
        raise ProgramError(f"--requirements {outside[0]}: it has to be in {directory} to be brought along")
    files = collect_files(directory, needed=[*needed, *requirements], made=made)
    _require_program(program, files, directory)
    left_out = ", ".join(files.left_out[:_SHOWN]) + (", ..." if len(files.left_out) > _SHOWN else "")
    report(
        f"{program.title}: brings {counted(len(files.files), 'file')} of {directory}, {shown_size(files.size)}"
        + (f"; left out: {left_out} ({IGNORE_FILE} decides)" if left_out else "")
    )
    return manifests_of(program, copied(program, options, options.name or job_name(program), runtime, files))


def _require_program(program: Program, files: Files, directory: Path) -> None:
    """Refuse to go without the program itself, which somebody may have named in the ignore file."""
    for path in program.imports.local:
        place = path.resolve()
        if place.is_relative_to(directory) and str(place.relative_to(directory)) not in files.files:
            name = place.relative_to(directory)
            raise ProgramError(f"{program.title} needs {name}, which {directory / IGNORE_FILE} leaves out")


def manifests_of(program: Program, objects: list[JsonObject]) -> list[Manifest]:
    """Return objects of a program as manifests."""
    return [Manifest(Source(program.title, 0, to_yaml(each), number), each) for number, each in enumerate(objects)]
