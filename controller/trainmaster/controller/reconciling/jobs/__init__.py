"""What is observed and decided of a job of `kubeflow.org/v1`, the same for all kinds.

- `decider`: what the way of `reconciling.reconciler` asks about one kind, and what is told of pods as events;
- `observe`: what the caches keep of what belongs to jobs, which jobs an event of it concerns, what they say about one;
- `replicas`: which pods of a type there are, lack, or are to be replaced, how failed pods count towards `backoffLimit`,
  and how long each waits until it is replaced;
- `group`: when all pods are restarted together by a resilience policy, and what is written down of that (pure);
- `plan`: which writes bring the cluster to where the job wants it, and the status that follows; deadline and time to
  live (pure);
- `objects`: which objects that creates or applies (pure);
- `status`: the status while it is being worked out (pure).
"""
