"""The generic scripts: the same table as C's, byte for byte; the report's figures where it has the same; and the paper's example by other means."""

import io
import math
import tomllib

import pyarrow.parquet
import pytest
from numapilot.scripts import table

SCRIPTS = table.SCRIPTS


def said(name, *arguments):
    out = io.StringIO(newline="")
    table.write(table.script(name), [str(argument) for argument in arguments], out)
    return out.getvalue()


def test_scripts_and_columns_are_those_of_the_table_of_questions(root):
    questions = tomllib.loads((root / "scripts/questions.toml").read_text(encoding="utf-8"))["question"]
    assert [question["name"] for question in questions] == list(SCRIPTS)
    for question in questions:
        columns = [name for names, _ in question["columns"] for name in names.split(", ")]
        assert list(table.script(question["name"]).COLUMNS) == columns


@pytest.mark.parametrize("name", SCRIPTS)
def test_python_prints_what_c_prints(path, name, c_tables):
    expected = (c_tables / f"{path.stem}-{name}.csv").read_bytes().decode()
    assert said(name, path) == expected


@pytest.mark.parametrize("stem", ["psearchy", "webserver"])
@pytest.mark.parametrize("name", SCRIPTS)
def test_they_print_what_they_always_did(root, stem, name):
    kept = root / "scripts/golden" / f"{stem}-{name}.csv"
    assert said(name, root / f"testdata/traces/{stem}.numatrace") == kept.read_bytes().decode()


def rows_of(trace, name, *arguments):
    module = table.script(name)
    return [dict(zip(module.COLUMNS, row)) for row in module.rows(trace, *arguments)]


def test_pattern_of_one_object_is_its_part_of_the_whole(trace):
    everything = rows_of(trace, "pattern")
    sites = {row["site"] for row in everything} - {None}
    for site in sorted(sites)[:5]:
        assert rows_of(trace, "pattern", f"S{site}") == [row for row in everything if row["site"] == site]
    for number in [object.number for object in trace.objects if len(object) > 0][:5]:
        rows = rows_of(trace, "pattern", str(number))
        samples = sum(access.is_memory_access for access in trace.objects[number].flow())
        assert sum(row["samples"] for row in rows) == samples


# A filter that lets all pass: the report then estimates from samples, also where its engine counted.
EVERYTHING = {"time": (0, (1 << 64) - 1)}


def is_floor_of(ppm, share):
    """Whether ppm is the share's, rounded down; an exact quotient may fall on either side of its floating-point form."""
    return ppm in (math.floor(1e6 * share + 1e-6), math.floor(1e6 * share - 1e-6))


def test_they_agree_with_the_report(trace):
    report = trace.report(top=1 << 30, **EVERYTHING)
    totals = report["headline"]["totals"]
    (remote,) = rows_of(trace, "remote")
    assert remote["samples"] == totals["samples"]
    assert remote["accesses"] == totals["accesses"]["value"]
    assert remote["remote_accesses"] == totals["remote_accesses"]["value"]
    if remote["known_accesses"] > 0:
        assert is_floor_of(remote["remote_ppm"], totals["remote_share"]["value"])
    sites = {(row["key"]["site"] if row["key"] != "unknown" else None): row for row in report["sites"]}
    types = {row["site"]: row for row in rows_of(trace, "types")}
    read_only = {row["site"]: row for row in rows_of(trace, "read-only")}
    first = {row["site"]: row for row in rows_of(trace, "first-touch")}
    allocator = {row["site"]: row for row in rows_of(trace, "allocator-only")}
    assert types.keys() == sites.keys() == read_only.keys()
    for site, expected in sites.items():
        row = types[site]
        assert (row["samples"], row["instances"], row["bytes"]) == tuple(
            expected[field] for field in ("samples", "instances", "bytes")
        )
        assert row["accesses"] == expected["accesses"]["value"]
        assert is_floor_of(row["share_ppm"], expected["share"]["value"])
        if row["remote_ppm"] is not None:
            assert is_floor_of(row["remote_ppm"], expected["remote"]["value"])
        if row["remote_share_ppm"] is not None:
            assert is_floor_of(row["remote_share_ppm"], expected["share_of_remote"]["value"])
        assert is_floor_of(read_only[site]["write_ppm"], expected["writes"]["value"])
        bound, found = expected["read_only_bound"], read_only[site]["bound_ppm"]
        assert (bound is None) == (found is None)
        assert bound is None or found == math.ceil(1e6 * bound - 1e-6)
        if site is not None:
            assert first[site]["first_by_allocator"] == expected["first_by_allocator"]
        by_allocator = expected["by_allocator"]
        assert (by_allocator is None) == (site not in allocator)
        if by_allocator is not None:
            assert is_floor_of(allocator[site]["by_allocator_ppm"], by_allocator["value"])


def test_handovers_are_the_reports(trace):
    rows = rows_of(trace, "handover")
    for row in rows[:3] + rows[-3:]:
        (detail,) = trace.detail(str(row["object"]), **EVERYTHING)["objects"]
        assert math.isclose(detail["mean_handover_ns"], row["sum_ns"] / row["handovers"], rel_tol=1e-12)
        assert row["mean_ns"] == row["sum_ns"] // row["handovers"]


def test_the_papers_example_is_what_the_raw_tables_give(path, trace):
    """By pandas over the Parquet, with nothing of ours: the time since the object's last access, where that was another thread's."""
    columns = ["object", "thread", "time_ns"]
    accesses = pyarrow.parquet.read_table(path / "accesses.parquet", columns=columns).to_pandas()
    accesses = accesses[accesses.object.notna()]
    before = accesses.groupby("object", sort=False).shift()
    handed = accesses[before.thread.notna() & (before.thread != accesses.thread)]
    took = handed.time_ns.astype("int64") - before.time_ns[handed.index].astype("int64")
    expected = took.groupby(handed.object.astype("int64")).agg(["count", "sum"])
    found = {row["object"]: (row["handovers"], row["sum_ns"]) for row in rows_of(trace, "handover")}
    assert found == {int(at): (int(row["count"]), int(row["sum"])) for at, row in expected.iterrows()}


def test_false_sharing_is_what_the_raw_tables_give(path, trace):
    accesses = pyarrow.parquet.read_table(path / "accesses.parquet").to_pandas()
    threads = pyarrow.parquet.read_table(path / "threads.parquet").to_pandas()
    accesses = accesses[accesses.object.notna() & ~accesses.level.isin([1, 2, 3, 6])]
    users = accesses.groupby("object").thread.nunique()
    private = accesses[accesses.object.map(users) == 1].copy()
    private["process"] = private.thread.map(threads.set_index("thread").process)
    private["page"] = private.address // 4096 * 4096
    groups = private.groupby(["process", "page"])
    met = groups.agg(
        objects=("object", "nunique"), threads=("thread", "nunique"), nodes=("node", "nunique"), accesses=("weight", "sum")
    )
    met = met[(met.threads >= 2) & (met.nodes >= 2)]
    found = {
        (row["process"], row["page"]): (row["objects"], row["threads"], row["nodes"], row["accesses"])
        for row in rows_of(trace, "false-sharing")
    }
    assert found == {tuple(map(int, at)): tuple(map(int, row)) for at, row in zip(met.index, met.values)}


def test_mistakes_are_told(path, root):
    with pytest.raises(ValueError, match="S3"):
        said("pattern", path, "nonsense")
    with pytest.raises(ValueError, match="one trace"):
        said("remote", path, "S3")
