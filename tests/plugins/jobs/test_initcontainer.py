"""The init container of the workers of a PyTorchJob: ours, and those of a template."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from support.job_kinds import job

from trainmaster.plugins.jobs.initcontainer import InitContainerOptions, InitContainers
from trainmaster.plugins.jobs.pytorchjob import PyTorchJob
from trainmaster.runtime.framework import PluginInvalid
from trainmaster.runtime.jobs.loader import load_job_kinds, option_problems
from trainmaster.runtime.jobs.pods import build_pod
from trainmaster.runtime.jsontree import JsonObject

TEMPLATE = """
- name: wait-a
  image: {{.InitContainerImage}}
  command: ["sh", "-c", "echo {{.MasterAddr}} {{ .MaxTries }}"]
- name: wait-b
  image: registry.example/b:1
  args: ["{{- .MasterAddr -}}"]
"""


def build(template: str | None = None, tries: int | None = None) -> list[JsonObject]:
    options = InitContainerOptions(init_container_template=template, init_container_max_tries=tries)
    return InitContainers(options).build("demo-master-0")


def test_workers_of_a_master_wait_for_it_after_what_the_user_has_them_do() -> None:
    kind = PyTorchJob()
    worker = {"template": {"spec": {"initContainers": [{"name": "fetch"}], "containers": [{"name": "pytorch"}]}}}
    given = job(kind, {"Master": 1, "Worker": worker})
    waiting = build_pod(given, "Worker", 0)["spec"]["initContainers"]
    assert [each["name"] for each in waiting] == ["fetch", "init-pytorch"]
    assert waiting[1]["resources"]["limits"] == {"cpu": "100m", "memory": "20Mi"}
    assert waiting[1]["imagePullPolicy"] == "IfNotPresent"
    assert "initContainers" not in build_pod(given, "Master", 0)["spec"]
    assert "initContainers" not in build_pod(job(kind, {"Worker": 2}), "Worker", 1)["spec"]


def run(script: str, tmp_path: Path, *, resolves_at: int, by: str) -> subprocess.CompletedProcess[str]:
    """Run the command of the container, with tools of which the named one finds the master at the given attempt."""
    (tmp_path / "count").write_text("")
    count = f'echo >> {tmp_path}/count; test "$*" = "{"hosts demo-master-0" if by == "getent" else "demo-master-0"}"'
    look = f'{count} && test "$(wc -l < {tmp_path}/count)" -ge {resolves_at}'
    tools = {"sleep": "true", by: look}
    for name, body in tools.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    for name in ("seq", "wc"):
        (tmp_path / name).symlink_to(f"/usr/bin/{name}")
    environment = {**os.environ, "PATH": str(tmp_path)}
    command = ["/bin/sh", "-c", script]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=30)


@pytest.mark.nightly
@pytest.mark.defect("V1-B22")
@pytest.mark.parametrize(
    ("by", "tries", "resolves_at", "code"),
    [("getent", None, 150, 0), ("nslookup", 3, 3, 0), ("getent", 3, 4, 1), ("nslookup", None, 1, 0)],
)
def test_they_wait_until_the_master_is_found(
    tmp_path: Path, by: str, tries: int | None, resolves_at: int, code: int
) -> None:
    """V1-B22: the original gave up after 100 attempts. Images have getent or nslookup, not always both."""
    (container,) = build(tries=tries)
    assert container["command"][:2] == ["sh", "-c"]
    ended = run(container["command"][2], tmp_path, resolves_at=resolves_at, by=by)
    assert ended.returncode == code
    waited = ended.stdout.count("waiting for master")
    assert waited == (tries if code and tries else resolves_at - 1)


@pytest.mark.defect("V1-B22")
def test_the_image_is_maintained() -> None:
    """V1-B22: alpine:3.10 has had no security updates for years."""
    assert build()[0]["image"] == "alpine:3"


def test_a_template_is_filled_in_for_each_pod_anew() -> None:
    containers = InitContainers(InitContainerOptions(init_container_template=TEMPLATE))
    expected = [
        {"name": "wait-a", "image": "alpine:3", "command": ["sh", "-c", "echo demo-master-0 100"]},
        {"name": "wait-b", "image": "registry.example/b:1", "args": ["demo-master-0"]},
    ]
    for _ in range(2):
        built = containers.build("demo-master-0")
        assert built == expected
        built[0]["command"].append("changed")
    assert build(TEMPLATE, tries=7)[0]["command"][2] == "echo demo-master-0 7"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"initContainerTemplate": "- name: a\n  image: {{.Image}}"}, "{{.Image}} stands for nothing (there are: "),
        ({"initContainerTemplate": "- {name: a, image: {{.MasterAdr}}}"}, 'nothing (did you mean ".MasterAddr"?)'),
        ({"initContainerTemplate": "- name: ["}, "initContainerTemplate: is no YAML: "),
        (
            {"initContainerTemplate": "name: a"},
            "initContainerTemplate: must be a list of containers, of which each has",
        ),
        ({"initContainerMaxTries": 0}, "initContainerMaxTries: must be 1 or more, got 0; leave it out for no limit"),
        ({"initContainerMaxTries": "7"}, 'initContainerMaxTries: must be an integer, got "7"'),
    ],
)
def test_options_that_make_no_container_are_refused_at_start(options: JsonObject, expected: str) -> None:
    (problem,) = option_problems(PyTorchJob, options)
    assert problem.startswith("trainingOperator.options.pytorchjob.initContainer")
    assert expected in problem
    with pytest.raises(PluginInvalid, match="does not accept its options"):
        load_job_kinds(enabled=["PyTorchJob"], options={"pytorchjob": options})
