"""What is observed and decided of a TrainJob.

- `decider`: what `reconciling.reconciler` asks about TrainJobs;
- `event_handlers`, `observe`: which events concern which TrainJobs; what the caches, or the server, say about one;
- `plan`, `status`: the writes, deadline and time to live; the status that follows (pure).
"""
