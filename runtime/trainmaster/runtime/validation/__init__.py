"""Validation and defaulting: what is filled in, refused and warned about when a TrainJob or a runtime is written. Pure.

The webhooks, `trainmaster validate` and the tests call it.
"""

from trainmaster.runtime.field_errors import ValidationResult
from trainmaster.runtime.validation.defaulting import default_trainjob
from trainmaster.runtime.validation.trainingruntime import validate_runtime
from trainmaster.runtime.validation.trainjob import validate_trainjob

__all__ = ["ValidationResult", "default_trainjob", "validate_runtime", "validate_trainjob"]
