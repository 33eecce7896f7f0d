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
    kind: str
    plural: str
    namespaced: bool = True

    jobs: Callable[[JsonObject], Iterable[JobKey]] | None = None
    """Maps a changed object to TrainJobs; None means: the TrainJob that owns it as its controller.

    Those that it returned last for the object are enqueued as well, also when it fails.
    """

    writes: bool = False
    """Whether the plugin's `build` returns objects of this kind."""

    creates_only: bool = False
    """Whether all that it builds of this kind is built `ApplyWhen.ONCE`. The controller then has no right to change
    objects of the kind, unless another plugin needs it.
    """

    optional: bool = False
    """Whether the controller may start while the cluster does not serve this kind. It reads as if there were no objects
    until the cluster does.
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
