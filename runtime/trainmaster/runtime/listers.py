"""Listers: the read-only view of the cluster that a resolution and its plugins get; watches: the kinds that it shows.

What listers return comes from the caches of informers. Plugins declare in `watch_extension` which kinds they read, and
whom a change concerns; a kind that no plugin declared is not cached and reads as absent. Offline (`trainmaster render`)
nothing exists but what the given files hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from trainmaster.runtime.jsontree import JsonObject


class Listers(Protocol):
    """Lookup of cached objects; what comes back is the caller's own copy, which shows the cache of this moment.

    Whoever implements this copies, or decodes anew: a plugin may change what it got, and others read the same object.
    """

    def get(self, api_version: str, kind: str, namespace: str | None, name: str) -> JsonObject | None:
        """Return one object, or None when the cache does not hold it."""

    def list(self, api_version: str, kind: str, namespace: str | None = None) -> Iterable[JsonObject]:
        """Return all cached objects of a kind, of one namespace if given."""


class NoListers:
    """The listers of a resolution without a cluster: nothing exists."""

    def get(self, api_version: str, kind: str, namespace: str | None, name: str) -> JsonObject | None:  # noqa: ARG002 - the protocol's
        """Return None."""
        return None

    def list(self, api_version: str, kind: str, namespace: str | None = None) -> Iterable[JsonObject]:  # noqa: ARG002 - the protocol's
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

    writes: bool = False
    """Whether the plugin's `build` returns objects of this kind."""

    creates_only: bool = False
    """Whether all that it builds of this kind is built `ApplyWhen.ONCE`. The controller then has no right to change
    objects of the kind, unless another plugin needs it.
    """

    workload: bool = False
    """Whether objects of this kind are the workload, whose state the plugin's `status` reports. They are stopped by
    `spec.suspend`, deleted when the TrainJob exceeds its deadline, and remembered when they are deleted after their
    end. The manager is not ready while the cluster does not serve the kind.
    """

    optional: bool = False
    """Whether the plugin can do without this kind: it reads as if there were no objects until the cluster serves it.
    Otherwise the TrainJobs that the plugin serves wait for the kind.
    """

    namespaces: tuple[str, ...] = ()
    """The namespaces that are of interest; none: all that the controller serves."""

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
