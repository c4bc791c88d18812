"""Generic scripts: eight questions that are useful for most programs (scripts/README.md defines every column).

Each module has `COLUMNS` and `rows(trace)`, and runs by itself: `python -m numapilot.scripts types run.numatrace`. The same questions are in scripts/ in
C and in SQL, and print the same table, byte for byte.
"""
