"""Why a TrainJob waits or fails: what its pods and the events of controllers tell, read beside the reconcilers.

- `diagnosis`: when something is read, by a controller of its own, and what was found, which reconcilers observe;
- `reading`: reads the pods of a JobSet, and what controllers say of Jobs and pods that they cannot make;
- `pod_warnings`: what pods of jobs of `kubeflow.org/v1` say of themselves, as events of these;
- `counts`: what the counts of a JobSet say (pure);
- `first_failures`, `waiting`: the conditions ContainerFailed, with the first failure of each attempt, and Waiting, as
  their owners read them (pure).
"""
