"""Why a job does not start, does not finish, or has failed: decided purely from what is known of it.

`explain(view) -> Explanation` of `explanation.py` is the one way in. Whoever gathers the view decides what that costs:
the command line asks the cluster, the manager its caches. No client, no clock, no I/O: the time is in the view.
"""
