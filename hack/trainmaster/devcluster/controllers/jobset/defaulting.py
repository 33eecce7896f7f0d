"""Defaults that JobSet's mutating webhook fills in, beyond those of the schema."""

from __future__ import annotations

from trainmaster.runtime.jsontree import JsonObject


def apply_defaults(jobset: JsonObject) -> None:
    """Fill in, in place, what the author of a JobSet left open; the object has the right shape."""
    spec = jobset["spec"]
    policy = spec.setdefault("successPolicy", {})
    policy.setdefault("operator", "All")
    spec.setdefault("startupPolicy", {}).setdefault("startupPolicyOrder", "AnyOrder")
    network = spec.setdefault("network", {})
    network.setdefault("enableDNSHostnames", True)
    network.setdefault("publishNotReadyAddresses", True)
    for replicated_job in spec.get("replicatedJobs") or ():
        job = replicated_job["template"].setdefault("spec", {})
        job.setdefault("completionMode", "Indexed")
        pod = job.setdefault("template", {}).setdefault("spec", {})
        if not pod.get("restartPolicy"):
            pod["restartPolicy"] = "OnFailure"
    for number, rule in enumerate((spec.get("failurePolicy") or {}).get("rules") or ()):
        if not rule.get("name"):
            rule["name"] = f"failurePolicyRule{number}"
