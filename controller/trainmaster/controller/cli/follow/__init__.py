"""Following TrainJobs: their conditions, pods, logs and failures, and what is shown of them meanwhile."""
