"""`trainmaster plugins`: what a controller would load, what plugins say of themselves, and how to begin one."""
