"""The reconciler of TrainJobs: observe from caches, decide purely, act by requests.

- `observing`: what the caches say about one TrainJob;
- `planning`: which writes bring the cluster there (pure);
- `comparing`: whether an object is already as it should be (pure);
- `statuses`: the status that follows (pure);
- `deadlines`: `activeDeadlineSeconds` (pure);
- `reconciler`: runs these and performs the writes;
- `handlers`: which events concern which TrainJobs.
"""
