"""The experiments of the tuning guide: `python -m tuning`, or `make tuning`.

Each varies one thing on a manager of the benchmark (`bench`), in turn with what it is compared with. `experiments` says
which, `results` keeps what came out, with every repetition, and `report` writes the tables of docs/tuning.md.
"""
