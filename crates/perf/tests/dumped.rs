//! Recordings of perf, decoded here and dumped record by record by `perf report -D`: the same records at the same bytes of the file, with the same fields,
//! the side band's as well. (`recordings` compares what `perf script` prints, which are samples only.)

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use numapilot_perf::abi::kind;
use numapilot_perf::file::Walker;
use numapilot_perf::{Mapping, Record, Sample, SideBand, TaskChange};

/// What is written of records, by their places in the file.
type Dump = BTreeMap<u64, String>;

/// Files in which each record stands by itself.
fn recordings() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/perf");
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    let is_plain = |path: &PathBuf| {
        let name = path.file_stem().unwrap_or_default();
        path.is_file() && path.extension().is_some_and(|e| e == "data") && name != "compressed" && name != "pipe"
    };
    paths.retain(is_plain);
    paths.sort();
    paths
}

fn hex(text: &str) -> u64 {
    let digits = text.trim_start_matches("0x");
    u64::from_str_radix(digits, 16).unwrap_or_else(|_| panic!("{text:?} is no hexadecimal number"))
}

/// Reads the dump: the line of each record, and for samples the lines after it that tell of fields.
fn theirs(text: &str) -> Dump {
    let mut dump = Dump::new();
    let mut current: Option<u64> = None;
    for line in text.lines() {
        if let Some((before, record)) = line.split_once("]: PERF_RECORD_") {
            let words: Vec<&str> = before.split_whitespace().collect();
            let [.., time, offset, size] = words[..] else { continue };
            let size = hex(size.trim_start_matches('['));
            current = known(record).map(|record| {
                dump.insert(hex(offset), format!("{time} {size} {record}"));
                hex(offset)
            });
        } else if let Some(text) = current.and_then(|at| dump.get_mut(&at)) {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                [dots, index, ip] if dots.starts_with("....") && index.trim_end_matches(':').parse::<u32>().is_ok() => {
                    *text += &format!(" chain {:x}", hex(ip));
                }
                [".", "data_src:", word] => *text += &format!(" data_src {:x}", hex(word)),
                ["..", "phys_addr:", word] => *text += &format!(" physical {:x}", hex(word)),
                _ => {}
            }
        }
    }
    dump
}

/// A record of a kind that is compared, in one form.
fn known(record: &str) -> Option<String> {
    let numbers = |text: &str| -> Vec<u64> {
        text.split(|c: char| !c.is_ascii_digit())
            .filter(|word| !word.is_empty())
            .map(|word| word.parse().unwrap())
            .collect()
    };
    if let Some(rest) = record.strip_prefix("SAMPLE(") {
        let (_, rest) = rest.split_once("): ")?;
        let words: Vec<&str> = rest.split_whitespace().collect();
        let [task, ip, "period:", period, "addr:", addr] = words[..] else { panic!("another form: {record}") };
        return Some(format!(
            "SAMPLE {} {:x} {period} {:x}",
            task.trim_end_matches(':'),
            hex(ip.trim_end_matches(':')),
            hex(addr)
        ));
    }
    if let Some(rest) = record.strip_prefix("COMM") {
        let (name, task) = rest.split_once(": ")?.1.rsplit_once(':')?;
        let by_exec = rest.starts_with(" exec");
        return Some(format!("COMM {task} {name} {by_exec}"));
    }
    if let Some(rest) = record.strip_prefix("MMAP2 ") {
        let (task, rest) = rest.split_once(": [")?;
        let (range, rest) = rest.split_once("]: ")?;
        let words: Vec<&str> = range.split([' ', '(', ')', '@']).filter(|word| !word.is_empty()).collect();
        let (protection, path) = rest.split_once(' ')?;
        let executable = protection.contains('x');
        return Some(format!(
            "MMAP2 {task} {:x} {:x} {:x} {executable} {path}",
            hex(words[0]),
            hex(words[1]),
            hex(words[2])
        ));
    }
    for name in ["FORK", "EXIT"] {
        if let Some(rest) = record.strip_prefix(name) {
            return Some(format!("{name} {:?}", numbers(rest)));
        }
    }
    let rest = record.strip_prefix("SWITCH")?;
    (!rest.starts_with('_')).then(|| format!("SWITCH out {}", rest.contains("OUT")))
}

fn sample(sample: &Sample<'_>, period: Option<u64>) -> String {
    let (pid, tid) = sample.pid_tid.expect("a task");
    let (ip, period, addr) =
        (sample.ip.expect("an ip"), sample.period.or(period).unwrap_or(0), sample.addr.unwrap_or(0));
    let mut text = format!("SAMPLE {pid}/{tid} {ip:x} {period} {addr:x}");
    for ip in sample.callchain.iter().flat_map(|chain| chain.iter()) {
        text += &format!(" chain {ip:x}");
    }
    text += &sample.data_src.map(|word| format!(" data_src {word:x}")).unwrap_or_default();
    text + &sample.phys_addr.map(|word| format!(" physical {word:x}")).unwrap_or_default()
}

fn side_band(record: &SideBand<'_>) -> Option<String> {
    let task =
        |change: &TaskChange| format!("{:?}", [change.pid.0, change.tid.0, change.parent_pid.0, change.parent_tid.0]);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Some(match record {
        SideBand::Comm { pid, tid, name, by_exec } => format!("COMM {pid}/{tid} {} {by_exec}", text(name)),
        SideBand::Mmap(Mapping { pid, tid, addr, len, file_offset, path, is_executable, .. }) => {
            format!("MMAP2 {pid}/{tid} {addr:x} {len:x} {file_offset:x} {is_executable} {}", text(path))
        }
        SideBand::Fork(change) => format!("FORK {}", task(change)),
        SideBand::Exit(change) => format!("EXIT {}", task(change)),
        SideBand::Switch { out, .. } => format!("SWITCH out {out}"),
        _ => return None,
    })
}

/// Decodes the recording.
fn ours(path: &Path) -> Dump {
    let mut walker = Walker::open(fs::File::open(path).unwrap(), path).expect("a sound recording");
    let mut dump = Dump::new();
    while walker.next().expect("sound records").is_some() {
        let item = walker.current().expect("just given");
        // The older form of mappings, which perf makes up for the kernel's own code.
        if item.header.kind == kind::MMAP {
            continue;
        }
        let session = walker.session();
        let time = session.peek_time(item.header, item.body).unwrap_or(0);
        let record = session.decode(item.header, item.body, item.offset).expect("a sound record");
        let text = match &record {
            Record::Sample(event, s) => Some(sample(s, session.events()[*event].period())),
            Record::SideBand(record, _) => side_band(record),
        };
        if let Some(text) = text {
            dump.insert(item.offset - 8, format!("{time} {} {text}", item.header.size));
        }
    }
    dump
}

#[test]
fn every_record_is_the_one_that_perf_dumps() {
    let (mut records, mut files) = (0, 0);
    for path in recordings() {
        let Ok(output) = Command::new("perf").args(["report", "-D", "-i"]).arg(&path).output() else {
            return numapilot_not_run::not_run!(Perf, "perf is not installed (package linux-perf)");
        };
        let theirs = theirs(&String::from_utf8_lossy(&output.stdout));
        if theirs.is_empty() {
            return numapilot_not_run::not_run!(
                Perf,
                "perf dumps nothing: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        let ours = ours(&path);
        for (at, text) in &theirs {
            assert_eq!(ours.get(at), Some(text), "{} at byte {at:#x}", path.display());
        }
        assert_eq!(ours.len(), theirs.len(), "{}: records that perf has not", path.display());
        records += ours.len();
        files += 1;
    }
    eprintln!("{records} records of {files} files are what perf dumps, field by field");
    assert!(files >= 4 && records > 600, "{records} records of {files} files");
}
