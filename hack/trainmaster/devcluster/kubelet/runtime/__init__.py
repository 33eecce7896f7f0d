"""The container runtime: a supervisor process, the shim of each container and its sandbox. Standard library only: it
starts in milliseconds and forks cheaply, and imports nothing of ours but itself."""
