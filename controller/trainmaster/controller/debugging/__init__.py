"""What the manager shows of its inside: stacks of tasks and threads, caches, queues, plugins, and a profile.

Served below `/debug/` where `enableDebuggingHandlers` is on, and written by a signal. Nothing here shows a value of a
variable, or what is in an object.
"""
