"""TrainJobs of early versions of Trainer."""

from __future__ import annotations

from typing import Any, Final

from trainmaster.runtime.api.constants import (
    API_VERSION,
    DATASET_INITIALIZER,
    GROUP,
    MANAGED_BY_TRAINER,
    MODEL_INITIALIZER,
    NODE,
    TRAINJOB_KIND,
)
from trainmaster.runtime.conversion.early.overrides import MANAGER, Overrides, convert_overrides
from trainmaster.runtime.conversion.metadata import convert_metadata, drop_status
from trainmaster.runtime.conversion.notes import ConversionError, Notes
from trainmaster.runtime.conversion.source import Source
from trainmaster.runtime.jsontree import JsonObject

EARLY_GROUP: Final = "kubeflow.org"
_MANAGERS: Final = {f"{EARLY_GROUP}/trainjob-controller": MANAGED_BY_TRAINER}
_STAY: Final = ("suspend", "activeDeadlineSeconds", "ttlSecondsAfterFinished")
OLD_FIELDS: Final = (
    "datasetConfig",
    "modelConfig",
    "labels",
    "annotations",
    "podSpecOverrides",
    "podTemplateOverrides",
)
"""Fields of a TrainJob's spec that there are no more."""


def convert_trainjob(source: Source, notes: Notes, *, early_names: bool) -> JsonObject:
    """Rewrite a TrainJob.

    Args:
        source: The TrainJob.
        notes: Where to tell what changes.
        early_names: Whether it is one of v2alpha1, so that Jobs and containers have other names.

    Raises:
        ConversionError: It is none that an early Trainer would have run.
    """
    metadata = convert_metadata(source.part("metadata"), notes)
    drop_status(source, notes)
    old = source.part("spec")
    spec: JsonObject = {"runtimeRef": _runtime_ref(old)}
    overrides = convert_overrides(old, notes, early_names=early_names)
    if initializer := _initializer(old, overrides, notes):
        spec["initializer"] = initializer
    if trainer := _trainer(old, overrides, notes):
        spec["trainer"] = trainer
    patches = [*(old.take("runtimePatches", list) or []), *_metadata_patch(old, notes), *overrides.patches]
    if patches:
        spec["runtimePatches"] = patches
    for name in _STAY:
        if (value := old.take(name, object)) is not None:
            spec[name] = value
    if manager := old.take("managedBy", str):
        spec["managedBy"] = _MANAGERS.get(manager, manager)
        if manager in _MANAGERS:
            notes.tell(old.at("managedBy"), f"becomes {_MANAGERS[manager]}")
    return {"apiVersion": API_VERSION, "kind": TRAINJOB_KIND, "metadata": metadata, "spec": spec}


def _runtime_ref(old: Source) -> JsonObject:
    reference = old.take("runtimeRef", dict)
    if not reference or not reference.get("name"):
        raise ConversionError(old.at("runtimeRef.name"), "is missing")
    if reference.get("apiGroup") == EARLY_GROUP:
        reference["apiGroup"] = GROUP
    return reference


def _initializer(old: Source, overrides: Overrides, notes: Notes) -> JsonObject:
    initializer = old.take("initializer", dict) or {}
    if dataset := old.take("datasetConfig", dict):
        initializer["dataset"] = dataset
    model = old.part("modelConfig")
    if given := model.take("input", dict):
        initializer["model"] = given
    if model.take("output", dict):
        notes.lose(
            model.at("output"), "left out: nothing exports models; let the training write the model to its place"
        )
    for name, field in ((DATASET_INITIALIZER, "dataset"), (MODEL_INITIALIZER, "model")):
        env = overrides.containers.get(name, {}).get("env")
        if env:
            initializer.setdefault(field, {})["env"] = _merged(env, initializer.get(field, {}).get("env"))
    return initializer


def _trainer(old: Source, overrides: Overrides, notes: Notes) -> JsonObject:
    trainer = old.take("trainer", dict) or {}
    for field, value in overrides.containers.get(NODE, {}).items():
        trainer[field] = _merged(value, trainer.get("env")) if field == "env" else trainer.get(field) or value
    if (processes := trainer.pop("numProcPerNode", None)) is not None:
        number = _process_count(processes, old.at("trainer.numProcPerNode"), notes)
        if number is not None:
            trainer["numProcPerNode"] = number
    return trainer


def _process_count(value: Any, path: str, notes: Notes) -> int | None:
    """Return a number of processes; words have another place."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and value.isdecimal():
        return int(value)
    if value == "auto":
        notes.tell(path, '"auto" is left out: it is what counts without it')
    elif value in ("cpu", "gpu"):
        notes.lose(path, f'"{value}" is left out: only the runtime can say so, in mlPolicy.torch.numProcPerNode')
    else:
        raise ConversionError(path, f"must be a number, auto, cpu or gpu, not {value!r:.80}")
    return None


def _metadata_patch(old: Source, notes: Notes) -> list[JsonObject]:
    """Labels and annotations of a TrainJob's spec were those of its JobSet."""
    metadata = {field: value for field in ("labels", "annotations") if (value := old.take(field, dict))}
    for field in metadata:
        notes.tell(old.at(field), "moves to runtimePatches: it is for the JobSet")
    return (
        [{"manager": f"{MANAGER}-metadata", "trainingRuntimeSpec": {"template": {"metadata": metadata}}}]
        if metadata
        else []
    )


def _merged(env: list[JsonObject], winning: list[JsonObject] | None) -> list[JsonObject]:
    """Merge variables by name."""
    by_name = {each["name"]: each for each in env}
    return list((by_name | {each["name"]: each for each in winning or ()}).values())
