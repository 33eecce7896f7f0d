"""Where the CPU of a manager goes: by phase of `bench`, by cause, by function. `make profile` runs it."""
