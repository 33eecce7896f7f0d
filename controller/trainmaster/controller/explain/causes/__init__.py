"""What finds causes: modules of functions `(view: JobView) -> Iterable[Finding]`, all of them in `table.py`."""
