"""Admission: what is filled in, refused and warned about when a TrainJob or a runtime is written. Pure.

The webhooks, `trainmaster validate` and the tests call it.
"""

from trainmaster.runtime.admission.defaulting import default_trainjob
from trainmaster.runtime.admission.runtimes import validate_runtime
from trainmaster.runtime.admission.trainjobs import validate_trainjob
from trainmaster.runtime.admission.verdicts import Verdict, aggregated, described

__all__ = ["Verdict", "aggregated", "default_trainjob", "described", "validate_runtime", "validate_trainjob"]
