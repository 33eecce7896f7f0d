"""What is observed and decided of a job of `kubeflow.org/v1`, the same for all kinds.

- `decider`: what `reconciling.reconciler` asks about one kind, and what is told of pods as events;
- `observe`: what the caches say about a job, and which jobs an event concerns;
- `replicas`, `group`: which pods of a type lack or are replaced; when all are restarted together (pure);
- `plan`, `objects`, `status`: the writes, what these create, and the status that follows (pure).
"""
