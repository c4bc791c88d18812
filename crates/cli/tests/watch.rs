//! `stat` and `export` as they are used: commands with their exit codes, targets that die, every form of output, files that appear whole; and a server with
//! slow, invalid and many clients.

use std::io::BufRead;
use std::io::BufReader;
use std::io::Read;
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;
use std::time::Duration;
use std::time::Instant;

use crate::common::*;
use serde_json::Value;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in {text}"))
}

fn signal(child: &Child, signal: i32) {
    let pid = libc::pid_t::try_from(child.id()).expect("a pid");
    // SAFETY: a signal to our own child.
    assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
}

/// Waits until a child handles this signal: before, it would end it.
fn wait_until_handled(child: &Child, signal: i32) {
    let began = Instant::now();
    let is_handled = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).expect("it runs");
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).expect("the mask of caught signals");
        u64::from_str_radix(mask.trim(), 16).expect("hexadecimal") & 1 << (signal - 1) != 0
    };
    while !is_handled() {
        assert!(began.elapsed() < PATIENCE, "it does not handle signal {signal}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// It waited without a word.
#[test]
fn a_command_that_outlives_its_time_is_said_to_be_waited_for() {
    // What the caller ignores, the command ignores, too.
    let script = "trap '' TERM; exec \"$0\" stat --no-samples --for 50ms -- cat";
    let mut stat = Command::new("sh");
    stat.args(["-c", script, BINARY]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut stat = stat.spawn().expect("it starts");
    let (input, (told, is_told)) = (stat.stdin.take(), std::sync::mpsc::channel());
    let ends = std::thread::spawn(move || {
        // Without a word the command ends all the same, and so does this test.
        let _ = is_told.recv_timeout(PATIENCE);
        drop(input);
    });
    let mut lines = BufReader::new(stat.stderr.take().expect("its messages")).lines();
    assert!(lines.any(|line| line.expect("a line").contains("has not ended: it is waited for")));
    told.send(()).expect("it waits");
    ends.join().expect("it ends");
    assert_eq!(end(&mut stat), 0);
}

/// Waits for a child's end; its exit code.
fn end(child: &mut Child) -> i32 {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("a status") {
            return status.code().unwrap_or(-1);
        }
        if began.elapsed() > PATIENCE {
            let _ = child.kill();
            panic!("it does not end");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_command_keeps_its_exit_code_and_its_output() {
    for (script, code) in [("echo mine", 0), ("echo mine; exit 7", 7), ("echo mine; kill -9 $$", 128 + 9)] {
        let ran = run(&["stat", "--", "sh", "-c", script]);
        assert_eq!((ran.code, ran.stdout.as_str()), (code, "mine\n"), "{}", ran.stderr);
        for words in ["local access ratio", "instructions per cycle", "numa_hit", "node"] {
            assert!(ran.stderr.contains(words), "no {words} in\n{}", ran.stderr);
        }
    }
    let missing = run(&["stat", "--", "/no/such/program"]);
    assert!(missing.code == 127 && missing.stderr.contains("/no/such/program"), "{}", missing.stderr);
    assert_eq!(run(&["stat", "--", "/etc/passwd"]).code, 126);
    // A command that runs longer than `--for` is terminated.
    let began = Instant::now();
    let cut = run(&["stat", "--for", "200ms", "--", "sleep", "1000"]);
    assert_eq!(cut.code, 128 + libc::SIGTERM);
    assert!(began.elapsed() < PATIENCE);
}

#[test]
fn intervals_come_as_lines_of_text_json_and_csv() {
    // Three intervals at least, also where each takes ten times as long as asked for because the machine is busy.
    let command = ["-I", "100ms", "--for", "4s", "--", "sleep", "100"];
    let with = |form: &str| {
        let arguments: Vec<&str> = ["stat", form].into_iter().filter(|word| !word.is_empty()).chain(command).collect();
        run(&arguments).stderr
    };
    let text = with("");
    let begins_with_a_time =
        |line: &&str| line.split_whitespace().next().is_some_and(|word| word.parse::<f64>().is_ok());
    assert!(text.lines().filter(begins_with_a_time).count() >= 3, "{text}");
    let lines: Vec<Value> = with("--json").lines().map(json).collect();
    assert!(lines.len() >= 3, "{lines:?}");
    for pair in lines.windows(2) {
        assert_eq!(pair[0]["to_s"], pair[1]["from_s"], "intervals follow each other");
    }
    let csv = with("--csv");
    let headings: Vec<&str> = csv.lines().filter(|line| line.starts_with("from_s,")).collect();
    assert_eq!(headings, ["from_s,to_s,scope,id,figure,value,source,is_estimate,because"], "one heading");
    let local: Vec<&str> = csv.lines().filter(|line| line.contains(",all,,local_access_ratio,")).collect();
    assert!(local.len() >= 3, "{csv}");
}

#[test]
fn repeats_have_their_spread_in_every_form() {
    let with = |form: &[&str]| {
        let arguments: Vec<&str> = ["stat", "-r", "3"].iter().chain(form).chain(&["--", "true"]).copied().collect();
        run(&arguments).succeeded().stderr
    };
    assert!(with(&[]).contains("3 runs"));
    let csv = with(&["--csv"]);
    let mut lines = csv.lines();
    assert_eq!(lines.next(), Some("figure,runs,mean,standard_deviation,least,greatest,is_estimate"), "{csv}");
    let seconds = lines.find(|line| line.starts_with("seconds,3,")).unwrap_or_else(|| panic!("{csv}"));
    let numbers: Vec<f64> = seconds.split(',').skip(2).map(|word| word.parse().expect("a number")).collect();
    assert!(numbers[2] <= numbers[0] && numbers[0] <= numbers[3] && numbers[2] > 0.0, "{seconds}");
    let value = json(&with(&["--json"]));
    assert_eq!(value["figures"]["seconds"]["runs"].as_array().map(Vec::len), Some(3));
    let both = run(&["stat", "-r", "2", "-I", "1", "--", "true"]);
    assert!(both.code == 2 && both.stderr.contains("--interval"), "{}", both.stderr);
}

#[test]
fn a_file_appears_when_it_is_whole_and_not_before() {
    let folder = scratch();
    let file = folder.path().join("stat.json");
    let mut command = numapilot(&["stat", "--json", "-o"]);
    let mut child =
        command.arg(&file).args(["--", "sh", "-c", "read line"]).stdin(Stdio::piped()).spawn().expect("it starts");
    let began = Instant::now();
    while std::fs::read_dir(folder.path()).expect("a folder").count() == 0 && began.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(!file.exists(), "the command runs still");
    drop(child.stdin.take());
    end(&mut child);
    let value = json(&std::fs::read_to_string(&file).expect("the file"));
    assert!(value["metrics"]["local_access_ratio"].is_object());
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 1, "nothing else is left");
    let nowhere = run(&["stat", "-o", "/no/such/folder/x", "--", "true"]);
    assert!(nowhere.code == 1 && nowhere.stderr.contains("/no/such/folder/x"), "{}", nowhere.stderr);
}

#[test]
fn a_running_process_is_watched_until_it_dies() {
    let mut target = Command::new("sleep").arg("1000").spawn().expect("a process");
    let pid = target.id().to_string();
    let folder = scratch();
    let file = folder.path().join("stat.json");
    let mut command = numapilot(&["stat", "--json", "--pid", &pid, "-o"]);
    let mut child = command.arg(&file).spawn().expect("it starts");
    // It has begun, and has looked more than once: looks are 50 ms apart, and probing of what there is may sleep, too.
    wait_until("the file's beginning", || std::fs::read_dir(folder.path()).expect("a folder").count() > 0);
    wait_until_handled(&child, libc::SIGINT);
    wait_for_looks(&child, 60);
    assert!(child.try_wait().expect("a status").is_none(), "it watches");
    target.kill().expect("a signal");
    target.wait().expect("an end");
    assert_eq!(end(&mut child), 0);
    let value = json(&std::fs::read_to_string(&file).expect("the file"));
    assert_eq!(value["memory"][0]["pid"].as_u64(), Some(u64::from(target.id())), "its memory as it was last seen");
    let gone = run(&["stat", "--pid", &pid]);
    assert!(gone.code == 1 && gone.stderr.contains(&pid), "{}", gone.stderr);
}

#[test]
fn an_interrupted_watch_still_tells_what_it_saw() {
    let mut child =
        numapilot(&["stat", "--system", "--for", "1000", "--json"]).stdout(Stdio::piped()).spawn().expect("it starts");
    wait_until_handled(&child, libc::SIGINT);
    wait_for_looks(&child, 60);
    signal(&child, libc::SIGINT);
    let mut text = String::new();
    child.stdout.take().expect("a pipe").read_to_string(&mut text).expect("text");
    assert_eq!(end(&mut child), 0);
    assert!(json(&text)["nodes"].as_array().is_some_and(|nodes| !nodes.is_empty()));
}

/// A program that touches memory is sampled by its faults, where the kernel lets anybody see them.
#[test]
fn samples_are_told_by_node_and_labelled() {
    let folder = scratch();
    let file = folder.path().join("stat.json");
    let mut command = numapilot(&["stat", "--json", "-o"]);
    command.arg(&file).args(["--", "dd", "if=/dev/zero", "of=/dev/null", "bs=16M", "count=4", "status=none"]);
    finish(&mut command).succeeded();
    let value = json(&std::fs::read_to_string(&file).expect("the file"));
    if value["samples"].is_null() {
        return numapilot_not_run::not_run!(PageFaultEvents, "{}", value["notes"]);
    }
    let source = value["samples"]["source"].as_str().expect("a source");
    assert!(source.contains("page faults") || source.contains("PMU"), "{source}");
    assert!(value["samples"]["samples"].as_u64().is_some_and(|count| count > 0), "{}", value["samples"]);
    let rate = |node: &Value| {
        ["local", "remote", "unknown"].map(|what| number(node, &format!("/sampled/{what}_per_s"))).iter().sum::<f64>()
    };
    let all: f64 = value["nodes"].as_array().expect("nodes").iter().map(rate).sum();
    assert!(all > 10.0, "{}", value["nodes"]);
    let text = run(&["stat", "--", "true"]).stderr;
    assert!(text.contains("estimates from") && text.contains("remote/s"), "{text}");
    let without = run(&["stat", "--no-samples", "--", "true"]).stderr;
    assert!(!without.contains("estimates from"), "{without}");
}

/// A server at a port (or path) of its own.
struct Export {
    child: Child,
    address: String,
}

impl Export {
    fn start(listen: &str) -> Export {
        let mut child = numapilot(&["export", "--listen", listen]).stderr(Stdio::piped()).spawn().expect("it starts");
        let mut stderr = child.stderr.take().expect("a pipe");
        let mut told = String::new();
        let mut byte = [0];
        while !told.ends_with('\n') {
            assert_eq!(stderr.read(&mut byte).expect("its first line"), 1, "it says where it listens: {told}");
            told.push(char::from(byte[0]));
        }
        // Drain its later output, which would otherwise block it.
        std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
        let address = told.trim().rsplit("at ").next().expect("an address").to_owned();
        Export { child, address: address.trim_start_matches("http://").trim_end_matches("/metrics").to_owned() }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap_or_else(|error| panic!("{}: {error}", self.address));
        stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
        stream
    }

    fn ask(&self, request: &str) -> String {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).expect("sent");
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const GET: &str = "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";

#[test]
fn a_server_answers_the_polite_whatever_the_others_do() {
    let mut server = Export::start("127.0.0.1:0");
    let answer = server.ask(GET);
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("numapilot_node_memory_bytes"), "{answer}");
    for (request, status) in [
        ("GET /nothing HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "404"),
        ("POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", "405"),
        ("\u{1}\u{2}\u{3}\r\n\r\n", "400"),
    ] {
        let answer = server.ask(request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{request:?}: {answer}");
    }
    // Headings without end are cut off, and cost no memory to speak of.
    let mut endless = server.connect();
    let filler = vec![b'a'; 1 << 20];
    let _ = endless.write_all(b"GET /metrics HTTP/1.1\r\nX: ").and_then(|()| endless.write_all(&filler));
    // A client that sends nothing, one that sends half a request, and many of both: other clients are still served.
    let silent = server.connect();
    let mut half = server.connect();
    half.write_all(b"GET /met").expect("sent");
    let crowd: Vec<TcpStream> = (0..100).map(|_| server.connect()).collect();
    drop(crowd);
    let began = Instant::now();
    let answer = loop {
        let answer = server.ask(GET);
        if answer.starts_with("HTTP/1.1 200") || began.elapsed() > PATIENCE {
            break answer;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    assert!(answer.contains("numapilot_node_memory_bytes"), "{answer}");
    drop((silent, half, endless));
    // With clients connected, it ends at once when told to.
    let waiting = server.connect();
    signal(&server.child, libc::SIGTERM);
    assert_eq!(end(&mut server.child), 0);
    assert!(TcpStream::connect(&server.address).is_err(), "nobody listens any more");
    drop(waiting);
}

#[test]
fn a_unix_socket_goes_with_its_server() {
    let folder = scratch();
    let path = folder.path().join("watch");
    let mut server = Export::start(&format!("unix:{}", path.display()));
    let mut stream = UnixStream::connect(&path).expect("a connection");
    stream.write_all(GET.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert!(answer.contains("numapilot_simulated 0"), "{answer}");
    signal(&server.child, libc::SIGINT);
    assert_eq!(end(&mut server.child), 0);
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0);
    let nobody = run(&["export", "--once", "--pid", "4194303"]);
    assert!(nobody.code == 1 && nobody.stderr.contains("there is no process 4194303"), "{}", nobody.stderr);
    let taken = run(&["export", "--listen", "unix:/no/such/folder/socket"]);
    assert!(taken.code == 1 && taken.stderr.contains("/no/such/folder/socket"), "{}", taken.stderr);
}

#[test]
fn a_process_confined_to_one_cpu_sees_the_whole_machine_and_measures_its_own() {
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online").expect("CPUs");
    let allowed = std::fs::read_to_string("/proc/self/status").expect("status");
    let allowed = allowed.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).expect("a list").trim();
    let first = allowed.split(['-', ',']).next().expect("a CPU");
    let confined = |arguments: &[&str]| {
        let mut command = Command::new("taskset");
        command.args(["-c", first, BINARY]).args(arguments);
        finish(&mut command).succeeded().stdout
    };
    let plan = confined(&["measure", "--full", "--dry-run"]);
    let named = |cpu: &str| {
        plan.contains(&format!("CPU {cpu} "))
            || plan.contains(&format!("CPU {cpu}\n"))
            || plan.contains(&format!("CPU {cpu},"))
    };
    assert!(named(first), "{plan}");
    for other in (0..64).map(|cpu: u32| cpu.to_string()).filter(|cpu| cpu != first) {
        assert!(!named(&other), "CPU {other} is not its own:\n{plan}");
    }
    let of = |value: &Value| {
        value["nodes"].as_array().map(|nodes| nodes.iter().map(|node| node["cpus"].as_u64().unwrap_or(0)).sum::<u64>())
    };
    let stat = json(&confined(&["stat", "--system", "--for", "50ms", "--json"]));
    let free = json(&run(&["stat", "--system", "--for", "50ms", "--json"]).succeeded().stdout);
    assert_eq!(of(&stat), of(&free), "the machine is the same ({online})");
    if allowed.contains(['-', ',']) {
        let notes = stat["notes"].to_string();
        assert!(notes.contains(&format!("CPU {first} ")), "it says what is its own: {notes}");
    }
}
