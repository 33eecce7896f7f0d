"""The manager of the process: its clients, caches, controllers and election, what starts and stops them in which order,
and how the process itself is doing (event loop, heap)."""
