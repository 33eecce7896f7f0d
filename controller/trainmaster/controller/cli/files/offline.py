"""Validates the objects of files without a cluster: what the API server and the webhooks would say to them.

- Trainer's kinds, and jobs of `kubeflow.org/v1`, are validated against their definitions by whoever offers
  `trainmaster.schemas`, then by the rules of admission. All errors are found together, each with its place in the file.
- A kind of jobs that a third party offers has no definition here; it is validated by the rules alone, which is told.
- The objects of all files are the listers by which a TrainJob is validated and built, whatever their order. Runtimes
  that come with Trainmaster are known without a file.
- Objects of other kinds are only listed. Nobody validates them.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import Final, Literal, Protocol

from trainmaster.controller.cli.files.manifests import Manifest, ManifestError, built_in_file, built_in_names
from trainmaster.runtime.api.constants import (
    API_VERSION,
    CLUSTER_TRAINING_RUNTIME_KIND,
    GROUP,
    MANAGED_BY_TRAINER,
    TRAINING_RUNTIME_KIND,
    TRAINJOB_KIND,
)
from trainmaster.runtime.api.decoding import ApiTypeError, parse_trainjob
from trainmaster.runtime.api.trainjob import TrainJob
from trainmaster.runtime.conversion.early import OLD_FIELDS
from trainmaster.runtime.conversion.early_trainer import EARLY_API_VERSION
from trainmaster.runtime.field_errors import did_you_mean
from trainmaster.runtime.framework import Framework
from trainmaster.runtime.jobs.interface import JobKind
from trainmaster.runtime.jobs.validation import validate_job
from trainmaster.runtime.jsontree import JsonObject, copy_tree
from trainmaster.runtime.listers import IndexFunctions, index_functions, objects_by_index
from trainmaster.runtime.validation import ValidationResult, validate_runtime, validate_trainjob
from trainmaster.runtime.validation.runtime_ref import live_runtime, other_kind_exists
from trainmaster.runtime.yamltext import load_yaml

SCHEMAS_GROUP: Final = "trainmaster.schemas"
UID: Final = "00000000-0000-0000-0000-000000000000"
"""The UID of jobs that only exist in files."""

GENERATED: Final = "xxxxx"
"""In place of what the API server adds to `generateName`."""

_RUNTIMES: Final = (TRAINING_RUNTIME_KIND, CLUSTER_TRAINING_RUNTIME_KIND)
_KINDS: Final = (TRAINJOB_KIND, *_RUNTIMES, "OptimizationJob")
_VALIDATION_LABEL: Final = "trainer.kubeflow.org/webhook-validation"
_PATH: Final = re.compile(r"(?:metadata|spec)(?:\.[^\s:]+)?(?=: )")
_POSITION: Final = re.compile(r" at line \d+ column \d+$")
_FRACTION: Final = 'must be of type integer,string: "number"'
"""What the API server says of `cpu: 0.5`."""

MPI_OPERATOR: Final = "kubeflow.org/v2beta1"
_OF_MPI_OPERATOR: Final = (
    f"MPIJob of {MPI_OPERATOR} belongs to the MPI operator, and is not checked: leave it to that operator, or write a "
    "TrainJob with a runtime of mlPolicy.mpi, which starts ranks by ssh as well"
)


Severity = Literal["error", "warning", "lost", "note"]
"""The last two are of conversions."""


class SchemaError(Protocol):
    """What is wrong with one field, by the schema of its kind."""

    @property
    def path(self) -> str:
        """For instance `spec.trainer.env[0].name`."""

    @property
    def message(self) -> str:
        """What is wrong."""

    @property
    def known(self) -> Sequence[str]:
        """If the field is unknown: which there are in its place."""

    @property
    def severity(self) -> Literal["error", "warning"]:
        """A warning says what nobody could check, of this object as of all others."""


class SchemaCheck(Protocol):
    """What an entry point in the group `trainmaster.schemas` is."""

    def __call__(self, obj: JsonObject, /) -> tuple[JsonObject, Sequence[SchemaError]] | None:
        """Return an object with its defaults, and what is wrong with it; None for a kind of others."""


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """What is wrong with one field of one object in a file."""

    severity: Severity
    file: str
    """Empty if it is about all of them."""

    line: int | None
    column: int | None
    object: str
    """What the object is called, if it is known."""

    path: str
    message: str

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part)
        return ": ".join(part for part in (place, self.severity, self.object, self.path, self.message) if part)


def diagnosed(manifest: Manifest, severity: Severity, path: str, message: str) -> Diagnostic:
    """Say what is wrong with a field of an object, with its place."""
    line, column = manifest.source.locate(path)
    return Diagnostic(severity, manifest.source.file, line, column, manifest.title, path, message)


@dataclass(slots=True)
class ValidatedManifest:
    """An object as the API server would store it, and what is wrong with it."""

    manifest: Manifest
    object: JsonObject
    diagnostics: list[Diagnostic] = field(default_factory=list)

    @property
    def is_valid(self) -> bool:
        """Whether it would be admitted."""
        return not any(diagnostic.severity == "error" for diagnostic in self.diagnostics)

    def add(self, path: str, message: str, severity: Severity = "error") -> None:
        """Add a diagnostic."""
        self.diagnostics.append(diagnosed(self.manifest, severity, path, message))


class OfflineValidation:
    """The objects of some files, validated; also the listers by which that is done.

    Objects that name no namespace are in `namespace`. `job_kinds` is called if there may be a job of `kubeflow.org/v1`
    in the files. With `runtimes_elsewhere` a cluster may have runtimes that are not in the files, or others under the
    names of those that come with Trainmaster: TrainJobs of such are validated against their definition alone.
    """

    def __init__(
        self,
        found: Iterable[Manifest | ManifestError],
        framework: Framework,
        *,
        namespace: str,
        job_kinds: Callable[[], Sequence[JobKind]] = tuple,
        runtimes_elsewhere: bool = False,
    ) -> None:
        self._framework = framework
        self._runtimes_elsewhere = runtimes_elsewhere
        self._namespace = namespace
        self._load_job_kinds = job_kinds
        self._objects: dict[tuple[str, str, str | None, str], JsonObject] = {}
        self.validated: list[ValidatedManifest] = []
        """Objects of Trainer's kinds, in the order of the files."""

        self.unvalidated: list[Manifest] = []
        """Objects that nobody validates."""

        self.unchecked: dict[str, None] = {}
        """What could not be checked, of whatever objects, each once."""

        self.unreadable: list[Diagnostic] = []
        for each in found:
            if isinstance(each, ManifestError):
                message = _POSITION.sub("", each.problem)
                self.unreadable.append(Diagnostic("error", each.file, each.line, each.column, "", "", message))
            else:
                self._add(each)
        for validated in self.validated:
            self._validate(validated)

    @property
    def trainjobs(self) -> list[ValidatedManifest]:
        """The TrainJobs, in the order of the files."""
        return [validated for validated in self.validated if validated.manifest.kind == TRAINJOB_KIND]

    @property
    def jobs(self) -> list[tuple[JobKind, ValidatedManifest]]:
        """The jobs of `kubeflow.org/v1` with their kinds, in the order of the files."""
        found = ((self._kind_of(validated.manifest), validated) for validated in self.validated)
        return [(kind, validated) for kind, validated in found if kind is not None]

    @functools.cached_property
    def _job_kinds(self) -> Mapping[tuple[str, str], JobKind]:
        return {(kind.group, kind.kind.lower()): kind for kind in self._load_job_kinds()}

    def _kind_of(self, manifest: Manifest) -> JobKind | None:
        """Return the kind of a job; None for any other object."""
        group = manifest.api_version.partition("/")[0]
        return None if group == GROUP else self._job_kinds.get((group, manifest.kind.lower()))

    @property
    def diagnostics(self) -> list[Diagnostic]:
        """Everything that is wrong, in the order of the files."""
        found = [
            *(Diagnostic("warning", "", None, None, "", "", message) for message in self.unchecked),
            *self.unreadable,
            *(diagnostic for validated in self.validated for diagnostic in validated.diagnostics),
        ]
        files = list(dict.fromkeys(diagnostic.file for diagnostic in found))
        return sorted(
            found, key=lambda diagnostic: (files.index(diagnostic.file), diagnostic.line or 0, diagnostic.column or 0)
        )

    def get(self, api_version: str, kind: str, namespace: str | None, name: str) -> JsonObject | None:
        """Return an object of the files, or a runtime that comes with Trainmaster."""
        found = self._objects.get((api_version, kind, namespace or None, name))
        if (
            found is None
            and not self._runtimes_elsewhere
            and (api_version, kind) == (API_VERSION, CLUSTER_TRAINING_RUNTIME_KIND)
        ):
            found = _built_in(name)
        copied: JsonObject | None = copy_tree(found)
        return copied

    def list(self, api_version: str, kind: str, namespace: str | None = None) -> Iterator[JsonObject]:
        """Return the objects of the files."""
        for (other_version, other_kind, other_namespace, _), obj in self._objects.items():
            if (other_version, other_kind) == (api_version, kind) and (not namespace or namespace == other_namespace):
                copied: JsonObject = copy_tree(obj)
                yield copied

    def by_index(self, api_version: str, kind: str, index: str, value: str) -> Iterable[JsonObject]:
        """Return the objects of the files that an index of a plugin has under a value.

        Raises:
            NoSuchIndex: No plugin declared it.
        """
        return objects_by_index(self, self._indexes, (api_version, kind), index, value)

    def is_served(self, api_version: str, kind: str) -> bool:  # noqa: ARG002 - the protocol's
        """Return True: what a cluster serves is none of the files' matter."""
        return True

    def workloads(self, job: TrainJob) -> Iterable[JsonObject]:  # noqa: ARG002 - the protocol's
        """Return nothing: a TrainJob of a file has not begun."""
        return ()

    @functools.cached_property
    def _indexes(self) -> IndexFunctions:
        return index_functions(self._framework.watches())

    def _add(self, manifest: Manifest) -> None:
        obj = self._completed(manifest)
        ours = manifest.api_version.partition("/")[0] == GROUP
        validated = ValidatedManifest(manifest, obj)
        if not ours and manifest.kind in (TRAINJOB_KIND, *_RUNTIMES):
            hint = f"; {_convertible(manifest)}" if manifest.api_version == EARLY_API_VERSION else ""
            problem = f"{manifest.api_version} has no kind {manifest.kind}, but {API_VERSION} has{hint}"
            validated.add("apiVersion", problem)
            self.validated.append(validated)
            return
        job_kind = self._kind_of(manifest)
        if job_kind is not None:
            self._add_job(validated, job_kind)
        elif not ours:
            self.unvalidated.append(manifest)
        elif manifest.kind not in _KINDS:
            validated.add("kind", f'{GROUP} has no kind "{manifest.kind}" {did_you_mean(manifest.kind, _KINDS)}')
            self.validated.append(validated)
            return
        else:
            self.validated.append(validated)
            self._check_schema(validated, *validate_schema(obj))
        metadata = obj["metadata"]
        key = manifest.api_version, manifest.kind, metadata.get("namespace"), metadata["name"]
        if self._objects.get(key, validated.object) != validated.object:
            validated.add("metadata.name", "the files have another object of this kind and name")
        self._objects[key] = validated.object

    def _add_job(self, validated: ValidatedManifest, kind: JobKind) -> None:
        """Add an object whose kind is, but for upper and lower case, one of jobs."""
        manifest = validated.manifest
        answer = check_schema(validated.object)
        if manifest.kind != kind.kind:
            validated.add("kind", f'{manifest.api_version} has no kind "{manifest.kind}" (did you mean "{kind.kind}"?)')
        elif answer is not None:
            self._check_schema(validated, *answer)
        elif manifest.api_version == kind.api_version:
            self.unchecked[f"nobody offers the schema of {kind.kind}: names and types of its fields are unchecked"] = (
                None
            )
        else:
            self.unvalidated.append(manifest)  # of another operator
            if manifest.api_version == MPI_OPERATOR:
                self.unchecked[_OF_MPI_OPERATOR] = None
            return
        self.validated.append(validated)

    def _check_schema(self, validated: ValidatedManifest, obj: JsonObject, errors: Sequence[SchemaError]) -> None:
        validated.object = obj
        for error in errors:
            if error.severity == "warning":
                self.unchecked[error.message] = None
            else:
                validated.add(error.path, error.message + _hint(validated.manifest, error))

    def _completed(self, manifest: Manifest) -> JsonObject:
        """Give an object what a cluster would, as far as others refer to it."""
        obj: JsonObject = copy_tree(manifest.object)
        metadata = obj["metadata"]
        if not metadata.get("name"):
            metadata["name"] = metadata["generateName"] + GENERATED
        if manifest.kind not in (CLUSTER_TRAINING_RUNTIME_KIND, "Namespace", "CustomResourceDefinition"):
            metadata.setdefault("namespace", self._namespace)
        if manifest.kind == TRAINJOB_KIND or self._kind_of(manifest) is not None:
            metadata.setdefault("uid", UID)
        return obj

    def _validate(self, validated: ValidatedManifest) -> None:
        """Apply the rules of admission to an object that was validated against its schema."""
        obj, kind = validated.object, validated.manifest.kind
        sound = validated.is_valid
        job_kind = self._kind_of(validated.manifest)
        if job_kind is not None:
            if not any(each.path in ("apiVersion", "kind") for each in validated.diagnostics):
                self._validate_job(validated, job_kind, sound=sound)
            return
        if kind == TRAINJOB_KIND:
            if self._lacks_runtime(validated):
                return
            result = validate_trainjob(obj, None, framework=self._framework, listers=self)
        elif kind in _RUNTIMES and (obj["metadata"].get("labels") or {}).get(_VALIDATION_LABEL) != "disabled":
            result = validate_runtime(obj, None, framework=self._framework)
        else:
            return
        _add_result(validated, result, sound=sound)

    def _validate_job(self, validated: ValidatedManifest, kind: JobKind, *, sound: bool) -> None:
        try:
            result = validate_job(kind, validated.object, None)
        except Exception as error:
            validated.add("spec", f"the kind {kind.kind} cannot judge it: {type(error).__name__}: {error}")
        else:
            _add_result(validated, result, sound=sound)

    def _lacks_runtime(self, validated: ValidatedManifest) -> bool:
        try:
            job = parse_trainjob(validated.object)
        except ApiTypeError:
            return False
        reference = job.spec.runtime_ref
        if job.spec.managed_by != MANAGED_BY_TRAINER or reference.api_group != GROUP or reference.kind not in _RUNTIMES:
            return False
        if live_runtime(job, self) is not None:
            return False
        if self._runtimes_elsewhere:
            return True
        known = [name for _, kind, _, name in self._objects if kind == reference.kind]
        known += built_in_names() if reference.kind == CLUSTER_TRAINING_RUNTIME_KIND else []
        hint = f"{did_you_mean(reference.name, known)}{other_kind_exists(job, self) or '; give its file, too'}"
        text = f'no file has {reference.kind} "{reference.name}", and it is not built in {hint}'
        validated.add("spec.runtimeRef.name", text)
        return True


def _hint(manifest: Manifest, error: SchemaError) -> str:
    """Return what to write in the place of what a schema refuses, as the end of its message."""
    _, _, field = error.path.rpartition(".")
    if error.known and manifest.kind == TRAINJOB_KIND and error.path == f"spec.{field}" and field in OLD_FIELDS:
        return f": {OLD_FIELDS[field]} has taken its place; {_convertible(manifest)}"
    if error.known:
        return f" {did_you_mean(field, error.known)}"
    return '; write the number in quotes: "0.5"' if error.message.endswith(_FRACTION) else ""


def _convertible(manifest: Manifest) -> str:
    return f"`trainmaster convert -f {manifest.source.file}` prints it in today's form"


def _add_result(validated: ValidatedManifest, result: ValidationResult, *, sound: bool) -> None:
    if result.refusal and sound:  # otherwise the schema has said it already, better
        validated.add("spec.runtimeRef" if "runtime" in result.refusal else "", result.refusal)
    told = {(diagnostic.path, diagnostic.message) for diagnostic in validated.diagnostics}
    for error in result.errors:
        if (error.path, error.body) not in told:  # some rules stand in the schema and in the webhook
            validated.add(error.path, error.body)
    for warning in result.warnings:
        path = _PATH.match(warning)
        validated.add(path[0] if path else "", warning[path.end() + 2 :] if path else warning, "warning")


def validate_schema(obj: JsonObject) -> tuple[JsonObject, Sequence[SchemaError]]:
    """Return an object of Trainer's kinds with its defaults, and what its schema says is wrong with it."""
    answer = check_schema(obj)
    if answer is not None:
        return answer
    raise RuntimeError(f"nobody offers the schema of {obj['kind']} ({SCHEMAS_GROUP}); install trainmaster again")


def check_schema(obj: JsonObject) -> tuple[JsonObject, Sequence[SchemaError]] | None:
    """Ask those who offer schemas about an object; None if nobody knows its kind."""
    answers = (check(obj) for check in _schema_checks())
    return next((answer for answer in answers if answer is not None), None)


@functools.cache
def _schema_checks() -> list[SchemaCheck]:
    points = sorted(entry_points(group=SCHEMAS_GROUP), key=lambda point: point.name)
    return [point.load() for point in points]


@functools.cache
def _built_in(name: str) -> JsonObject | None:
    file = built_in_file(name)
    if file is None:
        return None
    runtime, _ = validate_schema(load_yaml(file.read_bytes()))
    return runtime
