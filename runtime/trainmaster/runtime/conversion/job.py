"""The conversion of one V1 job: to a TrainingRuntime, which has its pods, and a TrainJob of the same name.

A V1 job brings the whole of its pods along; a TrainJob takes them from a runtime. So a job becomes both. Where all its
pods are the same, they are the nodes of the trainer, and what users change from one job to the next (image, command,
variables, resources, number of nodes) stands in the TrainJob. Where they differ, there is a ReplicatedJob for each
kind of pod, and the TrainJob has nothing to say about them.

`JobConversion` does what is the same for all kinds. Its subclasses say what a kind has of its own: its fields, which
pods are the same, the variables that V1 gave them, and when the job has succeeded.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from trainmaster.runtime.api import ApiTypeError
from trainmaster.runtime.api.constants import (
    ANCESTOR_LABEL,
    API_VERSION,
    FRAMEWORK_LABEL,
    GROUP,
    NODE,
    TRAINER_ANCESTOR,
    TRAINING_RUNTIME_KIND,
    TRAINJOB_KIND,
)
from trainmaster.runtime.conversion.hosts import JOBSET_NAME, JOBSET_NAME_FIELD_PATH, HostNames
from trainmaster.runtime.conversion.metadata import convert_metadata, drop_status
from trainmaster.runtime.conversion.notes import ConversionError, Note, Notes
from trainmaster.runtime.conversion.pod_template import convert_template, depends_on_type, set_variables
from trainmaster.runtime.conversion.replicas import Group, Replicas, check_size, new_names, read_replicas
from trainmaster.runtime.conversion.restarts import job_spec, tell_restarts
from trainmaster.runtime.conversion.run_policy import convert_run_policy
from trainmaster.runtime.conversion.scheduling import set_gang
from trainmaster.runtime.conversion.source import Source
from trainmaster.runtime.jobs.constants import NEVER
from trainmaster.runtime.jobs.defaulting import parse_job
from trainmaster.runtime.jobs.interface import Job, JobKind
from trainmaster.runtime.jobs.pods import training_port
from trainmaster.runtime.jobs.validation import validate_job
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.podspec import env_completion_index, env_field

_GLOBAL_INDEX_FIELD_PATH: Final = "metadata.annotations['jobset.sigs.k8s.io/job-global-index']"
_TRAINER_FIELDS: Final = {
    "image": "image",
    "command": "command",
    "args": "args",
    "env": "env",
    "resources": "resourcesPerNode",
}
_LONGEST_IMAGE: Final = 500
_MOST_ITEMS: Final = 128
"""What the definition of TrainJobs allows; what is longer stays in the runtime."""

_GENERATED: Final = "xxxxx"
"""In place of what the API server adds to `generateName`."""

_TYPE: Final = re.compile(r"\[([A-Za-z]\w*)\]")
"""A type of replicas in the path of a field, as V1 writes it."""

_LONGEST_NAME: Final = 63
_POD_SUFFIX: Final = 6
"""Characters that a Job adds to the names of its pods."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """What becomes of one object."""

    objects: Sequence[JsonObject]
    """In the order in which they are to be created; shared parts are not to be changed."""

    notes: Sequence[Note] = ()


class JobConversion:
    """Converts one job.

    Args:
        kind: Its kind, as Trainmaster runs it.
        obj: The job; it is not changed.
        gang_scheduler: What Training Operator V1 runs with as `--gang-scheduler-name`.

    Raises:
        ConversionError: It is no job that Training Operator V1 would run.
    """

    kind: ClassVar[str]

    framework: ClassVar[str]
    """The label of its runtime."""

    sets_main_only: ClassVar[bool] = False
    """Whether V1 sets its variables in the container that trains alone."""

    def __init__(self, kind: JobKind, obj: JsonObject, *, gang_scheduler: str = "") -> None:
        self.job = _valid_job(kind, obj)
        self.gang_scheduler = gang_scheduler
        self.notes = Notes()
        self._source = Source(obj)
        for field in ("apiVersion", "kind"):
            self._source.take(field, str)
        self.metadata = convert_metadata(self._source.part("metadata"), self.notes)
        drop_status(self._source, self.notes)
        spec = self._source.part("spec")
        self._run_policy = convert_run_policy(spec.part("runPolicy"), self.notes)
        self.replicas = {each.type: each for each in read_replicas(spec.part(kind.replica_specs_field), self.job)}
        self.read(spec)
        self.groups = self.group()
        names = new_names(self.job, self.jobset, self.groups)
        self.hosts = HostNames(self.name, self.metadata.get("namespace", ""), names)

    def convert(self) -> Conversion:
        """Return the runtime, the TrainJob, and what there is to tell.

        Raises:
            ConversionError: Its name is too long for a TrainJob.
        """
        self._check_name()
        self._tell_absent()
        runtime, trainer = self._runtime()
        trainjob = self._trainjob(trainer)
        for path in self._source.left():
            self.notes.tell(path, f"left out: {self.kind} has no such field")
        return Conversion([runtime, trainjob], self.notes.notes)

    # What kinds say

    def read(self, spec: Source) -> None:
        """Read what only this kind has in its spec.

        Raises:
            ConversionError: A field has a value that means nothing.
        """

    def group(self) -> list[Group]:
        """Return which pods are the same; by default those of each type."""
        return [self.group_of(each) for each in self.present]

    def environment(self, group: Group) -> Iterable[JsonObject]:
        """Return the variables that V1 sets in the containers of a group."""
        return ()

    def ml_policy(self) -> JsonObject:
        """Return the `mlPolicy` of the runtime, but for the number of nodes."""
        return {}

    def processes(self) -> int | None:
        """Return the `numProcPerNode` of the trainer."""
        return None

    def reserved(self) -> frozenset[str]:
        """Return the names of variables of the trainer that the user cannot set, beside those of `environment`."""
        return frozenset()

    def complete(self, group: Group, pod_spec: JsonObject, path: str) -> None:
        """Change the pods of a group where this kind needs it."""

    def depends_on(self, group: Group) -> list[JsonObject]:
        """Return what a group waits for."""
        return []

    @property
    def trainer_fields(self) -> Collection[str]:
        """The fields of the container that trains that the TrainJob can say."""
        return _TRAINER_FIELDS

    def job_success(self, group: Group) -> JsonObject | None:
        """Return the success policy of a Job, if it need not be that all its pods succeed."""
        return None

    def successful(self) -> Sequence[str]:
        """Return the ReplicatedJobs with which the job has succeeded: those of the type that leads it."""
        leading = self.job.kind.leading_type(self.job)
        every = [each.name for each in self.groups]
        return [each.name for each in self.groups if each.replicas.type == leading] or every

    # What kinds use

    @property
    def name(self) -> str:
        """The name of the job; nothing if it is generated."""
        name: str = self.metadata.get("name", "")
        return name

    @property
    def jobset(self) -> str:
        """The name of the JobSet, as values of variables can have it."""
        return self.name or f"$({JOBSET_NAME})"

    @property
    def present(self) -> list[Replicas]:
        """The replicas of which there are any."""
        return [each for each in self.replicas.values() if each.count]

    @property
    def total(self) -> int:
        """The number of pods."""
        return self.job.total_replicas

    @property
    def is_one_group(self) -> bool:
        """Whether all pods are the same: nodes of one trainer."""
        return len(self.groups) == 1

    def group_of(self, replicas: Replicas, *, is_spread: bool = False) -> Group:
        """Return the pods of one type as a group, the nodes of the trainer if there are no others."""
        alone = len(self.present) == 1
        return Group(
            name=NODE if alone else replicas.word,
            members=[(replicas, range(replicas.count))],
            main=self.main_container(replicas),
            is_node=alone,
            is_trainer=alone,
            is_spread=is_spread and not alone,
        )

    def node_group(self, every: Sequence[Replicas]) -> Group:
        """Return the pods of several types as the nodes of one trainer."""
        members = [(each, range(each.count)) for each in every]
        first = every[0]
        for each in every[1:]:
            message = f"its pods are those of {first.type}, so all are nodes of one trainer, {first.type} first"
            self.notes.tell(f"{each.path}.template", message)
        return Group(NODE, members, main=self.main_container(every[0]), is_node=True, is_trainer=True)

    def main_container(self, replicas: Replicas) -> int:
        """Return the place of the container that trains."""
        return replicas.place_of(self.job.kind.container_name) or 0

    def are_alike(self, every: Sequence[Replicas]) -> bool:
        """Tell whether the pods of all these types are the same."""
        first = every[0]
        return all(
            each.template == first.template and each.restart_policy == first.restart_policy for each in every
        ) and not depends_on_type(first.template)

    def host(self, replicas: Replicas, index: int) -> str:
        """Return the new name of a pod."""
        return self.hosts[self.job.kind.pod_name(self.job, replicas.type, index)]

    def port(self, replicas: Replicas) -> int:
        """Return the port on which the pods of a type meet others."""
        return training_port(self.job, replicas.type)

    def rank(self, group: Group, name: str) -> JsonObject:
        """Return a variable with the index of a pod: in its group or, if that is spread, among all pods."""
        return env_field(name, _GLOBAL_INDEX_FIELD_PATH) if group.is_spread else env_completion_index(name)

    # The objects

    def _check_name(self) -> None:
        longest = max((host.partition(".")[0] for host in self.hosts.values()), key=len)
        too_many = len(longest) + _POD_SUFFIX - _LONGEST_NAME
        if self.name and too_many > 0:
            raise ConversionError(
                "metadata.name",
                f"is too long: a pod of the TrainJob is called {longest}-abcde, for which there are {_LONGEST_NAME} "
                f"characters; shorten the name by {too_many}",
            )

    def _tell_absent(self) -> None:
        there = {id(replicas) for group in self.groups for replicas, _ in group.members}
        for each in self.replicas.values():
            if id(each) not in there:
                self.notes.tell(each.path, "left out: there are no replicas of it")

    def _runtime(self) -> tuple[JsonObject, JsonObject]:
        """Return the runtime, and the trainer of the TrainJob."""
        trainer: JsonObject = {}
        jobs = []
        for group in self.groups:
            if len(self.groups) > 1 and self._run_policy.backoff_limit is not None and self._counts(group):
                self.notes.tell("spec.runPolicy.backoffLimit", "counts for each Job of the JobSet by itself")
            jobs.append(self._replicated_job(group, trainer))
        spec: JsonObject = {"replicatedJobs": jobs}
        successful = list(self.successful())
        if successful != [group.name for group in self.groups]:
            spec = {"successPolicy": {"operator": "All", "targetReplicatedJobs": successful}, **spec}
        runtime: JsonObject = {}
        policy = self.ml_policy()
        if trainer:
            policy = {"numNodes": trainer["numNodes"], **policy}
        if policy:
            runtime["mlPolicy"] = policy
        runtime["template"] = {"spec": spec}
        pod_specs = [job["template"]["spec"]["template"]["spec"] for job in jobs]
        set_gang(
            runtime,
            pod_specs,
            self._run_policy.scheduling,
            scheduler=self.gang_scheduler,
            pods=self.total,
            notes=self.notes,
        )
        metadata = {"name": self._runtime_name(), "labels": {FRAMEWORK_LABEL: self.framework}}
        if "namespace" in self.metadata:
            metadata["namespace"] = self.metadata["namespace"]
        return (
            {"apiVersion": API_VERSION, "kind": TRAINING_RUNTIME_KIND, "metadata": metadata, "spec": runtime},
            trainer,
        )

    def _counts(self, group: Group) -> bool:
        return bool(group.count) and group.replicas.restart_policy != NEVER

    def _replicated_job(self, group: Group, trainer: JsonObject) -> JsonObject:
        template = convert_template(group, job=self.name, hosts=self.hosts, notes=self.notes)
        path = f"{group.replicas.path}.template.spec"
        self.complete(group, template["spec"], path)
        for place, container in enumerate(template["spec"]["containers"]):
            is_main = group.is_trainer and place == group.main
            users = container.pop("env", None) if is_main and "env" in self.trainer_fields else None
            has_variables = place == group.main or not self.sets_main_only
            env = self._named(self.environment(group)) if has_variables else []
            reserved = self.reserved() if is_main else frozenset()
            set_variables(container, env, reserved, f"{path}.containers[{place}]", self.notes)
            if users:
                self._keep_users(container, users, trainer, f"{path}.containers[{place}]")
        for replicas, _ in group.members:
            tell_restarts(
                replicas.restart_policy, self._run_policy.backoff_limit, f"{replicas.path}.restartPolicy", self.notes
            )
        main = template["spec"]["containers"][group.main]
        if group.is_trainer:
            _move_to_trainer(main, trainer, self.trainer_fields)
            trainer["numNodes"] = self.nodes
            processes = self.processes()
            if processes is not None:
                trainer["numProcPerNode"] = processes
        spec = job_spec(group.replicas.restart_policy, self._run_policy.backoff_limit, main["name"])
        if (success := self.job_success(group)) is not None:
            spec["successPolicy"] = success
        if not group.is_trainer and not group.is_spread:
            spec["parallelism"] = spec["completions"] = group.count
        job: JsonObject = {"name": group.name}
        if group.is_spread:
            job["replicas"] = group.count
        if depends_on := self.depends_on(group):
            job["dependsOn"] = depends_on
        job["template"] = {"spec": {**spec, "template": template}}
        if group.is_trainer:
            job["template"] = {"metadata": {"labels": {ANCESTOR_LABEL: TRAINER_ANCESTOR}}, **job["template"]}
        return job

    @property
    def nodes(self) -> int:
        """The number of nodes of the trainer."""
        return self.total

    def _named(self, env: Iterable[JsonObject]) -> list[JsonObject]:
        """Put the name of the job before variables that hold it, if it is generated."""
        if self.name:
            return list(env)
        return [env_field(JOBSET_NAME, JOBSET_NAME_FIELD_PATH), *env]

    def _keep_users(self, container: JsonObject, users: list[JsonObject], trainer: JsonObject, path: str) -> None:
        """Let the variables of the user stand in the TrainJob, but for those that V1 replaced."""
        names = {each["name"] for each in container.get("env") or ()} | self.reserved()
        kept: dict[str, JsonObject] = {}
        for place, each in enumerate(users):
            if each["name"] in names:
                self.notes.tell(f"{path}.env[{place}]", f"left out: {each['name']} is set for the job, as V1 set it")
                continue
            if each["name"] in kept:
                self.notes.tell(
                    f"{path}.env[{place}]", f"the last value of {each['name']} is kept, which counted in V1"
                )
            kept[each["name"]] = each
        if len(kept) <= _MOST_ITEMS:
            trainer["env"] = list(kept.values())
        else:
            container["env"] = [*(container.get("env") or ()), *kept.values()]

    def _trainjob(self, trainer: JsonObject) -> JsonObject:
        reference = {"apiGroup": GROUP, "kind": TRAINING_RUNTIME_KIND, "name": self._runtime_name()}
        spec: JsonObject = {"runtimeRef": reference}
        if trainer:
            order = ("numNodes", "numProcPerNode", *_TRAINER_FIELDS.values())
            spec["trainer"] = {field: trainer[field] for field in order if trainer.get(field) not in (None, [], {})}
        spec |= self._run_policy.trainjob
        return {"apiVersion": API_VERSION, "kind": TRAINJOB_KIND, "metadata": self.metadata, "spec": spec}

    def _runtime_name(self) -> str:
        name: str = self.metadata.get("name") or self.metadata["generateName"].rstrip("-.")
        return name


def _valid_job(kind: JobKind, obj: JsonObject) -> Job:
    """Read a job that Training Operator V1 would run; one whose name is generated gets one."""
    metadata = obj.get("metadata")
    if isinstance(metadata, dict) and not metadata.get("name") and isinstance(metadata.get("generateName"), str):
        obj = {**obj, "metadata": {**metadata, "name": f"{metadata['generateName']}{_GENERATED}"}}
    try:
        job = parse_job(kind, obj)
    except ApiTypeError as error:
        first, *others = [(path, problem) for path, _, problem in (each.partition(": ") for each in error.problems)]
        raise ConversionError(*first, *others) from error
    check_size(job)  # what follows looks at each pod
    errors = [(_TYPE.sub(r".\1", each.path), each.body) for each in validate_job(kind, obj, None).errors]
    if errors:
        first, *others = errors
        raise ConversionError(*first, *others)
    return job


def _move_to_trainer(container: JsonObject, trainer: JsonObject, fields: Collection[str]) -> None:
    """Let the TrainJob say what it can say about the container that trains."""
    for field, theirs in _TRAINER_FIELDS.items():
        value = container.get(field)
        if field == "env" or field not in fields or not value:
            continue
        if field == "image" and len(value) > _LONGEST_IMAGE:
            continue
        if field in ("command", "args") and len(value) > _MOST_ITEMS:
            continue
        if field == "resources" and not set(value) <= {"limits", "requests"}:
            continue
        trainer[theirs] = container.pop(field)
