"""Aggregates a table of 4 million rows by 4 threads. Usage: groups.py TIMES"""

import sys

import duckdb

database = duckdb.connect(config={"threads": 4, "memory_limit": "1GB"})
database.execute("create table rows as select range % 1000 as kind, range * 31 as amount from range(4000000)")
question = "select count(*), sum(total) from (select kind, sum(amount) as total from rows group by kind)"
answers = {database.execute(question).fetchone() for _ in range(int(sys.argv[1]))}
print(len(answers) == 1)
