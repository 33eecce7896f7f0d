"""Generated TrainJobs and runtimes, and what is true of all resolutions."""

import copy

import orjson
from hypothesis import strategies as st
from support.objects import replicated_job, runtime_object, trainjob_object
from support.resolutions import FRAMEWORK, container, env, job_spec

from trainmaster.runtime.api.decoding import parse_runtime, parse_trainjob
from trainmaster.runtime.framework import Framework, PluginFailed
from trainmaster.runtime.jsontree import SCALARS, JsonObject
from trainmaster.runtime.resolver import resolve

AMOUNTS = st.sampled_from([0, 1, 2, "500m", 2.5, "8"])
RESOURCES = st.fixed_dictionaries(
    {},
    optional={
        part: st.dictionaries(
            st.sampled_from(["cpu", "nvidia.com/gpu", "amd.com/gpu", "nvidia.com/mig-1g.5gb", "google.com/tpu"]),
            AMOUNTS,
        )
        for part in ("limits", "requests")
    },
)
VARIABLES = st.lists(
    st.sampled_from(["A", "B", "PET_NNODES", "JAX_PROCESS_ID", "DMLC_TASK_ID"]).map(
        lambda name: {"name": name, "value": "users"}
    ),
    unique_by=lambda variable: variable["name"],
    max_size=3,
)
PORTS = st.lists(
    st.sampled_from([80, 8080, 29500]).map(lambda port: {"containerPort": port}),
    unique_by=lambda port: port["containerPort"],
    max_size=2,
)
NAMES = st.sampled_from(["rt", "torchtune-llama3.2-1b", "torchtune-qwen2.5-1.5b", "torchtune-llama3.3-70b"])


@st.composite
def _containers(draw: st.DrawFn) -> list[JsonObject]:
    main: JsonObject = {"name": "node", "image": "train:1", "env": draw(VARIABLES), "ports": draw(PORTS)}
    main |= draw(
        st.fixed_dictionaries(
            {}, optional={"resources": RESOURCES, "command": st.just(["tune", "run", "x", "output_dir=/o", "a=b"])}
        )
    )
    return draw(st.permutations([main, {"name": "side", "image": "side:1", "env": draw(VARIABLES)}]))


@st.composite
def runtimes(draw: st.DrawFn, policy: st.SearchStrategy[JsonObject | None]) -> JsonObject:
    """A runtime with a trainer of any name, and perhaps further ReplicatedJobs around it."""
    jobs = [replicated_job(draw(st.sampled_from(["node", "workers"])), containers=draw(_containers()))]
    if draw(st.booleans()):
        jobs.append(replicated_job("aux", ancestor=None))
    if draw(st.booleans()):
        jobs.append(
            replicated_job("data", ancestor="dataset-initializer", containers=[{"name": "dataset-initializer"}])
        )
    network = draw(
        st.fixed_dictionaries({}, optional={"subdomain": st.just("mesh"), "enableDNSHostnames": st.booleans()})
    )
    chosen = draw(policy)
    if chosen is not None:
        chosen |= draw(st.fixed_dictionaries({}, optional={"numNodes": st.integers(1, 4)}))
    obj = runtime_object(*draw(st.permutations(jobs)), policy=chosen, network=network)
    obj["metadata"]["name"] = draw(NAMES)
    return obj


@st.composite
def trainjobs(draw: st.DrawFn) -> JsonObject:
    """A TrainJob that sets some of what can be set."""
    trainer = st.fixed_dictionaries(
        {},
        optional={
            "image": st.just("mine:1"),
            "command": st.sampled_from([["tune", "run"], ["python"], []]),
            "args": st.lists(
                st.sampled_from(["epochs=1", "model.lora_attn_modules=[q]", "model.quantize_base=True"]), max_size=3
            ),
            "env": VARIABLES,
            "numNodes": st.integers(0, 5),
            "numProcPerNode": st.integers(1, 8),
            "resourcesPerNode": RESOURCES,
        },
    )
    spec: JsonObject = draw(st.fixed_dictionaries({}, optional={"trainer": trainer, "suspend": st.booleans()}))
    return trainjob_object(**spec)


def check_resolution(raw_job: JsonObject, raw_runtime: JsonObject) -> None:
    """Check what holds for every TrainJob on every runtime, whichever framework it is."""
    raw_job["spec"]["runtimeRef"]["name"] = raw_runtime["metadata"]["name"]
    first = check_that_resolving_is_pure(raw_job, raw_runtime)
    if first is not None:
        _check_jobset(orjson.loads(first), raw_job["spec"].get("trainer") or {})


def check_that_resolving_is_pure(
    raw_job: JsonObject, raw_runtime: JsonObject, framework: Framework = FRAMEWORK
) -> bytes | None:
    """Resolve twice; what comes out is the same to the byte although the first result is ruined in between."""
    before = copy.deepcopy((raw_job, raw_runtime))
    job, on = parse_trainjob(raw_job), parse_runtime(raw_runtime)
    models = copy.deepcopy((job, on))
    results = []
    for _ in range(2):
        try:
            objects = [desired.object for desired in resolve(job, on, framework).objects]
        except PluginFailed as failed:
            if not failed.rejected:
                raise
            results.append(str(failed).encode())
        else:
            results.append(orjson.dumps(objects))
            assert is_plain(objects)
            ruin(objects)
    assert (raw_job, raw_runtime) == before
    assert (job, on) == models
    assert results[0] == results[1]
    return results[0] if results[0].startswith(b"[") else None


def _check_jobset(objects: list[JsonObject], trainer: JsonObject) -> None:
    obj = next(obj for obj in objects if obj["kind"] == "JobSet")
    jobs = obj["spec"]["replicatedJobs"]
    index = next(i for i, job in enumerate(jobs) if job["name"] in ("node", "workers"))
    spec = job_spec(obj, index)
    assert spec["completions"] == spec["parallelism"]
    nodes = spec["parallelism"] * jobs[index]["replicas"]
    assert nodes == trainer.get("numNodes", nodes)
    main = next(container(obj, index, i) for i in range(2) if container(obj, index, i)["name"] == "node")
    variables = env(main)
    assert len(variables) == len(main.get("env", [])), "a variable is set twice"
    for variable in trainer.get("env", []):
        assert variables[variable["name"]] == variable["value"], "the user's value is lost"
    ports = [port["containerPort"] for port in main.get("ports", [])]
    assert len(set(ports)) == len(ports), "a port is declared twice"


def is_plain(node: object) -> bool:
    """Tell whether a tree is of the types that JSON is decoded to, and of no others that become the same JSON."""
    if type(node) is dict:
        return all(type(key) is str and is_plain(value) for key, value in node.items())
    return all(map(is_plain, node)) if type(node) is list else type(node) in SCALARS


def ruin(node: object) -> None:
    """Change everything in a tree that can be changed."""
    if isinstance(node, dict):
        for value in node.values():
            ruin(value)
        node.clear()
    elif isinstance(node, list):
        for value in node:
            ruin(value)
        node.clear()
