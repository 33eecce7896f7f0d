"""Why a TrainJob waits or fails: what its pods and the events of controllers tell, read beside the reconcilers.

- `diagnosis`: when something is read, by a controller of its own, and what was found, which reconcilers observe;
- `reading`: reads the pods of a JobSet, and what controllers say of Jobs and pods that they cannot make;
- `counts`: what the counts of a JobSet say (pure);
- `conditions`: ContainerFailed, with the first failure of each attempt, and Waiting, as their owners read them (pure).
"""
