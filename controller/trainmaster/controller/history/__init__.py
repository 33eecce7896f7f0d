"""The history: a bounded record of jobs, which outlives them; see docs/history.md.

`recorder` sees what the caches see and makes a `record` of each state that matters; `writer` takes it to the `store` in
a thread of its own; `handlers` serve it to those who may list TrainJobs.
"""
