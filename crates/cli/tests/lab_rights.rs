//! Rights, on a real kernel (the lab): each missing right is named with its remedy, and everything that works without it continues; users can neither control
//! nor see each other's processes; and two daemons never manage the same process.

use std::process::Command;
use std::time::Duration;

use crate::common::*;
use numapilot_lab::{Lab, Topology};

/// Runs a script in the guest; what it wrote between `BEGIN name` and `END`.
struct Told(String);

impl Told {
    fn of(&self, mark: &str) -> &str {
        let part = self.0.split(&format!("BEGIN {mark}\n")).nth(1);
        part.and_then(|part| part.split("END\n").next()).unwrap_or_else(|| panic!("no {mark} in:\n{}", self.0))
    }

    #[track_caller]
    fn says(&self, mark: &str, words: &[&str]) {
        let text = self.of(mark);
        for word in words {
            assert!(text.contains(word), "{mark}: no {word:?} in\n{text}");
        }
    }

    /// The remedy names the right: for a file (`setcap`), or, where the machine on which the guest runs is a container and its files say so, for that. Above
    /// level 2 it is the older capability.
    fn says_capability(&self, mark: &str, level: u32) {
        let text = self.of(mark);
        let (file, container) = match level {
            0..=2 => ("setcap cap_perfmon+ep", "--cap-add PERFMON"),
            _ => ("setcap cap_sys_admin+ep", "--cap-add SYS_ADMIN"),
        };
        assert!(text.contains(file) || text.contains(container), "{mark}: no right in\n{text}");
    }
}

fn guest(script: &str) -> Told {
    let folder = scratch();
    let moves = build_plain(folder.path(), "moves", include_str!("programs/moves.c"), &[]);
    // All of the binary is read once before anything is timed: on a busy host that takes seconds, of which the programs last a few, and where nobody else works
    // in the guest its clock goes on to the next timer as often as it likes meanwhile.
    let prelude = "cd /tmp; cat $numapilot > /dev/null; $numapilot --version > /dev/null; ready() { until grep -q ready $1; do sleep 0.05; done; }
        run() { mark=$1; shift; echo \"BEGIN $mark\"; \"$@\" 2>&1; echo \"status $?\"; echo END; }
        # A user without any right; the program has to be where he can read it.
        user() { (as \"$@\"); }
        as() { uid=$1; shift; HOME=/tmp/home-$uid exec setpriv --reuid=$uid --regid=$uid --clear-groups --inh-caps=-all --bounding-set=-all \"$@\"; }
        user 1001 test -x \"$numapilot\" || { cp \"$numapilot\" \"$moves\" /tmp; numapilot=/tmp/numapilot moves=/tmp/moves; }
        chmod 1777 /tmp\n";
    let script = format!("moves={} numapilot={BINARY}; {prelude}{script}", moves.display());
    let lab = Lab::new(Topology::symmetric(4)).icount(true).time_limit(Duration::from_secs(1500));
    let outcome = lab.run(Command::new("sh").args(["-c", &script])).expect("the lab").expect_success();
    eprintln!("{}, {:.1} s\n{}{}", outcome.how, outcome.run.as_secs_f64(), outcome.stdout, outcome.stderr);
    Told(outcome.stdout)
}

#[test]
fn what_is_missing_is_named_and_the_rest_goes_on() {
    if !numapilot_lab::wanted("rights") {
        return;
    }
    let told = guest(
        r#"
sleep 1000000 & roots=$!
echo 0 > /proc/sys/kernel/numa_balancing
MOVES_PAUSE_US=5000 as 1001 "$moves" remote 2 1000000 2> e & own=$!; ready e
paranoid() { echo $1 > /proc/sys/kernel/perf_event_paranoid; }
cat /proc/sys/kernel/numa_balancing > was
for level in 2 3 4; do
    paranoid $level
    run system-$level user 1001 "$numapilot" balance --system --for 100ms
    run own-$level user 1001 "$numapilot" balance --pid $own --for 400ms
done
paranoid 2
run other user 1001 "$numapilot" balance --pid $roots --for 100ms
run move-other user 1001 "$numapilot" move $roots --from 0 --to 1
run move-own user 1001 "$numapilot" move $own --from 0 --to 1
run pack-own user 1001 "$numapilot" balance --pid $own --pack --for 3s
run advise user 1001 "$numapilot" advise -w 2
# Root with all but one right.
without() { right=$1; shift; setpriv --bounding-set=-$right --inh-caps=-$right "$@"; }
run no-nice without sys_nice "$numapilot" balance --pid $own --keep-settings --for 300ms
run no-nice-move without sys_nice "$numapilot" move $own --from 0,1 --to 2
run no-ptrace without sys_ptrace "$numapilot" move $own --from 0-3 --to 2
run no-perfmon without perfmon,-sys_admin "$numapilot" balance --system --for 300ms
echo "BEGIN was"; diff was /proc/sys/kernel/numa_balancing && echo same; echo END
kill $roots $own
"#,
    );
    // More than one's own processes take CAP_PERFMON, whatever kernel.perf_event_paranoid says.
    for level in 2..=4 {
        told.says(&format!("system-{level}"), &["perf_event_paranoid", "status 1"]);
        told.says_capability(&format!("system-{level}"), level);
    }
    told.says("own-2", &["numa_balancing", "run as root", "observations", "status 0"]);
    // Levels above 2 are Debian's: without the capability, users see no events.
    for level in 3..=4 {
        told.says(&format!("own-{level}"), &["perf_event_paranoid", "status 1"]);
        told.says_capability(&format!("own-{level}"), level);
    }
    told.says("other", &["status 1"]);
    told.says("move-other", &["CAP_SYS_PTRACE", "status 1"]);
    // Pages of libraries that others use too stay where some lie on these nodes, and the right that it would take is named.
    for mark in ["move-own", "no-nice-move"] {
        let stay = told.of(mark).contains("shared");
        told.says(mark, if stay { &["moved", "CAP_SYS_NICE", "status 3"] } else { &["moved", "status 0"] });
    }
    told.says("pack-own", &["packing", "observations", "status 0"]);
    told.says("advise", &["status 0"]);
    told.says("no-nice", &["observations", "status 0"]);
    told.says("no-ptrace", &["CAP_SYS_PTRACE", "status 1"]);
    told.says("no-perfmon", &["status 1"]);
    told.says_capability("no-perfmon", 2);
    told.says("was", &["same"]);
}

/// A daemon over a process of user 1001, whom user 1002 asks about it and tells things; then a second daemon beside it.
const TWO_USERS_AND_TWO_DAEMONS: &str = r#"
echo 0 > /proc/sys/kernel/numa_balancing
cp "$(command -v sleep)" /tmp/secretname
as 1001 /tmp/secretname 1000000 & theirs=$!
as 1002 sleep 1000000 & own=$!
cat > c.toml <<END
pid = [$theirs]
[journal]
file = "/tmp/d/journal"
[control]
socket = "/tmp/d/control"
[metrics]
listen = "unix:/tmp/d/metrics"
per-process = true
[state]
folder = "/tmp/d/state"
END
"$numapilot" balance --quiet --config c.toml & daemon=$!
# It answers from the moment that it listens, and knows its processes once it has looked.
until "$numapilot" ctl status --socket /tmp/d/control 2>&1 | grep -q '^  actions'; do kill -0 $daemon || exit 1; sleep 0.1; done
ctl() { uid=$1; shift; user $uid "$numapilot" ctl "$@" --socket /tmp/d/control; }
run status-root "$numapilot" ctl status --socket /tmp/d/control
run status-user ctl 1002 status
run status-json ctl 1002 status --json
run add-theirs ctl 1002 add $theirs
run remove-theirs ctl 1002 remove $theirs
run add-own ctl 1002 add $own
run pause ctl 1002 pause
run stop ctl 1002 stop
run reload ctl 1002 reload
cat > read.py <<END
import socket
page = socket.socket(socket.AF_UNIX)
page.connect("/tmp/d/metrics")
page.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
print(b"".join(iter(lambda: page.recv(65536), b"")).decode())
END
run metrics python3 read.py
run journal user 1002 cat /tmp/d/journal
run state user 1002 ls /tmp/d/state
# A second one, over the same process, over all, by another folder; and one over another process, which leaves the settings alone.
sleep 1000000 & free=$!
run second "$numapilot" balance --pid $theirs --state-dir /tmp/other --for 100ms
run second-system "$numapilot" balance --system --state-dir /tmp/other --for 100ms
run second-pack "$numapilot" balance --pid $theirs --pack --for 100ms
run second-user user 1001 "$numapilot" balance --pid $theirs --for 100ms
# The first one looks fast for four seconds; while it does, the other finds everything as it wants it, and asks for nothing.
while [ "$(cat /sys/kernel/debug/sched/numa_balancing/scan_period_min_ms)" = 100 ]; do kill -0 $daemon || exit 1; sleep 0.1; done
run beside "$numapilot" balance --pid $free --for 300ms
run dry "$numapilot" balance --pid $theirs --dry-run --for 100ms
echo "BEGIN who"; echo "process $daemon"; echo END
kill -9 $daemon; wait $daemon
run after-kill "$numapilot" balance --pid $theirs --state-dir /tmp/other --for 100ms
run restored cat /proc/sys/kernel/numa_balancing
kill $theirs $own $free
"#;

#[test]
fn users_steer_and_see_only_their_own_and_two_daemons_do_not_meet() {
    if !numapilot_lab::wanted("security of the control socket") {
        return;
    }
    let told = guest(TWO_USERS_AND_TWO_DAEMONS);
    told.says("status-root", &["secretname"]);
    for mark in ["status-user", "status-json", "metrics"] {
        assert!(!told.of(mark).contains("secret"), "{mark}: {}", told.of(mark));
    }
    told.says("metrics", &["numapilot_targets", "status 0"]);
    told.says("status-user", &["no process of yours", "status 0"]);
    told.says("add-theirs", &["you have no process", "status 1"]);
    told.says("remove-theirs", &["you have no process", "status 1"]);
    told.says("add-own", &["added", "status 0"]);
    for mark in ["pause", "stop", "reload"] {
        told.says(mark, &["status 1"]);
    }
    for mark in ["journal", "state"] {
        told.says(mark, &["ermission denied"]);
        assert!(!told.of(mark).contains("secret"), "{mark}");
    }
    let daemon = told.of("who").trim();
    for mark in ["second", "second-system", "second-pack", "second-user"] {
        told.says(mark, &[daemon, "numapilot ctl", "status 1"]);
    }
    told.says("beside", &[daemon, "left as it is", "status 0"]);
    told.says("dry", &["status 0"]);
    told.says("after-kill", &["status 0"]);
    told.says("restored", &["0\nstatus 0"]);
}
