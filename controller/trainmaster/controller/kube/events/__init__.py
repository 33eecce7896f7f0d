"""Events about objects: the recorder, and the correlator that makes series of repeats."""
