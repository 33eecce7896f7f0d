"""The benchmark of Trainmaster: `python -m bench`, or `make bench`.

Modules: `burst` measures a manager that faces many jobs, with `processes` (what runs), `api` (the load), `counting`
(the requests), `workloads` (the kinds of jobs) and `samples` (the objects); `figures` names what is measured and its
budgets; `reporting` prints, writes and compares.
"""
