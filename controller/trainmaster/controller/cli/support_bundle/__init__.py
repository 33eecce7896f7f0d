"""`trainmaster support-bundle`: one archive with what a maintainer needs to help, without what is nobody's business.

- `command` is the command; `archive` writes the file;
- `bundle` holds what has been gathered, within its bounds, and its index;
- `redaction` takes out what is, or looks like, a credential;
- `reading` reads objects and notes what cannot be read;
- `versions`, `manager`, `workloads`, `cluster` and `embedded` gather.
"""
