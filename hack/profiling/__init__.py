"""Where the CPU of a manager goes: by phase of `bench`, by cause, by function. `make profile` runs it.

`manager` is a manager that samples itself (`sampler`); it imports nothing else of this tree, so that managers of other
commits can be profiled with it. `causes` says what each function is for, `report` writes tables, `results` keeps them.
"""
