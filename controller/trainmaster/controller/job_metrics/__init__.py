"""The metrics of jobs, followed one by one from the events of the caches.

- `trainjob_facts`, `workload_facts`: what counts of a TrainJob, why it failed included, and of its JobSet (pure);
- `job_state`: state, reason, and what it has reached so far, from both (pure);
- `observer`: keeps the gauges current, and observes each time once;
- `jobs_by_state`: how many jobs of `kubeflow.org/v1` are in which state.
"""
