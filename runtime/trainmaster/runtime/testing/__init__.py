"""The test kit of plugin authors: builders of runtimes and TrainJobs, and a suite that tells whether a plugin conforms.

    class TestMine(PluginConformance):
        plugin = Mine
        runtime = {"mlPolicy": {"custom": {"name": "mine", "config": {"workers": 2}}}}

Nothing here takes a cluster. What does is in fixtures of pytest, which are there wherever Trainmaster is installed: see
`trainmaster.testing.fixtures`.
"""

from trainmaster.runtime.testing.builders import KnownObjects, info, replicated_job, runtime, trainjob
from trainmaster.runtime.testing.subject import Problem, Subject
from trainmaster.runtime.testing.suite import CHECKS, PluginConformance, nonconformities

__all__ = [
    "CHECKS",
    "KnownObjects",
    "PluginConformance",
    "Problem",
    "Subject",
    "info",
    "nonconformities",
    "replicated_job",
    "runtime",
    "trainjob",
]
