"""The scripts that make a kind cluster, with programs in place of docker and kind that note how they are called."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
KIND = ROOT / "hack/kind"

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.kubectl,
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl on PATH"),
]

NOTES = """#!/bin/sh
echo "$(basename "$0") $*" >>"$CALLS"
case "$(basename "$0") $*" in
    "kind get clusters") cat "$CLUSTERS" ;;
    "kind create cluster "*) echo trainmaster >"$CLUSTERS" ;;
    "kind delete cluster "*) : >"$CLUSTERS" ;;
    kubectl*" apply "*" -k "*)
        for last; do :; done
        { "$KUBECTL" kustomize "$last" && echo "---"; } >>"$APPLIED" ;;
    make*) exit "$TESTS" ;;
esac
"""


class Machine:
    """A machine with our programs, and what they were told."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        programs = directory / "bin"
        programs.mkdir()
        for name in ("docker", "kind", "kubectl", "make"):
            (programs / name).write_text(NOTES)
            (programs / name).chmod(0o755)
        (directory / "clusters").touch()

    def run(self, script: str, *arguments: str, tests: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
        names = {"CALLS": "calls", "CLUSTERS": "clusters", "APPLIED": "applied", "KIND_KUBECONFIG": "kind/kubeconfig"}
        return subprocess.run(
            [KIND / script, *arguments],
            env=os.environ
            | {name: str(self._directory / file) for name, file in names.items()}
            | {"PATH": f"{self._directory / 'bin'}:{os.environ['PATH']}", "TESTS": str(tests)}
            | {"KUBECTL": shutil.which("kubectl") or ""}
            | environment,
            capture_output=True,
            text=True,
            check=False,
        )

    @property
    def calls(self) -> list[str]:
        return (self._directory / "calls").read_text().splitlines()

    @property
    def applied(self) -> list[dict[str, Any]]:
        return [obj for obj in yaml.safe_load_all((self._directory / "applied").read_text()) if obj]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_the_tests_run_on_a_cluster_with_the_image_of_this_checkout(machine: Machine) -> None:
    done = machine.run("e2e.sh", "-k", "slices")
    assert done.returncode == 0, done.stderr
    steps = ["kind create", "docker build", "kind load", "jobset", "rollout status", "make", "kind delete"]
    found = [next(number for number, call in enumerate(machine.calls) if step in call) for step in steps]
    assert found == sorted(found), machine.calls
    (deployment,) = (obj for obj in machine.applied if obj["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "trainmaster:e2e"
    assert deployment["metadata"]["namespace"] == "kubeflow"
    assert any(obj["kind"] == "ClusterTrainingRuntime" for obj in machine.applied)
    kubectl = [call for call in machine.calls if call.startswith("kubectl")]
    assert [call for call in kubectl if not call.startswith("kubectl --kubeconfig ")] == []
    (tests,) = (call for call in machine.calls if call.startswith("make"))
    assert "kind/kubeconfig" in tests
    assert tests.endswith("ARGS=-k slices")


def test_a_cluster_that_is_there_is_used_and_kept(machine: Machine) -> None:
    assert machine.run("up.sh", KUBECTL="true").returncode == 0
    assert machine.run("e2e.sh", KUBECTL="true").returncode == 0
    assert sum("kind create" in call for call in machine.calls) == 1
    assert not any("kind delete" in call for call in machine.calls)
    assert machine.run("down.sh").returncode == 0
    assert any("kind delete cluster --name trainmaster" in call for call in machine.calls)


def test_tests_that_fail_leave_logs_and_fail_the_script(machine: Machine) -> None:
    done = machine.run("e2e.sh", tests=2, KUBECTL="true")
    assert done.returncode == 1
    assert "the end-to-end tests failed; logs are in " in done.stderr
    assert any("kind export logs" in call for call in machine.calls)
    assert "kind delete" in machine.calls[-1]


def test_a_program_that_is_missing_is_named(tmp_path: Path, machine: Machine) -> None:
    programs = tmp_path / "few"
    programs.mkdir()
    for name in ("bash", "dirname"):
        (programs / name).symlink_to(shutil.which(name) or "")
    done = machine.run("up.sh", PATH=str(programs))
    assert (done.returncode, done.stderr) == (1, "kind: there is no 'docker' on PATH\n")
