"""`trainmaster convert`: older kinds of training jobs, as TrainJobs and TrainingRuntimes.

The objects are printed in the order of the files, those of other kinds as they are. What becomes of every field that is
not simply found again is told on standard error; what has no equivalent also stands as a comment before the objects.

Exit codes: 0 everything is converted; 1 an object cannot be, or there is none, or with `--strict` something has no
equivalent; 2 wrong arguments.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from trainmaster.controller.cli.files.manifests import Manifest, ManifestError, scan_manifests
from trainmaster.controller.cli.files.offline import MPI_OPERATOR, Severity, check_schema, diagnosed
from trainmaster.controller.cli.options import CommandError, add_files_option, reporting_errors
from trainmaster.controller.cli.printers import FAILURE, counted, listed, print_objects, to_yaml
from trainmaster.runtime.conversion.early_trainer import convert_early, is_early
from trainmaster.runtime.conversion.notes import Conversion, ConversionError, Note
from trainmaster.runtime.conversion.training_operator import KINDS, convert_job
from trainmaster.runtime.field_errors import did_you_mean
from trainmaster.runtime.framework import PluginInvalid
from trainmaster.runtime.jobs.constants import API_VERSION
from trainmaster.runtime.jobs.constants import GROUP as JOBS_GROUP
from trainmaster.runtime.jobs.interface import JobKind
from trainmaster.runtime.jobs.loader import load_job_kinds
from trainmaster.runtime.jsontree import JsonObject, copy_tree

_ODDITIES: Final = (AttributeError, KeyError, TypeError, ValueError)
"""What comes of reading something that has an odd shape: there may be no schema of its kind."""


@dataclass(frozen=True, slots=True)
class _Converted:
    """What becomes of one object of the files."""

    manifest: Manifest
    conversion: Conversion
    is_changed: bool = True


def command(commands: Any) -> None:
    """Add the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "convert",
        description="Print jobs of kubeflow.org/v1 as TrainJobs with TrainingRuntimes, TrainJobs and runtimes of "
        "early versions in today's form, and other objects unchanged. Standard error lists fields that change or have "
        "no equivalent.",
    )
    add_files_option(parser)
    parser.add_argument("-o", "--output", choices=("yaml", "json"), default="yaml", help="default: yaml")
    parser.add_argument(
        "--gang-scheduler-name",
        default="",
        metavar="NAME",
        help="as the Training Operator's: volcano, or a scheduler with scheduler-plugins",
    )
    parser.add_argument("--strict", action="store_true", help="fail if anything has no equivalent")
    parser.set_defaults(run=reporting_errors(run))


def run(arguments: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    kinds = _job_kinds()
    converted: list[_Converted] = []
    failures = 0
    for found in scan_manifests(arguments.files):
        if isinstance(found, ManifestError):
            print(f"trainmaster: {found}", file=sys.stderr)
            failures += 1
            continue
        try:
            converted.append(_convert(found, kinds, gang_scheduler=arguments.gang_scheduler_name))
        except ConversionError as error:
            for path, problem in error.problems:
                _tell(found, "error", path, problem)
            failures += 1
    failures += _tell_collisions(converted)
    if arguments.output == "json":
        print_objects([obj for each in converted for obj in each.conversion.objects], form="json")
    else:
        _print_documents(converted)
    if not converted and not failures:
        print("trainmaster: nothing to convert: the files hold no object", file=sys.stderr)
        return FAILURE
    lost = _tell_notes(converted)
    _summarize(converted, failures=failures, lost=lost)
    return FAILURE if failures or (lost and arguments.strict) else 0


def _job_kinds() -> Mapping[str, JobKind]:
    """Load the kinds of jobs that can be converted."""
    try:
        return {kind.kind: kind for kind in load_job_kinds() if kind.kind in KINDS}
    except PluginInvalid as error:
        raise CommandError(str(error)) from error


def _convert(manifest: Manifest, kinds: Mapping[str, JobKind], *, gang_scheduler: str) -> _Converted:
    obj = manifest.object
    try:
        if manifest.api_version == API_VERSION and manifest.kind in kinds:
            known, unknown = _checked(obj)
            conversion = convert_job(kinds[manifest.kind], known, gang_scheduler=gang_scheduler)
            return _Converted(manifest, Conversion(conversion.objects, [*unknown, *conversion.notes]))
        if is_early(obj):
            return _Converted(manifest, convert_early(obj))
    except _ODDITIES as error:
        problem = f"has not the shape of a {manifest.kind}: {type(error).__name__}: {error}"
        raise ConversionError("spec", problem) from error
    return _Converted(manifest, Conversion([obj], _unconvertible(manifest, kinds)), is_changed=False)


def _unconvertible(manifest: Manifest, kinds: Iterable[str]) -> list[Note]:
    """Tell what its author may have taken for something that is converted: another kind of jobs, or another version."""
    group, _, _ = manifest.api_version.partition("/")
    if group != JOBS_GROUP or not manifest.kind.endswith("Job"):
        return []
    if manifest.api_version == MPI_OPERATOR:
        problem = (
            "printed as it is: it belongs to the MPI operator; as a TrainJob it would have a runtime of mlPolicy.mpi, "
            "with the image and the command of its launcher in spec.trainer"
        )
        return [Note("apiVersion", problem, lost=True)]
    known = [f"{kind} of {API_VERSION}" for kind in kinds]
    hint = did_you_mean(f"{manifest.kind} of {manifest.api_version}", known)
    return [Note("kind", f"printed as it is: nobody knows what it would be as a TrainJob {hint}", lost=True)]


def _checked(obj: JsonObject) -> tuple[JsonObject, list[Note]]:
    """Return an object without fields that its schema does not know, and notes of these.

    Raises:
        ConversionError: It has not the shape of its schema.
    """
    try:
        answer = check_schema(obj)
    except ModuleNotFoundError:  # an installation without the embedded cluster, which has the schemas
        answer = None
    faults = [each for each in answer[1] if each.severity == "error"] if answer else []
    wrong = [(each.path, each.message) for each in faults if not each.known]
    if wrong:
        first, *others = wrong
        raise ConversionError(*first, *others)
    known: JsonObject = copy_tree(obj)
    notes = []
    for each in faults:
        _drop(known, each.path)
        hint = did_you_mean(each.path.rpartition(".")[2], each.known)
        notes.append(Note(each.path, f"left out, as the API server leaves it out: there is no such field {hint}"))
    return known, notes


def _drop(node: Any, path: str) -> None:
    """Drop the field at a path; keys may have dots in them."""
    if isinstance(node, list):
        index, _, rest = path.removeprefix("[").partition("]")
        _drop(node[int(index)], rest.removeprefix("."))
        return
    if node.pop(path, None) is None:
        key = next(key for key in node if path.startswith((f"{key}.", f"{key}[")))
        _drop(node[key], path.removeprefix(key).removeprefix("."))


def _tell(manifest: Manifest, severity: Severity, path: str, message: str) -> None:
    print(f"trainmaster: {diagnosed(manifest, severity, path, message)}", file=sys.stderr)


def _tell_notes(converted: Iterable[_Converted]) -> int:
    """Tell all notes; returns how many tell of something that is lost."""
    lost = 0
    for each in converted:
        for note in each.conversion.notes:
            _tell(each.manifest, "lost" if note.lost else "note", note.path, note.message)
            lost += note.lost
    return lost


def _tell_collisions(converted: Iterable[_Converted]) -> int:
    """Tell which objects cannot be created beside each other; returns how many."""
    first: dict[tuple[str, ...], _Converted] = {}
    collisions = 0
    for each in converted:
        for obj in each.conversion.objects:
            metadata = obj["metadata"]
            key = (obj["apiVersion"], obj["kind"], metadata.get("namespace", ""), metadata.get("name", ""))
            other = first.setdefault(key, each)
            if metadata.get("name") and other is not each and (each.is_changed or other.is_changed):
                manifest = other.manifest
                message = (
                    f"{manifest.title} in {manifest.place} becomes {obj['kind']} {metadata['name']}, too; rename one"
                )
                _tell(each.manifest, "error", "metadata.name", message)
                collisions += 1
                break
    return collisions


def _print_documents(converted: Iterable[_Converted]) -> None:
    documents = []
    for each in converted:
        texts = [to_yaml(obj) for obj in each.conversion.objects]
        if each.is_changed:
            texts[0] = _comment(each) + texts[0]
        documents += texts
    print("---\n".join(documents), end="")


def _comment(converted: _Converted) -> str:
    """Write where an object comes from, and what is lost."""
    manifest = converted.manifest
    lines = [f"Converted from {manifest.title} ({manifest.api_version})."]
    lines += [f"Lost: {note.path}: {note.message}" for note in converted.conversion.notes if note.lost]
    # A name or a path may hold any character, and a comment ends with its line.
    return "".join(f"# {' '.join(line.split())}\n" for line in lines)


def _summarize(converted: Sequence[_Converted], *, failures: int, lost: int) -> None:
    changed = [each for each in converted if each.is_changed]
    summary = [f"{counted(len(changed), 'object')} converted"]
    if unchanged := [each.manifest for each in converted if not each.is_changed]:
        summary.append(f"printed as they are: {listed(manifest.kind for manifest in unchanged)}")
    summary.append(f"{counted(lost, 'field')} without an equivalent")
    if failures:
        summary.append(counted(failures, "error"))
    print(f"trainmaster: {', '.join(summary)}", file=sys.stderr)
