"""`trainmaster support-bundle`: one archive with what a maintainer needs to help, without what is nobody's business.

- `command` is the command; `archive` writes the file;
- `bundle` holds what has been gathered, within its bounds, and its index, and reads objects for it;
- `redaction` takes out what is, or looks like, a credential;
- `gathering` gathers it, by way of `workloads` and `manager`.
"""
