//! The program in a command line of perf: behind `--`, or the first word that is neither an option of perf nor an option's value.

/// Options of `perf record` whose value is the next word (or stands behind `=`), by their letter and name. Values that may be left out stand in the same
/// word and need no entry.
const WITH_VALUE: &[(Option<char>, &str)] = &[
    (Some('c'), "count"),
    (Some('C'), "cpu"),
    (Some('D'), "delay"),
    (Some('e'), "event"),
    (Some('F'), "freq"),
    (Some('G'), "cgroup"),
    (Some('j'), "branch-filter"),
    (Some('k'), "clockid"),
    (Some('m'), "mmap-pages"),
    (Some('o'), "output"),
    (Some('p'), "pid"),
    (Some('r'), "realtime"),
    (Some('t'), "tid"),
    (Some('u'), "uid"),
    (None, "affinity"),
    (None, "call-graph"),
    (None, "clang-opt"),
    (None, "clang-path"),
    (None, "control"),
    (None, "filter"),
    (None, "max-size"),
    (None, "mmap-flush"),
    (None, "num-thread-synthesize"),
    (None, "off-cpu-thresh"),
    (None, "proc-map-timeout"),
    (None, "setup-filter"),
    (None, "switch-max-files"),
    (None, "switch-output-event"),
    (None, "synth"),
    (None, "vmlinux"),
];
/// Its options without a value, or with one that stands in the same word.
const WITHOUT_VALUE: &[&str] = &[
    "aio",
    "all-cgroups",
    "all-cpus",
    "all-kernel",
    "all-user",
    "aux-sample",
    "bpf-event",
    "branch-any",
    "buffering",
    "buildid",
    "buildid-all",
    "buildid-cache",
    "buildid-mmap",
    "code-page-size",
    "compression-level",
    "data",
    "data-page-size",
    "debuginfod",
    "dry-run",
    "exclude-perf",
    "group",
    "inherit",
    "intr-regs",
    "kcore",
    "kernel-callchains",
    "latency",
    "namespaces",
    "no-bpf-event",
    "no-buffering",
    "no-buildid",
    "no-buildid-cache",
    "no-inherit",
    "no-samples",
    "off-cpu",
    "overwrite",
    "per-thread",
    "period",
    "phys-data",
    "quiet",
    "raw-samples",
    "running-time",
    "sample-cpu",
    "sample-identifier",
    "sample-mem-info",
    "samples",
    "snapshot",
    "stat",
    "strict-freq",
    "switch-events",
    "switch-output",
    "tail-synthesize",
    "threads",
    "timestamp",
    "timestamp-boundary",
    "timestamp-filename",
    "transaction",
    "user-callchains",
    "user-regs",
    "verbose",
    "weight",
];
/// Letters of options without a value.
const FLAGS: &str = "abBdginNPqRsTvW";
/// Letters whose value, if there is one, stands in the same word.
const WITH_ATTACHED_VALUE: &str = "ISz";
/// Options of `perf mem record`: with a value, and without.
const MEMORY_WITH_VALUE: &[(Option<char>, &str)] = &[(Some('e'), "event"), (None, "ldlat"), (Some('t'), "type")];
const MEMORY_WITHOUT_VALUE: &[&str] = &["all-kernel", "all-user", "force", "phys-data", "verbose"];
const MEMORY_FLAGS: &str = "fkpuUvD";
/// Of `perf c2c record`; `-p` and `-t` are those of `perf record` there, with a value (`perf_c2c__record` in `tools/perf/builtin-c2c.c`).
const TRANSFERS_WITH_VALUE: &[(Option<char>, &str)] = &[(Some('e'), "event"), (Some('l'), "ldlat")];
const TRANSFERS_WITHOUT_VALUE: &[&str] = &["all-kernel", "all-user", "verbose"];
const TRANSFERS_FLAGS: &str = "kuv";

/// Options of one of perf's commands.
struct Options {
    with_value: &'static [(Option<char>, &'static str)],
    without_value: &'static [&'static str],
    flags: &'static str,
}

const RECORD: Options = Options { with_value: WITH_VALUE, without_value: WITHOUT_VALUE, flags: FLAGS };
const MEMORY: Options =
    Options { with_value: MEMORY_WITH_VALUE, without_value: MEMORY_WITHOUT_VALUE, flags: MEMORY_FLAGS };
const TRANSFERS: Options =
    Options { with_value: TRANSFERS_WITH_VALUE, without_value: TRANSFERS_WITHOUT_VALUE, flags: TRANSFERS_FLAGS };

/// Meaning of a word of the command line.
enum Word {
    Option { takes_next: bool },
    Unknown,
    Other,
}

/// The program that was recorded and its arguments, out of the command line of perf (whose first word is perf itself). Empty: none was started. `None`: an
/// option is not known here, so that its value could be taken for the program.
pub(super) fn program(line: &[String]) -> Option<&[String]> {
    let none = Some(&line[line.len()..]);
    let words = line.get(1..).unwrap_or_default();
    match words.first().map(String::as_str) {
        None => none,
        Some("record") => behind_options(&words[1..], &[&RECORD]),
        Some(command @ ("mem" | "c2c")) => {
            let own = if command == "c2c" { &TRANSFERS } else { &MEMORY };
            let at = words.iter().position(|word| word == "record" || word == "rec")?;
            let rest = &words[at + 1..];
            // Behind the first `--` come options of `perf record`, or the program.
            match rest.iter().position(|word| word == "--") {
                Some(at) if rest.get(at + 1).is_some_and(|word| word.starts_with('-')) => {
                    behind_options(&rest[at + 1..], &[&RECORD])
                }
                _ => behind_options(rest, &[own, &RECORD]),
            }
        }
        // `perf kvm record`, `perf sched record`, ...: each has its own options.
        Some(_) => behind_dashes(words),
    }
}

/// Whether perf lists processes and mappings at the end of the recording, as they are then (`record__synthesize` in `tools/perf/builtin-record.c`).
pub(super) fn lists_tasks_at_end(line: &[String]) -> bool {
    /// The second one asks for the first.
    const OPTIONS: [&str; 2] = ["--tail-synthesize", "--overwrite"];
    /// The shortest beginning of such an option that is unambiguous, in bytes.
    const LEAST_BYTES: usize = 4;
    let own = &line[..line.len() - program(line).map_or(0, <[String]>::len)];
    own.iter().any(|word| word.len() >= LEAST_BYTES && OPTIONS.iter().any(|option| option.starts_with(word.as_str())))
}

fn behind_dashes(words: &[String]) -> Option<&[String]> {
    words.iter().position(|word| word == "--").map(|at| &words[at + 1..])
}

fn behind_options<'a>(words: &'a [String], commands: &[&Options]) -> Option<&'a [String]> {
    let mut at = 0;
    while let Some(word) = words.get(at) {
        if word == "--" {
            return Some(&words[at + 1..]);
        }
        match kind_of(word, commands) {
            Word::Option { takes_next } => at += 1 + usize::from(takes_next),
            Word::Unknown => return behind_dashes(&words[at..]),
            Word::Other => return Some(&words[at..]),
        }
    }
    Some(&words[words.len()..])
}

fn kind_of(word: &str, commands: &[&Options]) -> Word {
    if let Some(name) = word.strip_prefix("--") {
        return commands.iter().map(|options| long(name, options)).find(is_known).unwrap_or(Word::Unknown);
    }
    match word.strip_prefix('-').filter(|letters| !letters.is_empty()) {
        Some(letters) => commands.iter().map(|options| short(letters, options)).find(is_known).unwrap_or(Word::Unknown),
        None => Word::Other,
    }
}

fn is_known(word: &Word) -> bool {
    !matches!(word, Word::Unknown)
}

fn long(name: &str, options: &Options) -> Word {
    let (name, is_whole) = name.split_once('=').map_or((name, true), |(name, _)| (name, false));
    let with_value = options.with_value.iter().map(|(_, known)| *known);
    if with_value.clone().any(|known| known == name) {
        return Word::Option { takes_next: is_whole };
    }
    if options.without_value.contains(&name.strip_prefix("no-").unwrap_or(name))
        || options.without_value.contains(&name)
    {
        return Word::Option { takes_next: false };
    }
    // perf takes the beginning of a name for it, where that is unambiguous.
    let takes = with_value.filter(|known| known.starts_with(name)).count();
    let plain = options.without_value.iter().filter(|known| known.starts_with(name)).count();
    match (takes, plain) {
        (1.., 0) => Word::Option { takes_next: is_whole },
        (0, 1..) => Word::Option { takes_next: false },
        _ => Word::Unknown,
    }
}

fn short(letters: &str, options: &Options) -> Word {
    let mut rest = letters.chars();
    while let Some(letter) = rest.next() {
        if options.with_value.iter().any(|(known, _)| *known == Some(letter)) {
            return Word::Option { takes_next: rest.as_str().is_empty() };
        }
        if WITH_ATTACHED_VALUE.contains(letter) {
            break;
        }
        if !options.flags.contains(letter) {
            return Word::Unknown;
        }
    }
    Word::Option { takes_next: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Command lines as the feature section holds them: perf's path, then its arguments.
    #[test]
    fn the_program_is_found_behind_perfs_own_options() {
        let found = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            program(&words).map(|words| words.join(" "))
        };
        let is = |line: &str, want: &str| assert_eq!(found(line).as_deref(), Some(want), "{line}");
        is("/usr/bin/perf record ./app -x 3", "./app -x 3");
        is("/usr/bin/perf record -e cycles:pp -d -F 999 -o out.data ./app --record", "./app --record");
        is("perf record -ag -F99 --call-graph dwarf,4096 sleep 5", "sleep 5");
        is("perf record --call-graph=fp -z -I --data ./app", "./app");
        is("perf record -z3 --no-buildid --phys ./app", "./app");
        is("perf record -e page-faults -c 1 -d -g -- sh -c true", "sh -c true");
        is("perf record -e cpu-clock -- ./app -- more", "./app -- more");
        is("perf record --latency ./app 1", "./app 1");
        is("perf record -a", "");
        is("perf record -p 4711", "");
        is("perf mem record --phys-data -- --sample-cpu -g -- ./app 1", "./app 1");
        is("perf mem -t load record -a ./app", "./app");
        is("perf mem record ./app -e x", "./app -e x");
        is("perf c2c record --all-user ./app", "./app");
        is("perf c2c record -- -g ./app", "./app");
        // The same letters are another option of `perf mem record`.
        is("perf c2c record -p 4711", "");
        is("perf c2c record -t 4711 -l 50 -F 1000 -u ./app", "./app");
        is("perf mem record -p ./app", "./app");
        is("perf kvm record -a -- ./app", "./app");
        // Options that this list does not know may have a value, which is no program.
        assert_eq!(found("perf record --of-the-future 5 ./app"), None);
        assert_eq!(found("perf record -X 5 ./app"), None);
        is("perf record --of-the-future 5 -- ./app", "./app");
        assert_eq!(found("perf sched record ./app"), None);
        assert_eq!(program(&[]), Some(&[][..]));
    }

    #[test]
    fn a_list_at_the_end_is_known_by_its_options() {
        let is_last = |line: &str| lists_tasks_at_end(&line.split(' ').map(str::to_owned).collect::<Vec<_>>());
        assert!(is_last("perf record -a --tail-synthesize") && is_last("perf record --overw -e page-faults ./app"));
        assert!(!is_last("perf record -o out.data ./app --overwrite") && !is_last("perf record --output x -- ./app"));
        assert!(!is_last("perf record --all-user -a") && !lists_tasks_at_end(&[]));
    }
}
