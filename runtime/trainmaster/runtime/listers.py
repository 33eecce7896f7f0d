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
    from trainmaster.runtime.api import TrainJob

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
    """A kind that a plugin reads or owns, and which TrainJobs a change of it concerns.

    What is read of a kind is what plugins declared, and no more: those that declare the same share an informer, and so
    do those of which one declares all that the other does; the others have informers of their own. Listers show all of
    them as one. Of a kind that plugins only build (`writes` without `jobs`), objects that belong to no TrainJob are
    cached by name and owners alone.
    """

    api_version: str
    """Of the kind, for instance `v1` or `scheduling.volcano.sh/v1beta1`."""

    kind: str
    """Its name in objects, for instance `ConfigMap`."""

    plural: str
    """Its name in paths and roles, for instance `configmaps`."""

    namespaced: bool = True
    """Whether its objects are in namespaces."""

    jobs: Callable[..., Iterable[JobKey]] | None = None
    """Maps a changed object to TrainJobs, as `jobs(obj)` or `jobs(obj, listers)`; None means: the TrainJob that owns it
    as its controller. With listers it may ask an index of TrainJobs which of them name the object, for instance.

    Those that it returned last for the object are enqueued as well, also when it fails.
    """

    indexes: Mapping[str, IndexFunction] = field(default_factory=dict, hash=False)
    """Indexes of the kind, by name: each tells for one object under which values `Listers.by_index` finds it. An object
    for which it raises, or cannot be asked because the plugin is quarantined, is not found until it changes. Names are
    shared by all plugins, so a good one begins with that of the plugin. With `writes` it has the kind read as a whole:
    foreign objects are indexed, too.
    """

    writes: bool = False
    """Whether the plugin's `build` returns objects of this kind."""

    creates_only: bool = False
    """Whether all that it builds of this kind is built `ApplyWhen.ONCE`. The controller then has no right to change
    objects of the kind, unless another plugin needs it.
    """

    reads: bool = True
    """Whether objects of the kind are read. Not so for what may be secret and is only created (`creates_only`): the
    controller then has no right to list it, and listers show the metadata of what it created or found. Every five
    minutes it is created again, and left alone if it is there.
    """

    workload: bool = False
    """Whether objects of this kind are the workload, whose state the plugin's `status` reports. They are stopped by
    `spec.suspend`, deleted when the TrainJob exceeds its deadline, and remembered when they are deleted after their
    end. If the plugin serves every TrainJob, the manager is not ready while the cluster does not serve the kind. Such
    a kind is written (`writes`), and read whole.
    """

    prunes: bool = False
    """Whether an object of this kind that a TrainJob controls is deleted when no plugin builds it any more, and nothing
    more is built for the TrainJob while one that is to be built is being deleted. Such a kind is written (`writes`).
    """

    optional: bool = False
    """Whether the plugin can do without this kind: it reads as if there were no objects until the cluster serves it.
    Otherwise the TrainJobs that the plugin serves wait for the kind.
    """

    namespaces: tuple[str, ...] = ()
    """The namespaces that are of interest; none: all that the controller serves. It is for kinds that are only read:
    what a plugin builds is in the namespace of the TrainJob. Of namespaces that the controller does not serve nothing
    is read.
    """

    metadata_only: bool = False
    """Whether metadata is enough: the objects that listers return, and that `jobs` is given, then have nothing else.
    Unless another plugin needs all of it.
    """

    label_selector: str | None = None
    """Which objects are of interest, in the words of `kubectl get -l`. Listers may show others that another plugin
    declared, perhaps by their metadata alone.
    """

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
