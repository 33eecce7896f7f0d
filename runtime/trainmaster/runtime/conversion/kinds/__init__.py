"""What each of the six kinds has of its own in its conversion."""
