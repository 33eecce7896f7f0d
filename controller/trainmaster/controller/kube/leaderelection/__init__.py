"""Leader election on a Lease: the lock, the elector, the guard of writes, and the thread it runs in."""
