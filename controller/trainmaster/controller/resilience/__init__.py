"""What a resilience policy has the manager do about TrainJobs, beyond what JobSet and Job do themselves.

- `attempts`: what the pods of each attempt told, which are watched;
- `lost_nodes`: pods are removed from nodes that are lost;
- `resilience`: where the decider of TrainJobs asks;
- `monitor`: a controller that follows what they train, for policies that ask for it; it reads logs by `log_reader`, and
  `progress` says what follows, with `log_rules`, `world` and `standing` (all four pure);
- `ledger`: how each attempt ended, what is charged, which nodes are avoided, and what is done about it (pure);
- `goodput`: what the time of a TrainJob was spent on (pure).
"""
