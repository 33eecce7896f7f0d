"""The controllers of the embedded cluster: JobSet, Job, garbage collection, namespaces, scheduling, service accounts.

Every controller works on the in-process API only and keeps nothing that matters in memory: what it needs to know
after a restart is in the stored objects. Decisions are pure functions over JSON trees; the `controller` modules carry
them out.
"""
