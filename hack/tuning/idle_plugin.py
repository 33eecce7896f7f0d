"""A plugin that does next to nothing: what it costs that there is one."""

from __future__ import annotations

from trainmaster.runtime.sdk import Info, TrainJob


class Idle:
    """Labels pods."""

    name = "idle"
    api_version = "1.0"

    def enforce_pod_spec(self, info: Info, job: TrainJob) -> None:  # noqa: ARG002 - the arguments are the interface's
        """Label the pods."""
        for pods in info.pod_sets:
            pods.pod_template.setdefault("metadata", {}).setdefault("labels", {})["example.com/idle"] = "yes"
