"""Provenance: which step of a resolution set which field, for people who wonder where a value comes from.

- `steps`: who set what in a tree, and what of that stays when the tree changes;
- `trainjob`: the tracer of a resolution;
- `settings`: what of a TrainJob goes where;
- `jobs`: the same question about a job of `kubeflow.org/v1`, more roughly.

Guarantee: each leaf of each object, that is each value that is no object or list, or an empty one, has one step: the
last one that changed it. Nothing here takes part in a resolution that is not traced.
"""

from trainmaster.runtime.provenance.jobs import job_steps
from trainmaster.runtime.provenance.steps import Steps, leaves
from trainmaster.runtime.provenance.trainjob import Provenance, snapshot_steps

__all__ = ["Provenance", "Steps", "job_steps", "leaves", "snapshot_steps"]
