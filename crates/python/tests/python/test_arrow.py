"""Tables and accesses in bulk, as others take them."""

import duckdb
import numapilot
import pandas
import polars
import pyarrow
import pyarrow.parquet
import pytest

TABLES = (
    "accesses objects threads processes modules stacks frames placements counters counters_by_home syncs losses marks".split()
)


@pytest.mark.parametrize("name", TABLES)
def test_tables_are_what_pyarrow_reads_from_the_files(path, trace, name):
    ours = pyarrow.table(trace.table(name))
    theirs = pyarrow.parquet.read_table(path / f"{name}.parquet")
    # An older file may lack columns that came later; they are nulls.
    for column in set(ours.column_names) - set(theirs.column_names):
        assert ours[column].null_count == len(ours)
    assert ours.select(theirs.column_names).cast(theirs.schema) == theirs


def test_accesses_are_the_flow(trace):
    taken = pyarrow.table(trace.accesses())
    assert len(taken) == len(trace)
    names = taken.column_names
    # All rows of short traces, some of others.
    step = 1 + len(taken) // 2000
    flow = list(trace.flow())[::step]
    rows = taken.to_pylist()[::step]
    assert rows == [{name: getattr(access, name) for name in names} for access in flow]


def test_everybody_takes_them(mg):
    expected = sum(access.weight for access in mg.flow())
    accesses = mg.accesses()
    assert pandas.DataFrame.from_arrow(accesses).weight.sum() == expected
    assert polars.DataFrame(accesses)["weight"].sum() == expected
    assert duckdb.sql("select sum(weight) from accesses").fetchall() == [(expected,)]
    assert pyarrow.table(accesses)["weight"].to_pandas().sum() == expected
    objects = mg.table("objects")
    joined = "select o.name, sum(weight) as n from accesses join objects o using (object) group by all order by all"
    by_name = {}
    for access in mg.flow():
        if access.object is not None:
            name = mg.objects[access.object].name
            by_name[name] = by_name.get(name, 0) + access.weight
    assert duckdb.sql(joined).fetchall() == sorted(by_name.items())
    assert polars.DataFrame(objects)["bytes"].sum() == sum(row.bytes for row in mg.objects)


def test_nothing_is_copied_on_the_way(mg):
    before = pyarrow.total_allocated_bytes()
    taken = pyarrow.table(mg.accesses())
    assert pyarrow.total_allocated_bytes() == before
    assert taken.nbytes > 50 * len(mg)


def test_columns_and_filters(mg):
    some = mg.accesses(columns=["weight", "thread"], thread=3, write=True)
    assert some.columns == ["weight", "thread"]
    taken = pyarrow.table(some)
    assert taken.column_names == ["weight", "thread"]
    expected = [access.weight for access in mg.flow(thread=3) if access.is_write]
    assert taken["weight"].to_pylist() == expected and len(expected) > 0
    with pytest.raises(numapilot.Error, match="time_ns, thread"):
        mg.accesses(columns=["nonsense"])
    with pytest.raises(numapilot.Error, match="objects, threads"):
        mg.table("nonsense")


def test_a_stream_outlives_its_trace(root):
    trace = numapilot.open(root / "testdata/traces/mg.numatrace")
    accesses, count = trace.accesses(), len(trace)
    reader = pyarrow.RecordBatchReader.from_stream(accesses)
    trace.close()
    del trace
    assert sum(len(batch) for batch in reader) == count
    assert len(pyarrow.table(accesses)) == count
    schema = pyarrow.schema(accesses)
    assert schema == pyarrow.table(accesses).schema
    # Streams that nobody takes are given back.
    for _ in range(100):
        accesses.__arrow_c_stream__()
        accesses.__arrow_c_schema__()
