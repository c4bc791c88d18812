//! Servers are trees of processes, units and cgroups: every command that is given one takes all of it, also what joins later, and says what it may not take.

use std::fs;
use std::io::BufRead;
use std::io::BufReader;
use std::io::Write;
use std::path::Path;
use std::path::PathBuf;
use std::process::Child;
use std::process::ChildStdout;
use std::process::Command;
use std::process::Stdio;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use crate::common::*;
use numapilot_scratch::copy_program;
use serde_json::Value;

/// Long enough for the title that the worker writes over it.
const LONG_NAME: &str = "tree-of-processes-with-a-name-that-leaves-room-for-a-title";

/// The running program of `programs/tree.c`: main process, worker, helper.
struct Tree {
    child: Child,
    answers: BufReader<ChildStdout>,
    pids: [u32; 3],
}

impl Tree {
    fn start(folder: &Path) -> Tree {
        let program = build_plain(folder, "tree", include_str!("programs/tree.c"), &[]);
        // Its title has to begin with its name, and its first argument has to have room for it.
        let mut command = Command::new(program);
        std::os::unix::process::CommandExt::arg0(&mut command, LONG_NAME);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let mut answers = BufReader::new(child.stdout.take().expect("its output"));
        let ids = line(&mut answers);
        let ids: Vec<u32> = ids.split_whitespace().map(|word| word.parse().expect("an id")).collect();
        Tree { child, answers, pids: ids.try_into().expect("three ids") }
    }

    fn order(&mut self, order: &str) {
        writeln!(self.child.stdin.as_mut().expect("its input"), "{order}").expect("it reads");
    }

    fn main(&self) -> String {
        self.pids[0].to_string()
    }

    /// Whether its process of this index has not ended, or was not waited for yet.
    fn runs(&self, index: usize) -> bool {
        Path::new(&format!("/proc/{}", self.pids[index])).exists()
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

fn line(from: &mut BufReader<ChildStdout>) -> String {
    let mut line = String::new();
    from.read_line(&mut line).expect("a line");
    line.trim().to_owned()
}

fn pids_of(rows: &Value) -> Vec<u32> {
    let rows = rows.as_array().expect("rows").iter();
    let mut pids: Vec<u32> = rows.map(|row| row["pid"].as_u64().expect("a pid") as u32).collect();
    pids.sort_unstable();
    pids
}

fn sorted(pids: &[u32]) -> Vec<u32> {
    let mut pids = pids.to_vec();
    pids.sort_unstable();
    pids
}

#[track_caller]
fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Thread ids of the threads that had page faults in a trace: each process here has one thread, of its own id.
fn recorded(trace: &Path) -> Vec<u32> {
    let csv = run(&["report", trace.to_str().expect("UTF-8"), "--csv", "-", "--table", "threads"]).succeeded().stdout;
    let mut lines = csv.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let heading = lines.next().expect("a heading");
    let column = |name: &str| heading.iter().position(|column| *column == name).expect("the column");
    let (tid, samples) = (column("tid"), column("samples"));
    let with_faults = lines.filter(|cells| cells[samples] != "0");
    let mut tids: Vec<u32> = with_faults.map(|cells| cells[tid].parse().expect("an id")).collect();
    tids.sort_unstable();
    tids.dedup();
    tids
}

/// The kernel's events that a recorder has open.
fn events_of(recorder: &Child) -> usize {
    let files = fs::read_dir(format!("/proc/{}/fd", recorder.id())).expect("it runs").flatten();
    files.filter(|file| fs::read_link(file.path()).is_ok_and(|to| to.ends_with("anon_inode:[perf_event]"))).count()
}

fn events_work() -> bool {
    let works = report_of_doctor();
    if !works {
        numapilot_not_run::not_run!(PageFaultEvents, "engine fault does not work here");
    }
    works
}

fn report_of_doctor() -> bool {
    let doctor = json(&run(&["doctor", "--json"]).stdout);
    let engines = doctor["engines"].as_array().expect("engines");
    engines.iter().any(|engine| engine["engine"] == "fault" && engine["works"] == true)
}

#[test]
fn a_recording_takes_the_tree_and_what_it_starts_later() {
    if !events_work() {
        return;
    }
    let folder = scratch();
    let mut tree = Tree::start(folder.path());
    let alone = folder.path().join("alone.numatrace");
    let mut command = numapilot(&["record", "--engine", "fault", "--no-children", "--for", "1s", "--pid"]);
    let ran = finish(command.arg(tree.pids[2].to_string()).arg("-o").arg(&alone)).succeeded();
    assert!(ran.stderr.contains("attached to 1 process "), "{}", ran.stderr);
    let trace = folder.path().join("tree.numatrace");
    let mut command = numapilot(&["record", "--engine", "fault", "--pid", &tree.main(), "-o"]);
    let mut recorder = command.arg(&trace).stderr(Stdio::piped()).spawn().expect("it starts");
    wait_until_recording(&mut recorder);
    wait_for_faults(tree.pids[1], 100);
    tree.order("fork");
    let late: u32 = line(&mut tree.answers).parse().expect("an id");
    wait_for_faults(late, 100);
    // The worker ends, and the helper gets another parent: it is recorded all the same.
    tree.order("orphan");
    wait_until("the worker's end", || !tree.runs(1));
    wait_for_faults(tree.pids[2], 100);
    tree.order("end");
    let ended = recorder.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{said}");
    assert!(said.contains("attached to 3 processes with 3 threads"), "{said}");
    assert!(said.contains(&format!("{} (tree: worker)", tree.pids[1])), "{said}");
    assert_eq!(recorded(&trace), sorted(&[&tree.pids[..], &[late]].concat()), "{said}");
}

#[test]
fn a_recording_of_a_tree_ends_when_all_of_it_has_ended() {
    if !events_work() {
        return;
    }
    let folder = scratch();
    let mut tree = Tree::start(folder.path());
    let trace = folder.path().join("tree.numatrace");
    let mut command = numapilot(&["record", "--quiet", "--engine", "fault", "--pid", &tree.pids[1].to_string(), "-o"]);
    let mut recorder = command.arg(&trace).spawn().expect("it starts");
    wait_until_recording(&mut recorder);
    tree.order("orphan");
    wait_until("the worker's end", || !tree.runs(1));
    // The recorder looks for processes every half second, or less often where that takes long. A round of the helper's takes 5 ms, and has 64 faults.
    wait_for_faults(tree.pids[2], 20_000);
    assert!(
        recorder.try_wait().expect("its state").is_none(),
        "the helper, which the named process had started, still runs"
    );
    tree.order("end");
    let begun = Instant::now();
    assert!(recorder.wait().expect("it ends").success());
    assert!(begun.elapsed() < PATIENCE);
}

#[test]
fn a_recording_in_the_background_ends_and_the_tree_runs_on() {
    if !events_work() {
        return;
    }
    let folder = scratch();
    let tree = Tree::start(folder.path());
    let trace = folder.path().join("tree.numatrace");
    let at = trace.to_str().expect("UTF-8");
    run(&["record", "--engine", "fault", "--pid", &tree.main(), "--detach", "-o", at]).succeeded();
    // The events are on by now, however busy the machine is: what the worker and the helper do from here on is recorded.
    tree.pids[1..].iter().for_each(|pid| wait_for_faults(*pid, 100));
    run(&["record", "--stop", at]).succeeded();
    let is_there = |pid: &u32| Path::new(&format!("/proc/{pid}/exe")).exists();
    assert!(tree.pids.iter().all(is_there));
    let told = fs::read_to_string(folder.path().join("tree.numatrace.log")).expect("the recorder's messages");
    assert!(told.contains("attached to 3 processes with 3 threads"), "{told}");
    // The worker and the helper touch memory all the time.
    assert!(tree.pids[1..].iter().all(|pid| recorded(&trace).contains(pid)), "{:?}", recorded(&trace));
}

#[test]
fn stat_counts_the_tree_and_has_a_row_for_each_process() {
    let folder = scratch();
    let tree = Tree::start(folder.path());
    let of = |options: &[&str]| {
        let main = tree.main();
        let ran = run(&[&["stat", "--for", "1", "--pid", &main], options].concat()).succeeded();
        ran.stdout
    };
    let all = json(&of(&["--json"]));
    assert_eq!(pids_of(&all["processes"]), sorted(&tree.pids), "{all}");
    assert_eq!(pids_of(&all["memory"]), sorted(&tree.pids), "{all}");
    let names: Vec<&str> = all["processes"].as_array().unwrap().iter().filter_map(|row| row["name"].as_str()).collect();
    assert!(names.contains(&"tree: worker"), "{names:?}");
    let own: u64 = all["memory_total"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
    let rows = all["memory"].as_array().unwrap().iter();
    let each: u64 =
        rows.flat_map(|row| row["bytes_by_node"].as_object().unwrap().values()).filter_map(Value::as_u64).sum();
    assert!(own + (3 << 20) < each, "the 4 MiB that two processes share count once: {own} of {each}");
    let alone = json(&of(&["--json", "--no-children"]));
    assert_eq!(pids_of(&alone["processes"]), [tree.pids[0]], "{alone}");
    let faults = |stat: &Value| stat["events"]["minor-faults"]["value"].as_f64();
    if let (Some(all), Some(alone)) = (faults(&all), faults(&alone)) {
        assert!(all > 1000.0 && alone < all / 10.0, "the main process waits: {alone} of {all}");
    }
    let text = of(&[]);
    assert!(text.contains("total") && text.contains("3 processes") && text.contains("tree: worker"), "{text}");
}

#[test]
fn maps_and_top_show_the_tree_with_titles_and_a_total() {
    let folder = scratch();
    let tree = Tree::start(folder.path());
    let main = tree.main();
    assert_eq!(pids_of(&json(&run(&["maps", "--json", &main]).succeeded().stdout)), sorted(&tree.pids));
    let alone = json(&run(&["maps", "--json", "--no-children", &main]).succeeded().stdout);
    assert_eq!(alone["pid"].as_u64(), Some(u64::from(tree.pids[0])));
    let text = run(&["maps", &main]).succeeded().stdout;
    assert!(text.contains("tree: worker") && text.contains("3 processes"), "{text}");
    let picture = folder.path().join("top.svg");
    let file = picture.to_str().expect("UTF-8");
    run(&["top", "--interval", "50ms", "--snapshot", file, "--pid", &main]).succeeded();
    let shown = fs::read_to_string(&picture).expect("a picture");
    // Words are elements of the picture; blanks between them may be any.
    assert!(shown.contains("worker") && shown.contains("total"), "{shown}");
    assert!(!shown.contains(">numapilot<"), "only the tree is listed");
}

#[test]
fn balance_manages_the_tree() {
    if !events_work() {
        return;
    }
    let folder = scratch();
    let tree = Tree::start(folder.path());
    let start = |options: &[&str]| {
        let main = tree.main();
        let ran =
            run(&[&["balance", "--dry-run", "--json", "--for", "1s", "--pid", &main], options].concat()).succeeded();
        let first = ran.stdout.lines().map(json).find(|line| line["event"] == "start");
        let start = first.unwrap_or_else(|| panic!("no start: {} {}", ran.stdout, ran.stderr));
        pids_of(&start["targets"])
    };
    assert_eq!(start(&[]), sorted(&tree.pids));
    assert_eq!(start(&["--no-children"]), [tree.pids[0]]);
}

/// A cgroup of version 2 that is removed on drop.
struct Group(PathBuf);

impl Group {
    /// `None`, with a word about it, where none can be made.
    fn make(name: &str) -> Option<Group> {
        for mount in ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"] {
            let folder = Path::new(mount).join(format!("{name}-{}", std::process::id())).with_extension("service");
            if Path::new(mount).join("cgroup.controllers").exists() && fs::create_dir(&folder).is_ok() {
                return Some(Group(folder));
            }
        }
        numapilot_not_run::not_run!(Root, "no cgroup of version 2 can be made here");
        None
    }

    fn unit(&self) -> String {
        self.0.file_stem().expect("a name").to_str().expect("UTF-8").to_owned()
    }

    fn add(&self, pid: u32) {
        fs::write(self.0.join("cgroup.procs"), pid.to_string()).expect("the process joins");
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for _ in 0..200 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn units_and_cgroups_are_taken_with_strangers_that_join_later() {
    let folder = scratch();
    let Some(group) = Group::make("numapilot-test") else { return };
    let why = run(&["stat", "--for", "1", "--unit", &group.unit()]);
    assert!(why.code == 1 && why.stderr.contains("it has no processes"), "{}", why.stderr);
    let why = run(&["maps", "--cgroup", group.0.to_str().expect("UTF-8")]);
    assert!(why.code == 1 && why.stderr.contains("no process is in this cgroup"), "{}", why.stderr);
    let (tree, stranger) = (Tree::start(folder.path()), Tree::start(folder.path()));
    tree.pids.iter().for_each(|pid| group.add(*pid));
    let unit = group.unit();
    let stat = json(&run(&["stat", "--json", "--for", "1", "--unit", &unit]).succeeded().stdout);
    assert_eq!(pids_of(&stat["processes"]), sorted(&tree.pids));
    let maps = run(&["maps", "--json", "--cgroup", group.0.to_str().expect("UTF-8")]).succeeded();
    assert_eq!(pids_of(&json(&maps.stdout)), sorted(&tree.pids));
    if !report_of_doctor() {
        return;
    }
    let trace = folder.path().join("unit.numatrace");
    let mut command = numapilot(&["record", "--engine", "fault", "--unit", &format!("{unit}.service"), "-o"]);
    let mut recorder = command.arg(&trace).stderr(Stdio::piped()).spawn().expect("it starts");
    wait_until_recording(&mut recorder);
    wait_for_faults(tree.pids[2], 100);
    let before = events_of(&recorder);
    group.add(stranger.pids[2]);
    // It is recorded from the recorder's next look on, which opens its events.
    wait_until("the stranger's events", || events_of(&recorder) > before);
    wait_for_faults(stranger.pids[2], 2000);
    // Not SIGINT, which a shell's background job ignores.
    Command::new("kill").args(["-TERM", &recorder.id().to_string()]).status().expect("kill");
    let ended = recorder.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(said.contains("attached to 3 processes") && said.contains("1 process joined"), "{said}");
    let found = recorded(&trace);
    assert!(found.contains(&stranger.pids[2]) && found.contains(&tree.pids[2]), "{found:?}: {said}");
    assert!(!found.contains(&stranger.pids[1]), "{found:?}");
}

#[test]
fn a_service_waits_for_its_unit_and_says_so() {
    let folder = scratch();
    // The unit of this name: it comes later.
    let name = "numapilot-later";
    let Some(group) = Group::make(name) else { return };
    let unit = group.unit();
    drop(group);
    if !events_work() {
        return;
    }
    let (at, config) = (folder.path().display(), folder.path().join("n.toml"));
    let text = format!(
        "unit = [\"{unit}\"]\ndry-run = true\n[journal]\nfile = \"{at}/journal\"\n[control]\nsocket = \"{at}/control\"\n\
         [state]\nfolder = \"{at}/state\"\n"
    );
    fs::write(&config, text).expect("the configuration");
    let mut daemon = numapilot(&["balance", "--quiet", "--config"]).arg(&config).spawn().expect("it starts");
    let socket = folder.path().join("control");
    let ctl = |arguments: &[&str]| {
        numapilot(&["ctl"]).args(arguments).arg("--socket").arg(&socket).output().expect("an answer")
    };
    let targets = || {
        let answer = ctl(&["status", "--json"]);
        let status: Value = serde_json::from_slice(&answer.stdout).unwrap_or_default();
        status["targets"].as_array().map(|_| pids_of(&status["targets"]))
    };
    let until = |is: &dyn Fn(Option<Vec<u32>>) -> bool| {
        let begun = Instant::now();
        while !is(targets()) {
            assert!(begun.elapsed() < PATIENCE, "{:?}", targets());
            thread::sleep(Duration::from_millis(100));
        }
    };
    until(&|targets| targets == Some(Vec::new()));
    let group = Group::make(name).expect("a cgroup, as before");
    let tree = Tree::start(folder.path());
    tree.pids.iter().for_each(|pid| group.add(*pid));
    until(&|targets| targets.map(|pids| sorted(&pids)) == Some(sorted(&tree.pids)));
    drop(tree);
    until(&|targets| targets == Some(Vec::new()));
    assert!(ctl(&["stop"]).status.success() && daemon.wait().expect("it ends").success());
    let told = numapilot(&["explain", "--json", "--journal"]).arg(folder.path().join("journal")).output();
    let told = String::from_utf8(told.expect("an answer").stdout).expect("UTF-8");
    let is_told = told.contains(&format!("unit {unit}.service: no such unit runs here"));
    assert!(is_told || told.contains("there are no cgroups"), "{told}");
}

#[test]
fn what_does_not_exist_is_an_error_with_the_next_step() {
    let of = |arguments: &[&str]| {
        let ran = run(arguments);
        assert!(ran.code != 0 && ran.stdout.is_empty(), "{arguments:?}: {}", ran.stdout);
        ran.stderr
    };
    for command in ["stat", "maps", "top", "record", "balance"] {
        let why = of(&[command, "--unit", "no-such-unit-here"]);
        let is_terminal = command == "top" && why.contains("needs a terminal");
        let says = why.contains("systemctl list-units") || why.contains("there are no cgroups");
        assert!(says || is_terminal, "{command}: {why}");
        let why = of(&[command, "--cgroup", "/sys/fs/cgroup/no/such/group"]);
        assert!(is_terminal || why.contains("is not the folder of a cgroup"), "{command}: {why}");
    }
    let own = std::process::id().to_string();
    let why = of(&["stat", "--pid", &own, "--unit", "x"]);
    assert!(why.contains("both processes and a unit"), "{why}");
    let why = of(&["stat", "--no-children", "--for", "1"]);
    assert!(why.contains("--no-children needs --pid"), "{why}");
    for arguments in [&["record", "--pid", "4194303"][..], &["stat", "--pid", "4194303"], &["maps", "4194303"]] {
        let why = of(arguments);
        assert!(why.contains("there is no process 4194303: it has ended, or never ran"), "{why}");
    }
}

#[test]
fn a_process_that_may_not_be_opened_is_counted_and_named() {
    if !events_work() {
        return;
    }
    // SAFETY: takes nothing and cannot fail.
    let is_root = unsafe { libc::geteuid() } == 0;
    let has_setpriv = Command::new("setpriv").arg("--version").output().is_ok_and(|output| output.status.success());
    if !is_root || !has_setpriv {
        return numapilot_not_run::not_run!(Root, "a process of another user's cannot be started");
    }
    let nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    // A server of `nobody` with a child of root's.
    let script = format!("sleep 300 & echo $!; exec {} sleep 300", nobody.join(" "));
    let mut server = Command::new("sh").args(["-c", &script]).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut answers = BufReader::new(server.stdout.take().expect("its output"));
    let closed = line(&mut answers);
    let is_asleep =
        |pid: &str| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "sleep");
    wait_until("both sleep", || is_asleep(&closed) && is_asleep(&server.id().to_string()));
    let folder = tempfile::Builder::new().prefix("tree-").tempdir_in("/tmp").expect("a folder that others can reach");
    fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).expect("its mode");
    let binary = folder.path().join("numapilot");
    copy_program(Path::new(BINARY), &binary);
    let main = server.id().to_string();
    let of = |arguments: &[&str]| {
        let mut command = Command::new(nobody[0]);
        command.args(&nobody[1..]).arg(&binary).args(arguments).current_dir(folder.path()).env("HOME", folder.path());
        finish(command.env_remove("XDG_CACHE_HOME"))
    };
    let record = of(&["record", "--engine", "fault", "--for", "1s", "--pid", &main, "-o", "x.numatrace"]);
    let maps = of(&["maps", &main]);
    let stat = of(&["stat", "--for", "1", "--pid", &main]);
    Command::new("kill").args([&main, &closed]).status().expect("kill");
    server.wait().expect("it ends");
    if record.code != 0 && record.stderr.contains("perf_event_paranoid") {
        return numapilot_not_run::not_run!(PageFaultEvents, "{}", record.stderr);
    }
    let named = format!("{closed} (sleep)");
    assert!(record.code == 0 && record.stderr.contains("1 process may not be observed"), "{}", record.stderr);
    assert!(record.stderr.contains(&named) && record.stderr.contains("CAP_PERFMON"), "{}", record.stderr);
    assert!(maps.code == 0 && maps.stderr.contains("1 of 2 processes may not be inspected"), "{}", maps.stderr);
    assert!(maps.stderr.contains(&named), "{}", maps.stderr);
    assert!(stat.stdout.contains("1 process may not be observed"), "{} {}", stat.stdout, stat.stderr);
}
