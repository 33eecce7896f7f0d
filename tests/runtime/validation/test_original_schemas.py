"""Every rule that stands in our definitions alone holds in the webhooks too: they may run on those of the original.

`OTHERWISE` of `tests/runtime/api/test_original_crds.py` lists these rules. Two of them need no webhook: with the
definitions of the original there is no policy `custom`, and its implementations of MPI are among ours.
"""

from __future__ import annotations

from support.crds import rules_at
from support.objects import runtime_object, trainjob_object
from support.validation import validate, validate_runtime

from trainmaster.runtime.jsontree import JsonObject

PROCESSES = "spec.mlPolicy.mpi.numProcPerNode"


def test_the_webhooks_say_of_trainjobs_what_our_schema_says() -> None:
    result = validate(trainjob_object(trainer={"numNodes": -1, "numProcPerNode": 0}), runtime_object())
    [(_, message)] = rules_at("TrainJob", "spec.trainer.numProcPerNode")
    assert [str(error) for error in result.errors] == [
        "spec.trainer.numNodes: Invalid value: -1: must be greater than or equal to 1",
        f"spec.trainer.numProcPerNode: Invalid value: 0: {message}",
    ]


def test_the_webhooks_say_of_runtimes_what_our_schema_says() -> None:
    obj: JsonObject = runtime_object(policy={"mpi": {"numProcPerNode": -3}}, volumeClaimPolicies=[{}])
    [(_, message)] = rules_at("TrainingRuntime", PROCESSES)
    assert [str(error) for error in validate_runtime(obj, None).errors] == [
        f"{PROCESSES}: Invalid value: -3: {message}",
        "spec.template.spec.volumeClaimPolicies[0].templates: Required value",
    ]
