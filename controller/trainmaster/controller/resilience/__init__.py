"""What a resilience policy has the manager do about TrainJobs, beyond what JobSet and Job do themselves.

- `attempts`: what the pods of each attempt told, which are watched;
- `lost_nodes`: pods are removed from nodes that are lost;
- `resilience`: where the decider of TrainJobs asks;
- `ledger`: how each attempt ended, what is charged, which nodes are avoided, and what is done about it (pure).
"""
