"""`trainmaster config`: what is wrong with a configuration file, and what is in effect with it and with flags."""
