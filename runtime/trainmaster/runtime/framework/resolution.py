"""One resolution under way: what its plugins are given, and what they have built so far."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from trainmaster.runtime.api.trainjob import TrainJob
from trainmaster.runtime.framework import results
from trainmaster.runtime.framework.calls import Calls, PluginFailed
from trainmaster.runtime.framework.interface import Desired, Plugin
from trainmaster.runtime.info import Info
from trainmaster.runtime.listers import Listers

_Result = TypeVar("_Result")


class Tracer(Protocol):
    """Is shown each step of a resolution, to tell who set what."""

    def merged(self, step: str, info: Info) -> None:
        """Look at an Info in which there is one thing more: first the runtime, then each patch, then the TrainJob."""

    def enforced(self, plugin: str, phase: str, info: Info) -> None:
        """Look at an Info after a plugin had it."""

    def built(self, plugin: str, info: Info, objects: Sequence[Any]) -> None:
        """Look at what a plugin returned from `build`, before it is copied: trees of `info` are in it as they are."""


class ResolutionRun:
    """One run of the plugins that serve a TrainJob, phase by phase.

    Args:
        configs: Policies `custom` of the runtime, by the plugin of each.
        own: Whether all plugins are our own.
    """

    def __init__(
        self,
        calls: Calls,
        info: Info,
        job: TrainJob,
        listers: Listers,
        *,
        given: TrainJob,
        serving: Collection[str],
        configs: Mapping[str, Any],
        own: bool,
        tracer: Tracer | None,
    ) -> None:
        self.serving = serving
        self.built: dict[tuple[str, str, str], Desired] = {}
        self.builders: dict[tuple[str, str, str], str] = {}
        self._calls = calls
        self._info = info
        self._arguments = {"info": info, "job": given, "listers": listers, "config": None}
        self._configs = configs
        self._tracer = tracer
        self._uid = job.metadata.uid
        self._owned_objects = results.objects_of(job, own=own)

    def enforce(self, plugin: Plugin, phase: str) -> None:
        """Let a plugin change the `Info`."""
        self._call(plugin, phase, results.nothing)
        if self._tracer is not None:
            self._tracer.enforced(plugin.name, phase, self._info)

    def build(self, plugin: Plugin) -> None:
        """Take over what a plugin builds."""
        for desired in self._call(plugin, "build", self._checked(plugin)):
            identity = desired.identity
            if identity in self.built:
                _, kind, name = identity
                other = self.builders[identity]
                raise PluginFailed(plugin.name, "build", ValueError(f"plugin {other} builds {kind} {name} as well"))
            self.built[identity] = desired
            self.builders[identity] = plugin.name

    def _checked(self, plugin: Plugin) -> Callable[[Any], list[Desired]]:
        if self._tracer is None:
            return self._owned_objects
        tracer = self._tracer

        def traced(result: Any) -> list[Desired]:
            collected = results.collected(result)
            checked = self._owned_objects(collected)
            tracer.built(plugin.name, self._info, collected)
            return checked

        return traced

    def _call(self, plugin: Plugin, phase: str, check: Callable[[Any], _Result]) -> _Result:
        config = self._configs.get(plugin.name)
        arguments = self._arguments if config is None else {**self._arguments, "config": config}
        return self._calls.call(plugin, phase, check, arguments, job=self._uid)
