"""`trainmaster diff`: what applying files would change in a cluster, and in what their jobs become.

Exit codes: 0 nothing would change; 1 something would; 2 it cannot be told: the files, the cluster or the arguments are
wrong, or a permission is missing.

What is there and what would be there are shown in the form of `diff -u`.
"""

from __future__ import annotations

import argparse
import asyncio
import difflib
import logging
import sys
from typing import Any

from trainmaster.controller.cli.files.manifests import ManifestError, load_manifests
from trainmaster.controller.cli.options import CommandError, add_file_options, add_kubeconfig_option, reporting_errors
from trainmaster.controller.cli.printers import to_yaml
from trainmaster.controller.log_config import configure_logs
from trainmaster.runtime.jsontree import JsonObject

DIFFERENT = 1


def command(commands: Any) -> None:
    """Add the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "diff",
        description="Show what `kubectl apply --server-side --force-conflicts` of the files would change, and what the "
        "controller would then change in workloads, pods and all else that their jobs become. Nothing is written.",
    )
    add_file_options(parser)
    add_kubeconfig_option(parser)
    parser.add_argument("--field-manager", default="kubectl", metavar="NAME", help="who applies; default: kubectl")
    parser.set_defaults(run=reporting_errors(run))


def run(arguments: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    from trainmaster.controller.cli.configured import load_framework  # noqa: PLC0415 - not needed for help
    from trainmaster.controller.cli.diff.dry_run import compare  # noqa: PLC0415 - as above
    from trainmaster.controller.cli.responses import Rejected  # noqa: PLC0415 - as above
    from trainmaster.controller.kube.rest.errors import KubeError  # noqa: PLC0415 - as above
    from trainmaster.runtime.framework import PluginInvalid  # noqa: PLC0415 - as above

    configure_logs(level=logging.WARNING, style="console")
    framework = load_framework(arguments)
    try:
        manifests = load_manifests(arguments.files)
        if not manifests:
            raise CommandError("no objects in the files; there is nothing to compare")
        diffs = asyncio.run(compare(arguments, manifests, framework))
    except (ManifestError, Rejected, KubeError, PluginInvalid) as error:
        raise CommandError(str(error)) from error
    texts = [unified_diff(diff.live, diff.merged) for diff in diffs]
    sys.stdout.write("".join(texts))
    return DIFFERENT if any(texts) else 0


_NOISE = frozenset({"managedFields", "resourceVersion", "uid", "creationTimestamp", "generation", "selfLink"})
_SECRET = ("v1", "Secret")
_SECRET_FIELDS = ("data", "stringData")


def unified_diff(live: JsonObject | None, merged: JsonObject | None) -> str:
    """Write how an object would change; empty if it would not."""
    either = merged or live
    assert either is not None  # noqa: S101 - it is there before or after
    before, after = _masked(_plain(live), _plain(merged), secret=(either["apiVersion"], either["kind"]) == _SECRET)
    metadata = either["metadata"]
    group = either["apiVersion"].rpartition("/")[0]
    kind = ".".join(part for part in (either["kind"], group) if part)
    name = "/".join(part for part in (kind, metadata.get("namespace"), metadata["name"]) if part)
    lines = difflib.unified_diff(_lines(before), _lines(after), f"live/{name}", f"merged/{name}")
    return "".join(lines)


def _plain(obj: JsonObject | None) -> JsonObject:
    """Return an object without what the server keeps to itself."""
    if obj is None:
        return {}
    metadata = {field: value for field, value in obj["metadata"].items() if field not in _NOISE}
    if metadata.get("ownerReferences"):
        # That of a TrainJob which does not exist yet is another one each time.
        metadata["ownerReferences"] = [
            {field: value for field, value in owner.items() if field != "uid"} for owner in metadata["ownerReferences"]
        ]
    return {field: value for field, value in obj.items() if field != "status"} | {"metadata": metadata}


def _masked(before: JsonObject, after: JsonObject, *, secret: bool) -> tuple[JsonObject, JsonObject]:
    """Hide what Secrets hold, but show which of it changes."""
    if not secret:
        return before, after
    before, after = dict(before), dict(after)
    for field in _SECRET_FIELDS:
        old, new = before.get(field) or {}, after.get(field) or {}
        same = {key for key in old.keys() & new.keys() if old[key] == new[key]}
        for obj, values, word in ((before, old, "before"), (after, new, "after")):
            if values:
                obj[field] = {key: "***" if key in same else f"*** ({word})" for key in values}
    return before, after


def _lines(obj: JsonObject) -> list[str]:
    return to_yaml(obj, sort_keys=True).splitlines(keepends=True) if obj else []
