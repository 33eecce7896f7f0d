"""The tracer of a resolution: it compares the working state before and after each step.

What a plugin builds has the steps of those trees of the Info that are in it as they are, and of which it has made a
copy of one level (`{**info.template, "suspend": True}`, `{**info.labels, "mine": "too"}`); all else in it is the
plugin's. Of what a plugin has copied from the TrainJob the step is the TrainJob, with the path in it.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Final

from trainmaster.runtime.api import TrainJob
from trainmaster.runtime.framework.interface import Desired
from trainmaster.runtime.info import Info
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.provenance.settings import COMMAND, COUNTS, copies, settings
from trainmaster.runtime.provenance.steps import Steps, carried, put, set_by, settled, value_at

RUNTIME: Final = "runtime"
SNAPSHOT: Final = "snapshot of the runtime"
METADATA: Final = "TrainJob metadata"
"""Of namespace and owner, which the framework adds."""


class Provenance:
    """Traces one resolution.

    Args:
        job: The TrainJob.
    """

    def __init__(self, job: TrainJob) -> None:
        self._job = job
        self._trees: JsonObject = {}
        self._steps: Steps = {}
        self._built: dict[tuple[str, str, str], Steps] = {}

    def merged(self, step: str, info: Info) -> None:
        """Look at an Info in which there is one thing more."""
        self._advance(info, step)

    def enforced(self, plugin: str, phase: str, info: Info) -> None:
        """Look at an Info after a plugin had it."""
        self._advance(info, f"plugin {plugin} in {phase}")
        self._tell_settings(info, f"plugin {plugin} in {phase}")

    def built(self, plugin: str, info: Info, objects: Sequence[Desired]) -> None:
        """Look at what a plugin has built, and at what it has done to the Info meanwhile."""
        self.enforced(plugin, "build", info)
        step = f"plugin {plugin} in build"
        known = _Known()
        known.add(_trees(info), self._steps)
        known.add(info.runtime_template, set_by(RUNTIME, info.runtime_template))
        for desired in objects:
            steps = known.steps_of(desired.object, step)
            for path, value in (
                (("metadata", "name"), self._job.metadata.name),
                (("spec", "suspend"), self._job.spec.suspend),
            ):
                if value_at(desired.object, path) == value:
                    put(steps, path, step, f"TrainJob {'.'.join(path)}")
            # A copy of these has no trees in it by which it would be known: `{**info.labels, "mine": "too"}`.
            for field, tree in (("labels", info.labels), ("annotations", info.annotations)):
                for key, value in tree.items():
                    if value_at(desired.object, ("metadata", field, key)) == value:
                        put(steps, ("metadata", field, key), step, value_at(self._steps, (field, key)))
            self._built[desired.identity] = steps

    def steps(self, obj: JsonObject) -> Steps:
        """Return the steps of an object that came out."""
        return settled(self._built[Desired(obj).identity], obj, METADATA)

    def _advance(self, info: Info, step: str) -> None:
        trees = _trees(info)
        self._steps = carried(self._trees, self._steps, trees, step)
        self._trees = copy.deepcopy(trees)

    def _tell_settings(self, info: Info, step: str) -> None:
        """Tell what a plugin has copied from what it has made."""
        for path, value, origin in settings(info, self._job):
            if value_at(self._trees, path) == value:
                put(self._steps, path, step, origin)
        # What one plugin decides on, another one may put in place.
        for path, source in copies(info):
            value = value_at(self._trees, source)
            if value and value_at(self._trees, path) == value:
                put(self._steps, path, step, value_at(self._steps, source))


class _Known:
    """The trees whose steps are known, found again by their identity in what a plugin has built."""

    def __init__(self) -> None:
        self._by_id: dict[int, tuple[Any, Steps]] = {}
        self._holders: dict[int, tuple[JsonObject, dict[str, Steps]]] = {}

    def add(self, tree: Any, steps: Steps) -> None:
        """Add a tree that is not changed as long as this is used."""
        self._by_id.setdefault(id(tree), (tree, steps))
        if isinstance(tree, dict) and isinstance(steps, dict):
            for key, value in tree.items():
                if isinstance(value, dict | list):
                    self._holders.setdefault(id(value), (tree, steps))
                    self.add(value, steps[key])
        elif isinstance(tree, list) and isinstance(steps, list):
            for value, below in zip(tree, steps, strict=True):
                if isinstance(value, dict | list):
                    self.add(value, below)

    def steps_of(self, tree: Any, step: str) -> Steps:
        """Return the steps of a tree; what is not known is of `step`."""
        known = self._by_id.get(id(tree))
        if known is not None:
            return known[1]
        if tree and isinstance(tree, dict):
            original, steps = self._copied_from(tree)
            return {
                key: steps[key] if _is_same_leaf(original, key, value) else self.steps_of(value, step)
                for key, value in tree.items()
            }
        if tree and isinstance(tree, list | tuple):
            return [self.steps_of(value, step) for value in tree]
        return step

    def _copied_from(self, tree: JsonObject) -> tuple[JsonObject, dict[str, Steps]]:
        """Return the known tree of which this is a copy of one level: the one that holds the same trees."""
        for key, value in tree.items():
            if isinstance(value, dict | list):
                original, steps = self._holders.get(id(value), ({}, {}))
                if original.get(key) is value:
                    return original, steps
        return {}, {}


def _is_same_leaf(original: JsonObject, key: str, value: Any) -> bool:
    return key in original and not isinstance(value, dict | list) and original[key] == value


def _trees(info: Info) -> JsonObject:
    return {
        "labels": info.labels,
        "annotations": info.annotations,
        "template": info.template,
        COMMAND: info.trainer_command,
        COUNTS: {pods.name: pods.count for pods in info.pod_sets},
    }


def snapshot_steps(snapshot: JsonObject) -> Steps:
    """Return the steps of the snapshot of a runtime."""
    return settled({"data": RUNTIME, "metadata": METADATA}, snapshot, SNAPSHOT)
