"""The conformance suite: what a plugin has to keep to, as tests that its author gets by deriving from a class.

    from trainmaster.runtime.testing import PluginConformance
    from acme.queues import Queues


    class TestQueues(PluginConformance):
        plugin = Queues
        runtime = {"podGroupPolicy": {"custom": {"name": "queues", "config": {"queue": "research"}}}}

Each method is a test of pytest, and fails with all that it found: what is wrong, why it matters, and what to do.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final, Protocol

from trainmaster.runtime.framework import PluginFailed, PluginInvalid
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.testing import checks_absence, checks_interface, checks_objects, checks_resolution
from trainmaster.runtime.testing.checks_sizes import (
    MOST_MEMORY,
    MOST_STEPS,
    stands_hostile_sizes,
    stays_in_its_budget,
)
from trainmaster.runtime.testing.checks_threads import stands_two_calls_at_once
from trainmaster.runtime.testing.subject import Problem, Subject

Check = Callable[[Subject], Iterator[Problem]]

CHECKS: Final[Mapping[str, Check]] = {
    "fits_the_interface": checks_interface.fits_the_interface,
    "serves_its_sample": checks_interface.serves_its_sample,
    "options_make_a_round_trip": checks_interface.options_make_a_round_trip,
    "is_deterministic": checks_resolution.is_deterministic,
    "is_idempotent": checks_resolution.is_idempotent,
    "leaves_inputs_alone": checks_resolution.leaves_inputs_alone,
    "survives_suspension": checks_resolution.survives_suspension,
    "survives_the_snapshot": checks_resolution.survives_the_snapshot,
    "works_without_a_cluster": checks_resolution.works_without_a_cluster,
    "stands_absent_fields": checks_absence.stands_absent_fields,
    "stands_odd_objects": checks_absence.stands_odd_objects,
    "declares_what_it_uses": checks_objects.declares_what_it_uses,
    "builds_valid_objects": checks_objects.builds_valid_objects,
    "stays_in_its_budget": stays_in_its_budget,
    "stands_hostile_sizes": stands_hostile_sizes,
    "stands_two_calls_at_once": stands_two_calls_at_once,
}
"""All checks that take no cluster, by name; the docstring of each says what has to hold."""


def nonconformities(subject: Subject, checks: Mapping[str, Check] = CHECKS) -> list[Problem]:
    """Return all that the checks find, in their order; where the plugin cannot even be made, that alone."""
    found = list(checks_interface.fits_the_interface(subject))
    return found or [problem for check in checks.values() for problem in problems_of(check, subject)]


def problems_of(check: Check, subject: Subject) -> list[Problem]:
    """Return what one check finds; a plugin that fails in the midst of it is a problem like others."""
    found: list[Problem] = []
    try:
        found.extend(check(subject))
    except (PluginFailed, PluginInvalid) as error:
        found.append(
            Problem(
                str(error),
                "each TrainJob that it serves would be blocked",
                "see what test_it_fits_the_interface and test_it_serves_its_sample say; the traceback is in the cause",
            )
        )
    return list(dict.fromkeys(found))


class Sandbox(Protocol):
    """The checks that take a cluster, or other processes.

    A fixture of pytest, of the package `trainmaster.testing`, has them: nothing here does I/O.
    """

    def is_deterministic_across_processes(self, subject: Subject) -> Iterator[Problem]:
        """Check that a plugin makes the same in every process."""

    def uses_its_rights(self, subject: Subject) -> Iterator[Problem]:
        """Check the rights of a plugin."""

    def survives_definitions(self, subject: Subject) -> Iterator[Problem]:
        """Check a plugin while the definitions of its kinds come and go."""


class PluginConformance:
    """The suite. Derive from it in a class whose name begins with `Test`, and say what is to be tested."""

    plugin: ClassVar[Any] = None
    """The plugin: its class, a function that makes it, the plugin itself, or the name of its entry point."""

    options: ClassVar[Mapping[str, Any]] = {}
    """Its options, as in `plugins.options` of the configuration file."""

    runtime: ClassVar[JsonObject] = {}
    """A runtime that it serves: fields of the spec, `mlPolicy` for instance, or a whole runtime as JSON. Without a
    `template` it has one ReplicatedJob, the trainer.
    """

    jobs: ClassVar[Sequence[JsonObject]] = ({},)
    """TrainJobs that can be built on it, one at least: fields of their specs, or whole TrainJobs. Each may show another
    part of what the plugin can do."""

    objects: ClassVar[Sequence[JsonObject]] = ()
    """What is in the cluster besides, in the namespace `team`: what the plugin reads."""

    most_steps: ClassVar[int] = MOST_STEPS
    """Lines of Python that one call may run."""

    most_memory: ClassVar[int] = MOST_MEMORY
    """Bytes that one call may hold."""

    def subject(self) -> Subject:
        """Return what is tested."""
        # A function would become a method of the suite.
        plugin = inspect.getattr_static(type(self), "plugin")
        if isinstance(plugin, staticmethod):
            plugin = plugin.__func__
        if plugin is None:
            raise AssertionError(f"{type(self).__name__} does not say which plugin it tests: give it `plugin = ...`")
        return Subject(plugin, self.options, self.runtime, self.jobs, self.objects)

    def check(self, check: Check) -> None:
        """Fail if a check finds something.

        Raises:
            AssertionError: With all that it found.
        """
        __tracebackhide__ = True  # what is found says all that there is to say
        found = problems_of(check, self.subject())
        if found:
            told = "\n\n".join(f"- {problem}" for problem in found)
            raise AssertionError(f"plugin {self._name()} does not conform:\n\n{told}")

    def _name(self) -> str:
        subject = self.subject()
        name = subject.plugin if isinstance(subject.plugin, str) else getattr(subject.plugin, "name", subject.plugin)
        return repr(name)

    def test_it_fits_the_interface(self) -> None:
        """Attributes, methods and their arguments fit the interface."""
        self.check(checks_interface.fits_the_interface)

    def test_it_serves_its_sample(self) -> None:
        """It serves the TrainJobs in `jobs`, and they can be built."""
        self.check(checks_interface.serves_its_sample)

    def test_options_make_a_round_trip(self) -> None:
        """Models of options and policies read what they print, and refuse unknown fields."""
        self.check(checks_interface.options_make_a_round_trip)

    def test_it_is_deterministic(self) -> None:
        """A TrainJob always gives the same objects, except those built with `ApplyWhen.ONCE` or `MISSING`."""
        self.check(checks_resolution.is_deterministic)

    def test_it_is_deterministic_across_processes(self, trainmaster_sandbox: Sandbox) -> None:
        """The objects are the same in a process with another order of sets."""
        self.check(trainmaster_sandbox.is_deterministic_across_processes)

    def test_it_is_idempotent(self) -> None:
        """Its existing objects do not change what it builds."""
        self.check(checks_resolution.is_idempotent)

    def test_it_leaves_inputs_alone(self) -> None:
        """It does not change `job`, `config`, or `info` in `applies_to`."""
        self.check(checks_resolution.leaves_inputs_alone)

    def test_it_survives_suspension(self) -> None:
        """Suspending and resuming a TrainJob does not change what it becomes."""
        self.check(checks_resolution.survives_suspension)

    def test_it_survives_the_snapshot(self) -> None:
        """A runtime that was written as YAML and read again gives the same objects."""
        self.check(checks_resolution.survives_the_snapshot)

    def test_it_works_without_a_cluster(self) -> None:
        """It builds or rejects a TrainJob when objects that it reads are missing or left over."""
        self.check(checks_resolution.works_without_a_cluster)

    def test_it_stands_absent_fields(self) -> None:
        """It builds or rejects when any field, label or annotation is absent, null, empty or odd."""
        self.check(checks_absence.stands_absent_fields)

    def test_it_stands_odd_objects(self) -> None:
        """It handles objects with nothing but a name, and workloads without a status."""
        self.check(checks_absence.stands_odd_objects)

    def test_it_declares_what_it_uses(self) -> None:
        """It declares the kinds that it builds and reads, and no others."""
        self.check(checks_objects.declares_what_it_uses)

    def test_it_builds_valid_objects(self) -> None:
        """The API server accepts its objects, also for names of 63 characters."""
        self.check(checks_objects.builds_valid_objects)

    def test_it_stays_in_its_budget(self) -> None:
        """Its calls stay within the budget of steps and memory, and leave nothing behind."""
        self.check(lambda subject: stays_in_its_budget(subject, **self._budget()))

    def test_it_stands_hostile_sizes(self) -> None:
        """Enormous TrainJobs (`numNodes` up to 2^63, 10,000 variables) stay within the same budget."""
        self.check(lambda subject: stands_hostile_sizes(subject, **self._budget()))

    def test_it_stands_two_calls_at_once(self) -> None:
        """Two TrainJobs that are resolved at the same time do not affect each other."""
        self.check(stands_two_calls_at_once)

    def test_it_uses_its_rights(self, trainmaster_sandbox: Sandbox) -> None:
        """With the declared rights, on an API server that enforces roles, its TrainJobs are built; none is unused."""
        self.check(trainmaster_sandbox.uses_its_rights)

    def test_it_survives_definitions(self, trainmaster_sandbox: Sandbox) -> None:
        """Other TrainJobs continue while the definitions of its kinds are missing, come later, or are deleted."""
        self.check(trainmaster_sandbox.survives_definitions)

    def _budget(self) -> dict[str, int]:
        return {"most_steps": self.most_steps, "most_memory": self.most_memory}
