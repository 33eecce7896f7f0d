"""Pods of converted jobs see what Trainmaster tells those of V1 jobs, with the new names of hosts, whatever the job."""

from __future__ import annotations

from hypothesis import given, settings
from support.conversions import JOB_KINDS, built, convert_job, environment, expected_environment, new_host, pods
from support.generated_jobs import jobs

from trainmaster.runtime.jobs.defaulting import parse_job
from trainmaster.runtime.jobs.pods import build_pod
from trainmaster.runtime.jsontree import JsonObject


@settings(max_examples=100)
@given(jobs())
def test_pods_see_what_pods_of_v1_jobs_see(old: JsonObject) -> None:
    kind = JOB_KINDS[old["kind"]]
    job = parse_job(kind, old)
    conversion = convert_job(old)
    is_torch = "torch" in conversion.objects[0]["spec"].get("mlPolicy", {})
    jobset = built(conversion)
    found = {host: (spec, fields) for host, spec, fields in pods(jobset)}
    places = [(type_, index) for type_, each in job.replica_specs.items() for index in range(each.replicas)]
    hosts = {kind.pod_name(job, *place): new_host(jobset, old, kind.pod_name(job, *place)) for place in places}
    assert set(hosts.values()) == set(found)
    for type_, index in places:
        pod = build_pod(job, type_, index)
        spec, fields = found[hosts[pod["metadata"]["name"]]]
        for was, now in zip(pod["spec"]["containers"], spec["containers"], strict=True):
            told = {each["name"]: each.get("value", each.get("valueFrom")) for each in was.get("env", [])}
            told = {name: value for name, value in told.items() if value is None or "secretKeyRef" not in value}
            wanted = expected_environment(told, hosts, fields, is_torch=is_torch)
            seen = environment(now, fields)
            assert {name: seen.get(name) for name in wanted} == wanted, pod["metadata"]["name"]
