"""`trainmaster doctor`: a look at a cluster before the installation. It reads, and changes nothing.

- `facts`: what the cluster says, fetched once; what may not be read is an unknown of its own;
- `trainjobs`: what the manager would write for the TrainJobs that are there;
- `cluster`, `definitions`, `installations`, `certificates`, `access`: the checks, pure functions of facts;
- `command`: the table of all checks, and how findings are printed.
"""
