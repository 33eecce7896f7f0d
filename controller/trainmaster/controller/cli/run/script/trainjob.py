"""The TrainJob of a program, and the ConfigMap with its files where they have to be brought along.

- On an embedded cluster, whose pods see the files of this machine, it runs in its directory, as torchrun would run it:
  what it writes stays there.
- On any other cluster its files come by a ConfigMap, and are copied into an emptyDir, so that it can write beside them.
- What is to be installed is installed first, in each pod. Checkpoints have a directory of this machine, elsewhere a
  claim, which stay when the job is deleted; `CHECKPOINT_DIR` names it.
- It asks for no resources but those that were named: two nodes run on a laptop of two cores, and share its cores.
"""

from __future__ import annotations

import os
import secrets
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import orjson

from trainmaster.controller.cli.run.script.files import Files
from trainmaster.controller.cli.run.script.options import AUTO, Options, ProgramError
from trainmaster.controller.cli.run.script.program import Program
from trainmaster.controller.job_fields import MADE_BY_RUN
from trainmaster.runtime.api.constants import API_VERSION, NODE, RESILIENCE_POLICY_ANNOTATION, TRAINJOB_KIND
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.quantity import Quantity

_GPU: Final = "nvidia.com/gpu"
_PATCH_MANAGER: Final = "trainmaster.dev/run"
_FILES_VOLUME: Final = "program-files"
_DIRECTORY_VOLUME: Final = "program"
_FILES_PATH: Final = "/trainmaster/files"
_DIRECTORY_PATH: Final = "/trainmaster/program"
_CHANGE_DIRECTORY: Final = 'cd "$0"'
_COPY: Final = 'cp -R "$0/..data/." "$1" && cd "$1" && shift'
"""From where a ConfigMap is mounted: behind the link its files are regular ones."""

_INSTALL: Final = ("python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
_CHECKPOINTS: Final = "CHECKPOINT_DIR"
_CHECKPOINTS_VOLUME: Final = "checkpoints"
_CHECKPOINTS_PATH: Final = "/trainmaster/checkpoints"
_CHECKPOINTS_SIZE: Final = "10Gi"
"""What a claim asks for that is made; a larger one is made beforehand."""

_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
"""Those of generated names in Kubernetes, which make no words."""

_LONGEST_STEM: Final = 30
"""What is left for the program in the name of a job: pods and Services are called by it as well."""

_INSTANCE: Final = "app.kubernetes.io/instance"


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """The runtime of a job, as far as it is known."""

    kind: str
    name: str
    job: str = NODE
    """The ReplicatedJob that trains."""

    torchrun: bool
    """Whether processes are started by torchrun, or by a command that learns their number."""

    restarts: bool = False
    """Whether it says itself what follows a failure."""


def _stem(text: str) -> str:
    stem = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in text.lower())
    return stem[:_LONGEST_STEM].strip("-")


def labels(job: str) -> dict[str, str]:
    """Return the labels of the ConfigMaps of a job."""
    return {**MADE_BY_RUN, _INSTANCE: job}


def job_name(program: Program) -> str:
    """Make a name that no other job has."""
    stem = _stem(program.name)
    if not stem or not stem[0].isalpha():  # the name of a Service begins with a letter
        stem = f"job-{stem}".rstrip("-")
    return f"{stem}-{_suffix()}"


def mounted(program: Program, options: Options, name: str, runtime: Runtime) -> list[JsonObject]:
    """Return the objects of a program that runs in its directory on this machine."""
    variables = {"HOME": str(Path.home()), **_threads(options, runtime)}
    if python_path := os.environ.get("PYTHONPATH"):
        variables["PYTHONPATH"] = os.pathsep.join(os.path.abspath(place) for place in python_path.split(os.pathsep))  # noqa: PTH100 - of what need not exist
    steps = [_CHANGE_DIRECTORY]
    if options.checkpoints is not None:
        variables[_CHECKPOINTS] = str(Path(options.checkpoints).absolute())
        steps.append(f'mkdir -p "${_CHECKPOINTS}"')
    requirements = [str(Path(file).absolute()) for file in options.requirements]
    command = ["sh", "-c", _shell(steps, options, requirements), _literal(str(program.directory))]
    words = [*_launcher(program, options, runtime), *program.entry]
    if program.script is None:
        return [_trainjob(options, name, runtime, command=command, words=words, variables=variables)]
    # The script of a notebook is nowhere yet, and is not to lie about in the directory of its author.
    variables["PYTHONPATH"] = os.pathsep.join(filter(None, (str(program.directory), variables.get("PYTHONPATH"))))
    files = Files()
    files.add(program.entry[0], program.script.text)
    words[-1] = f"{_FILES_PATH}/{program.entry[0]}"
    job = _trainjob(options, name, runtime, command=command, words=words, variables=variables)
    config_map = _config_map(files, name)
    job["spec"]["runtimePatches"] = [
        _patch(
            runtime,
            volumes=[_files_volume(files, config_map)],
            mounts=[{"name": _FILES_VOLUME, "mountPath": _FILES_PATH, "readOnly": True}],
        )
    ]
    return [config_map, job]


def copied(program: Program, options: Options, name: str, runtime: Runtime, files: Files) -> list[JsonObject]:
    """Return the objects of a program that takes its files along."""
    directory = source_directory(program)
    entry = program.entry
    if program.is_file:
        entry = (str((program.directory / entry[0]).resolve().relative_to(directory)),)
    requirements = [str(Path(file).resolve().relative_to(directory)) for file in options.requirements]
    command = ["sh", "-c", _shell([_COPY], options, requirements), _FILES_PATH, _DIRECTORY_PATH]
    variables = {"PYTHONUNBUFFERED": "1"}  # its output is to be seen when it is written
    config_map = _config_map(files, name)
    volumes = [_files_volume(files, config_map), {"name": _DIRECTORY_VOLUME, "emptyDir": {}}]
    mounts: list[JsonObject] = [
        {"name": _FILES_VOLUME, "mountPath": _FILES_PATH, "readOnly": True},
        {"name": _DIRECTORY_VOLUME, "mountPath": _DIRECTORY_PATH},
    ]
    if options.checkpoints is not None:
        variables[_CHECKPOINTS] = _CHECKPOINTS_PATH
        claimed = {"claimName": claim_name(options.checkpoints)}
        volumes.append({"name": _CHECKPOINTS_VOLUME, "persistentVolumeClaim": claimed})
        mounts.append({"name": _CHECKPOINTS_VOLUME, "mountPath": _CHECKPOINTS_PATH})
    words = [*_launcher(program, options, runtime), *entry]
    job = _trainjob(options, name, runtime, command=command, words=words, variables=variables)
    job["spec"]["runtimePatches"] = [_patch(runtime, volumes=volumes, mounts=mounts)]
    return [config_map, job]


def claim_name(checkpoints: str) -> str:
    """Return the name of the claim that a directory of checkpoints is on a cluster."""
    return _stem(Path(checkpoints).absolute().name) or _CHECKPOINTS_VOLUME


def claim(options: Options, name: str) -> JsonObject:
    """Return the claim for checkpoints, which several nodes share."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "labels": MADE_BY_RUN},
        "spec": {
            "accessModes": ["ReadWriteOnce" if options.nodes == 1 else "ReadWriteMany"],
            "resources": {"requests": {"storage": _CHECKPOINTS_SIZE}},
        },
    }


def source_directory(program: Program) -> Path:
    """Return the directory that is taken along: the working directory, or that of a program outside of it."""
    if not program.is_file:
        return program.directory.resolve()
    path = (program.directory / program.entry[0]).resolve()
    directory = program.directory.resolve()
    return directory if path.is_relative_to(directory) else path.parent


def _trainjob(
    options: Options,
    name: str,
    runtime: Runtime,
    *,
    command: list[str],
    words: list[str],
    variables: dict[str, str],
) -> JsonObject:
    trainer: JsonObject = {
        "numNodes": options.nodes,
        "command": command,
        "args": [_literal(word) for word in (*words, *options.arguments)],
        "env": [{"name": key, "value": _literal(value)} for key, value in (variables | dict(options.env)).items()],
    }
    if options.image is not None:
        trainer["image"] = options.image
    if runtime.torchrun and (processes := _processes(options)) is not None:
        trainer["numProcPerNode"] = processes
    if resources := _resources(options):
        trainer["resourcesPerNode"] = resources
    metadata: JsonObject = {"name": name, "labels": MADE_BY_RUN}
    if options.retries is not None or not runtime.restarts:
        policy = orjson.dumps({"maxRestarts": options.retries or 0}).decode()
        metadata["annotations"] = {RESILIENCE_POLICY_ANNOTATION: policy}
    return {
        "apiVersion": API_VERSION,
        "kind": TRAINJOB_KIND,
        "metadata": metadata,
        "spec": {
            "runtimeRef": {"name": runtime.name, "kind": runtime.kind},
            "trainer": trainer,
        },
    }


def _shell(steps: list[str], options: Options, requirements: list[str]) -> str:
    """Return what the shell does before it becomes the program, as Kubernetes takes it."""
    packages = [*options.pip, *(word for file in requirements for word in ("-r", file))]
    installing = [_literal(shlex.join([*_INSTALL, *packages]))] if packages else []
    return " && ".join([*steps, *installing, 'exec "$@"'])


def _launcher(program: Program, options: Options, runtime: Runtime) -> list[str]:
    if program.launcher is not None:
        return list(program.launcher)
    if not runtime.torchrun:
        return ["python"]
    # torchrun's own word where nobody but torchrun knows the number: its argument wins over the variable.
    return ["torchrun", *(["--nproc-per-node=auto"] if _processes(options) is None else [])]


def _processes(options: Options) -> int | None:
    """Return how many processes a node has; None: torchrun counts."""
    if options.nproc is None:
        return options.gpus or 1
    if options.nproc != AUTO:
        return options.nproc
    if options.gpus:
        return options.gpus
    # What the node asks for, not what the machine has, which is what torchrun would count.
    return max(1, int(Quantity.parse(options.cpus).nano // 10**9)) if options.cpus else None


def _threads(options: Options, runtime: Runtime) -> dict[str, str]:
    """Return the variable by which processes share the CPUs of this machine, each of which would take all of them.

    A process that is alone gets none: left to themselves, libraries count cores and not hyperthreads.
    """
    processes = _processes(options) if runtime.torchrun else 1
    if processes is None or options.nodes * processes == 1:  # one for each CPU or GPU: torchrun gives each one thread
        return {}
    cpus = Quantity.parse(options.cpus).ceil() if options.cpus is not None else (os.cpu_count() or 1) // options.nodes
    return {"OMP_NUM_THREADS": str(max(1, cpus // processes))}


def _resources(options: Options) -> JsonObject:
    requests: JsonObject = {}
    if options.cpus is not None:
        requests["cpu"] = options.cpus
    if options.memory is not None:
        requests["memory"] = options.memory
    limits: JsonObject = {_GPU: options.gpus} if options.gpus else {}
    if options.memory_limit is not None:
        limits["memory"] = options.memory_limit
    return {name: each for name, each in (("requests", requests), ("limits", limits)) if each}


def _config_map(files: Files, name: str) -> JsonObject:
    return files.config_map(f"{name}-files-{_suffix()}", labels(name))


def _files_volume(files: Files, config_map: JsonObject) -> JsonObject:
    return {"name": _FILES_VOLUME, "configMap": {"name": config_map["metadata"]["name"], "items": files.items()}}


def _patch(runtime: Runtime, *, volumes: list[JsonObject], mounts: list[JsonObject]) -> JsonObject:
    pod = {"volumes": volumes, "containers": [{"name": NODE, "volumeMounts": mounts}]}
    replicated_job = {"name": runtime.job, "template": {"spec": {"template": {"spec": pod}}}}
    return {
        "manager": _PATCH_MANAGER,
        "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [replicated_job]}}},
    }


def _literal(text: str) -> str:
    """Write a text so that Kubernetes, which expands `$(NAME)` in commands and variables, leaves it as it is.

    Raises:
        ProgramError: It is no text: names of files may be any bytes.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ProgramError(f"{text!a} is no text in UTF-8, and Kubernetes takes nothing else; rename it") from error
    return text.replace("$", "$$")


def _suffix() -> str:
    return "".join(secrets.choice(_LETTERS) for _ in range(5))
