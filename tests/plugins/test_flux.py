"""Flux: what is installed, what the scripts really do, and what they are told."""

import os
import re
import shlex
import subprocess
import tomllib
from base64 import b64decode
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from support.objects import replicated_job, runtime, trainjob
from support.resolutions import FakeListers, Runtime, companion, container, entropy, error_details, job_spec, jobset

from trainmaster.plugins.util.owned_objects import curve_certificate, z85
from trainmaster.runtime.api.trainjob import TrainJob
from trainmaster.runtime.framework import Framework, PluginFailed, load_plugins
from trainmaster.runtime.framework.interface import ApplyWhen
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.resolver import resolve

WRAPPER = ["/bin/bash", "/etc/flux-config/entrypoint.sh"]


def flux_runtime(*, nodes: int | None = None, network: JsonObject | None = None, **main: Any) -> Runtime:
    node = {"name": "node", "image": "i", **main}
    policy: JsonObject = {"flux": {}} | ({} if nodes is None else {"numNodes": nodes})
    return runtime(replicated_job(containers=[node]), policy=policy, network=network or {})


def scripts(job: TrainJob, on: Runtime) -> dict[str, str]:
    data: dict[str, str] = companion("ConfigMap", job, on).object["data"]
    return data


def setting(job: TrainJob, on: Runtime, name: str, script: str = "entrypoint.sh") -> list[str]:
    """The words that a script starts from."""
    text = scripts(job, on)[script]
    answer = subprocess.run(
        ["bash", "-c", f'{text.partition("set -")[0]}\nprintf "%s\\0" "${{{name}[@]}}"'],
        check=True,
        capture_output=True,
        text=True,
    )
    return answer.stdout.split("\0")[:-1]


def configuration(job: TrainJob, on: Runtime) -> dict[str, Any]:
    (text,) = setting(job, on, "broker_configuration", "init.sh")
    return tomllib.loads(text)


@dataclass
class Pod:
    """The directories of a pod, and programs that only note how they were called."""

    root: Path
    scripts: dict[str, str]

    def run(self, script: str, *arguments: str, host: str = "demo-node-0-0", **environment: str) -> int:
        # Absolute paths only: /curve/ is also the end of one.
        text = re.sub(r"(?<!\w)/(mnt/flux|opt/views|opt/software|curve/)", rf"{self.root}/\1", self.scripts[script])
        (self.root / script).write_text(text)
        path = f"{self.root}/bin:{os.environ['PATH']}"
        given = {"PATH": path, "CALLS": str(self.root / "calls"), "FAKE_HOST": host, **environment}
        return subprocess.run(
            ["bash", str(self.root / script), *arguments], env=given, check=False, timeout=60
        ).returncode

    def calls(self) -> list[list[str]]:
        """How `flux` and `sleep` were called: the words of each call."""
        lines = (self.root / "calls").read_text().split("\n\0")
        return [line.split("\0")[:-1] for line in lines if line]

    def read(self, path: str) -> str:
        return (self.root / path).read_text()


FAKES = {
    "uname": 'echo "$FAKE_HOST"',
    "sleep": 'printf "%s\\0" sleep "$@" >> "$CALLS"; printf "\\n\\0" >> "$CALLS"',
    "flux": """
printf "%s\\0" flux "$@" >> "$CALLS"; printf "\\n\\0" >> "$CALLS"
case "$1" in
    R) echo "R of $*" ;;
    start)
        failures=$(cat "$CALLS.failures" 2>/dev/null || echo "${FAILURES:-0}")
        echo $((failures - 1)) > "$CALLS.failures"
        (( failures > 0 )) && exit "${STATUS:-3}"
        exit 0 ;;
esac
""",
}


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    on = flux_runtime()
    job = trainjob(trainer={"numNodes": 2, "numProcPerNode": 2, "command": ["app"]})
    view = tmp_path / "opt/views/._view/abcdef"
    (view / "lib/python3.11/site-packages").mkdir(parents=True)
    (view / "bin").mkdir()
    (view / "bin/python3.11").write_text("python")
    (view / "bin/python3").symlink_to("/nowhere/python3.11")
    (tmp_path / "opt/software").mkdir()
    (tmp_path / "opt/software/libflux.so").write_text("flux")
    (tmp_path / "mnt/flux").mkdir(parents=True)
    (tmp_path / "curve").mkdir()
    (tmp_path / "curve/curve.cert").write_text("certificate")
    (tmp_path / "bin").mkdir()
    for name, text in FAKES.items():
        program = tmp_path / "bin" / name
        program.write_text(f"#!/bin/bash\n{text}\n")
        program.chmod(0o755)
    pod = Pod(tmp_path, scripts(job, on))
    assert pod.run("init.sh") == 0
    return pod


def broker_options(pod: Pod) -> list[str]:
    config = f"{pod.root}/mnt/flux/config"
    return [
        f"{config}/etc/flux/config",
        "-Stbon.fanout=256",
        f"-Srundir={config}/run/flux",
        f"-Sstatedir={config}/var/lib/flux",
        f"-Slocal-uri=local://{config}/run/flux/local",
        "-Slog-stderr-level=6",
        "-Slog-stderr-mode=local",
    ]


@pytest.mark.nightly
def test_the_installer_hands_over_the_view_and_the_configuration(pod: Pod) -> None:
    assert pod.run("init.sh") == 0, "a second run, after a restart of the machine, finds what the first left"
    assert pod.read("mnt/flux/config/etc/flux/system/hostlist") == "demo-node-0-[0-1]\n"
    assert tomllib.loads(pod.read("mnt/flux/config/etc/flux/config/broker.toml"))["bootstrap"]["default_port"] == 8050
    assert pod.read("mnt/flux/software/libflux.so") == "flux"
    assert pod.read("mnt/flux/view/bin/python3.11") == "python"
    assert not (pod.root / "mnt/flux/view/abcdef").exists()
    assert pod.read("mnt/flux/flux-operator-done.txt") == ""


@pytest.mark.nightly
def test_an_image_without_a_view_is_told_of(pod: Pod, capfd: pytest.CaptureFixture[str]) -> None:
    (pod.root / "opt/views/._view/abcdef").rename(pod.root / "elsewhere")
    assert pod.run("init.sh") == 1
    assert "FLUX_VIEW_IMAGE has to name an image with one" in capfd.readouterr().err


@pytest.mark.nightly
@pytest.mark.defect("B20")
def test_the_leader_runs_the_command_word_by_word(pod: Pod) -> None:
    """B20: words were joined by spaces and split again."""
    assert pod.run("entrypoint.sh", "app", "x 8", "", "*", "it's") == 0
    run = ["run", "-N", "2", "-n", "4", "app", "x 8", "", "*", "it's"]
    assert pod.calls() == [
        ["flux", "R", "encode", "--hosts=demo-node-0-[0-1]", "--cores=0-1"],
        ["flux", "start", "-o", "--config", *broker_options(pod), "flux", *run],
    ]
    assert pod.read("mnt/flux/config/etc/flux/system/R") == "R of R encode --hosts=demo-node-0-[0-1] --cores=0-1\n"
    certificate = pod.root / "mnt/flux/config/etc/curve/curve.cert"
    assert certificate.read_text() == "certificate"
    assert certificate.stat().st_mode & 0o777 == 0o400
    assert pod.read("mnt/flux/flux-operator-complete.txt") == ""


@pytest.mark.nightly
def test_the_failure_of_the_command_is_that_of_the_pod(pod: Pod) -> None:
    assert pod.run("entrypoint.sh", "app", FAILURES="1", STATUS="7") == 7
    assert (pod.root / "mnt/flux/flux-operator-complete.txt").exists()
    assert pod.run("entrypoint.sh", "app") == 0, "the container starts again"


@pytest.mark.nightly
def test_without_a_command_the_instance_waits_for_people(pod: Pod) -> None:
    assert pod.run("entrypoint.sh") == 0
    options = broker_options(pod)
    assert pod.calls()[1:] == [["flux", "broker", "--config-path", *options, "-Sbroker.rc2_none"]]


@pytest.mark.nightly
def test_followers_try_until_the_leader_lets_them_go(pod: Pod) -> None:
    assert pod.run("entrypoint.sh", "app", host="demo-node-0-1", FAILURES="2") == 0
    start = ["flux", "start", "-o", "--config", *broker_options(pod)]
    assert pod.calls()[1:] == [start, ["sleep", "15"], start, ["sleep", "15"], start]


@pytest.mark.nightly
def test_people_find_flux_by_a_file(pod: Pod) -> None:
    assert pod.run("entrypoint.sh", "app", PYTHONPATH="/mine", HOME="/ho me") == 0
    answer = subprocess.run(
        ["bash", "-c", f'. {shlex.quote(str(pod.root))}/mnt/flux/flux-view.sh; echo "$PATH|$PYTHONPATH|$fluxsocket"'],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    view = pod.root / "mnt/flux/view"
    path, python_path, socket = answer.split("|")
    assert path.endswith(f":{view}/bin")
    assert python_path == f"/mine:{view}/lib/python3.11/site-packages"
    assert socket == f"local://{pod.root}/mnt/flux/config/run/flux/local"
    assert (view / "bin/python3").read_text() == "python"
    assert pod.read("mnt/flux/load-fluxion.sh").splitlines()[1] == "flux module load sched-fluxion-resource"


@pytest.mark.defect("B20")
def test_scripts_begin_with_their_interpreter() -> None:
    texts = scripts(trainjob(), flux_runtime())
    assert {text.splitlines()[0] for text in texts.values()} == {"#!/bin/bash"}


@pytest.mark.parametrize(
    ("runtimes", "trainer", "expected"),
    [
        ({"command": ["a", "b c"]}, None, ["a", "b c"]),
        ({"command": ["a"], "args": ["x"]}, {"command": ["z"]}, ["z", "x"]),
        ({"command": ["a"], "args": ["x"]}, {"args": ["y"]}, ["a", "y"]),
        ({"command": ["a"]}, {"command": []}, ["a"]),
        ({}, None, []),
    ],
)
def test_any_command_is_wrapped(runtimes: JsonObject, trainer: JsonObject | None, expected: Sequence[str]) -> None:
    job = trainjob(trainer=trainer) if trainer is not None else trainjob()
    main = container(jobset(job, flux_runtime(**runtimes)))
    assert [*main["command"], *main.get("args", [])] == [*WRAPPER, *expected]


@pytest.mark.nightly
@pytest.mark.defect("B2")
@pytest.mark.parametrize("trainer", [None, {}, {"numProcPerNode": 2}])
def test_the_runtimes_number_of_nodes_counts(trainer: JsonObject | None) -> None:
    """B2: without a trainer, or its numNodes, the original panics."""
    job = trainjob(trainer=trainer) if trainer is not None else trainjob()
    on = flux_runtime(nodes=3)
    tasks = 3 * (trainer or {}).get("numProcPerNode", 1)
    assert setting(job, on, "run_flags") == ["-N", "3", "-n", str(tasks)]
    assert setting(job, on, "hosts", "init.sh") == ["demo-node-0-[0-2]"]
    assert job_spec(jobset(job, on))["parallelism"] == 3


@pytest.mark.nightly
@pytest.mark.defect("B20")
@pytest.mark.parametrize(
    ("gpus", "tasks", "flags", "resources"),
    [
        (4, 2, ["-g", "2"], ["--cores=0-1", "--gpus=0-3"]),
        (1, 1, ["-g", "1"], ["--cores=0", "--gpus=0"]),
        (2, 4, [], ["--cores=0-3", "--gpus=0-1"]),
        (0, 2, [], ["--cores=0-1"]),
    ],
)
def test_gpus_of_a_node_go_to_its_tasks(gpus: int, tasks: int, flags: list[str], resources: list[str]) -> None:
    """B20: each task asked for all GPUs of its node, so that two of them never fit."""
    trainer = {"numProcPerNode": tasks, "resourcesPerNode": {"limits": {"nvidia.com/gpu": gpus}}}
    assert setting(trainjob(trainer=trainer), flux_runtime(), "run_flags")[4:] == flags
    assert setting(trainjob(trainer=trainer), flux_runtime(), "resources") == resources


@pytest.mark.nightly
@pytest.mark.defect("B5")
def test_the_runtimes_gpus_count_beside_the_trainjobs_memory() -> None:
    job = trainjob(trainer={"resourcesPerNode": {"limits": {"memory": "1Gi"}}})
    on = flux_runtime(resources={"limits": {"nvidia.com/gpu": 4}})
    assert setting(job, on, "run_flags") == ["-N", "1", "-n", "1", "-g", "4"]


@pytest.mark.defect("B20")
def test_shared_memory_can_be_written() -> None:
    mounts = {mount["mountPath"]: mount for mount in container(jobset(trainjob(), flux_runtime()))["volumeMounts"]}
    assert "readOnly" not in mounts["/dev/shm"]
    assert mounts["/curve"]["readOnly"]


@pytest.mark.nightly
@pytest.mark.defect("B19")
def test_addresses_follow_the_trainer_and_the_subdomain() -> None:
    on = runtime(replicated_job("workers"), policy={"flux": {}}, network={"subdomain": "mesh"})
    assert setting(trainjob(), on, "lead_host") == ["demo-workers-0-0"]
    bootstrap = configuration(trainjob(), on)["bootstrap"]
    assert bootstrap["default_connect"] == "tcp://%h.mesh.team.svc.cluster.local:%p"
    assert bootstrap["hosts"] == [{"host": "demo-workers-0-[0]"}]


def test_more_slices_than_a_config_map_holds_are_refused_at_once() -> None:
    """Each has its name in the script, and a runtime of a namespace says how many there are."""

    def slices(count: int) -> Runtime:
        node = replicated_job(containers=[{"name": "node", "image": "i"}], replicas=count)
        return runtime(node, policy={"flux": {}, "numNodes": count})

    with pytest.raises(PluginFailed, match="the hosts of 2147483647 slices do not fit into a ConfigMap") as caught:
        jobset(trainjob(), slices(2**31 - 1))
    assert caught.value.rejected
    assert "demo-node-19999-[0]" in scripts(trainjob(), slices(20_000))["init.sh"]


@pytest.mark.nightly
def test_variables_change_how_flux_is_set_up() -> None:
    env = [{"name": "FLUX_VIEW_IMAGE", "value": "view:1"}, {"name": "FLUX_NETWORK_DEVICE", "value": "net1"}]
    on = flux_runtime(env=env)
    job = trainjob(trainer={"env": [{"name": "FLUX_NETWORK_DEVICE", "value": 'it\'s "net2"\\'}]})
    installer = container(jobset(job, on), field="initContainers")
    assert (installer["name"], installer["image"]) == ("flux-installer", "view:1")
    assert configuration(job, on)["bootstrap"]["default_bind"] == 'tcp://it\'s "net2"\\:%p'
    assert configuration(trainjob(), on)["bootstrap"]["default_bind"] == "tcp://net1:%p"
    assert configuration(job, on)["sched-fluxion-qmanager"] == {"queue-policy": "fcfs"}


@pytest.mark.defect("S3")
def test_the_key_is_random_and_made_once() -> None:
    """S3: it was the hash of the TrainJob's UID, which whoever can read the TrainJob knows."""
    framework = Framework(load_plugins())
    job, on = trainjob(), flux_runtime()

    def made() -> JsonObject:
        (found,) = (each.object for each in resolve(job, on, framework).objects if each.identity[1] == "Secret")
        return found

    assert made()["data"] != made()["data"], "the same job, the same UID"
    secret = companion("Secret", job, on)
    assert secret.when is ApplyWhen.ONCE
    assert secret.object["immutable"] is True
    known = {key: secret.object[key] for key in ("apiVersion", "kind", "metadata")}
    assert "data" not in companion("Secret", job, on, listers=FakeListers(known)).object


@pytest.mark.defect("B30")
def test_running_brokers_keep_their_scripts() -> None:
    job, on = trainjob(), flux_runtime()
    assert companion("ConfigMap", job, on).when is ApplyWhen.ALWAYS
    assert companion("ConfigMap", job, on, listers=FakeListers(jobset(job, on))).when is ApplyWhen.MISSING


def test_the_certificate_is_one_of_zeromq() -> None:
    assert z85(bytes.fromhex("864fd26fb559f75b")) == "HelloWorld", "the example of the specification of Z85"
    text = curve_certificate("demo", entropy)
    keys = dict(line.strip().split(" = ") for line in text.splitlines() if " = " in line)
    assert keys["name"] == '"demo"'
    assert keys["secret-key"] == f'"{z85(entropy(32))}"'
    public = X25519PrivateKey.from_private_bytes(entropy(32)).public_key().public_bytes_raw()
    assert keys["public-key"] == f'"{z85(public)}"'
    assert b64decode(companion("Secret", trainjob(), flux_runtime()).object["data"]["curve.cert"]).decode() == text


def test_the_name_of_the_installer_is_taken() -> None:
    on = flux_runtime()
    pod_spec = on.spec.template.spec["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]  # type: ignore[union-attr]  # it has one
    pod_spec["initContainers"] = [{"name": "flux-installer", "image": "i"}]
    assert error_details(trainjob(), on) == [
        ("spec.trainer.initContainers", "InitContainer 'flux-installer' is reserved")
    ]
    with pytest.raises(PluginFailed, match="'flux-installer' is reserved") as caught:
        jobset(trainjob(), on)
    assert caught.value.rejected
