"""`trainmaster plugins`: which plugins a controller would load, what they say of themselves, and how to begin one.

- `command`: the command line;
- `installed`: what is installed, and what becomes of it under a configuration;
- `show`: one plugin in full;
- `scaffold`: a package to begin with.
"""
