"""The reconciler of TrainJobs: observe from caches, plan purely, apply by requests.

- `reconciler`: one reconcile, from the other parts;
- `observe`: what the caches, and for a missing runtime the server, say about one TrainJob;
- `plan`: which writes bring the cluster there (pure);
- `drift`: whether an object is already as it would be applied, and where it is not (pure);
- `deadlines`: `activeDeadlineSeconds` and `ttlSecondsAfterFinished` (pure);
- `status`: the status that follows (pure);
- `apply`, `status_writer`: perform the writes, of objects and of the status;
- `write_backoff`: notices that somebody keeps undoing them;
- `problems`: what stands in the way, and how the owner and the logs are told;
- `deleted_workloads`: the last states of JobSets that are gone;
- `event_handlers`: which events concern which TrainJobs, and what the caches keep of each object.
"""
