"""`trainmaster run train.py`: what a script, a module or a notebook becomes before it is submitted."""
