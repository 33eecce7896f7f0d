"""`trainmaster doctor`: may a cluster take an installation, and is the one that is there healthy? It changes nothing.

- `facts`: what the cluster says, fetched once; what may not be read is an unknown of its own;
- `trainjobs`: what the manager would write for the TrainJobs that are there;
- `cluster`, `definitions`, `certificates`: checks of the cluster, pure functions of facts;
- `health`: those of an installation that is there;
- `checks`: the table of all checks, and how a cluster is looked at;
- `command`: the command line, and how findings are printed.
"""
