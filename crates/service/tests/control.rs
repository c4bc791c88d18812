//! The control socket with a loop behind it, and well-behaved and misbehaving clients.

use std::io::Read;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Child;
use std::process::Command as Program;
use std::sync::Arc;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use numapilot_balancer::status::Board;
use numapilot_balancer::status::Command;
use numapilot_balancer::status::State;
use numapilot_balancer::status::Status;
use numapilot_balancer::status::TargetStatus;
use numapilot_host::Pid;
use numapilot_service::control::Client;
use numapilot_service::control::Control;
use numapilot_service::control::ControlSettings;
use numapilot_service::control::Request;
use numapilot_service::control::line;

/// The id of a user without rights.
const STRANGER: u32 = 65_534;

/// How long this thread has waited for a processor that other threads used.
fn waited() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(text.split_whitespace().nth(1).and_then(|ns| ns.parse().ok()).unwrap_or_default())
}

/// A loop that obeys commands, publishes its status every millisecond, and records the longest time between two iterations, minus the time that it waited for a
/// processor, which no client causes.
struct Daemon {
    folder: tempfile::TempDir,
    control: Control,
    done: Arc<Mutex<(Vec<Command>, Duration)>>,
    children: Vec<Child>,
}

impl Daemon {
    fn start() -> Daemon {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let board = Board::new();
        let (steering, commands) = line(Arc::new(|| ()));
        let settings = ControlSettings { path: folder.path().join("control"), mode: 0o666 };
        let control = Control::start(&settings, board.clone(), steering, None).unwrap();
        let done = Arc::new(Mutex::new((Vec::new(), Duration::ZERO)));
        let theirs = Arc::clone(&done);
        let mut status = Status { v: 1, state: State::Running, run: "r".to_owned(), ..Status::default() };
        // Before the thread has begun, clients would be shown the board's empty status, which a busy machine makes long enough to be seen.
        board.put(status.clone());
        thread::spawn(move || {
            loop {
                let (round, waited_before) = (Instant::now(), waited());
                board.put(status.clone());
                match commands.recv_timeout(Duration::from_millis(1)) {
                    Ok(steering) => {
                        let answer = obey(&mut status, &steering.command);
                        theirs.lock().unwrap().0.push(steering.command);
                        board.put(status.clone());
                        let _ = steering.answer.unwrap().send(answer);
                    }
                    Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {}
                    Err(_) => return,
                }
                let mut done = theirs.lock().unwrap();
                let taken = round.elapsed().saturating_sub(waited() - waited_before);
                done.1 = done.1.max(taken);
            }
        });
        Daemon { folder, control, done, children: Vec::new() }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("control")
    }

    fn client(&self) -> Client {
        Client::connect(&self.path()).unwrap()
    }

    /// A process that runs until the test ends.
    fn sleeper(&mut self, uid: Option<u32>) -> Pid {
        let mut program = Program::new("sleep");
        program.arg("600");
        if let Some(uid) = uid {
            program.uid(uid).gid(uid);
        }
        self.children.push(program.spawn().unwrap());
        let pid = Pid::of_child(self.children.last().unwrap());
        let start = Instant::now();
        // The child needs some time to become `sleep`.
        while numapilot_service::identity::process(pid).is_none_or(|facts| facts.target.name != "sleep") {
            assert!(start.elapsed() < Duration::from_secs(60));
            thread::sleep(Duration::from_millis(1));
        }
        pid
    }

    fn commands(&self) -> Vec<Command> {
        self.done.lock().unwrap().0.clone()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn obey(status: &mut Status, command: &Command) -> Result<String, String> {
    let put = |state: &mut State, to: State| {
        *state = to;
        Ok(to.name().to_owned())
    };
    match command {
        Command::Pause => put(&mut status.state, State::Paused),
        Command::Resume => put(&mut status.state, State::Running),
        Command::Stop => put(&mut status.state, State::Stopping),
        Command::Reload => Err("n.toml, line 3: no".to_owned()),
        Command::AddTarget(target) => {
            status.targets.push(TargetStatus { target: target.clone(), ..TargetStatus::default() });
            Ok("added".to_owned())
        }
        Command::RemoveTarget(target) => {
            status.targets.retain(|other| other.target != *target);
            Ok("removed".to_owned())
        }
    }
}

/// Runs a client as another user: only this thread's, by the bare system call. `None`: this user may not.
fn as_stranger<T: Send>(work: impl FnOnce() -> T + Send) -> Option<T> {
    thread::scope(|scope| {
        let work = scope.spawn(|| {
            // SAFETY: takes three numbers; the bare call changes the calling thread only, which ends with this closure.
            let changed = unsafe { libc::syscall(libc::SYS_setresuid, STRANGER, STRANGER, STRANGER) };
            (changed == 0).then(work)
        });
        work.join().unwrap()
    })
}

#[test]
fn a_master_sees_and_steers_everything() {
    let mut daemon = Daemon::start();
    let pid = daemon.sleeper(None);
    let mut client = daemon.client();
    assert_eq!(client.demand(Request::Pause).unwrap().says, "paused");
    assert_eq!(client.demand(Request::Add { pid }).unwrap().says, "added");
    let report = client.demand(Request::Status).unwrap().status.unwrap();
    assert_eq!((report.pilot.state, report.only_own), (State::Paused, false));
    let target = &report.pilot.targets[0].target;
    assert_eq!((target.pid, target.name.as_str()), (pid, "sleep"));
    let facts = numapilot_service::identity::process(pid).unwrap();
    assert!(target.start_ticks > 0 && *target == facts.target);
    let refusal = client.demand(Request::Reload).unwrap_err().to_string();
    assert_eq!(refusal, "n.toml, line 3: no");
    client.demand(Request::Remove { pid }).unwrap();
    let refusal = client.demand(Request::Add { pid: Pid(4_000_000_000) }).unwrap_err().to_string();
    assert!(refusal.contains("there is no process"), "{refusal}");
    assert_eq!(daemon.commands().len(), 4);
}

#[test]
fn a_stranger_sees_and_names_only_their_own() {
    let mut daemon = Daemon::start();
    let others = daemon.sleeper(None);
    daemon.client().demand(Request::Add { pid: others }).unwrap();
    let path = daemon.path();
    let seen = as_stranger(|| {
        let mut client = Client::connect(&path).unwrap();
        let refusals = [Request::Pause, Request::Resume, Request::Reload, Request::Stop]
            .map(|request| client.ask(request).unwrap())
            .map(|answer| (answer.ok, answer.says));
        let named = [others, Pid(4_000_000), Pid::own()]
            .map(|pid| client.ask(Request::Add { pid }).unwrap())
            .map(|answer| (answer.ok, answer.says));
        let removed = client.ask(Request::Remove { pid: others }).unwrap().ok;
        (refusals, named, removed, client.demand(Request::Status).unwrap().status.unwrap())
    });
    let Some((refusals, named, removed, report)) = seen else {
        return numapilot_not_run::not_run!(Root, "only root can be another user");
    };
    assert!(refusals.iter().all(|(ok, says)| !ok && says.contains("only root")), "{refusals:?}");
    for ((ok, says), pid) in named.iter().zip([others, Pid(4_000_000), Pid::own()]) {
        assert_eq!((*ok, says.clone()), (false, format!("you have no process {pid}")));
    }
    assert!(!removed && report.only_own && report.pilot.targets.is_empty());
    assert_eq!(daemon.commands().len(), 1, "only the master's");

    let own = daemon.sleeper(Some(STRANGER));
    let report = as_stranger(|| {
        let mut client = Client::connect(&path).unwrap();
        client.demand(Request::Add { pid: own }).unwrap();
        client.demand(Request::Status).unwrap().status.unwrap()
    })
    .unwrap();
    assert_eq!(report.pilot.targets.iter().map(|t| t.target.pid).collect::<Vec<_>>(), [own]);
}

/// Sends raw bytes and returns the answer.
fn raw(path: &std::path::Path, bytes: &[u8]) -> String {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8(answer).unwrap()
}

#[test]
fn garbage_gets_a_word_and_changes_nothing() {
    let daemon = Daemon::start();
    for bytes in [
        &b"\n"[..],
        b"{}\n",
        b"null\n",
        b"{\"command\":\"explode\"}\n",
        b"{\"command\":\"add\"}\n",
        b"{\"command\":\"add\",\"pid\":-1}\n",
        b"{\"command\":\"pause\",\"pid\":1}\n",
        b"\xff\xfe\x00\n",
        b"GET /metrics HTTP/1.1\r\n",
    ] {
        let answer = raw(&daemon.path(), bytes);
        assert!(answer.contains(r#""ok":false"#) && answer.contains("not a request"), "{bytes:?}: {answer}");
    }
    let answer = raw(&daemon.path(), &vec![b'['; 1 << 20]);
    assert!(answer.is_empty() || answer.contains("more than 1024 bytes"), "{answer}");
    assert_eq!(raw(&daemon.path(), b"{\"command\":\"pau"), "", "half a request is none");
    let both = raw(&daemon.path(), b"{\"command\":\"status\"}\n{\"command\":\"status\"}\n");
    assert_eq!(both.lines().filter(|line| line.contains(r#""state":"running""#)).count(), 2, "{both}");
    assert_eq!(daemon.commands(), []);
}

#[test]
fn the_slow_the_silent_and_the_many_do_not_hold_up_the_loop() {
    let daemon = Daemon::start();
    daemon.done.lock().unwrap().1 = Duration::ZERO;
    let path = daemon.path();
    // More than there are places: silent, slow, and such as never read their answers.
    let silent: Vec<UnixStream> = (0..20).map(|_| UnixStream::connect(&path).unwrap()).collect();
    let deaf: Vec<UnixStream> = (0..8)
        .map(|_| {
            let mut stream = UnixStream::connect(&path).unwrap();
            let _ = stream.write_all("{\"command\":\"status\"}\n".repeat(90).as_bytes());
            stream
        })
        .collect();
    let slow = thread::spawn({
        let path = path.clone();
        move || {
            let mut stream = UnixStream::connect(&path).unwrap();
            for byte in b"{\"command\":\"status\"" {
                if stream.write_all(&[*byte]).is_err() {
                    return;
                }
                thread::sleep(Duration::from_millis(20));
            }
        }
    });
    let crowd: Vec<UnixStream> = (0..100).filter_map(|_| UnixStream::connect(&path).ok()).collect();
    slow.join().unwrap();
    // A busy machine may take its time to let the crowd in, as far as there is room.
    let start = Instant::now();
    while daemon.control.connection_counts().refused == 0 {
        assert!(start.elapsed() < Duration::from_secs(60), "{:?}", daemon.control.connection_counts());
        thread::sleep(Duration::from_millis(1));
    }
    drop(crowd);
    // The silent are let go after five seconds, and then there is room again.
    let start = Instant::now();
    loop {
        if let Ok(answer) = daemon.client().ask(Request::Status) {
            assert!(answer.status.unwrap().clients_refused > 0);
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(60));
        thread::sleep(Duration::from_millis(50));
    }
    let longest = daemon.done.lock().unwrap().1;
    assert!(longest < Duration::from_millis(500), "a round of the loop took {longest:?}");
    drop((silent, deaf));
}

/// A command was given up after four seconds, and then carried out.
#[test]
fn a_command_waits_for_a_loop_that_is_at_work_and_its_client_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let settings = ControlSettings { path: folder.path().join("control"), mode: 0o600 };
    let (steering, commands) = line(Arc::new(|| ()));
    let _control = Control::start(&settings, Board::new(), steering, None).unwrap();
    let mut client = Client::connect(&settings.path).unwrap();
    let (told, words) = std::sync::mpsc::channel();
    let at_work = thread::spawn(move || {
        let steering = commands.recv().unwrap();
        let told: String = words.recv().unwrap();
        steering.answer.unwrap().send(Ok("paused".to_owned())).unwrap();
        (told, commands)
    });
    let answer = client.demand_patiently(Request::Pause, &mut |says| drop(told.send(says.to_owned()))).unwrap();
    let (told, commands) = at_work.join().unwrap();
    assert!(answer.says == "paused" && told.contains("has received the command"), "{told}");

    // The loop ends with commands that it has not looked at; that is all that a stop asks for.
    for (request, is_done) in [(Request::Resume, false), (Request::Stop, true)] {
        let answer = thread::scope(|scope| {
            let asked = scope.spawn(|| client.ask(request).unwrap());
            drop(commands.recv().unwrap());
            asked.join().unwrap()
        });
        assert!(answer.ok == is_done && answer.says.contains("the balancing loop has ended"), "{answer:?}");
    }
    drop(commands);
    let refusal = client.demand(Request::Pause).unwrap_err().to_string();
    assert!(refusal.contains("has ended"), "{refusal}");
}

/// "Is another program listening there?" was no answer to who had given a command.
#[test]
fn a_daemon_that_ends_before_it_has_answered_leaves_open_whether_the_command_was_carried_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("control");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    thread::spawn(move || {
        let mut client = listener.accept().unwrap().0;
        client.read_exact(&mut [0]).unwrap();
        client.write_all(b"{\"v\":1,\"ok\":false,\"pending\":true,\"says\":\"later\"}\n").unwrap();
    });
    let error = Client::connect(&path).unwrap().demand(Request::Stop).unwrap_err().to_string();
    assert!(error.contains("has received the command, but has not said what came of it"), "{error}");
}

#[test]
fn the_absence_of_a_daemon_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("control");
    let error = Client::connect(&path).unwrap_err().to_string();
    assert!(error.contains("no such socket") && error.contains("--socket"), "{error}");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let error = Client::connect(&path).unwrap_err().to_string();
    assert!(error.contains("has ended"), "{error}");
    // Another program answers something else.
    let listener = std::os::unix::net::UnixListener::bind(folder.path().join("other")).unwrap();
    thread::spawn(move || listener.accept().unwrap().0.write_all(b"220 mail\n").unwrap());
    let error = Client::connect(&folder.path().join("other")).unwrap().ask(Request::Status).unwrap_err().to_string();
    assert!(error.contains("another program"), "{error}");
}
