"""Listers: the read-only view of the cluster that a resolution and its plugins get; watches: the kinds that it shows.

What listers return comes from the caches of informers. Plugins declare in `watch_extension` which kinds they read, and
whom a change concerns; a kind that no plugin declared is not cached and reads as absent. Offline (`trainmaster render`)
nothing exists but what the given files hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from trainmaster.runtime.jsontree import JsonObject

if TYPE_CHECKING:
    from trainmaster.runtime.api.trainjob import TrainJob

IndexFunction = Callable[[JsonObject], Iterable[str]]
"""Returns the values under which an object is found by an index."""


class NoSuchIndex(LookupError):
    """Nobody declared the index that was asked for."""

    def __init__(self, kind: str, index: str, known: Iterable[str]) -> None:
        there = ", ".join(sorted(known)) or "none"
        super().__init__(f"there is no index {index!r} of {kind} (there are: {there}); declare it in Watch.indexes")


class Listers(Protocol):
    """Lookup of cached objects; what comes back is the caller's own copy, which shows the cache of this moment.

    Whoever implements this copies, or decodes anew: a plugin may change what it got, and others read the same object.
    """

    def get(self, api_version: str, kind: str, namespace: str | None, name: str) -> JsonObject | None:
        """Return one object, or None when the cache does not hold it; kinds of no namespace have None or "" there."""

    def list(self, api_version: str, kind: str, namespace: str | None = None) -> Iterable[JsonObject]:
        """Return all cached objects of a kind, of one namespace if given."""

    def by_index(self, api_version: str, kind: str, index: str, value: str) -> Iterable[JsonObject]:
        """Return the cached objects of a kind that an index has under a value, those of all namespaces.

        It costs what it finds, however many others there are. Nothing is found of a kind that no plugin declared.

        Args:
            api_version: API version of the kind.
            kind: The kind.
            index: An index that a plugin declared for the kind, see `Watch.indexes`.
            value: The value; there may be no object that has it.

        Raises:
            NoSuchIndex: Nobody declared that index.
        """

    def is_served(self, api_version: str, kind: str) -> bool:
        """Tell whether the cluster serves a kind, as far as is known: False for one that no plugin declared.

        A kind that is not served has no objects. Offline every kind counts as served.
        """

    def workloads(self, job: TrainJob) -> Iterable[JsonObject]:
        """Return the workloads of a TrainJob: what it controls, by UID, of the kinds of `Watch.workload` in its
        namespace.
        """


class NoListers:
    """The listers of a resolution without a cluster: nothing exists."""

    def get(self, api_version: str, kind: str, namespace: str | None, name: str) -> JsonObject | None:  # noqa: ARG002 - the protocol's
        """Return None."""
        return None

    def list(self, api_version: str, kind: str, namespace: str | None = None) -> Iterable[JsonObject]:  # noqa: ARG002 - the protocol's
        """Return nothing."""
        return ()

    def by_index(self, api_version: str, kind: str, index: str, value: str) -> Iterable[JsonObject]:  # noqa: ARG002 - the protocol's
        """Return nothing."""
        return ()

    def is_served(self, api_version: str, kind: str) -> bool:  # noqa: ARG002 - the protocol's
        """Return True: nobody knows better."""
        return True

    def workloads(self, job: TrainJob) -> Iterable[JsonObject]:  # noqa: ARG002 - the protocol's
        """Return nothing."""
        return ()


NO_LISTERS: Listers = NoListers()


JobKey = tuple[str, str]
"""Namespace and name of a TrainJob."""


@dataclass(frozen=True, slots=True)
class Watch:
    """A kind that a plugin reads or writes, and the TrainJobs that a change of it concerns.

    docs/plugins.md explains which informers follow from the watches of all plugins.
    """

    api_version: str
    """For example `v1` or `scheduling.volcano.sh/v1beta1`."""

    kind: str
    """For example `ConfigMap`."""

    plural: str
    """Its name in paths and roles, for example `configmaps`."""

    namespaced: bool = True
    """Whether its objects are in namespaces."""

    jobs: Callable[..., Iterable[JobKey]] | None = None
    """Maps a changed object to TrainJobs, as `jobs(obj)` or `jobs(obj, listers)`. None means the TrainJob that controls
    it. The TrainJobs of the last call for the object are enqueued as well, also after a failure.
    """

    indexes: Mapping[str, IndexFunction] = field(default_factory=dict, hash=False)
    """Functions by the name of their index, each from an object to the values under which `Listers.by_index` finds it.
    All plugins share the names. The kind is read whole, also with `writes`.
    """

    writes: bool = False
    """Whether the plugin's `build` returns objects of this kind."""

    creates_only: bool = False
    """Whether all of them are built `ApplyWhen.ONCE`. The controller then may not change objects of the kind."""

    reads: bool = True
    """Whether objects of the kind are read. False, with `creates_only`, is for secrets: the controller may not list the
    kind, listers show metadata of what was created, and every five minutes its existence is checked by a creation.
    """

    workload: bool = False
    """Whether objects of this kind are the workload, which the plugin's `status` reports. They are stopped by
    `spec.suspend` and deleted at the TrainJob's deadline. If the plugin serves every TrainJob, the manager is not ready
    while the cluster does not serve the kind. Needs `writes`.
    """

    prunes: bool = False
    """Whether an object of this kind that a TrainJob controls is deleted when no plugin builds it any more, and nothing
    more is built for the TrainJob while one that is to be built is being deleted. Such a kind is written (`writes`).
    """

    optional: bool = False
    """Whether the plugin works without this kind. Otherwise its TrainJobs wait until the cluster serves the kind."""

    namespaces: tuple[str, ...] = ()
    """The namespaces to read; none means all that the controller serves. Only for kinds that are not written."""

    metadata_only: bool = False
    """Whether listers and `jobs` need only metadata."""

    label_selector: str | None = None
    """Which objects to read, as in `kubectl get -l`. Listers may show others that another plugin declared."""

    declared_by: str = ""
    """The plugin that declared it; the framework fills it in."""

    required: bool = False
    """Whether the manager is not ready while the cluster does not serve the kind; the framework fills it in."""


IndexFunctions = Mapping[tuple[str, str], Mapping[str, IndexFunction]]
"""Indexes by API version and kind, then by name."""


def index_functions(watches: Iterable[Watch]) -> IndexFunctions:
    """Return the indexes of all watches."""
    functions: dict[tuple[str, str], dict[str, IndexFunction]] = {}
    for watch in watches:
        functions.setdefault((watch.api_version, watch.kind), {}).update(watch.indexes)
    return functions


def objects_by_index(
    listers: Listers, functions: IndexFunctions, gvk: tuple[str, str], index: str, value: str
) -> list[JsonObject]:
    """Answer `Listers.by_index` without an index: all objects of the kind are asked.

    Args:
        listers: Where they come from.
        functions: The indexes that are declared.
        gvk: API version and kind.
        index: The index.
        value: The value.

    Raises:
        NoSuchIndex: `functions` has no such index of the kind.
    """
    known = functions.get(gvk, {})
    if index not in known:
        raise NoSuchIndex(gvk[1], index, known)
    return [obj for obj in listers.list(*gvk) if value in known[index](obj)]
