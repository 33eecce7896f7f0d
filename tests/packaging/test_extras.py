"""What `pip install trainmaster` brings is enough for the controller; what needs an extra says which.

Modules of all other distributions are hidden, as if nothing else were installed.
`make image-rootfs` does the same with a real installation.
"""

import functools
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from support.kubeconfigs import write_kubeconfig

from trainmaster.controller.cli.follow import live_reporter
from trainmaster.controller.cli.follow.follower import make_reporter
from trainmaster.controller.cli.follow.reporter import Reporter
from trainmaster.controller.cli.follow.summary import Commands

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples/numpy-digits"

HIDING = """
import os, sys
from importlib.abc import MetaPathFinder

class Hidden(MetaPathFinder):
    def find_spec(self, fullname, path=None, target=None):
        if fullname in names:
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)

names = set(os.environ["HIDDEN_MODULES"].split(","))
sys.meta_path.insert(0, Hidden())
"""
"""Becomes `sitecustomize`, so that the processes that a command starts miss the same."""

IMPORTS = """
import asyncio, importlib, pkgutil

tracing = "trainmaster.controller.tracing."
for portion in ("controller", "runtime", "plugins", "metrics"):
    package = importlib.import_module(f"trainmaster.{portion}")
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if module.name.startswith(tracing) and module.name != f"{tracing}installed":
            continue
        if not module.name.endswith(("__main__", ".cli.display", ".follow.live_reporter", ".top.live")):
            importlib.import_module(module.name)

from trainmaster.controller.configuration import Tracing
from trainmaster.controller.manager.process import name_of_event_loop, run_event_loop
from trainmaster.controller.tracing.installed import new_tracing
async def main():
    return name_of_event_loop(asyncio.get_running_loop())
assert run_event_loop(main()) == "asyncio"
assert new_tracing(Tracing(endpoint="collector:4318")) is None
"""


@functools.cache
def needed(distribution: str = "trainmaster") -> frozenset[str]:
    """A distribution, and those that come with it."""
    requirements = [Requirement(text) for text in requires(distribution) or ()]
    here = [each.name for each in requirements if each.marker is None or each.marker.evaluate({"extra": ""})]
    return frozenset({canonicalize_name(distribution)}.union(*map(needed, here)))


@functools.cache
def hidden() -> frozenset[str]:
    """The top-level modules that no distribution of the base installation brings."""
    return frozenset(
        module
        for module, distributions in packages_distributions().items()
        if not needed() & {canonicalize_name(name) for name in distributions}
    )


@dataclass(frozen=True)
class Installation:
    """An environment that has some of this one's modules."""

    path: Path

    def python(self, *arguments: str, hidden: Iterable[str]) -> subprocess.CompletedProcess[str]:
        (self.path / "sitecustomize.py").write_text(HIDING)
        work = self.path / "work"
        work.mkdir(exist_ok=True)
        foreign = {"KUBECONFIG", "TRAINMASTER_HOME"}
        done = subprocess.run(
            [sys.executable, "-P", *arguments],
            cwd=work,
            env={name: value for name, value in os.environ.items() if name not in foreign}
            | {"PYTHONPATH": str(self.path), "HIDDEN_MODULES": ",".join(hidden)},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def base(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run `trainmaster` as `pip install trainmaster` makes it."""
        return self.python("-m", "trainmaster.controller.cli", *command, hidden=hidden())

    def image(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run `trainmaster` as the image of the controller has it."""
        return self.python("-m", "trainmaster.controller.cli", *command, hidden={"trainmaster.devcluster", *hidden()})


@pytest.fixture
def installed(tmp_path: Path) -> Installation:
    return Installation(tmp_path)


def test_what_only_laptops_need_is_no_dependency_of_the_controller() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    local = {re.split(r"[<>=; ]", requirement)[0] for requirement in project["optional-dependencies"]["local"]}
    assert local == {"cel-expr-python", "jsonpatch", "jsonpointer", "pathspec", "py-spy", "rich"}
    assert not needed() & {*local, "hatchling", "pip", "setuptools"}


def test_every_module_of_the_controller_does_with_the_base_installation(installed: Installation) -> None:
    assert {"rich", "cel_expr_python", "jsonpatch", "jsonpointer", "pytest"} <= hidden()
    done = installed.python("-c", IMPORTS, hidden=hidden())
    assert done.returncode == 0, done.stderr
    assert "`pip install 'trainmaster[tracing]'`" in done.stdout, "traces are the extra that a manager may lack"


def test_a_cluster_needs_the_extra(installed: Installation) -> None:
    done = installed.base("cluster", "up", "--detach")
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(
        r"trainmaster: the command 'cluster' needs the module '\w+', which is not installed; "
        r"`pip install 'trainmaster\[local\]'` brings all that it needs\n",
        done.stderr,
    )
    assert list((installed.path / "work").iterdir()) == []


def test_what_is_valid_is_valid_and_the_rules_are_said_to_be_unchecked(installed: Installation) -> None:
    assert "kind: JobSet" in installed.base("render", "-f", str(EXAMPLE)).stdout, "rendering needs no extra"
    done = installed.base("validate", "-f", str(EXAMPLE), "-f", str(ROOT / "deploy/runtimes"))
    assert (done.returncode, done.stderr[:12]) == (0, "trainmaster:"), done.stdout
    assert "0 errors, 1 warning" in done.stderr
    assert done.stdout.startswith("warning: rules in CEL cannot be evaluated: cel-expr-python is not installed")
    assert "pip install 'trainmaster[local]'" in done.stdout
    assert len(done.stdout.splitlines()) == 1


def test_wrong_fields_and_rules_of_admission_are_found_without_the_extra(installed: Installation) -> None:
    job = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": "a"}}
    file = installed.path / "job.yaml"
    file.write_text(f"{job | {'spec': {'runtimeRef': {'name': 'none'}, 'trainr': {}}}}")
    done = installed.base("validate", "-f", str(file))
    assert done.returncode == 1
    assert 'spec.trainr: unknown field (did you mean "trainer"?)' in done.stdout
    assert "spec.runtimeRef.name: no file has" in done.stdout


def test_an_installation_without_the_embedded_cluster_says_so(installed: Installation) -> None:
    """The image of the controller is one. What an installation needs is told without."""
    for command in (("cluster", "status"), ("validate", "-f", str(EXAMPLE))):
        done = installed.image(*command)
        assert (done.returncode, done.stdout) == (1, "")
        assert f"the command '{command[0]}' needs the embedded cluster, which is not part of this" in done.stderr
        assert len(done.stderr.splitlines()) == 1
    for other, printed in (("crds", "apiVersion: "), ("rbac", "apiVersion: "), ("--help", "\n  manager ")):
        done = installed.image(other)
        assert (done.returncode, done.stderr) == (0, "")
        assert re.search(printed.replace("  ", " +"), done.stdout)
        assert not re.search(r"^ +cluster ", done.stdout, re.MULTILINE)


def test_running_a_job_without_a_cluster_needs_the_extra(installed: Installation) -> None:
    done = installed.base("run", str(EXAMPLE))
    assert done.returncode == 1
    assert "the command 'cluster' needs the module" in done.stderr
    assert "pip install 'trainmaster[local]'" in done.stderr
    assert "name another cluster with --kubeconfig" in done.stderr


def test_a_terminal_without_the_display_gets_plain_lines_and_is_told_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    for name in ("CI", "JPY_PARENT_PID", "COLAB_RELEASE_TAG", "MPLBACKEND"):
        monkeypatch.delenv(name, raising=False)
    with monkeypatch.context() as context:
        for name in [name for name in sys.modules if name.partition(".")[0] == "rich"]:
            context.delitem(sys.modules, name)
        context.setitem(sys.modules, "rich", None)
        assert isinstance(make_reporter(plain=False, commands=Commands()), Reporter)
    assert capsys.readouterr().err == "for a live display: pip install 'trainmaster[local]'\n"
    assert isinstance(make_reporter(plain=False, commands=Commands()), live_reporter.LiveReporter)


def test_a_history_in_a_database_needs_the_extra(installed: Installation) -> None:
    (installed.path / "config.yaml").write_text(
        "apiVersion: config.trainer.kubeflow.org/v1alpha1\nkind: Configuration\n"
        "history: {enabled: true, databaseUrlFile: url}\n"
        "metrics: {bindAddress: '0'}\nwebhook: {enabled: false}\nhealth: {healthProbeBindAddress: '0'}\n"
    )
    kubeconfig = write_kubeconfig(installed.path / "kubeconfig", "http://127.0.0.1:1")
    done = installed.base("manager", "--config", str(installed.path / "config.yaml"), "--kubeconfig", kubeconfig)
    assert done.returncode == 1
    assert "history.databaseUrlFile needs psycopg, which is not installed: pip install 'trainmaster[postgres]'" in (
        done.stdout + done.stderr
    )
