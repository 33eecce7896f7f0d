"""What is observed and decided of a TrainJob.

- `decider`: what the way of `reconciling.reconciler` asks about TrainJobs;
- `observe`: what the caches, and for a missing runtime the server, say about one TrainJob, and the last states of
  workloads that are gone;
- `plan`: which writes bring the cluster there, deadline and time to live (pure);
- `status`: the status that follows (pure);
- `event_handlers`: which events concern which TrainJobs.
"""
