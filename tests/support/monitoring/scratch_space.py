"""A plugin of the load: slower than one should be, and it fails for TrainJobs with `odd` in their names."""

import time
from typing import Final

from trainmaster.runtime.sdk import Info, TrainJob

_PAUSE: Final = 0.002


class ScratchSpace:
    """Labels pods with where they may write."""

    name = "scratch-space"
    api_version = "1.0"
    maturity = "alpha"
    failure_policy = "skip"

    def enforce_pod_spec(self, info: Info, job: TrainJob) -> None:
        """Label the pods."""
        time.sleep(_PAUSE)
        if "odd" in job.metadata.name:
            raise KeyError("region")
        for pods in info.pod_sets:
            pods.pod_template.setdefault("metadata", {}).setdefault("labels", {})["example.com/scratch"] = "ssd"
