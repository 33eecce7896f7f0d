"""What CPU is spent for: a table from functions to causes.

Of a stack, the innermost function that the table knows decides, by the longest of its paths that fits. What serves
everybody (`contextlib`, dataclasses, our own helpers for trees) is not in it, so that whoever called it is charged; an
event loop that calls somebody unknown is not charged for that.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Final

from profiling.sampler import Call

OTHER: Final = "other"
"""What the table does not know."""

IMPORTS: Final = "imports"
"""What a process takes once, when it starts: whatever is done while a module is imported."""

_IMPORTING: Final = "<frozen importlib"

_KUBE: Final = "trainmaster/controller/kube"
_RECONCILING: Final = "trainmaster/controller/reconciling"
_TRAINJOBS: Final = f"{_RECONCILING}/trainjobs"

CAUSES: Final[Mapping[str, Sequence[str]]] = MappingProxyType(
    {
        "HTTP client": (
            "aiohttp/", "aiohappyeyeballs/", "aiosignal/", "frozenlist/", "http/", "httptools/", "multidict/",
            "propcache/", "tenacity/", "urllib/", "yarl/", f"{_KUBE}/rest/", f"{_KUBE}/auth/",
        ),
        "TLS": ("ssl.py", "asyncio/sslproto.py"),
        "sockets": ("asyncio/selector_events.py:_Selector", "socket.py"),
        "JSON": ("profiling/manager.py:loads", "profiling/manager.py:dumps"),
        "cache and informers": (
            f"{_KUBE}/cache/", f"{_KUBE}/rest/watch.py", f"{_KUBE}/rest/partial.py",
            "trainmaster/controller/manager/caches.py", f"{_TRAINJOBS}/event_handlers.py",
            f"{_TRAINJOBS}/job_mapper.py", f"{_RECONCILING}/event_handlers.py", f"{_RECONCILING}/runtimes.py",
        ),
        "queue and controller": (
            f"{_KUBE}/workqueue/", f"{_RECONCILING}/controller.py", f"{_RECONCILING}/expectations.py",
            f"{_RECONCILING}/outcomes.py",
        ),
        "observe": (
            f"{_TRAINJOBS}/observe.py", f"{_TRAINJOBS}/decider.py", f"{_RECONCILING}/reconciler.py",
            "trainmaster/runtime/snapshot.py",
        ),
        "models": ("pydantic/", "pydantic_core/", "trainmaster/runtime/api/"),
        "resolve": (
            "trainmaster/plugins/", "trainmaster/runtime/framework/", "trainmaster/runtime/info.py",
            "trainmaster/runtime/multislice.py", "trainmaster/runtime/podspec.py", "trainmaster/runtime/quantity.py",
            "trainmaster/runtime/rendezvous.py", "trainmaster/runtime/resolver.py",
            "trainmaster/runtime/resource_claims.py", "trainmaster/runtime/resource_requirements.py",
            "trainmaster/runtime/strategicpatch/", "trainmaster/controller/plugins/guard.py",
        ),
        "plan and drift": (
            f"{_TRAINJOBS}/plan.py", f"{_TRAINJOBS}/lasting_plans.py", f"{_RECONCILING}/drift.py",
            f"{_RECONCILING}/managedfields.py", "trainmaster/runtime/validation/",
        ),
        "apply": (f"{_RECONCILING}/applier.py", f"{_RECONCILING}/write_backoff.py"),
        "status": (
            "trainmaster/plugins/jobset.py:JobSet.status", "trainmaster/controller/conditions.py",
            f"{_RECONCILING}/problems.py", f"{_RECONCILING}/status_writer.py",
            f"{_TRAINJOBS}/plugin_failures.py", f"{_TRAINJOBS}/status.py",
            "trainmaster/controller/diagnosis/",
            "trainmaster/controller/container_failures.py", "trainmaster/controller/explain/",
        ),
        "logging": (
            "logging/", "structlog/", "trainmaster/controller/log_config.py", "trainmaster/controller/log_context.py",
            "trainmaster/controller/redaction.py", "trainmaster/controller/tracing/",
        ),
        "events": (f"{_KUBE}/events/",),
        "metrics": (
            "prometheus_client/", "trainmaster/metrics/", "trainmaster/controller/job_metrics/",
            "trainmaster/controller/plugins/observer.py", "trainmaster/controller/server/",
            "trainmaster/controller/manager/process.py",
        ),
        "asyncio": ("asyncio/", "selectors.py", "uvloop/", "trainmaster/controller/manager/runnables.py"),
        "garbage collection": ("profiling/sampler.py:collected", "weakref.py", "_weakrefset.py"),
    }
)  # fmt: skip
"""Prefixes of `FILE:FUNCTION`, by cause; files as `file_of` names them."""

EARLIER: Final[Mapping[str, Sequence[str]]] = MappingProxyType(
    {
        "HTTP client": (
            f"{_KUBE}/client.py", f"{_KUBE}/correlating.py", f"{_KUBE}/errors.py", f"{_KUBE}/kubeconfigs.py",
            f"{_KUBE}/limiting.py", f"{_KUBE}/measuring.py", f"{_KUBE}/refreshing.py", f"{_KUBE}/requesting.py",
            f"{_KUBE}/resources.py", f"{_KUBE}/retrying.py", f"{_KUBE}/transporting.py", f"{_KUBE}/troubles.py",
        ),
        "cache and informers": (
            f"{_KUBE}/informing.py", f"{_KUBE}/listing.py", f"{_KUBE}/reflecting.py", f"{_KUBE}/storing.py",
            f"{_KUBE}/watching.py", "trainmaster/controller/caches.py", f"{_TRAINJOBS}/handlers.py",
        ),
        "queue and controller": (
            f"{_KUBE}/delaying.py", f"{_KUBE}/pacing.py", f"{_KUBE}/queueing.py", f"{_RECONCILING}/gate.py",
        ),
        "observe": (f"{_TRAINJOBS}/observing.py", "trainmaster/runtime/snapshots.py"),
        "resolve": (
            "trainmaster/runtime/claims.py", "trainmaster/runtime/extension.py", "trainmaster/runtime/facts.py",
            "trainmaster/runtime/merging/", "trainmaster/runtime/podspecs.py", "trainmaster/runtime/quantities.py",
            "trainmaster/runtime/resolving.py", "trainmaster/runtime/resources.py", "trainmaster/runtime/slices.py",
        ),
        "plan and drift": (
            f"{_TRAINJOBS}/comparing.py", f"{_TRAINJOBS}/lifetimes.py", f"{_TRAINJOBS}/planning.py",
            f"{_TRAINJOBS}/departing.py", "trainmaster/runtime/admission/",
        ),
        "apply": (f"{_TRAINJOBS}/acting.py", f"{_TRAINJOBS}/contending.py"),
        "status": (
            f"{_TRAINJOBS}/asking.py", f"{_TRAINJOBS}/problems.py", f"{_TRAINJOBS}/statuses.py",
            f"{_TRAINJOBS}/telling.py", f"{_TRAINJOBS}/writing.py",
        ),
        "logging": ("trainmaster/controller/logs.py",),
        "events": (f"{_KUBE}/events.py",),
        "metrics": (
            f"{_RECONCILING}/plugincalls.py", "trainmaster/controller/heap.py", "trainmaster/controller/monitoring.py",
        ),
    }
)  # fmt: skip
"""The same for files of commits before this one, as far back as 5a910f6."""

DRIVERS: Final = re.compile(
    r"asyncio/(runners\.py|base_events\.py:BaseEventLoop\.(run_|_run_once)|events\.py:Handle\._run|tasks\.py:Task\.__step)"
)
"""What has called everything; it is charged only for itself."""

_INSTALLED: Final = re.compile(r".*/(?:site-packages|lib/python3\.\d+)/|.*/(?=(?:trainmaster|profiling)/)")


@cache
def file_of(path: str) -> str:
    """Return what a file is called wherever it is installed: `aiohttp/client.py`, `trainmaster/runtime/info.py`."""
    return _INSTALLED.sub("", path)


def cause_of(calls: Sequence[Call]) -> str:
    """Tell what a stack, from the innermost call on, was for."""
    if any(call.file.startswith(_IMPORTING) for call in calls):
        return IMPORTS
    for depth, call in enumerate(calls):
        name = f"{file_of(call.file)}:{call.function}"
        if depth and DRIVERS.match(name):
            continue
        if cause := _cause_of_function(name):
            return cause
    return OTHER


@cache
def _cause_of_function(name: str) -> str | None:
    fitting = [
        (len(path), cause)
        for table in (CAUSES, EARLIER)
        for cause, paths in table.items()
        for path in paths
        if name.startswith(path)
    ]
    return max(fitting)[1] if fitting else None
