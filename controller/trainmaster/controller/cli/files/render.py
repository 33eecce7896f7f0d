"""`trainmaster render`: the objects that TrainJobs, and jobs of `kubeflow.org/v1`, become, from files alone.

What is printed is what the controller would write for a new job, in the order of writing; what would refuse the job in
a cluster is told on standard error instead.

Exit codes: 0 every job is printed; 1 a file or a job is wrong, or there is none; 2 wrong arguments.
"""

from __future__ import annotations

import argparse
import functools
import re
import sys
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any, Final, TypeAlias

import yaml

from trainmaster.controller.cli.configured import load_framework, load_jobs
from trainmaster.controller.cli.files.manifests import scan_manifests
from trainmaster.controller.cli.files.offline import OfflineValidation, ValidatedManifest
from trainmaster.controller.cli.options import CommandError, add_file_options, reporting_errors
from trainmaster.controller.cli.printers import FAILURE, listed, print_json, print_objects, redacted, to_yaml
from trainmaster.runtime.api.decoding import json_path, parse_trainjob
from trainmaster.runtime.framework import Framework
from trainmaster.runtime.jobs.constants import MANAGED_BY_TRAINING_OPERATOR
from trainmaster.runtime.jobs.defaulting import parse_job
from trainmaster.runtime.jobs.interface import JobKind
from trainmaster.runtime.jobs.podgroup import GangScheduler
from trainmaster.runtime.jobs.pods import job_objects
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.provenance import Provenance, Steps, job_steps, leaves, snapshot_steps
from trainmaster.runtime.resolver import resolve
from trainmaster.runtime.snapshot import build_snapshot, encode_runtime, parse_snapshot_text
from trainmaster.runtime.validation.runtime_ref import live_runtime

Rendered: TypeAlias = tuple[JsonObject, Steps]
"""An object, and which step set which field of it; nothing of that unless somebody wants to know."""

_Loader: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_BREAK: Final = re.compile("[\n\x85\u2028\u2029]")
"""What ends a line for YAML 1.1."""

_WIDEST: Final = 72
"""The column that comments stand in, unless all lines are shorter; those of longer lines stand behind them."""


def command(commands: Any) -> None:
    """Add the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "render",
        description="Print the objects that TrainJobs and jobs of kubeflow.org/v1 become. Runtimes come from the "
        "files or are built in; the gang scheduler of v1 jobs is that of the configuration.",
    )
    add_file_options(parser)
    parser.add_argument("-o", "--output", choices=("yaml", "json"), default="yaml", help="default: yaml")
    parser.add_argument("--only", action="append", metavar="KIND", help="print these kinds only. May be repeated")
    parser.add_argument(
        "--explain",
        action="store_true",
        help="name the step that set each field: runtime, patch (its manager), TrainJob, plugin and where; for v1 "
        "jobs, job or kind. YAML has comments, JSON is a list of object, path and step",
    )
    parser.add_argument("--show-secrets", action="store_true", help="print contents of Secrets, new each time")
    parser.set_defaults(run=reporting_errors(run))


def run(arguments: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    framework = load_framework(arguments)
    jobs = functools.cache(lambda: load_jobs(arguments))
    validation = OfflineValidation(
        scan_manifests(arguments.files),
        framework,
        namespace=arguments.namespace or "default",
        job_kinds=lambda: jobs()[0],
    )
    for diagnostic in validation.diagnostics:
        print(f"trainmaster: {diagnostic}", file=sys.stderr)
    explain: bool = arguments.explain
    rendered = [
        each
        for validated in validation.trainjobs
        if validated.is_valid
        for each in _built(validated.object, validation, framework, explain=explain)
    ]
    rendered += [
        each
        for kind, validated in validation.jobs
        if validated.is_valid
        for each in _of_job(kind, validated, jobs()[1], explain=explain)
    ]
    wanted = {kind.casefold() for kind in arguments.only or ()}
    chosen = [
        (obj if arguments.show_secrets else redacted(obj), steps)
        for obj, steps in rendered
        if not wanted or obj["kind"].casefold() in wanted
    ]
    if chosen and explain:
        print_explained(chosen, form=arguments.output)
    elif chosen:
        print_objects([obj for obj, _ in chosen], form=arguments.output)
    elif rendered:
        there = listed(obj["kind"] for obj, _ in rendered)
        print(f"trainmaster: nothing is of kind {listed(arguments.only)}; there are: {there}", file=sys.stderr)
        return FAILURE
    elif not (validation.trainjobs or validation.jobs or validation.unreadable):
        print("trainmaster: no job in the files; there is nothing to render", file=sys.stderr)
    sound = not validation.unreadable and all(each.is_valid for each in validation.validated)
    return 0 if rendered and sound else FAILURE


def _of_job(
    kind: JobKind, validated: ValidatedManifest, gang: GangScheduler | None, *, explain: bool
) -> list[Rendered]:
    """Return what an admitted job of `kubeflow.org/v1` becomes; nothing if another controller manages it.

    Raises:
        CommandError: The kind fails.
    """
    job = parse_job(kind, validated.object)
    if job.run_policy.managed_by != MANAGED_BY_TRAINING_OPERATOR:
        return []
    try:
        return [(obj, job_steps(job, obj) if explain else {}) for obj in job_objects(job, gang)]
    except Exception as error:
        what = f"the kind {kind.kind} cannot build it: {type(error).__name__}: {error}"
        raise CommandError(f"{validated.manifest.place}: {validated.manifest.title}: {what}") from error


def _built(obj: JsonObject, listers: OfflineValidation, framework: Framework, *, explain: bool) -> list[Rendered]:
    """Return what an admitted TrainJob becomes: first the snapshot of its runtime, by which the rest is built."""
    job = parse_trainjob(obj)
    live = live_runtime(job, listers)
    if live is None:  # another controller manages it, and need not find the runtime here
        return []
    text = encode_runtime(live)
    tracer = Provenance(job) if explain else None
    resolution = resolve(job, parse_snapshot_text(text, job), framework, listers=listers, tracer=tracer)
    objects = [desired.object for desired in resolution.objects]
    snapshot = build_snapshot(job, text)
    return [
        (snapshot, snapshot_steps(snapshot) if explain else {}),
        *((obj, tracer.steps(obj) if tracer else {}) for obj in objects),
    ]


def print_explained(explained: Sequence[tuple[JsonObject, Steps]], *, form: str) -> None:
    """Print objects, each with its steps."""
    if form == "json":
        fields = [
            {"object": f"{obj['kind']} {obj['metadata']['name']}", "path": json_path(path), "step": step}
            for obj, steps in explained
            for path, _, step in leaves(obj, steps)
        ]
        print_json(fields)
        return
    print("---\n".join(with_comments(obj, steps) for obj, steps in explained), end="")


def with_comments(obj: JsonObject, steps: Steps) -> str:
    """Write an object as YAML, with the step of each value behind it."""
    text = to_yaml(obj)
    lines, breaks = _BREAK.split(text), _BREAK.findall(text)
    comments: dict[int, dict[str, None]] = {}
    for line, step in _lines(yaml.compose(text, Loader=_Loader), steps):
        comments.setdefault(line, {})[step] = None
    column = min(max((len(lines[line]) for line in comments), default=0), _WIDEST)
    for line, told in comments.items():
        lines[line] = f"{lines[line]:{column}}  # {', '.join(told)}"
    return "".join(map("".join, zip_longest(lines, breaks, fillvalue="")))


def _lines(node: Any, steps: Steps) -> Iterator[tuple[int, str]]:
    """Iterate over the steps of a document, each with the number of the line that its comment stands in."""
    if isinstance(steps, str):
        # Behind `|` there is room for one; a text of several lines goes on below.
        is_block = isinstance(node, yaml.ScalarNode) and node.style in ("|", ">")
        yield node.start_mark.line if is_block else node.end_mark.line, steps
    elif isinstance(node, yaml.MappingNode) and isinstance(steps, dict):
        for key, value in node.value:
            yield from _lines(value, steps[key.value])
    elif isinstance(node, yaml.SequenceNode) and isinstance(steps, list):
        for value, below in zip(node.value, steps, strict=True):
            yield from _lines(value, below)
