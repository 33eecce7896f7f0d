"""`trainmaster run train.py` as a program, against an embedded cluster that runs pods as processes."""

import contextlib
import json
import os
import re
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.commands import client_of, eventually, trainmaster
from support.embedded import embedded
from support.kubeconfigs import write_kubeconfig
from support.processes import account_token
from support.team import Team

from trainmaster.controller.cli.files.manifests import built_in_file
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import AlreadyExists
from trainmaster.controller.kube.rest.resources import CONFIGMAPS
from trainmaster.controller.resources import CLUSTER_TRAINING_RUNTIMES, TRAINJOBS
from trainmaster.runtime.jsontree import JsonObject

pytestmark = pytest.mark.nightly


TELLS = """
import json, os, sys
from pathlib import Path
import lib.beside

Path(f"written-{os.environ['PET_NODE_RANK']}").write_text("by the program")
found = {
    "arguments": sys.argv[1:],
    "directory": os.getcwd(),
    "variables": {name: os.environ.get(name) for name in ("TOLD", "HOME", "OMP_NUM_THREADS")},
    "beside": lib.beside.VALUE,
    "data": Path("sub/data.txt").read_text(),
}
print(json.dumps(found))
"""


@pytest.fixture
async def local(mine: Team, project: Path) -> Team:
    """A namespace of a cluster with the built-in runtime, and the directory with the program."""
    await install_runtime(mine.client)
    return replace(mine, directory=project)


@pytest.fixture
async def remote(local: Team, tmp_path: Path) -> Team:
    """The same to somebody who does not learn that it is on this machine."""
    config = yaml.safe_load(local.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": await account_token(local.client, f"of-{local.name}")}
    place = tmp_path / "remote-kubeconfig"
    place.write_text(yaml.safe_dump(config))
    return replace(local, kubeconfig=place)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A directory with a program that tells what it sees, a module beside it, and a file."""
    directory = tmp_path / "project"
    (directory / "lib").mkdir(parents=True)
    (directory / "sub").mkdir()
    (directory / "train.py").write_text(TELLS)
    (directory / "lib" / "beside.py").write_text("VALUE = 'beside it'\n")
    (directory / "sub" / "data.txt").write_text("a file\n")
    return directory


async def install_runtime(client: KubeClient, name: str = "torch-distributed") -> None:
    file = built_in_file(name)
    assert file is not None
    with contextlib.suppress(AlreadyExists):
        await client.create(CLUSTER_TRAINING_RUNTIMES, yaml.safe_load(file.read_text()))


def job_in(told: str) -> str:
    [name] = re.findall(r"^TrainJob \S+/(\S+) created$", told, re.MULTILINE)
    return str(name)


def notebook(*cells: str, **metadata: Any) -> str:
    code = [{"cell_type": "code", "metadata": {}, "source": cell.splitlines(keepends=True)} for cell in cells]
    text = {"cell_type": "markdown", "metadata": {}, "source": ["# A title\n"]}
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": metadata, "cells": [text, *code]})


async def test_a_script_runs_in_its_directory_as_it_would_without_a_cluster(local: Team, project: Path) -> None:
    arguments = ["--lr", "0.1", "a b", "$(HOME) $$ $PATH", "--nodes"]
    done = await trainmaster(
        *("run", *local.options, "train.py", "--nodes", "2", "--env", "TOLD=$(HOME) $$x", "--", *arguments), cwd=project
    )
    assert done.code == 0, done.err
    assert json.loads(done.out) == {
        "arguments": arguments,
        "directory": str(project),
        "variables": {
            "TOLD": "$(HOME) $$x",
            "HOME": str(Path.home()),
            "OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // 2)),
        },
        "beside": "beside it",
        "data": "a file\n",
    }
    assert [(project / f"written-{rank}").read_text() for rank in (0, 1)] == ["by the program"] * 2
    first, created, *_ = done.err.splitlines()
    assert first == "train.py: python on 2 nodes, runtime torch-distributed (it imports no framework that is known)"
    assert re.fullmatch(rf"TrainJob {local.name}/train-[a-z0-9]{{5}} created", created)


async def test_any_command_runs_with_packages_and_with_checkpoints_that_stay(local: Team, project: Path) -> None:
    """Its name is all that is printed if nobody follows it."""
    with zipfile.ZipFile(project / "mine-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("mine.py", "VALUE = 'installed'")
        wheel.writestr("mine-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: mine\nVersion: 1\n")
        wheel.writestr("mine-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("mine-1.dist-info/RECORD", "")
    (project / "needs.txt").write_text("--no-index\n./mine-1-py3-none-any.whl\n")
    (project / "train.sh").write_text(
        'python -c "import mine; print(mine.VALUE)"\n'
        'cat $CHECKPOINT_DIR/last 2>/dev/null; echo "$1" > $CHECKPOINT_DIR/last\n'
    )
    command = ("run", *local.options, "--requirements", "needs.txt", "--checkpoints", "ckpt", "./train.sh", "--", "5")
    assert (await trainmaster(*command, cwd=project)).out == "installed\n"
    assert (await trainmaster(*command, cwd=project)).out == "installed\n5\n"
    done = await trainmaster("run", *local.options, "--no-follow", "--", "sh", "-c", "echo $0 $1", "a", cwd=project)
    assert re.fullmatch(r"sh-[a-z0-9]{5}\n", done.out)
    done = await local.cli("attach", done.out.strip(), code=0)
    assert done.out == "a\n"


async def test_a_job_that_uses_more_memory_than_its_limit_is_killed(local: Team, project: Path) -> None:
    (project / "train.py").write_text("import time\nheld = bytearray(300_000_000)\ntime.sleep(30)\n")
    done = await local.cli("run", "train.py", "--memory-limit", "100Mi", code=1)
    assert "exit code 137, OOMKilled (it needed more memory than its limit)" in done.err


async def test_a_script_elsewhere_and_a_module_run_in_the_current_directory(
    local: Team, project: Path, tmp_path: Path
) -> None:
    # A script elsewhere runs in the current directory.
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "data.txt").write_text("another file\n")
    done = await replace(local, directory=tmp_path).cli("run", "project/train.py")
    assert done.code == 0, done.err
    told = json.loads(done.out)
    assert (told["directory"], told["data"], told["beside"]) == (str(tmp_path), "another file\n", "beside it")
    # A module is run as a module.
    (project / "package").mkdir()
    (project / "package" / "task.py").write_text("from . import other\nprint(__name__, __package__, other.VALUE)\n")
    (project / "package" / "other.py").write_text("VALUE = 3\n")
    done = await local.cli("run", "-m", "package.task")
    assert (done.code, done.out) == (0, "__main__ package 3\n"), done.err
    assert job_in(done.err).startswith("task-")


async def test_a_notebook_is_run_without_its_magics(local: Team, project: Path) -> None:
    """It runs in its own directory, as Jupyter runs it, and leaves no script behind."""
    cells = ["%matplotlib inline\n!ls\nimport os, lib.beside", "%%time\nprint(os.getcwd(), lib.beside.VALUE, __name__)"]
    (project / "train.ipynb").write_text(notebook(*cells))
    before = sorted(project.iterdir())
    done = await replace(local, directory=project.parent).cli("run", "project/train.ipynb")
    assert (done.code, done.out) == (0, f"{project} beside it __main__\n"), done.err
    assert sorted(project.iterdir()) == before
    for place in ("cell 2: %matplotlib inline", "cell 2: !ls", "cell 3: %%time"):
        assert f"warning: project/train.ipynb: {place}: left out, since only Jupyter knows what it means\n" in done.err


async def test_a_program_that_fails_fails_its_job_at_once_unless_it_may_be_tried_again(
    local: Team, project: Path
) -> None:
    (project / "train.py").write_text("import os\nopen(f'ran-{os.environ[\"HOSTNAME\"]}', 'a').write('x')\n1 / 0\n")
    done = await local.cli("run", "train.py", code=1)
    assert "ZeroDivisionError: division by zero" in done.err
    assert [path.read_text() for path in project.glob("ran-*")] == ["x"]
    # A program may be tried again, on all nodes: those that end with the first one count with it.
    (project / "train.py").write_text(
        "import pathlib\np = pathlib.Path('tried')\nt = p.exists()\np.touch()\nassert t\n"
    )
    await local.cli("run", "train.py", "--nodes", "2", "--retries", "1", code=0)


async def test_on_another_cluster_the_files_come_along_and_go_with_the_job(remote: Team, project: Path) -> None:
    (project / "data").mkdir()
    (project / "data" / "large.bin").write_bytes(bytes(4 * 2**20))
    (project / ".secret").write_text("hidden")
    (project / "sub" / "tool.sh").write_text("#!/bin/sh\necho a tool\n")
    (project / "sub" / "tool.sh").chmod(0o755)
    (project / "binary.dat").write_bytes(bytes(range(256)))
    extra = """
import subprocess
assert Path("binary.dat").read_bytes() == bytes(range(256))
assert not Path(".secret").exists() and not Path("data").exists()
print(subprocess.run(["sub/tool.sh"], capture_output=True, text=True).stdout, end="")
"""
    (project / "train.py").write_text(TELLS + extra)
    done = await remote.cli("run", "train.py", "--nodes", "2", code=0)
    told, tool = done.out.splitlines()
    assert tool == "a tool"
    assert json.loads(told)["data"] == "a file\n"
    assert json.loads(told)["directory"] == "/trainmaster/program"
    assert not (project / "written-0").exists()
    assert "; left out: data/ (.trainmasterignore decides)\n" in done.err
    job = job_in(done.err)
    [files] = await files_of(remote, job)
    assert [owner["name"] for owner in files["metadata"]["ownerReferences"]] == [job]
    await remote.client.delete(TRAINJOBS, remote.name, job)
    await until_files(remote, job, 0)


async def test_a_notebook_and_a_module_come_along_as_well(remote: Team, project: Path) -> None:
    (project / "train.ipynb").write_text(notebook("import lib.beside", "print(lib.beside.VALUE, __file__)"))
    done = await remote.cli("run", "train.ipynb")
    assert (done.code, done.out) == (0, "beside it /trainmaster/program/train_notebook.py\n"), done.err
    (project / "lib" / "task.py").write_text("from . import beside\nprint(beside.VALUE, __package__)\n")
    done = await remote.cli("run", "-m", "lib.task")
    assert (done.code, done.out) == (0, "beside it lib\n"), done.err


async def test_checkpoints_are_a_claim_on_a_cluster_of_other_machines(remote: Team, project: Path) -> None:
    (project / "train.py").write_text(
        "import os, pathlib\nlast = pathlib.Path(os.environ['CHECKPOINT_DIR'], 'step')\n"
        "print(last.exists())\nlast.write_text('1')\n"
    )
    command = ("run", "train.py", "--checkpoints", "ckpt", "--delete")
    done = await remote.cli(*command, code=0)
    assert done.out == "False\n"
    assert f"checkpoints: new PersistentVolumeClaim {remote.name}/ckpt; it stays\n" in done.err
    done = await remote.cli(*command, code=0)
    assert done.out == "True\n"
    assert f"checkpoints: PersistentVolumeClaim {remote.name}/ckpt; it stays\n" in done.err
    assert not (project / "ckpt").exists()


async def files_of(team: Team, job: str) -> list[JsonObject]:
    found = await team.client.list(CONFIGMAPS, team.name, label_selector=f"app.kubernetes.io/instance={job}")
    return list(found["items"])


async def until_files(team: Team, job: str, number: int) -> None:
    async def are() -> bool:
        return len(await files_of(team, job)) == number

    await eventually(are)


async def test_files_that_are_too_large_are_named_and_nothing_is_submitted(remote: Team, project: Path) -> None:
    (project / "large.npz").write_bytes(bytes(3 * 2**20))
    done = await remote.cli("run", "train.py", code=2)
    _, first, second, *_, last = done.err.splitlines()
    assert first.startswith(
        f"trainmaster: the files in {project} are too large to be brought along: 3.0 MiB in 4 files"
    )
    assert second == "trainmaster:     3.0 MiB  large.npz"
    assert last.startswith(
        f"trainmaster:   what next: name what the program does not need in {project}/.trainmasterignore"
    )
    (project / ".trainmasterignore").write_text("*.npz\n")
    done = await remote.cli("run", "train.py", code=0)


async def test_a_job_that_is_refused_leaves_no_files_behind_and_a_name_that_is_taken_may_be_replaced(
    remote: Team, project: Path
) -> None:
    done = await remote.cli("run", "train.py", "--name", "Wrong_Name", code=2)
    assert "train.py: TrainJob Wrong_Name: metadata.name: Invalid value" in done.err
    assert await files_of(remote, "Wrong_Name") == []
    # A name that is taken is told and may be replaced.
    command = ("run", "train.py", "--name", "mine")
    assert (await remote.cli(*command)).code == 0
    done = await remote.cli(*command, code=2)
    assert (
        f"trainmaster: train.py: TrainJob mine already exists in namespace '{remote.name}'; delete it or take another "
        "name (without --name there is a new one for each run)\n"
    ) in done.err
    assert "already exists" in (await remote.cli(*command, "--dry-run", code=2)).err
    (project / "lib" / "beside.py").write_text("VALUE = 'the files of now'\n")
    done = await remote.cli(*command, "--if-exists", "replace", code=0)
    assert json.loads(done.out)["beside"] == "the files of now"
    assert done.err.count("train.py: python on 1 node") == 1
    await until_files(remote, "mine", 1)


async def test_a_runtime_that_is_not_there_is_told_with_advice(local: Team, project: Path) -> None:
    done = await local.cli("run", "train.py", "--runtime", "torch-distribute")
    assert "what next: name it by --runtime torch-distributed" in done.err
    await local.client.delete(CLUSTER_TRAINING_RUNTIMES, None, "jax-distributed")
    done = await local.cli("run", "train.py", "--runtime", "jax-distribute")
    await install_runtime(local.client, "jax-distributed")
    assert done.code == 2
    assert "train.py: TrainJob train-" in done.err
    assert 'ClusterTrainingRuntime "jax-distribute" does not exist in this cluster (did you mean' in done.err
    assert 'what next: "jax-distributed" comes with Trainmaster: `kubectl apply --server-side -f ' in done.err


async def test_modules_that_are_missing_are_told_before_anything_is_sent(local: Team, project: Path) -> None:
    """Only those that are certainly needed; the job runs, as its author may know better."""
    text = "import lib.gone, no_such_module_here\ntry:\n    import perhaps_missing\nexcept ImportError:\n    pass\n"
    (project / "train.py").write_text(text)
    done = await local.cli("run", "train.py", code=1)
    told = done.err.splitlines()
    assert told[0] == "warning: train.py: lib has no module gone: lib/gone.py does not exist"
    assert told[1] == "warning: train.py needs no_such_module_here, and the Python of the cluster has not got it"
    assert told[2].endswith(
        f"if it is the name of a package as well, {sys.executable} -m pip install no_such_module_here"
    )
    assert "perhaps_missing" not in done.err
    assert "ModuleNotFoundError" in done.err
    # A module in another directory of the project is found as is advised.
    (project / "train.py").write_text("import beside\nprint(beside.VALUE)\n")
    done = await local.cli("run", "train.py", code=1)
    advised = re.search(r"beside is in lib, where Python does not look: (--env \S+)", done.err)
    assert advised is not None
    done = await local.cli("run", *advised[1].split(), "train.py", code=0)
    assert done.out == "beside it\n"


async def test_what_is_no_python_is_refused(local: Team, project: Path) -> None:
    (project / "train.py").write_text("import os\nprint(1\n")
    done = await local.cli("run", "train.py")
    assert (done.code, done.err) == (2, "trainmaster: train.py:2: '(' was never closed\ntrainmaster:     print(1\n")
    (project / "train.ipynb").write_text(notebook("x = 1", "y = 2\nz = = 3"))
    done = await local.cli("run", "train.ipynb")
    assert (done.code, done.err) == (
        2,
        "trainmaster: train.ipynb: cell 3, line 2: invalid syntax\ntrainmaster:     z = = 3\n",
    )


async def test_a_dry_run_needs_no_cluster_and_prints_what_can_be_submitted(local: Team, project: Path) -> None:
    # A dry run for a cluster that does not answer has the files.
    config = write_kubeconfig(project.parent / "config", "https://127.0.0.1:1")
    options = ("--dry-run", "-o", "json", "--image", "example.com/mine:1")
    done = await trainmaster("run", "train.py", *options, cwd=project, KUBECONFIG=config)
    assert done.code == 0, done.err
    files, job = json.loads(done.out)["items"]
    assert sorted(files["data"]) == ["lib_beside.py", "sub_data.txt", "train.py"]
    assert job["spec"]["trainer"]["image"] == "example.com/mine:1"
    # Without any cluster it needs none, and prints what can be submitted.
    command = ("run", "train.py", "--nodes", "2", "--name", "printed", "--cpus", "1", "--memory", "1Gi")
    done = await trainmaster(*command, "--dry-run", "-o", "yaml", "--", "x", cwd=project)
    assert done.code == 0, done.err
    assert not (project / ".trainmaster").exists()
    job = yaml.safe_load(done.out)
    assert job["spec"]["runtimeRef"] == {"name": "torch-distributed", "kind": "ClusterTrainingRuntime"}
    assert job["spec"]["trainer"]["numNodes"] == 2
    assert job["spec"]["trainer"]["resourcesPerNode"] == {"requests": {"cpu": "1", "memory": "1Gi"}}
    (project / "job.yaml").write_text(done.out)
    done = await local.cli("run", "job.yaml", code=0)
    assert json.loads(done.out)["directory"] == str(project)


async def test_programs_run_where_names_are_rewritten_as_well(project: Path) -> None:
    """Without namespaces the paths are the same, and the script of a notebook is where its volume is."""
    with embedded(project, "--networking", "rewriting"):
        async with client_of(project / ".trainmaster/kubeconfig") as client:
            await install_runtime(client)
        done = await trainmaster("run", "train.py", cwd=project)
        assert done.code == 0, done.err
        assert json.loads(done.out)["directory"] == str(project)
        (project / "train.ipynb").write_text(notebook("import lib.beside, os\nprint(lib.beside.VALUE, os.getcwd())"))
        done = await trainmaster("run", "train.ipynb", cwd=project)
        assert (done.code, done.out) == (0, f"beside it {project}\n"), done.err
