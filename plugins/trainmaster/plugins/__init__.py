"""The built-in plugins, one module each; they enter through entry points like everybody else's.

A new framework is a module here, a line in `[project.entry-points."trainmaster.plugins"]` of pyproject.toml, and its
policy in `trainmaster.runtime.api`. `torchtune` is a part of `torch`; `util` has what several plugins share.
"""
