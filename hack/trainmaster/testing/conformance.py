"""The part of the conformance suite that takes a cluster: rights, and definitions that come and go.

A manager runs with the plugin among the built-in ones, on an embedded API server without controllers.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from trainmaster.controller.manager import caches, rights
from trainmaster.controller.manager.policy_rules import policy_rules
from trainmaster.runtime.framework import Framework, PluginFailed
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import Watch
from trainmaster.runtime.testing import builders
from trainmaster.runtime.testing.subject import Problem, Subject, outcome_of
from trainmaster.testing.embedded import MANAGER_USER, MANAGERS_NAMESPACE, PATIENCE, QUIET, EmbeddedCluster

_GROUPS_OF_KUBERNETES: Final = ("k8s.io", "kubernetes.io")
_VERBS: Final = frozenset({"watch", "create", "patch"})
"""Those that show whether a kind is read and written; the manager lists where a watch cannot begin with what there is,
and gets an object only to tell whose it is.
"""

_OTHERS_RUNTIME: Final = "of-others"


class Right(NamedTuple):
    """A verb on a resource."""

    group: str
    resource: str
    verb: str

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}{'.' if self.group else ''}{self.group}"


def uses_its_rights(subject: Subject, directory: Path, *, patience: float = PATIENCE) -> Iterator[Problem]:
    """With the rights that it declares and no other, its TrainJobs are built; and it uses all of them."""
    plugin = subject.make()
    framework = subject.framework(plugin=plugin)
    watches = [watch for watch in framework.watches() if watch.declared_by == plugin.name]
    audit_log = directory / "audit.log"
    with EmbeddedCluster(directory, rbac=True, audit_log=audit_log, patience=patience) as cluster:
        _prepare(cluster, subject, watches)
        with cluster.manager(framework, own_rights=True):
            yield from _build(cluster, subject)
    granted = {
        Right(rule.resource.group, rule.full_resource, verb)
        for rule in policy_rules(QUIET, features=(), watches=framework.watches(), namespace=MANAGERS_NAMESPACE)
        for verb in rule.verbs
    }
    used = set(used_rights(audit_log))
    for right in sorted(used - granted):
        yield Problem(
            f"the manager needs the right to {right}, which nobody declares",
            "`trainmaster rbac` grants what is declared, so a manager on a cluster with roles is refused",
            "declare the kind in watch_extension; a plugin itself sends no requests",
        )
    asked = {
        Right(rule.resource.group, rule.full_resource, verb)
        for rule in (*caches.policy_rules(watches), *rights.trainjob_rules(watches))
        for verb in rule.verbs
        if verb in _VERBS and rule.needed_by == plugin.name
    }
    for right in sorted(asked - used):
        yield Problem(
            f"it asks for the right to {right}, and nothing uses it",
            "every administrator grants it, for all namespaces",
            "leave out what the Watch asks for: writes=True, or the kind; or give the suite jobs that use it",
        )


def survives_definitions(subject: Subject, directory: Path, *, patience: float = PATIENCE) -> Iterator[Problem]:
    """Without the definitions of its kinds other TrainJobs go on, with them its own do, and after they went as well."""
    plugin = subject.make()
    framework = subject.framework(plugin=plugin)
    watches = [watch for watch in framework.watches() if watch.declared_by == plugin.name]
    with EmbeddedCluster(directory, patience=patience) as cluster:
        missing = {
            (watch.api_version, watch.kind): watch
            for watch in watches
            if not cluster.serves(watch.api_version, watch.kind)
        }
        if not missing:
            return
        _prepare(cluster, subject, watches, definitions=False)
        cluster.apply(builders.runtime(_OTHERS_RUNTIME))
        names = ", ".join(sorted(kind for _, kind in missing))
        # What a plugin needs that serves every TrainJob is declared to hold up all of them.
        serves_all = framework.descriptors()[plugin.name].serves_all
        all_wait = serves_all and not all(watch.optional for watch in missing.values())
        with cluster.manager(framework):
            # One that needs the kinds is there before they are.
            cluster.apply(next(subject.whole_jobs()))
            if not all_wait:
                yield from _others(cluster, framework, "before", f"the cluster serves {names}")
            cluster.apply(*(definition_of(watch) for watch in missing.values()))
            _create(cluster, subject.objects)
            yield from _build(cluster, subject)
            for watch in missing.values():
                cluster.remove_definition(f"{watch.plural}.{watch.api_version.partition('/')[0]}")
            if not all_wait:
                yield from _others(cluster, framework, "after", f"{names} went")


def _others(cluster: EmbeddedCluster, framework: Framework, name: str, when: str) -> Iterator[Problem]:
    """Create a TrainJob on another runtime, and wait for what it becomes without the kinds that are missing."""
    job = builders.trainjob(f"other-{name}", runtimeRef={"name": _OTHERS_RUNTIME})
    cluster.apply(job)
    try:
        expected = outcome_of(framework, job, builders.runtime(_OTHERS_RUNTIME), builders.KnownObjects())
        for api_version, kind, wanted in (desired.identity for desired in expected.objects):
            if cluster.serves(api_version, kind):
                cluster.wait_for_object(api_version, kind, wanted, builders.NAMESPACE)
    except (AssertionError, PluginFailed) as error:
        yield Problem(
            f"a TrainJob of another runtime is not built {name} {when}: {error}",
            "definitions are installed and removed while the manager runs, and the whole cluster would wait",
            "declare the kind with optional=True if the plugin can do without; let `policies` or `applies_to` say whom "
            "it serves; take for granted nothing that listers return",
        )


def _prepare(cluster: EmbeddedCluster, subject: Subject, watches: list[Watch], *, definitions: bool = True) -> None:
    if definitions:
        missing = [watch for watch in watches if not cluster.serves(watch.api_version, watch.kind)]
        cluster.apply(*(definition_of(watch) for watch in missing))
    cluster.apply(subject.whole_runtime())
    _create(cluster, subject.objects)


def _create(cluster: EmbeddedCluster, objects: Any) -> None:
    cluster.apply(*(obj for obj in objects if cluster.serves(obj["apiVersion"], obj["kind"])))


def _build(cluster: EmbeddedCluster, subject: Subject) -> Iterator[Problem]:
    """Create the TrainJobs one after the other, and wait for what they have to become."""
    framework, on = subject.framework(), subject.whole_runtime()
    for job in subject.whole_jobs():
        expected = outcome_of(framework, job, on, subject.listers())
        namespace = job["metadata"]["namespace"]
        cluster.apply(job)
        for desired in expected.objects:
            api_version, kind, name = desired.identity
            try:
                cluster.wait_for_object(api_version, kind, name, namespace)
            except AssertionError as error:
                yield Problem(
                    f"TrainJob {job['metadata']['name']} does not become a {kind}: {error}",
                    "that is what happens on a cluster",
                    "see the message; a kind that is not served has to be declared in watch_extension",
                )
                return
        cluster.delete(job["apiVersion"], job["kind"], job["metadata"]["name"], namespace)


def definition_of(watch: Watch) -> JsonObject:
    """Return a CustomResourceDefinition for a kind that a plugin watches: any object is one of it."""
    group, _, version = watch.api_version.rpartition("/")
    names = {
        "kind": watch.kind,
        "plural": watch.plural,
        "singular": watch.kind.lower(),
        "listKind": f"{watch.kind}List",
    }
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    metadata: JsonObject = {"name": f"{watch.plural}.{group}"}
    if group.endswith(_GROUPS_OF_KUBERNETES):
        # Such groups are protected: the API server wants to know who has approved of them.
        metadata["annotations"] = {"api-approved.kubernetes.io": "unapproved, for tests"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": metadata,
        "spec": {
            "group": group,
            "scope": "Namespaced" if watch.namespaced else "Cluster",
            "names": names,
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    "subresources": {"status": {}},
                }
            ],
        },
    }


def used_rights(audit_log: Path) -> Iterator[Right]:
    """Read which rights a manager used, or would have needed."""
    for line in audit_log.read_bytes().splitlines():
        event: JsonObject = orjson.loads(line)
        what = event.get("objectRef") or {}
        if event["user"].get("username") != MANAGER_USER or not what.get("resource"):
            continue
        resource = "/".join(filter(None, (what["resource"], what.get("subresource"))))
        verb = event["verb"]
        yield Right(what.get("apiGroup", ""), resource, verb)
        if verb == "patch" and (event.get("responseStatus") or {}).get("code") == 201:
            yield Right(what.get("apiGroup", ""), resource, "create")  # an apply that creates takes both
