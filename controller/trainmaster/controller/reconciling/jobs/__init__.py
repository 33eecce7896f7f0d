"""What is observed and decided of a job of `kubeflow.org/v1`, the same for all kinds.

- `reconciler`: the way of `reconciling.reconciler`, for one kind;
- `observe`: what the caches say about one job;
- `replicas`: which pods of a type there are, lack, or are to be replaced (pure);
- `limits`: `backoffLimit`, `activeDeadlineSeconds`, `ttlSecondsAfterFinished` (pure);
- `plan`: which writes bring the cluster to where the job wants it, and the status that follows (pure);
- `objects`: which objects that creates or applies (pure);
- `status`: the status while it is being worked out (pure);
- `restart_backoff`: how long a failed pod waits until it is replaced;
- `pod_warnings`: what is wrong with pods, told as events of the job;
- `event_handlers`: which events concern which jobs, and what the caches keep of each object.
"""
