"""Local copies of collections: reflector, informer, store with indexes, and the deltas that event handlers get."""
