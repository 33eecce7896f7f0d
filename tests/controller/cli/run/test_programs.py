"""`trainmaster run train.py` as a program, against an embedded cluster that runs pods as processes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.commands import client_of, trainmaster

from trainmaster.controller.cli.manifests import built_in_file
from trainmaster.controller.kube.rest.errors import AlreadyExists
from trainmaster.controller.kube.rest.resources import CONFIGMAPS, Resource
from trainmaster.controller.resources import CLUSTER_TRAINING_RUNTIMES, TRAINJOBS

pytestmark = pytest.mark.nightly

SERVICE_ACCOUNTS = Resource("", "v1", "ServiceAccount", "serviceaccounts", namespaced=True)

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


def up(home: Path, *options: str) -> str:
    cluster = [sys.executable, "-m", "trainmaster.controller.cli", "cluster", "up", "--detach", *options]
    subprocess.run(cluster, cwd=home, check=True, capture_output=True, timeout=100)
    return str(home / ".trainmaster" / "kubeconfig")


def down(home: Path) -> None:
    cluster = [sys.executable, "-m", "trainmaster.controller.cli", "cluster", "down"]
    subprocess.run(cluster, cwd=home, check=True, capture_output=True, timeout=100)


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A cluster for all tests of this module."""
    home = tmp_path_factory.mktemp("cluster")
    yield up(home)
    down(home)


@pytest.fixture
async def local(kubeconfig: str) -> str:
    """The cluster, with the built-in runtime."""
    await install_runtime(kubeconfig)
    return kubeconfig


@pytest.fixture
async def remote(local: str, tmp_path: Path) -> str:
    """The same cluster to somebody who does not learn that it is on this machine."""
    async with client_of(local) as client:
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "remote"}}
        with contextlib.suppress(AlreadyExists):
            await client.create(SERVICE_ACCOUNTS, account, namespace="default")
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        status, _, answer = await client.raw(
            "POST",
            SERVICE_ACCOUNTS.path("default", "remote", "token"),
            body=json.dumps(request).encode(),
            content_type="application/json",
        )
        assert status == 201, answer
    config = yaml.safe_load(Path(local).read_text())
    config["users"][0]["user"] = {"token": json.loads(answer)["status"]["token"]}
    place = tmp_path / "remote-kubeconfig"
    place.write_text(yaml.safe_dump(config))
    return str(place)


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


async def install_runtime(kubeconfig: str, name: str = "torch-distributed") -> None:
    file = built_in_file(name)
    assert file is not None
    async with client_of(kubeconfig) as client:
        with contextlib.suppress(AlreadyExists):
            await client.create(CLUSTER_TRAINING_RUNTIMES, yaml.safe_load(file.read_text()))


def job_in(told: str) -> str:
    [name] = re.findall(r"^TrainJob default/(\S+) created$", told, re.MULTILINE)
    return str(name)


def notebook(*cells: str, **metadata: Any) -> str:
    code = [{"cell_type": "code", "metadata": {}, "source": cell.splitlines(keepends=True)} for cell in cells]
    text = {"cell_type": "markdown", "metadata": {}, "source": ["# A title\n"]}
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": metadata, "cells": [text, *code]})


async def test_a_script_runs_in_its_directory_as_it_would_without_a_cluster(local: str, project: Path) -> None:
    arguments = ["--lr", "0.1", "a b", "$(HOME) $$ $PATH", "--nodes"]
    done = await trainmaster(
        *("run", "--kubeconfig", local, "train.py", "--nodes", "2", "--env", "TOLD=$(HOME) $$x", "--", *arguments),
        cwd=project,
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
    assert re.fullmatch(r"TrainJob default/train-[a-z0-9]{5} created", created)


async def test_a_script_elsewhere_runs_in_the_current_directory(local: str, project: Path, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "data.txt").write_text("another file\n")
    done = await trainmaster("run", "--kubeconfig", local, "project/train.py", cwd=tmp_path)
    assert done.code == 0, done.err
    told = json.loads(done.out)
    assert (told["directory"], told["data"], told["beside"]) == (str(tmp_path), "another file\n", "beside it")


async def test_a_module_is_run_as_a_module(local: str, project: Path) -> None:
    (project / "package").mkdir()
    (project / "package" / "task.py").write_text("from . import other\nprint(__name__, __package__, other.VALUE)\n")
    (project / "package" / "other.py").write_text("VALUE = 3\n")
    done = await trainmaster("run", "--kubeconfig", local, "-m", "package.task", cwd=project)
    assert (done.code, done.out) == (0, "__main__ package 3\n"), done.err
    assert job_in(done.err).startswith("task-")


async def test_a_notebook_is_run_without_its_magics(local: str, project: Path) -> None:
    """It runs in its own directory, as Jupyter runs it, and leaves no script behind."""
    cells = ["%matplotlib inline\n!ls\nimport os, lib.beside", "%%time\nprint(os.getcwd(), lib.beside.VALUE, __name__)"]
    (project / "train.ipynb").write_text(notebook(*cells))
    before = sorted(project.iterdir())
    done = await trainmaster("run", "--kubeconfig", local, "project/train.ipynb", cwd=project.parent)
    assert (done.code, done.out) == (0, f"{project} beside it __main__\n"), done.err
    assert sorted(project.iterdir()) == before
    for place in ("cell 2: %matplotlib inline", "cell 2: !ls", "cell 3: %%time"):
        assert f"warning: project/train.ipynb: {place}: left out, since only Jupyter knows what it means\n" in done.err


async def test_a_program_that_fails_fails_its_job_at_once(local: str, project: Path) -> None:
    (project / "train.py").write_text("import os\nopen(f'ran-{os.environ[\"HOSTNAME\"]}', 'a').write('x')\n1 / 0\n")
    done = await trainmaster("run", "--kubeconfig", local, "train.py", cwd=project)
    assert done.code == 1
    assert "ZeroDivisionError: division by zero" in done.err
    assert [path.read_text() for path in project.glob("ran-*")] == ["x"]


async def test_a_program_may_be_tried_again(local: str, project: Path) -> None:
    (project / "train.py").write_text(
        "import pathlib\np = pathlib.Path('tried')\nt = p.exists()\np.touch()\nassert t\n"
    )
    done = await trainmaster("run", "--kubeconfig", local, "train.py", "--retries", "1", cwd=project)
    assert done.code == 0, done.err


async def test_on_another_cluster_the_files_come_along_and_go_with_the_job(remote: str, project: Path) -> None:
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
    done = await trainmaster("run", "--kubeconfig", remote, "train.py", "--nodes", "2", cwd=project)
    assert done.code == 0, done.err
    told, tool = done.out.splitlines()
    assert tool == "a tool"
    assert json.loads(told)["data"] == "a file\n"
    assert json.loads(told)["directory"] == "/trainmaster/program"
    assert not (project / "written-0").exists()
    assert "; left out: data/ (.trainmasterignore decides)\n" in done.err
    job = job_in(done.err)
    async with client_of(remote) as client:
        [files] = await files_of(client, job)
        assert [owner["name"] for owner in files["metadata"]["ownerReferences"]] == [job]
        await client.delete(TRAINJOBS, "default", job)
        async with asyncio.timeout(60):
            while await files_of(client, job):
                await asyncio.sleep(0.05)


async def test_a_notebook_and_a_module_come_along_as_well(remote: str, project: Path) -> None:
    (project / "train.ipynb").write_text(notebook("import lib.beside", "print(lib.beside.VALUE, __file__)"))
    done = await trainmaster("run", "--kubeconfig", remote, "train.ipynb", cwd=project)
    assert (done.code, done.out) == (0, "beside it /trainmaster/program/train_notebook.py\n"), done.err
    (project / "lib" / "task.py").write_text("from . import beside\nprint(beside.VALUE, __package__)\n")
    done = await trainmaster("run", "--kubeconfig", remote, "-m", "lib.task", cwd=project)
    assert (done.code, done.out) == (0, "beside it lib\n"), done.err


async def files_of(client: Any, job: str) -> list[dict[str, Any]]:
    found = await client.list(CONFIGMAPS, "default")
    return [
        each for each in found["items"] if each["metadata"].get("labels", {}).get("app.kubernetes.io/instance") == job
    ]


async def test_files_that_are_too_large_are_named_and_nothing_is_submitted(remote: str, project: Path) -> None:
    (project / "large.npz").write_bytes(bytes(3 * 2**20))
    done = await trainmaster("run", "--kubeconfig", remote, "train.py", cwd=project)
    assert done.code == 2
    _, first, second, *_, last = done.err.splitlines()
    assert first.startswith(
        f"trainmaster: the files in {project} are too large to be brought along: 3.0 MiB in 4 files"
    )
    assert second == "trainmaster:     3.0 MiB  large.npz"
    assert last.startswith(
        f"trainmaster:   what next: name what the program does not need in {project}/.trainmasterignore"
    )
    (project / ".trainmasterignore").write_text("*.npz\n")
    done = await trainmaster("run", "--kubeconfig", remote, "train.py", cwd=project)
    assert done.code == 0, done.err


async def test_a_job_that_is_refused_leaves_no_files_behind(remote: str, project: Path) -> None:
    done = await trainmaster("run", "--kubeconfig", remote, "train.py", "--name", "Wrong_Name", cwd=project)
    assert done.code == 2
    assert "train.py: TrainJob Wrong_Name: metadata.name: Invalid value" in done.err
    async with client_of(remote) as client:
        assert await files_of(client, "Wrong_Name") == []


async def test_a_name_that_is_taken_is_told_and_may_be_replaced(remote: str, project: Path) -> None:
    command = ("run", "--kubeconfig", remote, "train.py", "--name", "mine")
    assert (await trainmaster(*command, cwd=project)).code == 0
    done = await trainmaster(*command, cwd=project)
    assert done.code == 2
    assert (
        "trainmaster: train.py: TrainJob mine already exists in namespace 'default'; delete it or take another name "
        "(without --name there is a new one for each run)\n"
    ) in done.err
    (project / "lib" / "beside.py").write_text("VALUE = 'the files of now'\n")
    done = await trainmaster(*command, "--if-exists", "replace", cwd=project)
    assert done.code == 0, done.err
    assert json.loads(done.out)["beside"] == "the files of now"
    assert done.err.count("train.py: python on 1 node") == 1
    async with client_of(remote) as client:
        async with asyncio.timeout(60):
            while len(await files_of(client, "mine")) != 1:
                await asyncio.sleep(0.05)


async def test_a_runtime_that_is_not_there_is_told_with_advice(local: str, project: Path) -> None:
    command = ("run", "--kubeconfig", local, "train.py", "--runtime")
    done = await trainmaster(*command, "torch-distribute", cwd=project)
    assert "what next: name it by --runtime torch-distributed" in done.err
    async with client_of(local) as client:
        await client.delete(CLUSTER_TRAINING_RUNTIMES, None, "jax-distributed")
    done = await trainmaster(*command, "jax-distribute", cwd=project)
    assert done.code == 2
    assert "train.py: TrainJob train-" in done.err
    assert 'ClusterTrainingRuntime "jax-distribute" does not exist in this cluster (did you mean' in done.err
    assert 'what next: "jax-distributed" comes with Trainmaster: `kubectl apply --server-side -f ' in done.err


async def test_modules_that_are_missing_are_told_before_anything_is_sent(local: str, project: Path) -> None:
    """Only those that are certainly needed; the job runs, as its author may know better."""
    text = "import lib.gone, no_such_module_here\ntry:\n    import perhaps_missing\nexcept ImportError:\n    pass\n"
    (project / "train.py").write_text(text)
    done = await trainmaster("run", "--kubeconfig", local, "train.py", cwd=project)
    assert done.code == 1
    told = done.err.splitlines()
    assert told[0] == "warning: train.py: lib has no module gone: lib/gone.py does not exist"
    assert told[1] == "warning: train.py needs no_such_module_here, and the Python of the cluster has not got it"
    assert told[2] == f"  what next: {sys.executable} -m pip install no_such_module_here"
    assert "perhaps_missing" not in done.err
    assert "ModuleNotFoundError" in done.err


async def test_what_is_no_python_is_refused(local: str, project: Path) -> None:
    (project / "train.py").write_text("import os\nprint(1\n")
    done = await trainmaster("run", "--kubeconfig", local, "train.py", cwd=project)
    assert (done.code, done.err) == (2, "trainmaster: train.py:2: '(' was never closed\ntrainmaster:     print(1\n")
    (project / "train.ipynb").write_text(notebook("x = 1", "y = 2\nz = = 3"))
    done = await trainmaster("run", "--kubeconfig", local, "train.ipynb", cwd=project)
    assert (done.code, done.err) == (
        2,
        "trainmaster: train.ipynb: cell 3, line 2: invalid syntax\ntrainmaster:     z = = 3\n",
    )


async def test_a_dry_run_needs_no_cluster_and_prints_what_can_be_submitted(local: str, project: Path) -> None:
    command = ("run", "train.py", "--nodes", "2", "--name", "printed", "--cpus", "1", "--memory", "1Gi")
    done = await trainmaster(*command, "--dry-run", "-o", "yaml", "--", "x", cwd=project)
    assert done.code == 0, done.err
    assert not (project / ".trainmaster").exists()
    job = yaml.safe_load(done.out)
    assert job["spec"]["runtimeRef"] == {"name": "torch-distributed", "kind": "ClusterTrainingRuntime"}
    assert job["spec"]["trainer"]["numNodes"] == 2
    assert job["spec"]["trainer"]["resourcesPerNode"] == {"requests": {"cpu": "1", "memory": "1Gi"}}
    (project / "job.yaml").write_text(done.out)
    done = await trainmaster("run", "--kubeconfig", local, "job.yaml", cwd=project)
    assert done.code == 0, done.err
    assert json.loads(done.out)["directory"] == str(project)


async def test_a_dry_run_for_a_cluster_that_does_not_answer_has_the_files(project: Path) -> None:
    server = {"server": "https://127.0.0.1:1"}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "a", "cluster": server}],
        "users": [{"name": "a", "user": {"token": "a"}}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "current-context": "a",
    }
    (project.parent / "config").write_text(yaml.safe_dump(config))
    command = ("run", "train.py", "--dry-run", "-o", "json", "--image", "example.com/mine:1")
    done = await trainmaster(*command, cwd=project, KUBECONFIG=str(project.parent / "config"))
    assert done.code == 0, done.err
    files, job = json.loads(done.out)["items"]
    assert sorted(files["data"]) == ["lib_beside.py", "sub_data.txt", "train.py"]
    assert job["spec"]["trainer"]["image"] == "example.com/mine:1"


async def test_programs_run_where_names_are_rewritten_as_well(project: Path) -> None:
    """Without namespaces the paths are the same, and the script of a notebook is where its volume is."""
    up(project, "--networking", "rewriting")
    try:
        config = str(project / ".trainmaster" / "kubeconfig")
        await install_runtime(config)
        done = await trainmaster("run", "train.py", cwd=project)
        assert done.code == 0, done.err
        assert json.loads(done.out)["directory"] == str(project)
        (project / "train.ipynb").write_text(notebook("import lib.beside, os\nprint(lib.beside.VALUE, os.getcwd())"))
        done = await trainmaster("run", "train.ipynb", cwd=project)
        assert (done.code, done.out) == (0, f"beside it {project}\n"), done.err
    finally:
        down(project)
