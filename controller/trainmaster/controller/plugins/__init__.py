"""Containment of plugins: what one of them does wrong costs its own TrainJobs, for as long as it does it.

- `loading`: which plugins run, and what becomes of one that does not load;
- `guard`: time limits, and the quarantine of those that kept failing, around each call of a plugin of others;
- `threads`: where such plugins run, so that one that never returns holds up nobody else;
- `observer`: metrics of calls, and the log that authors of plugins need.
"""
