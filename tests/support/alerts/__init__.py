"""For each alert, series that make it fire, and others that look alike and do not."""
