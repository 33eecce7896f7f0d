"""The rights of the manager against its requests: what it needed in the tests, and what its roles grant.

Every API server of the embedded cluster that a test starts, in its own process or in another one, records the requests
that it gets (`trainmaster.devcluster.apiserver.filters.authorization`). Those of managers are known by their
User-Agent, which neither the command line nor the tests' own clients have. At the end of a run they are compared with
the rights that the manager declares:

- a request that no declared right covers fails the run;
- after a run of the whole suite, so does a right that no test has used.

Managers of tests that have other plugins, or leases of other names, declare what they need in the same way: `Caches`,
`LeaseLock` and `OtherLeaders`, of which they are made, and `ManagerProcess` tell it here. So nothing is excepted by
hand.
"""

import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from trainmaster.controller.configuration import Configuration, LeaderElection, Metrics, MetricsAuth
from trainmaster.controller.feature_gates import FEATURES
from trainmaster.controller.job_kinds import job_kinds
from trainmaster.controller.kube.leaderelection import lease
from trainmaster.controller.manager import caches, other_leaders, rights, training_operator
from trainmaster.controller.manager.parts import USER_AGENT
from trainmaster.controller.manager.policy_rules import lease_rules, policy_rules
from trainmaster.controller.policyrule import PolicyRule
from trainmaster.devcluster.apiserver.filters.authorization import VARIABLE
from trainmaster.runtime.framework import Framework, load_plugins

EVERYTHING = Configuration(
    leader_election=LeaderElection(leader_elect=True), metrics=Metrics(auth=MetricsAuth(enabled=True))
)
"""A configuration in which every part that needs rights is on."""


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """One verb on one resource."""

    group: str
    resource: str
    verb: str
    names: tuple[str, ...] = ()

    def covers(self, request: "Right") -> bool:
        """Whether it allows a request, which names one object or none."""
        asked = (request.group, request.resource, request.verb)
        return (self.group, self.resource, self.verb) == asked and (not self.names or request.names[0] in self.names)

    def __str__(self) -> str:
        group = f".{self.group}" if self.group else ""
        names = f" {','.join(self.names)}" if any(self.names) else ""
        return f"{self.verb} {self.resource}{group}{names}"


def rights_of(rules: Iterable[PolicyRule]) -> set[Right]:
    """Return what rules allow, one by one."""
    return {Right(rule.resource.group, rule.full_resource, verb, rule.names) for rule in rules for verb in rule.verbs}


def declared() -> list[PolicyRule]:
    """Return all rights that the manager declares, with all of its parts and the built-in plugins."""
    options = {"trainjobstatus": {"server": "https://status", "authority": lambda: None}}
    framework = Framework(load_plugins(options=options, features=frozenset(FEATURES)))
    return policy_rules(
        EVERYTHING,
        features=set(FEATURES),
        watches=framework.watches(),
        job_kinds=job_kinds(EVERYTHING),
        namespace="kubeflow",
    )


class Recording:
    """What was recorded by all processes of a run."""

    def __init__(self, directory: Path) -> None:
        self.requests: dict[Right, str] = {}
        """Those of managers, each with a test that made it."""
        self.more: set[Right] = set()
        """What tests declared that managers of theirs may do besides."""
        for path in directory.glob("*.requests"):
            for line in _lines(path):
                # What a server serves everybody may ask whom it knows (ClusterRole system:discovery).
                if line["program"].startswith(USER_AGENT) and not line["resource"].startswith("/apis/"):
                    right = Right(line["group"], line["resource"], line["verb"], (line["name"],))
                    self.requests.setdefault(right, line["test"].partition(" ")[0])
        for path in directory.glob("*.rights"):
            self.more |= {Right(group, what, verb, tuple(names)) for group, what, verb, names in _lines(path)}

    def missing(self) -> list[str]:
        """Return the requests that no right covers, each with a test."""
        granted = [*rights_of(declared()), *self.more]
        return [
            f"{request} ({test or 'no test'})"
            for request, test in sorted(self.requests.items())
            if not any(right.covers(request) for right in granted)
        ]

    def used(self) -> dict[Right, str]:
        """Return the rights that some test has used, each with one; what a right by name covers needs no other."""
        granted = sorted(rights_of(declared()))
        by_name = [right for right in granted if right.names]
        used: dict[Right, str] = {}
        for request, test in self.requests.items():
            covering = [right for right in by_name if right.covers(request)]
            for right in covering or [each for each in granted if each.covers(request)]:
                used.setdefault(right, test)
        return dict(sorted(used.items()))

    def unused(self) -> list[Right]:
        """Return the rights that no test has used, nor one that the same code uses in the same way."""
        used = {right for each in self.used() for right in _shown_by(each)}
        return sorted(right for right in rights_of(declared()) if _of_any_kind(right) not in used)


def _of_any_kind(right: Right) -> Right:
    """Return the right for one kind of `kubeflow.org` in place of another: all of them share their code."""
    of_v1 = right.group == "kubeflow.org"
    return replace(right, resource=re.sub("^[a-z]+jobs", "jobs", right.resource)) if of_v1 else right


def _shown_by(right: Right) -> Iterator[Right]:
    """Yield what is shown by the use of a right.

    Whatever is watched, the same code lists if it cannot be watched; whatever is created, it gets if the name is taken
    (`test_without_streaming_lists_...`, `test_who_undoes_our_writes_...` in tests/controller/test_rights.py).
    """
    yield _of_any_kind(right)
    if verb := {"watch": "list", "create": "get"}.get(right.verb):
        yield replace(_of_any_kind(right), verb=verb)


def _lines(path: Path) -> Iterator[Any]:
    for line in path.read_bytes().splitlines(keepends=True):
        try:
            yield orjson.loads(line)
        except orjson.JSONDecodeError:
            if line.endswith(b"\n"):
                raise  # otherwise its process was killed while it wrote


class RightsPlugin:
    """Records while pytest runs, and compares at its end. In a worker of xdist it leaves both to the main process."""

    def __init__(self, config: pytest.Config) -> None:
        self._is_worker = hasattr(config, "workerinput")
        self._deselected = False
        self._recording: Recording | None = None
        self._whole = False
        if not self._is_worker:
            os.environ[VARIABLE] = tempfile.mkdtemp(prefix="trainmaster-requests-")
        _have_parts_declare()

    def pytest_deselected(self) -> None:
        self._deselected = True

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if self._is_worker:
            return
        directory = Path(os.environ.pop(VARIABLE))
        self._recording = Recording(directory)
        shutil.rmtree(directory, ignore_errors=True)
        option = session.config.option
        selected = self._deselected or option.keyword or option.markexpr or option.collectonly
        self._whole = session.config.args == session.config.getini("testpaths") and not selected and exitstatus == 0
        if self._recording.missing() or (self._whole and self._recording.unused()):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        recording = self._recording
        if recording is None or not recording.requests:
            return
        for line in recording.missing():
            terminalreporter.write_line(f"a manager needed a right that it does not declare: {line}", red=True)
        used, unused = recording.used(), recording.unused()
        terminalreporter.write_line(f"rights of the manager: {len(used)} used, {len(unused)} shown by no test")
        if self._whole or terminalreporter.verbosity > 0:
            for right, test in used.items():
                terminalreporter.write_line(f"  {right} ({test})")
            for right in unused:
                terminalreporter.write_line(f"  {right}: granted, and used by no test", red=self._whole)


def declare(rules: Iterable[PolicyRule]) -> None:
    """Tell what a manager of a test may do that is not the same for all managers."""
    new = rights_of(rules) - _told
    directory = os.environ.get(VARIABLE)
    if not new or not directory:
        return
    _told.update(new)
    with (Path(directory) / f"{os.getpid()}.rights").open("ab") as file:
        for right in sorted(new):
            line = [right.group, right.resource, right.verb, right.names]
            file.write(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))


_told: set[Right] = set()


def _have_parts_declare() -> None:
    """Have caches and leases of this process declare what they need: what plugins of tests watch, names of leases."""
    make_caches, make_lock = caches.Caches.__init__, lease.LeaseLock.__init__
    make_looking, make_jobs = other_leaders.OtherLeaders.__init__, training_operator.TrainingOperator.__init__

    def caches_told(self: Any, client: Any, watches: Any, **options: Any) -> None:
        watches = list(watches)
        declare([*caches.policy_rules(watches), *rights.trainjob_rules(watches)])
        make_caches(self, client, watches, **options)

    def lock_told(self: Any, client: Any, *, namespace: str, name: str, **options: Any) -> None:
        declare(lease_rules(namespace=namespace, name=name))
        make_lock(self, client, namespace=namespace, name=name, **options)

    def looking_told(self: Any, client: Any, *, name: str, **options: Any) -> None:
        declare(other_leaders.policy_rules(name=name))
        make_looking(self, client, name=name, **options)

    def jobs_told(self: Any, client: Any, kinds: Any, *, configuration: Any, **options: Any) -> None:
        declare(training_operator.policy_rules(configuration, kinds))
        make_jobs(self, client, kinds, configuration=configuration, **options)

    training_operator.TrainingOperator.__init__ = jobs_told  # type: ignore[method-assign] # as below
    other_leaders.OtherLeaders.__init__ = looking_told  # type: ignore[method-assign] # as below
    caches.Caches.__init__ = caches_told  # type: ignore[method-assign] # what a manager is made of says what it may
    lease.LeaseLock.__init__ = lock_told  # type: ignore[method-assign] # as above
