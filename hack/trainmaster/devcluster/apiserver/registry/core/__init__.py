"""The core group: pods and what they use, nodes, services, events."""
