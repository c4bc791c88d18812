"""Unit tests of the servers' tools: what they make of a report, which commands they run, and that the list is valid."""

import os
import sys
import tempfile
import unittest
import unittest.mock

sys.dont_write_bytecode = True
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(ROOT, folder) for folder in ("servers", "zoo", "tools")]

import catalogue  # noqa: E402
import collect  # noqa: E402
import fetch  # noqa: E402
import lab  # noqa: E402
import loading  # noqa: E402
import overview  # noqa: E402
import packages  # noqa: E402


def report(engine, sites, heap=None, samples=200):
    losses = {name: 0 for name in collect.LOST} | {"accesses_without_object": 3}
    recording = {"engine": engine, "object_count": 9, "process_count": 1, "thread_count": 4, "losses": losses}
    return {"counted": "memory accesses", "recording": recording, "headline": {"totals": {"samples": samples}}, "sites": sites, "heap": heap}


def site(name, share, key=1, place=""):
    return {"key": key, "name": name, "place": place, "share": {"value": share}}


class Reports(unittest.TestCase):
    def test_memory_of_no_object_is_no_object(self):
        found = collect.summary(report("fault", [site("(no known object)", 0.5, "unknown"), site("a", 0.1), site("b", 0.4, place="b.c:3")]))
        self.assertEqual(found["top"], [("b (b.c:3)", 0.4), ("a", 0.1)])
        self.assertEqual(overview.without(found), "2 %")

    def test_a_recording_without_accesses_names_its_heap(self):
        heap = {"peak_bytes": 100, "sites": [{"name": "x", "place": "", "at_peak_bytes": 20}, {"name": "y", "place": "", "at_peak_bytes": 80}]}
        found = collect.summary(report("track", [], heap, samples=0))
        self.assertEqual(found["top"], [("y", 0.8), ("x", 0.2)])
        self.assertEqual(overview.without(found), "-")

    def test_objects_of_the_shell_are_not_the_servers(self):
        heap = {"peak_bytes": 100, "sites": [{"name": "dash+0xdea8", "place": "", "at_peak_bytes": 82}]}
        one = report("track", [], heap, samples=0)
        one["recording"]["unrecorded_program"] = {"path": "/srv/table", "share": 0.97, "reason": "", "remedy": ""}
        row = {"ratios": [1.0], "ratio": 1.0, "memory": 1.0, "recorder_s": 0.1, **collect.summary(one)}
        told = overview.row_of("go", "track", row)
        self.assertIn("nothing of `table` was recorded", told)
        self.assertNotIn("dash", told)

    def test_lost_records_are_told(self):
        one = report("fault", [site("a", 1.0)])
        one["recording"]["losses"]["ring_full"] = 7
        row = {"ratios": [1.0, 1.25, 1.5], "ratio": 1.25, "memory": 1.0, "recorder_s": 2.0, **collect.summary(one)}
        self.assertIn("1.25 (1.00 to 1.50)", overview.row_of("s", "fault", row))
        self.assertIn("7 records lost", overview.row_of("s", "fault", row))


class Commands(unittest.TestCase):
    def collection(self, folder):
        return collect.Collection(ROOT, "/bin/true", folder, 1, lambda text: None)

    def test_a_server_that_runs_already_is_not_started_by_the_recorder(self):
        server = catalogue.Server("s", "true", "", 1, 1, "server --port $PORT", ready="r", ask="a", stop="e")
        with tempfile.TemporaryDirectory() as folder:
            found = self.collection(folder).command(server, "attach", {"PORT": "7", "TRACE": "t"})
        self.assertEqual(found[-3:], ["server", "--port", "7"])
        self.assertNotIn("record", found)
        script = collect.client_script(server, "attach").splitlines()
        self.assertEqual([line.split()[-1] for line in script[2:]], ["a", '"$TRACE"', "e"])

    def test_what_fails_is_a_row_with_its_reason(self):
        server = catalogue.Server("s", "true", "", 1, 1, "false", prepare="echo no disk >&2; exit 3")
        with tempfile.TemporaryDirectory() as folder:
            kept = self.collection(folder).all_of(server, ["fault"])
        self.assertIn("exit status 3: no disk", overview.table([kept]))

    def test_a_program_that_fails_fails(self):
        server = catalogue.Server("s", "echo 1", "", 1, 1, "false")
        with tempfile.TemporaryDirectory() as folder:
            kept = self.collection(folder).all_of(server, ["fault"])
        self.assertIn("exit status 1", kept["engines"]["fault"]["failed"])


    def test_the_time_of_the_server_is_its_shells_children(self):
        self.assertAlmostEqual(collect.children_s("0m0.00s 0m0.01s\n1m2.50s 0m0.25s\n"), 62.75)


class Lists(unittest.TestCase):
    def test_the_list_is_valid(self):
        servers = catalogue.load(os.path.join(ROOT, "servers", "servers.toml"))
        self.assertGreaterEqual(len(servers), 10)

    def test_a_wrong_list_says_where(self):
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
            file.write('[[server]]\nname = "a"\nversion = "v"\nload = "l"\nrequests = 1\nemulated = 0\nrun = "r"\nask = "x"\n')
            file.flush()
            with self.assertRaisesRegex(catalogue.Wrong, "server 1 .a.: `ready`, `ask` and `stop` belong together"):
                catalogue.load(file.name)

    def test_the_first_package_that_there_is_is_taken(self):
        def policy(command):
            return f"{command[2]}:\n  Candidate: {'1.2' if command[2] == 'new' else '(none)'}\n"

        with unittest.mock.patch.object(fetch, "missing", lambda names: names), unittest.mock.patch.object(fetch, "run", policy):
            self.assertEqual(packages.chosen(["old|new"]), ["new"])
            with self.assertRaisesRegex(fetch.Failed, "no old or older"):
                packages.chosen(["old|older"])


def region(rows):
    """A region of four CPUs, two a node; rows: loads by node."""
    return {"cpus": [{"cpu": cpu, "loads_by_node": row, "stores_by_node": [0] * len(row)} for cpu, row in enumerate(rows)]}


class InTheLab(unittest.TestCase):
    def guest(self, after="aa"):
        load = '{"requests":8,"seconds":0.5,"missing":0,"wrong":0,"checksum":"%s"}'
        output = f"SERVER m pid 7\nLOAD m pid before {load % 'aa'}\nMOVED m pid 12\nLOAD m pid after {load % after}\nSETTINGS m pid kept\n"
        regions = [region([[9, 0], [9, 0], [2, 2], [0, 0]]), region([[0, 0], [9, 0], [1, 9], [0, 1]])]
        # One page of this server is used by both nodes, one by one; the third is another process's.
        rows = [(7, "0x1000", 0, 6), (7, "0x1000", 2, 3), (8, "0x2000", 3, 3), (6, "0x1000", 0, 100)]
        pages = [{"pid": pid, "address": address, "node": 0, "cpu": cpu, "loads": count, "stores": 0} for pid, address, cpu, count in rows]
        return output, {"regions": regions, "pages": pages, "modelled": {"seconds_by_region": [2, 1]}}

    def test_local_is_what_a_cpu_finds_on_its_own_node(self):
        rows, failures = loading.tool("lab-servers").rows_of("m", ["pid"], *self.guest())
        self.assertEqual(failures, [])
        self.assertEqual((rows[0]["before"]["accesses"], rows[0]["before"]["local"]), (22, 20 / 22))
        self.assertEqual((rows[0]["after"]["accesses"], rows[0]["after"]["local"], rows[0]["kernel_moved"]), (20, 19 / 20, 12))

    def test_at_best_each_page_is_where_it_is_used_most(self):
        rows, _ = loading.tool("lab-servers").rows_of("m", ["pid"], *self.guest())
        self.assertEqual(rows[0]["best"], 9 / 12)
        self.assertIn("| 22 | 20 | 90.9 % | 95.0 % | 75.0 % | 50 % |", loading.tool("lab-servers").table(rows, "m"))

    def test_a_way_ends_where_the_next_ones_server_begins(self):
        tool, (_, counted) = loading.tool("lab-servers"), self.guest()
        self.assertEqual(tool.best_share(counted["pages"], 7, 8), 6 / 9)

    def test_loads_that_differ_in_their_accesses_are_not_compared(self):
        output, counted = self.guest()
        counted["regions"][1]["cpus"][0]["loads_by_node"][0] = 9
        _, failures = loading.tool("lab-servers").rows_of("m", ["pid"], output, counted)
        self.assertEqual(failures, ["m pid: not the same work before and after: 22 and 29 accesses"])

    def test_another_answer_and_what_the_guest_complains_of_are_failures(self):
        output, counted = self.guest(after="bb")
        _, failures = loading.tool("lab-servers").rows_of("m", ["pid"], output + "FAILED the server has ended\n", counted)
        self.assertEqual(failures[0], "FAILED the server has ended")
        self.assertIn("wrong answers", failures[1])

    def test_kills_count_only_what_was_put_back(self):
        kill = 'KILLED m cgroup {"after_s":0.1,"changed":true,"restored":%s}\n'
        load = 'LOAD m cgroup before {"requests":8,"seconds":1,"missing":0,"wrong":0,"checksum":"aa"}\n'
        found, failures = loading.tool("lab-servers").killed("m", load + kill % "true" + kill % "false")
        self.assertEqual((found[0]["kills"], found[0]["changed"], found[0]["restored"], failures), (2, 2, 1, []))

    def test_each_statement_of_the_database_is_a_line(self):
        lines = lab.statements(10).splitlines()
        self.assertEqual(sum(line.startswith("CREATE TABLE shard_") for line in lines), lab.CLIENTS)
        self.assertFalse(any(";" in line for line in lines))


if __name__ == "__main__":
    unittest.main()
