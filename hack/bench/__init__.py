"""The benchmark of Trainmaster: `python -m bench`, or `make bench`.

Modules: `micro` measures pieces of code in this process; `burst` measures a manager that faces many TrainJobs, with
`processes` (what runs), `api` (the load), `counting` (the requests) and `samples` (the objects); `figures` names what
is measured and its budgets; `reporting` prints, writes and compares.
"""
