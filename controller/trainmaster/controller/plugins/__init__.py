"""Containment of plugins: what one of them does wrong costs its own TrainJobs, for as long as it does it.

- `loading`: which plugins run, and what becomes of one that does not load;
- `quarantine`: which plugins are not called for a while, because they kept failing;
- `guard`: both, around each call of a plugin that is not ours;
- `threads`: where such plugins run, so that one that never comes back holds up nobody else;
- `observer`: metrics of calls, and the log that their authors need;
- `options`: options that change while the manager runs.
"""
