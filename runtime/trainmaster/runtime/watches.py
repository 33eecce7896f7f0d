"""Watches: the kinds that a plugin needs from the cluster, and whom a change concerns."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from trainmaster.runtime.jsontree import JsonObject

JobKey = tuple[str, str]
"""Namespace and name of a TrainJob."""


@dataclass(frozen=True, slots=True)
class Watch:
    """A kind that a plugin reads or owns, and which TrainJobs a change of it concerns.

    The controller keeps one informer per kind however many plugins declare it, wide enough for all of them, and derives
    the permissions it needs from all declarations. Of a kind that plugins only build (`writes` without `jobs`), objects
    that belong to no TrainJob are cached by name and owners alone.
    """

    api_version: str
    kind: str
    plural: str
    namespaced: bool = True

    jobs: Callable[[JsonObject], Iterable[JobKey]] | None = None
    """Maps a changed object to TrainJobs; None means: the TrainJob that owns it as its controller."""

    writes: bool = False
    """Whether the plugin's `build` returns objects of this kind."""

    optional: bool = False
    """Whether the controller may start while the cluster does not serve this kind. It reads as if there were no objects
    until the cluster does.
    """

    metadata_only: bool = False
    """Whether metadata is enough: the objects that listers return, and that `jobs` is given, then have nothing else.
    Unless another plugin needs all of it.
    """

    label_selector: str | None = None
    """Which objects are of interest, in the words of `kubectl get -l`. If plugins differ, all objects are cached, so be
    prepared for others.
    """
