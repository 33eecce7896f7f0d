"""The controller of Volcano's queues."""
