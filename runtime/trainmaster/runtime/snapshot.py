"""The runtime snapshot: a TrainJob's frozen copy of its runtime (KEP-2599).

The first reconcile of a TrainJob writes the runtime into a ConfigMap that the TrainJob owns; from then on only that
copy counts, so that editing or deleting a runtime never changes a job that exists. The text is block YAML with sorted
keys, as the original writes it; JSON, which earlier versions wrote, is read as well. Many TrainJobs have the same text:
it is written once for a version of a runtime, and read once.

A user may write a snapshot too: it is immutable, and a digest in the status of the TrainJob binds its text, since the
status is the manager's to write. A snapshot without a digest (from the original, or from a version before there were
digests) is taken as it is once. What is read is bounded as well: see `yamltext.load_plain_yaml`.
"""

from __future__ import annotations

import functools
import hashlib
from typing import Final

import orjson

from trainmaster.runtime.api.constants import SNAPSHOT_KEY, snapshot_name
from trainmaster.runtime.api.decoding import ApiTypeError, parse_runtime
from trainmaster.runtime.api.trainingruntime import ClusterTrainingRuntime, TrainingRuntime
from trainmaster.runtime.api.trainjob import TrainJob
from trainmaster.runtime.canonical import canonicalize_template, without_blanks
from trainmaster.runtime.jsontext import JsonError, load_json
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.ownership import is_controlled_by, owner_reference
from trainmaster.runtime.yamldump import dump_yaml
from trainmaster.runtime.yamltext import YamlError, load_plain_yaml

_NOISE = frozenset(
    {
        "managedFields",
        "resourceVersion",
        "uid",
        "creationTimestamp",
        "generation",
        "ownerReferences",
        "finalizers",
        "selfLink",
    }
)
_LONGEST_KEPT: Final = 64 * 1024
"""Characters; runtimes have a few thousand, and what is kept of 64 of these takes some tens of megabytes at most."""

_MANY: Final = 64
_FEW: Final = 4

_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


class SnapshotInvalid(Exception):
    """The snapshot ConfigMap exists but cannot be used for this TrainJob."""


class SnapshotChanged(SnapshotInvalid):
    """The snapshot is not the one that was frozen for this TrainJob."""

    def __init__(self, job: TrainJob) -> None:
        name = snapshot_name(job.metadata.name)
        super().__init__(
            f'invalid runtime snapshot: the ConfigMap "{name}" was changed or replaced since the runtime was frozen; '
            f"delete it (kubectl delete configmap -n {job.metadata.namespace} {name}), and today's runtime is frozen"
        )


def encode_runtime(runtime: JsonObject) -> str:
    """Render a runtime as snapshot text: with its kind, without what only the API server cares about.

    Raises:
        ApiTypeError: It cannot be read.
        TemplateInvalid: Its template holds what no JobSet can hold.
    """
    return encode_runtime_text(orjson.dumps(runtime))


def encode_runtime_text(runtime: bytes) -> str:
    """Do that for a runtime's JSON: what was seen before is not decoded again."""
    return _encode_short(runtime) if len(runtime) <= _LONGEST_KEPT else _encode_long(runtime)


def _encode(encoded: bytes) -> str:
    runtime: JsonObject = orjson.loads(encoded)
    metadata = {key: value for key, value in runtime["metadata"].items() if key not in _NOISE}
    annotations = {
        key: value for key, value in (metadata.pop("annotations", None) or {}).items() if key != _LAST_APPLIED
    }
    if annotations:
        metadata["annotations"] = annotations
    frozen = {"apiVersion": runtime["apiVersion"], "kind": runtime["kind"], "metadata": metadata}
    if runtime.get("spec") is not None:
        frozen["spec"] = without_blanks(runtime["spec"])
    # What cannot be read is better not frozen: its author may still correct it.
    parse_runtime(frozen)
    _keep_configs(frozen, runtime)
    if "template" in frozen.get("spec", {}):
        canonicalize_template(frozen["spec"]["template"])
    return dump_yaml(frozen)


def _keep_configs(frozen: JsonObject, runtime: JsonObject) -> None:
    """Put back what was blank in the `config` of policies `custom`: what that means only their plugins know."""
    for policy in ("mlPolicy", "podGroupPolicy"):
        custom = ((runtime.get("spec") or {}).get(policy) or {}).get("custom")
        if custom is not None and custom.get("config") is not None:
            frozen["spec"][policy]["custom"]["config"] = custom["config"]


# Versions of runtimes are few, TrainJobs are many.
_encode_short = functools.lru_cache(maxsize=_MANY)(_encode)
_encode_long = functools.lru_cache(maxsize=_FEW)(_encode)


def build_snapshot(job: TrainJob, text: str) -> JsonObject:
    """Build the ConfigMap for a snapshot text."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": snapshot_name(job.metadata.name),
            "namespace": job.metadata.namespace,
            "ownerReferences": [owner_reference(job)],
        },
        "data": {SNAPSHOT_KEY: text},
        "immutable": True,
    }


def snapshot_digest(text: str) -> str:
    """Return the digest that binds a snapshot text."""
    return f"sha256:{hashlib.sha256(text.encode(errors='surrogatepass')).hexdigest()}"


def decode_snapshot(config_map: JsonObject, job: TrainJob) -> TrainingRuntime | ClusterTrainingRuntime:
    """Read the runtime out of a snapshot ConfigMap.

    Raises:
        SnapshotInvalid: It belongs to another object, is damaged, is not the one that was frozen, or holds another
            runtime than the TrainJob names.
    """
    text = snapshot_text(config_map, job)
    if job.status.runtime_snapshot_digest not in ("", snapshot_digest(text)):
        raise SnapshotChanged(job)
    return parse_snapshot_text(text, job)


def snapshot_text(config_map: JsonObject, job: TrainJob) -> str:
    """Return the text of a snapshot after checking that it is this TrainJob's.

    Raises:
        SnapshotInvalid: It belongs to another object, or has no text.
    """
    if not is_controlled_by(config_map, job):
        metadata = config_map["metadata"]
        raise SnapshotInvalid(
            "invalid runtime snapshot: a snapshot configmap exists but is owned by another object; if an earlier "
            f"TrainJob left it behind, delete it (kubectl delete configmap -n {metadata['namespace']} "
            f"{metadata['name']}), otherwise give this TrainJob another name"
        )
    data = config_map.get("data")
    text = data.get(SNAPSHOT_KEY) if isinstance(data, dict) else None
    if text is None:
        raise SnapshotInvalid('invalid runtime snapshot: snapshot ConfigMap missing "runtime" data key')
    return str(text)


def parse_snapshot_text(text: str, job: TrainJob) -> TrainingRuntime | ClusterTrainingRuntime:
    """Parse a snapshot text and check that it is the runtime that the TrainJob names.

    Raises:
        SnapshotInvalid: It is damaged or another runtime.
    """
    runtime = _parse_short(text) if len(text) <= _LONGEST_KEPT else _parse_long(text)
    if isinstance(runtime, str):
        raise SnapshotInvalid(f"invalid runtime snapshot: unable to unmarshal the snapshot: {runtime}")
    wanted = job.spec.runtime_ref
    group = runtime.api_version.partition("/")[0]
    if (runtime.metadata.name, runtime.kind, group) != (wanted.name, wanted.kind, wanted.api_group):
        raise SnapshotInvalid(
            "invalid runtime snapshot: the snapshot refers to the wrong runtime: expecting a runtime with name, "
            f'api group and kind of "{wanted.name}", "{wanted.api_group}", "{wanted.kind}" but found '
            f'runtime with name, api group and kind of "{runtime.metadata.name}", "{group}", "{runtime.kind}"'
        )
    return runtime


def _parse(text: str) -> TrainingRuntime | ClusterTrainingRuntime | str:
    """Read a text, or tell why it cannot be read: that takes as long to find out, so it is remembered as well."""
    try:
        loaded = load_json(text) if text.startswith("{") else load_plain_yaml(text)
    except JsonError:
        # Flow style, edited by hand; or broken, and then this reader has the better words for it.
        try:
            loaded = load_plain_yaml(text)
        except YamlError as error:
            return str(error)
    except YamlError as error:
        return str(error)
    if not isinstance(loaded, dict):
        return f"must be an object, got {type(loaded).__name__}"
    try:
        return parse_runtime(loaded)
    except ApiTypeError as error:
        return str(error)


# Models are frozen and may be shared.
_parse_short = functools.lru_cache(maxsize=_MANY)(_parse)
_parse_long = functools.lru_cache(maxsize=_FEW)(_parse)
