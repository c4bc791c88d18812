"""Traces, rows, flows, figures, predictions; what notebooks show; mistakes, threads and forks."""

import fcntl
import gc
import json
import math
import os
import shutil
import threading
import time
import weakref

import numapilot
import pytest
from numapilot import Code


def code_of(work):
    with pytest.raises(numapilot.Error) as caught:
        work()
    assert str(caught.value)
    return Code(caught.value.code)


def test_a_trace_tells_what_it_is(root, mg):
    meta = json.loads((root / "testdata/traces/mg.numatrace/meta.json").read_text())
    assert mg.meta["command"] == meta["command"] == mg.command
    assert (mg.engine, mg.is_simulated, mg.duration_ns) == ("instrument", True, meta["duration_ns"])
    assert len(mg) == meta["sampling"]["samples"] and mg.nodes == [0, 1, 2, 3]
    assert mg.machine.name == "opteron-8385" and mg.losses["ring_full"] == 0
    assert "mg.numatrace" in repr(mg)
    with numapilot.open(root / "testdata/traces/mg") as named_without_its_ending:
        assert named_without_its_ending.path == root / "testdata/traces/mg.numatrace"


def test_of_page_faults_nothing_about_accesses_is_known(root, mg, tmp_path):
    faults = tmp_path / "faults.numatrace"
    shutil.copytree(root / "testdata/traces/mg.numatrace", faults)
    meta = json.loads((faults / "meta.json").read_text())
    (faults / "meta.json").write_text(json.dumps({**meta, "engine": "fault"}))
    with numapilot.open(faults) as trace:
        assert (mg.evidence, trace.evidence) == ("accesses", "page-faults")
        found = trace.statistics()
        assert found.samples == mg.statistics().samples > 0
        figures = (found.accesses, found.remote, found.writes, found.share)
        assert all(math.isnan(end) for figure in figures for end in (figure.value, figure.low, figure.high))
        said = str(trace.report())
        assert "TOUCHED FIRST BY" in said or "no page was touched" in said, said


def test_rows_are_sequences(mg):
    objects = mg.objects
    assert [row.number for row in objects] == list(range(len(objects)))
    assert objects[-1].number == len(objects) - 1
    assert [row.number for row in objects[2:8:3]] == [2, 5] and objects[:0] == []
    for wrong in (len(objects), -len(objects) - 1, 1 << 64, -(1 << 64)):
        with pytest.raises(IndexError):
            objects[wrong]
    with pytest.raises(TypeError):
        objects["r"]
    for rows in (mg.sites, mg.threads, mg.processes):
        assert len(rows) > 0 and repr(rows[0]) and repr(rows)


def test_flows_are_the_accesses_that_pass(trace):
    everything = list(trace.flow())
    assert len(everything) == len(trace)
    assert [access.row for access in everything] == list(range(len(trace)))
    assert all(a.time_ns <= b.time_ns for a, b in zip(everything, everything[1:]))
    for thread in list(trace.threads)[:4]:
        rows = [access.row for access in thread.flow()]
        assert rows == [access.row for access in everything if access.thread == thread.number]
        assert len(thread) == len(rows)
    for object in [row for row in trace.objects if len(row) > 0][:4]:
        rows = [access.row for access in object.flow()]
        assert rows == [access.row for access in everything if access.object == object.number]
    for node in trace.nodes[:3]:
        assert trace.flow(node=node, write=False).count() == sum(a.node == node and not a.is_write for a in everything)
        assert trace.flow(home=node, remote=True).count() == sum(a.home == node and a.is_remote is True for a in everything)
    half = trace.duration_ns // 2
    if half > 0:
        assert trace.flow(time=(None, half)).count() == sum(a.time_ns < half for a in everything)
        assert trace.flow(time=(half, None)).count() == sum(a.time_ns >= half for a in everything)
    heap = {row.number for row in trace.objects if row.kind == "heap"}
    assert trace.flow(kind="heap").count() == sum(a.object in heap for a in everything)


def test_statistics_are_sums_with_intervals(trace):
    found = trace.statistics(write=True)
    memory = [access for access in trace.flow(write=True) if access.is_memory_access]
    assert found.samples == found.write_samples == len(memory)
    assert float(found.accesses) == sum(access.weight for access in memory)
    known = [access for access in memory if access.is_remote is not None]
    every = [access for access in trace.flow() if access.is_memory_access]
    # A share of nothing is unknown.
    for estimate, whole in ((found.accesses, [trace]), (found.remote, known), (found.writes, memory), (found.share, every)):
        assert estimate.low <= estimate.value <= estimate.high if whole else math.isnan(estimate.value)
    assert "samples" in repr(found)
    assert "± 0.0 %" not in repr(found), "an exact figure has no interval, and no other one is that narrow"


def test_stacks_have_frames(trace):
    for access in list(trace.flow())[:50]:
        for frame in trace.stack(access.stack) + trace.location(access.location):
            assert isinstance(frame.function, str) and frame.line >= 0
    assert trace.stack(0) == []


def test_the_report_and_what_is_predicted(mg):
    report = mg.report(top=3)
    assert report["format"] == "numapilot-report" and len(report["sites"]) == 3
    assert report.data is report.data and "headline" in report and "sites" in list(report.keys())
    assert "Remote accesses" in str(report)
    count = len(mg.report(top=1000)["sites"])
    assert f"{count - 3} more; `report(top={count})` shows them" in str(report), str(report)
    assert "more; " not in str(mg.report(top=count)) and len(str(mg.report(top=1))) < len(str(report))
    findings = mg.findings()
    assert findings["predicted"] is True and str(findings)
    steps = []
    found = mg.whatif({"*": "interleave"}, progress=steps.append)
    assert found["predicted"] is True and found["gain_low"] <= found["gain"] <= found["gain_high"]
    assert found["gain"] == pytest.approx(found["now"]["run_time_ns"] / found["then"]["run_time_ns"] - 1)
    assert steps == [1.0]
    steps.clear()
    elsewhere = mg.whatif({"*": "interleave"}, machine=mg.machine, progress=steps.append)
    assert sorted(steps) == pytest.approx([step / 6 for step in range(1, 7)]) and "Simulated" in elsewhere["notes"][0]
    assert "predicted" in str(found)


def test_progress_goes_to_people_or_to_a_function(mg, capfd):
    mg.whatif({"*": "interleave"}, progress=True)
    assert "numapilot: predicting 100 %" in capfd.readouterr().err

    def fail(share):
        raise KeyError(share)

    with pytest.raises(KeyError):
        mg.whatif({"*": "interleave"}, progress=fail)
    with pytest.raises(TypeError):
        mg.whatif({"*": "interleave"}, progress=3)


def test_the_traffic_model():
    assert "opteron-8385" in numapilot.machines()
    machine = numapilot.Machine.load("opteron-8385")
    alone = machine.traffic([{"node": 0, "threads": 1, "reads": {0: 1.0}}])
    crowd = machine.traffic([{"node": node, "threads": 4, "outstanding": 4, "reads": {0: 1.0}} for node in machine.nodes])
    assert alone["predicted"] and alone["converged"]
    assert alone["latency_ns"][0] < min(crowd["latency_ns"])
    assert crowd["metrics"]["local_access_ratio"] < 0.6 and "busiest: link from node 0 to" in str(crowd)
    assert code_of(lambda: machine.traffic([{"node": 9}])) is Code.NOT_FOUND
    assert code_of(lambda: machine.traffic([{"reads": {0: 1.0}}])) is Code.BAD_ARGUMENT
    assert code_of(lambda: machine.traffic([{"node": 0, "reads": {0: 0.5}}])) is Code.MODEL
    assert code_of(lambda: machine.traffic([{"node": 0, "nonsense": 1}])) is Code.BAD_ARGUMENT
    assert code_of(lambda: numapilot.Machine.load("no-such-machine")) is Code.NOT_FOUND


def test_notebooks_show_tables_and_pictures(mg, tmp_path):
    assert "<table>" in mg.table("threads")._repr_html_() and "<td>" in mg.accesses()._repr_html_()
    assert "<pre>" in mg._repr_html_() and "<pre>" in mg.report()._repr_html_()
    for view in ("traffic", "matrix", "objects", "timeline", "flame", "imbalance"):
        assert mg.picture(view)._repr_svg_().startswith("<svg")
    pages = mg.picture("pages", object=f"S{mg.report(top=1)['sites'][0]['key']['site']}")
    pages.save(tmp_path / "pages.svg")
    assert (tmp_path / "pages.svg").read_text() == pages.svg and os.listdir(tmp_path) == ["pages.svg"]
    assert code_of(lambda: pages.save(tmp_path / "no" / "folder.svg")) is Code.IO
    assert code_of(lambda: mg.picture("nonsense")) is Code.NOT_FOUND


def test_hostile_names_stay_text(path, trace):
    if path.stem == "hostile-names":
        html = trace.table("objects")._repr_html_() + trace._repr_html_()
        assert "<script" not in html.lower() and "<img" not in html.lower()
    str(trace.report()), str(trace.findings()), trace.picture("objects").svg


def test_a_closed_trace_raises(root):
    trace = numapilot.open(root / "testdata/traces/mg.numatrace")
    object, flow = trace.objects[0], trace.flow()
    next(flow)
    trace.close()
    trace.close()
    assert trace.is_closed and "closed" in repr(trace)
    for work in (
        lambda: len(trace),
        lambda: trace.objects,
        lambda: trace.flow(),
        lambda: trace.accesses(),
        lambda: trace.table("objects"),
        lambda: trace.statistics(),
        lambda: trace.report(),
        lambda: trace.findings(),
        lambda: trace.whatif({"*": "interleave"}),
        lambda: trace.picture(),
        lambda: trace.meta,
        lambda: trace._repr_html_(),
    ):
        with pytest.raises(numapilot.ClosedError) as caught:
            work()
        assert Code(caught.value.code) is Code.BAD_HANDLE
    # What was handed out goes on.
    assert object.bytes >= 0 and next(flow).row == 1


def test_mistakes_are_exceptions(mg):
    assert code_of(lambda: mg.flow(object=1 << 31)) is Code.NOT_FOUND
    assert code_of(lambda: mg.flow(thread=len(mg.threads))) is Code.NOT_FOUND
    # No number of a row, as large as it may be, is another kind of mistake.
    for number in (-1, 1 << 32, 1 << 64):
        for wrong in (lambda: mg.flow(site=number), lambda: mg.stack(number), lambda: mg.location(number)):
            assert code_of(wrong) is Code.NOT_FOUND
    assert code_of(lambda: mg.flow(kind="nonsense")) is Code.NOT_FOUND
    assert code_of(lambda: mg.flow(time=(5, 5))) is Code.BAD_ARGUMENT
    assert code_of(lambda: mg.stack(1 << 30)) is Code.NOT_FOUND
    assert code_of(lambda: mg.location(1 << 30)) is Code.NOT_FOUND
    assert code_of(lambda: mg.detail("nonsense")) is Code.NOT_FOUND
    assert code_of(lambda: mg.whatif({"nonsense": "interleave"})) is Code.BAD_ARGUMENT
    assert code_of(lambda: mg.whatif({"*": "nonsense"})) is Code.BAD_ARGUMENT
    assert code_of(lambda: mg.whatif({"*": "bind:77"})) is Code.MODEL
    for wrong in ({"nonsense": 1}, {"thread": "3"}, {"thread": 3.0}, {"node": 1 << 20}, {"write": 3}, {"time": 5}):
        with pytest.raises((TypeError, OverflowError, ValueError)):
            mg.flow(**wrong)
    for wrong in (mg.flow, mg.accesses, mg.statistics):
        with pytest.raises((TypeError, OverflowError, numapilot.Error)):
            wrong(object=object())
    for made_up in (numapilot.Trace, numapilot.Access, numapilot.Flow, numapilot.Object, numapilot.Table):
        with pytest.raises(TypeError):
            made_up()


def copy_of(root, tmp_path):
    folder = tmp_path / "copy.numatrace"
    shutil.copytree(root / "testdata/traces/mg.numatrace", folder)
    return folder


def test_what_is_no_trace_is_told(root, tmp_path):
    assert code_of(lambda: numapilot.open(tmp_path / "nothing.numatrace")) is Code.IO
    assert code_of(lambda: numapilot.open(tmp_path)) is Code.BAD_TRACE
    with pytest.raises(TypeError):
        numapilot.open(None)
    for name in sorted(os.listdir(root / "testdata/traces/mg.numatrace")):
        folder = copy_of(root, tmp_path)
        whole = (folder / name).read_bytes()
        (folder / name).write_bytes(whole[: len(whole) // 2])
        try:
            # What opening does not read is found out when it is asked for.
            with numapilot.open(folder) as trace:
                assert code_of(lambda: trace.table(name.removesuffix(".parquet")).__arrow_c_stream__()) is Code.BAD_TRACE
        except numapilot.Error as error:
            assert Code(error.code) in (Code.BAD_TRACE, Code.IO)
        shutil.rmtree(folder)


def test_what_the_system_does_not_read_is_not_called_damaged(root, tmp_path):
    folder = copy_of(root, tmp_path)
    with numapilot.open(folder) as trace:
        table = trace.table("objects")
        (folder / "objects.parquet").unlink()
        (folder / "objects.parquet").symlink_to("objects.parquet")  # a circle, which nobody can open
        assert code_of(table.__arrow_c_stream__) is Code.IO
    assert code_of(lambda: numapilot.open(folder)) is Code.IO


def test_a_table_that_changes_while_it_is_read_is_an_error(root, tmp_path):
    import pyarrow

    folder = copy_of(root, tmp_path)
    with numapilot.open(folder) as trace:
        table = trace.table("accesses")
        (folder / "accesses.parquet").write_bytes(b"PAR1 is not all that it takes")
        with pytest.raises(numapilot.Error, match="accesses.parquet"):
            pyarrow.table(table)


def test_threads_read_one_trace(mg):
    expected = sum(access.weight for access in mg.flow())
    found, failed = [], []

    def work():
        try:
            for _ in range(5):
                found.append(sum(access.weight for access in mg.flow()))
                found.append(int(float(mg.statistics().accesses)))
                mg.report()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert set(found[::2]) | set(found[1::2]) == {expected}


def test_one_flow_in_two_threads_loses_nothing(mg):
    flow, seen = mg.flow(), []

    def work():
        while True:
            try:
                seen.append(next(flow).row)
            except StopIteration:
                return
            except numapilot.Error as error:
                assert Code(error.code) is Code.BUSY

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == list(range(len(mg)))


def test_long_work_lets_other_threads_go_on(mg):
    turns, stop = [0], threading.Event()

    def count():
        while not stop.is_set():
            turns[0] += 1
            time.sleep(0.001)

    counter = threading.Thread(target=count)
    counter.start()
    # On a busy machine the work may be done before the other thread has had a CPU five times. A call that kept it out would do so each time.
    during, end = 0, time.monotonic() + 120
    while during < 5 and time.monotonic() < end:
        before = turns[0]
        mg.whatif({"*": "interleave"})
        during = turns[0] - before
    stop.set()
    counter.join()
    assert during >= 5


def test_a_fork_leaves_the_child_with_a_working_trace(mg):
    expected, flow = sum(access.weight for access in mg.flow()), mg.flow()
    next(flow)
    stop = threading.Event()

    def busy():
        while not stop.is_set():
            mg.statistics()
            for _ in mg.flow(write=True):
                pass

    others = [threading.Thread(target=busy) for _ in range(3)]
    for other in others:
        other.start()
    try:
        for _ in range(10):
            child = os.fork()
            if child == 0:
                # Nothing but what is asked: no test runner's clean-up in a child.
                ok = sum(access.weight for access in mg.flow()) == expected and next(flow).row == 1
                ok = ok and mg.statistics().samples == len(mg)
                os._exit(0 if ok else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        stop.set()
        for other in others:
            other.join()


def test_nothing_is_kept_that_nobody_holds(root):
    trace = numapilot.open(root / "testdata/traces/mg.numatrace")
    gone = weakref.ref(trace)
    flow = iter(trace.flow())
    next(flow)
    del trace
    gc.collect()
    assert gone() is None
    assert next(flow).row == 1


def test_a_trace_that_is_still_being_recorded_is_refused(tmp_path):
    raw = tmp_path / "run.numatrace" / "raw"
    raw.mkdir(parents=True)
    with open(raw / "recorder.json", "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)  # as a recorder does
        with pytest.raises(numapilot.Error, match="still being recorded"):
            numapilot.open(tmp_path / "run")
        assert code_of(lambda: numapilot.open(tmp_path / "run")) is Code.BUSY
    assert code_of(lambda: numapilot.open(tmp_path / "run")) is Code.BAD_TRACE
    assert not (tmp_path / "run.numatrace" / "meta.json").exists()
