//! Recordings of perf, decoded here and printed by `perf script`: every field must be equal. The committed ones (`testdata/perf`, which says how
//! they were made) keep the comparison alive everywhere; where perf works, new ones are made and compared as well.

use std::fs;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::Command;

use numapilot_host::Pid;
use numapilot_host::Tid;
use numapilot_perf::abi::CONTEXT_MAX;
use numapilot_perf::file::Walker;
use numapilot_perf::{Record, SideBand};

/// A sample as both sides tell it; `None`: not among the fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    time: u64,
    pid_tid: (Pid, Tid),
    cpu: Option<u32>,
    period: u64,
    event: String,
    addr: u64,
    data_src: Option<u64>,
    phys_addr: Option<u64>,
    /// The instruction, or the call chain where there is one.
    ips: Vec<u64>,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/perf")
}

fn hex(text: &str) -> u64 {
    u64::from_str_radix(text, 16).unwrap_or_else(|_| panic!("{text:?} is no hexadecimal number"))
}

/// Reads what `perf script --ns -F ...` printed.
fn printed(text: &str, fields: &str) -> Vec<Row> {
    let has = |name: &str| fields.trim().split(',').any(|field| field == name);
    let mut rows: Vec<Row> = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let words: Vec<&str> = line.split_whitespace().collect();
        if line.starts_with('\t') {
            rows.last_mut().expect("a sample before its chain").ips.push(hex(words[0]));
            continue;
        }
        let mut words = words.into_iter();
        let mut next = || words.next().unwrap_or_else(|| panic!("too few words: {line}"));
        let (pid, tid) = next().split_once('/').expect("pid/tid");
        let mut row = Row { pid_tid: (pid.parse().unwrap(), Tid(tid.parse().unwrap())), ..Row::default() };
        if has("cpu") {
            row.cpu = Some(next().trim_matches(['[', ']']).parse().unwrap());
        }
        let (seconds, fraction) = next().trim_end_matches(':').split_once('.').expect("seconds and nanoseconds");
        row.time = seconds.parse::<u64>().unwrap() * 1_000_000_000 + fraction.parse::<u64>().unwrap();
        row.period = next().parse().unwrap();
        row.event = next().trim_end_matches(':').to_owned();
        row.addr = hex(next());
        let mut rest: Vec<&str> = words.collect();
        if has("phys_addr") {
            row.phys_addr = rest.pop().map(hex);
        }
        if has("data_src") {
            row.data_src = rest.first().copied().map(hex);
        }
        // With a chain the line ends here (or with the symbol of the address).
        let is_ip = |word: &&&str| word.len() >= 8 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
        row.ips.extend(rest.last().filter(is_ip).copied().map(hex));
        rows.push(row);
    }
    rows.sort();
    rows
}

/// What was mapped: when, by whom, where, and from which offset of the file.
#[derive(Clone, Copy, Debug)]
struct Mapped {
    time: u64,
    pid: Pid,
    addr: u64,
    len: u64,
    file_offset: u64,
}

/// A recording as we decode it.
#[derive(Debug, Default)]
struct Decoded {
    rows: Vec<Row>,
    comms: Vec<String>,
    mapped: Vec<Mapped>,
}

impl Decoded {
    /// Whether two chains are equal. perf prints addresses of user code in chains as offsets in the mapped file, where it knows the mapping.
    fn same_ips(&self, ours: &Row, theirs: &Row) -> bool {
        let offset = |ip: u64| {
            let holds = |map: &&Mapped| map.time <= ours.time && ip >= map.addr && ip - map.addr < map.len;
            let own = self.mapped.iter().filter(holds).rfind(|map| map.pid == ours.pid_tid.0);
            // A forked child has its parent's mappings.
            let map = own.or_else(|| self.mapped.iter().rfind(holds))?;
            Some(ip - map.addr + map.file_offset)
        };
        let same = |(&ours, &theirs): (&u64, &u64)| ours == theirs || offset(ours) == Some(theirs);
        ours.ips.len() == theirs.ips.len() && ours.ips.iter().zip(&theirs.ips).all(same)
    }
}

/// Decodes the recording.
fn decoded(path: &Path, fields: &str) -> Decoded {
    let has = |name: &str| fields.trim().split(',').any(|field| field == name);
    let file = BufReader::new(fs::File::open(path).expect("the recording"));
    let mut walker = Walker::open(file, path).expect("a sound recording");
    let Decoded { mut rows, mut comms, mut mapped } = Decoded::default();
    let mut other = 0;
    while let Some(item) = walker.next().expect("sound records") {
        let (header, offset, body) = (item.header, item.offset, item.body.to_vec());
        let record = walker.session().decode(header, &body, offset).expect("a sound record");
        match record {
            Record::Sample(event, sample) => {
                let chain = sample.callchain.map(|chain| chain.iter().filter(|&ip| ip < CONTEXT_MAX).collect());
                rows.push(Row {
                    time: sample.time.expect("a time"),
                    pid_tid: sample.pid_tid.expect("a task"),
                    cpu: sample.cpu.map(|cpu| cpu.0).filter(|_| has("cpu")),
                    period: sample.period.or(walker.session().events()[event].period()).expect("a period"),
                    event: event.to_string(),
                    addr: sample.addr.expect("an address"),
                    data_src: sample.data_src.filter(|_| has("data_src")),
                    phys_addr: sample.phys_addr.filter(|_| has("phys_addr")),
                    ips: chain.unwrap_or_else(|| sample.ip.into_iter().collect()),
                });
            }
            Record::SideBand(SideBand::Comm { name, by_exec: true, .. }, _) => {
                comms.push(String::from_utf8_lossy(name).into_owned());
            }
            Record::SideBand(SideBand::Mmap(map), id) => mapped.push(Mapped {
                time: id.time.unwrap_or(0),
                pid: map.pid,
                addr: map.addr,
                len: map.len,
                file_offset: map.file_offset,
            }),
            Record::SideBand(..) => other += 1,
        }
    }
    assert!(other > 0 && walker.torn_at().is_none() && walker.problems().is_empty(), "{:?}", walker.problems());
    let features = walker.features();
    for row in &mut rows {
        let index: usize = row.event.parse().unwrap();
        row.event = features.event_names[index].0.trim_end_matches(":u").to_owned();
    }
    assert!(!features.hostname.is_empty() && !features.nodes.is_empty() && features.memory_block_bytes > 0);
    assert!(features.command.iter().any(|word| word == "record"), "{:?}", features.command);
    rows.sort();
    mapped.sort_by_key(|map| map.time);
    Decoded { rows, comms, mapped }
}

/// Compares every recording in a folder; how many rows were equal.
fn compare(folder: &Path) -> usize {
    let mut names: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.retain(|path| path.is_file() && path.extension().is_some_and(|extension| extension == "data"));
    names.sort();
    assert!(names.len() >= 6, "{} recordings in {}", names.len(), folder.display());
    let mut total = 0;
    for path in names {
        let read = |extension: &str| fs::read_to_string(path.with_extension(extension)).unwrap();
        let fields = read("fields");
        let recording = decoded(&path, &fields);
        let (ours, comms) = (&recording.rows, &recording.comms);
        let theirs = printed(&read("txt"), &fields);
        assert!(!theirs.is_empty(), "{}", path.display());
        assert_eq!(ours.len(), theirs.len(), "{}", path.display());
        for (ours, theirs) in ours.iter().zip(&theirs) {
            assert!(recording.same_ips(ours, theirs), "{}:\n{ours:x?}\n{theirs:x?}", path.display());
            assert_eq!(ours, &Row { ips: ours.ips.clone(), ..theirs.clone() }, "{}", path.display());
        }
        assert!(comms.iter().any(|name| name == "ls" || name == "sh"), "{}: {comms:?}", path.display());
        total += ours.len();
    }
    total
}

#[test]
fn committed_recordings_decode_to_what_perf_prints() {
    let rows = compare(&folder());
    eprintln!("{rows} samples equal in every field");
    assert!(rows > 200);
}

/// A full record of a `-z` recording holds several compressed ones; cutting the file anywhere must give what comes before, and say where it ends.
#[test]
fn a_cut_recording_gives_what_comes_before() {
    let path = folder().join("callgraph.data");
    let whole = fs::read(&path).unwrap();
    let count = |bytes: &[u8]| {
        let mut walker = Walker::open(std::io::Cursor::new(bytes), &path).ok()?;
        let mut records = 0;
        while walker.next().ok()?.is_some() {
            records += 1;
        }
        Some((records, walker.torn_at().is_some() || !walker.problems().is_empty()))
    };
    let (all, is_torn) = count(&whole).unwrap();
    assert!(all > 100 && !is_torn);
    let mut last = 0;
    for cut in (0..whole.len()).step_by(97) {
        let Some((records, told)) = count(&whole[..cut]) else { continue };
        assert!(records >= last && told, "cut at {cut}: {records} records, told: {told}");
        last = records;
    }
    assert!(last > 100);
}

#[test]
fn new_recordings_decode_to_what_perf_prints() {
    let out = std::env::temp_dir().join(format!("numapilot-recordings-{}", std::process::id()));
    fs::create_dir_all(&out).unwrap();
    let made = Command::new(folder().join("make-recordings")).arg(&out).output();
    match made {
        Ok(output) if output.status.success() => {
            eprintln!("{} samples of new recordings equal in every field", compare(&out));
        }
        Ok(output) => {
            numapilot_not_run::not_run!(PerfRecord, "{}", String::from_utf8_lossy(&output.stderr));
        }
        Err(error) => numapilot_not_run::not_run!(PerfRecord, "no recordings could be made: {error}"),
    }
    let _ = fs::remove_dir_all(&out);
}
