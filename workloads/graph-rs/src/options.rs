//! Command-line options, with the names, limits and exit statuses of the other workloads.

use std::process::exit;

/// A bad option.
pub const EXIT_USAGE: i32 = 2;
const HELP: &str = "\
graph-rs: parallel breadth-first search and connected components

Usage: graph-rs [options]

Options:
  --size test|small|medium|large     preset of the sizes below [small]
  --variant naive|partitioned        who builds, and so places, the graph [naive]
  --threads N                        threads that share the work [16]
  --seed N                           seed of everything random; the output depends on it alone [1]
  --scale N                          log2 of the number of vertices, 4 to 28
  --degree N                         edges per vertex, 1 to 1000
  --searches N                       breadth-first searches from different roots
  --help                             this text

Exit status: 0 verified result, 1 wrong result, 2 bad option, 3 the system refused something
";

/// What was asked for.
pub struct Options {
    pub partitioned: bool,
    pub threads: usize,
    pub seed: u64,
    pub scale: u32,
    pub degree: u64,
    pub searches: u64,
}

fn refuse(message: &str) -> ! {
    eprintln!("graph-rs: {message}");
    exit(EXIT_USAGE)
}

fn number(name: &str, text: &str, low: u64, high: u64) -> u64 {
    // u64's own parser takes a leading "+".
    let parsed = text.parse::<u64>().ok().filter(|_| text.bytes().all(|b| b.is_ascii_digit()));
    match parsed {
        Some(n) if (low..=high).contains(&n) => n,
        Some(_) => refuse(&format!("{name} must lie between {low} and {high}, not {text}")),
        None => refuse(&format!("{name} takes a whole number, not `{text}`")),
    }
}

/// Reads the process's arguments; prints the help or a complaint and ends the process where they ask for it.
pub fn parse() -> Options {
    let (mut size, mut partitioned, mut threads, mut seed) = (1, false, 16, 1);
    let (mut scale, mut degree, mut searches) = (None, None, None);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        if argument == "--help" || argument == "-h" {
            print!("{HELP}");
            exit(0);
        }
        let (name, given) = match argument.split_once('=') {
            Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
            None => (argument, None),
        };
        if !["--size", "--variant", "--threads", "--seed", "--scale", "--degree", "--searches"].contains(&name.as_str())
        {
            refuse(&format!("no such option: `{name}` (--help lists them)"));
        }
        let value = given.or_else(|| arguments.next()).unwrap_or_else(|| refuse(&format!("{name} needs a value")));
        match name.as_str() {
            "--size" => {
                size = ["test", "small", "medium", "large"].iter().position(|s| *s == value).unwrap_or_else(|| {
                    refuse(&format!("--size must be one of test|small|medium|large, not `{value}`"))
                });
            }
            "--variant" => {
                partitioned = match value.as_str() {
                    "naive" => false,
                    "partitioned" => true,
                    _ => refuse(&format!("--variant must be one of naive|partitioned, not `{value}`")),
                };
            }
            "--threads" => threads = number(&name, &value, 1, 1024) as usize,
            "--seed" => seed = number(&name, &value, 0, u64::MAX),
            "--scale" => scale = Some(number(&name, &value, 4, 28) as u32),
            "--degree" => degree = Some(number(&name, &value, 1, 1000)),
            _ => searches = Some(number(&name, &value, 1, 1_000_000)),
        }
    }
    let (preset_scale, preset_degree, preset_searches) = [(12, 8, 2), (19, 8, 6), (22, 16, 8), (24, 16, 16)][size];
    Options {
        partitioned,
        threads,
        seed,
        scale: scale.unwrap_or(preset_scale),
        degree: degree.unwrap_or(preset_degree),
        searches: searches.unwrap_or(preset_searches),
    }
}
