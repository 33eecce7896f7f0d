"""The reconciler of TrainJobs: observe from caches, decide purely, act by requests.

- `observing`: what the caches say about one TrainJob;
- `asking`: a runtime that the caches lack is asked for, before it is said to be missing;
- `planning`: which writes bring the cluster there (pure);
- `comparing`: whether an object is already as it should be (pure);
- `statuses`: the status that follows (pure);
- `departing`: what is remembered of workloads that are gone;
- `deadlines`: `activeDeadlineSeconds` (pure);
- `lifetimes`: `ttlSecondsAfterFinished` (pure);
- `acting`, `writing`: perform the writes, of objects and of the status;
- `contending`: notices that somebody keeps undoing them;
- `telling`: tells the owner and the logs what stands in the way;
- `reconciler`: runs these;
- `handlers`: which events concern which TrainJobs.
"""
