"""What a container installs is its own, and the environment of the cluster stays as it is."""

import os
import shlex
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from support.commands import eventually
from support.distributions import build_wheel
from support.machine import FOUND, needs_namespaces
from support.node import Node, sh, terminated

from trainmaster.devcluster.apiserver.resources import PODS
from trainmaster.devcluster.kubelet.kubelet import Kubelet
from trainmaster.devcluster.kubelet.virtual_environment import BaseEnvironment, VirtualEnvironment

pytestmark = pytest.mark.nightly

MAIN: Final = "def main():\n    import sys\n    print(version, sys.executable)\n"

Run = Callable[[VirtualEnvironment, str], str]


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wheels of `tinypkg` in two versions, with a console script."""
    directory = tmp_path_factory.mktemp("wheels")
    for version in ("1.0", "2.0"):
        build_wheel(directory, "tinypkg", version, source=MAIN, script="tiny")
    return directory


@pytest.fixture(scope="module")
def below(tmp_path_factory: pytest.TempPathFactory, wheels: Path) -> Path:
    """A virtual environment like that of a cluster, which has `tinypkg` 1.0 and, as those that uv makes, no pip."""
    directory = tmp_path_factory.mktemp("below")
    venv.create(directory, symlinks=True)
    python = directory / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-index", "--find-links"]
    subprocess.run([*pip, str(wheels), "tinypkg==1.0"], check=True)
    return directory


@pytest.fixture(scope="module")
def base(below: Path, tmp_path_factory: pytest.TempPathFactory) -> BaseEnvironment:
    return described(below, tmp_path_factory.mktemp("root"))


def described(below: Path, directory: Path) -> BaseEnvironment:
    """Describe an environment as a cluster that runs in it would."""
    program = (
        "from pathlib import Path; from trainmaster.devcluster.kubelet.virtual_environment import BaseEnvironment; "
        f"print(repr(BaseEnvironment.of_this_process(Path({str(directory)!r}))))"
    )
    python = [str(below / "bin" / "python"), "-c", program]
    code = [path for path in sys.path if path.endswith(("hack", "runtime"))]
    answer = subprocess.run(
        python, env={"PYTHONPATH": os.pathsep.join(code)}, check=True, capture_output=True, text=True
    )
    made = eval(answer.stdout, {"BaseEnvironment": BaseEnvironment, "PosixPath": Path})
    assert isinstance(made, BaseEnvironment)
    return made


@pytest.fixture
def run(tmp_path: Path, wheels: Path) -> Run:
    def in_environment(environment: VirtualEnvironment, script: str) -> str:
        search = [*map(str, environment.search_path), "/usr/bin", "/bin"]
        variables = {
            "PATH": os.pathsep.join(search),
            "HOME": str(tmp_path),
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(wheels),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            **environment.variables,
        }
        done = subprocess.run(
            ["/bin/sh", "-ec", script], env=variables, check=False, capture_output=True, text=True, cwd=tmp_path
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return in_environment


def contents(directory: Path) -> dict[str, bytes]:
    """Give all files below a directory; compiled modules are written by whoever imports them first."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


@pytest.fixture
def unchanged(below: Path) -> Iterator[None]:
    before = contents(below)
    yield
    assert contents(below) == before


@pytest.mark.usefixtures("unchanged")
def test_a_program_from_below_runs_in_that_of_the_container(base: BaseEnvironment, tmp_path: Path, run: Run) -> None:
    """As torchrun does, which starts its workers with `sys.executable`."""
    environment = base.virtual_environment(tmp_path / "c")
    assert run(environment, "tiny") == f"1.0 {environment.directory}/bin/python\n"


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("pip", ["python -m pip install", "pip install --user"])
def test_an_upgrade_precedes_what_is_below_unharmed(base: BaseEnvironment, tmp_path: Path, run: Run, pip: str) -> None:
    environment, other = (base.virtual_environment(tmp_path / name) for name in "ab")
    run(environment, f"{pip} -q --no-warn-script-location tinypkg==2.0")
    assert run(environment, "tiny; python -c 'import tinypkg; print(tinypkg.version)'").split()[::2] == ["2.0", "2.0"]
    assert run(other, "tiny").startswith("1.0 ")
    run(environment, "pip uninstall -qy tinypkg")
    assert run(environment, "tiny").startswith("1.0 ")


@pytest.mark.usefixtures("unchanged")
def test_nothing_below_is_uninstalled(base: BaseEnvironment, tmp_path: Path, run: Run) -> None:
    environment = base.virtual_environment(tmp_path / "c")
    assert "already satisfied" in run(environment, "pip install tinypkg")
    run(environment, "pip uninstall -qy tinypkg 2>&1")
    assert run(environment, "tiny").startswith("1.0 ")


def test_programs_that_are_installed_below_later_are_found(tmp_path: Path, wheels: Path, run: Run) -> None:
    venv.create(tmp_path / "below", symlinks=True)
    base = described(tmp_path / "below", tmp_path / "root")
    run(base.virtual_environment(tmp_path / "a"), "! command -v tiny")
    pip = [sys.executable, "-m", "pip", "--python", str(tmp_path / "below" / "bin" / "python"), "-q"]
    subprocess.run([*pip, "install", "--no-index", "--find-links", str(wheels), "tinypkg==2.0"], check=True)
    later = base.virtual_environment(tmp_path / "b")
    assert run(later, "tiny") == f"2.0 {later.directory}/bin/python\n"
    subprocess.run([*pip, "uninstall", "-y", "tinypkg"], check=True)
    run(base.virtual_environment(tmp_path / "d"), "! command -v tiny")


def test_packages_of_the_interpreter_that_the_environment_below_does_not_see_stay_unseen(
    base: BaseEnvironment, tmp_path: Path, run: Run
) -> None:
    environment = base.virtual_environment(tmp_path / "c")
    paths = run(environment, "python -c 'import sys; print(*sys.path, sep=\"\\n\")'").split()
    packages = [path for path in paths if path.endswith(("site-packages", "dist-packages"))]
    assert packages == [str(next(environment.directory.glob("lib/python3*/site-packages"))), *base.site_packages]
    assert len(base.site_packages) == 1
    other = run(environment, f"{base.interpreter} -c 'import sys; print(*sys.path, sep=\"\\n\")'").split()
    assert base.site_packages[0] not in other, "the interpreter by its own path is that of the host"


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        ("#!{python}", "{made} "),
        ("#!{python} -I -B", "{made} -I -B "),
        ("#!/bin/sh\n'''exec' \"{python}\" \"$0\" \"$@\"\n' '''", "{made} "),
        ("#!/usr/bin/env perl", None),
        ("#!/elsewhere/bin/python3", None),
        ("#!/bin/sh", None),
        ("\x7fELF\0", None),
        ("", None),
    ],
)
def test_programs_of_the_python_below_get_another(tmp_path: Path, below: Path, head: str, expected: str | None) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    program = programs / "it's a program"
    program.write_text(head.format(python=below / "bin" / "python3.1"))
    program.chmod(0o755)
    (programs / "no-program").write_text(f"#!{below}/bin/python\n")
    (programs / "gone").symlink_to("nowhere")
    base = BaseEnvironment(
        directory=tmp_path / "root",
        interpreter=Path(sys.executable),
        site_packages=[],
        programs=[programs, below / "bin", tmp_path / "missing"],
    )
    base.refresh()
    made = {path.name: path.read_text() for path in base.scripts.iterdir()}
    assert {made.pop(name) for name in ("pip", "pip3")} == {'#!/bin/sh\nexec "${0%/*/*}/bin/python" -m pip "$@"\n'}
    made.pop("tiny")
    if expected is None:
        assert made == {}
        return
    start = expected.format(made='exec "${0%/*/*}/bin/python"')
    assert made == {"it's a program": f'#!/bin/sh\n{start}{shlex.quote(str(program))} "$@"\n'}


async def test_containers_share_nothing_that_they_install(node: Node, kubelet: Kubelet, wheels: Path) -> None:
    """Neither with another container of the pod nor with the next attempt, which the one before has made room for."""
    install = f"pip install -q --no-index --find-links {wheels} --user tinypkg; tiny"
    again = "until ! test -e ${VIRTUAL_ENV%-1}-0; do sleep 0.05; done; exit 0"
    once = f"if command -v tiny; then exit 5; fi; if test -e $TMPDIR/again; then {again}; fi; {install}"
    alone = "until test -e $TMPDIR/again; do sleep 0.05; done; ! command -v tiny"
    await node.create(
        sh(f"{once} && touch $TMPDIR/again; exit 1"), sh(alone) | {"name": "other"}, restartPolicy="OnFailure"
    )
    pod = await node.phase("Succeeded")
    assert terminated(pod, state="lastState")["exitCode"] == 1
    version, python = (await node.log(kubelet, previous=True)).split()
    assert (version, Path(python).is_relative_to(node.directory)) == ("2.0", True)
    directory = node.directory / "pods" / pod["metadata"]["uid"]
    await eventually(lambda: not list(directory.glob("container-*/python-*")))
    assert await node.log(kubelet, previous=True), "the log of a pod that has ended is kept"
    await node.api.delete(PODS, "default", "p")
    await eventually(lambda: not directory.exists())


@pytest.mark.parametrize("node", [pytest.param(FOUND, id="namespaces", marks=needs_namespaces)], indirect=True)
async def test_a_volume_over_the_state_directory_leaves_the_programs_as_they_are(node: Node, kubelet: Kubelet) -> None:
    mounts = [{"name": "v", "mountPath": str(node.directory.parent)}]
    await node.create(sh("command -v pip; pip --version", volumeMounts=mounts), volumes=[{"name": "v", "emptyDir": {}}])
    await node.phase("Succeeded")
    found, version = (await node.log(kubelet)).splitlines()
    assert found.endswith("/container-c/python-0/scripts/pip")
    assert version.startswith("pip ")
