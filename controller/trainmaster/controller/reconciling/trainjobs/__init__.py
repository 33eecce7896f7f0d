"""What is observed and decided of a TrainJob.

- `reconciler`: the way of `reconciling.reconciler`, for TrainJobs;
- `observe`: what the caches, and for a missing runtime the server, say about one TrainJob;
- `plan`: which writes bring the cluster there (pure);
- `deadlines`: `activeDeadlineSeconds` and `ttlSecondsAfterFinished` (pure);
- `status`: the status that follows (pure);
- `lasting_plans`: what need not be decided anew while a workload runs;
- `deleted_workloads`: the last states of workloads that are gone;
- `event_handlers`: which events concern which TrainJobs, and what the caches keep of each object.
"""
