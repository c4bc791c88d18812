//! The program as its users meet it: formats, files that appear whole or not at all, limits, and what it says to mistakes and damage.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::common::{answer, complaint, query, scratch, text, trace};
use numapilot_fixtures::Kind;
use numapilot_trace::meta::Meta;

fn made() -> &'static str {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    let path = MADE.get_or_init(|| {
        let path = numapilot_scratch::scratch().join("odd name #1 é 100%.numatrace");
        trace(Kind::Losses, 5000, 100, 3, &path);
        path
    });
    text(path)
}

#[test]
fn every_table_and_view_can_be_read() {
    let names =
        ["accesses", "objects", "threads", "processes", "modules", "stacks", "frames", "placements", "counters"];
    let more = ["counters_by_home", "syncs", "losses", "marks", "tef", "oef", "pages", "stack_functions"];
    for name in names.iter().chain(&more) {
        let counted = answer(&[made(), &format!("select count(*) as n from {name}"), "--format", "csv"]);
        assert!(counted.starts_with("n\n"), "{name}: {counted}");
        answer(&[made(), &format!("select * from {name} limit 3")]);
    }
    assert_eq!(
        answer(&[made(), "select count(*) as n, min(access) as a, max(access) as z from tef", "--format", "csv"]),
        "n,a,z\n5000,0,4999\n"
    );
}

#[test]
fn flows_are_in_order_and_hold_what_the_tables_hold() {
    let sorted = "select count(*) as n from (select time_ns, lag(time_ns) over (order by access) as before_ns from tef) where before_ns > time_ns";
    assert_eq!(answer(&[made(), sorted, "--format", "csv"]), "n\n0\n");
    let sums = "select (select sum(weight) from oef) + (select sum(weight) from tef where object is null) - (select sum(weight) from accesses) as d";
    assert_eq!(answer(&[made(), sums, "--format", "csv"]), "d\n0\n");
    let pages = "select (select sum(accesses) from pages) - (select sum(weight) from tef where is_memory_access) as d";
    assert_eq!(answer(&[made(), pages, "--format", "csv"]), "d\n0\n");
}

#[test]
fn four_formats_tell_the_same() {
    let sql = "select object as o, kind, is_write, home from tef order by access limit 2";
    let csv = answer(&[made(), sql, "--format", "csv"]);
    let json: serde_json::Value = serde_json::from_str(&answer(&[made(), sql, "--format", "json"])).expect("JSON");
    let rows = json.as_array().expect("an array");
    assert_eq!((rows.len(), csv.lines().count()), (2, 3));
    for (line, row) in csv.lines().skip(1).zip(rows) {
        let told: Vec<String> = ["o", "kind", "is_write", "home"]
            .map(|name| match &row[name] {
                serde_json::Value::Null => String::new(),
                serde_json::Value::String(text) => text.clone(),
                other => other.to_string(),
            })
            .to_vec();
        assert_eq!(line, told.join(","));
    }
    let table = answer(&[made(), sql]);
    assert_eq!(table.lines().count(), 4, "{table}");
    let cut = answer(&[made(), "select access from tef", "--rows", "2"]);
    assert!(cut.contains("and 4998 more rows"), "{cut}");
    let empty = answer(&[made(), "select * from tef where false", "--format", "json"]);
    assert_eq!(serde_json::from_str::<serde_json::Value>(&empty).expect("JSON"), serde_json::json!([]));
}

#[test]
fn parquet_can_be_queried_again_by_its_reader() {
    let folder = scratch();
    let path = folder.path().join("out.parquet");
    answer(&[made(), "select thread, weight, name from tef order by access", "-o", text(&path)]);
    use parquet::file::reader::{FileReader, SerializedFileReader};
    let reader = SerializedFileReader::new(fs::File::open(&path).expect("the file is there")).expect("Parquet");
    assert_eq!(reader.metadata().file_metadata().num_rows(), 5000);
    assert_eq!(reader.metadata().file_metadata().schema_descr().num_columns(), 3);
}

#[test]
fn files_appear_whole_or_not_at_all() {
    let folder = scratch();
    let path = folder.path().join("out.csv");
    fs::write(&path, "older").expect("written");
    // Fails in the middle: the first batches are fine.
    let sql = "select access, case when access < 4000 then 1 else 1 / (access - access) end as x from tef";
    complaint(&[made(), sql, "-o", text(&path)], 1);
    assert_eq!(fs::read_to_string(&path).expect("there"), "older");
    answer(&[made(), "select 1 as one", "-o", text(&path)]);
    assert_eq!(fs::read_to_string(&path).expect("there"), "one\n1\n");
    assert_eq!(fs::read_dir(folder.path()).expect("read").count(), 1, "nothing else is left");
    let nowhere = complaint(&[made(), "select 1", "-o", "/no/such/folder/x.csv"], 1);
    assert!(nowhere.contains("/no/such/folder/x.csv"), "{nowhere}");
}

/// No file takes a device's place.
#[test]
fn devices_are_written_and_not_replaced() {
    let folder = scratch();
    let path = folder.path().join("null.csv");
    std::os::unix::fs::symlink("/dev/null", &path).expect("a link");
    answer(&[made(), "select 1 as one", "-o", text(&path)]);
    assert_eq!(fs::read_link(&path).expect("still a link"), Path::new("/dev/null"));
    assert_eq!(answer(&[made(), "select 1 as one", "--format", "csv", "-o", "/dev/stdout"]), "one\n1\n");
}

#[test]
fn mistakes_are_shown_where_they_are() {
    let parser = complaint(&[made(), "select name\nform oef, x y z"], 1);
    assert!(parser.contains("line 2, column") && parser.contains("\n  form oef") && parser.contains('^'), "{parser}");
    let column = complaint(&[made(), "select weihgt from oef"], 1);
    assert!(
        column.contains("weihgt") && column.contains("line 1, column 8") && column.contains("       ^^^^^^"),
        "{column}"
    );
    let table = complaint(&[made(), "select 1 from objcts"], 1);
    assert!(table.contains("objcts"), "{table}");
    let end = complaint(&[made(), "select (1 + "], 1);
    assert!(end.contains('^'), "{end}");
    let ready = complaint(&[made(), "--run", "typos"], 1);
    assert!(ready.contains("typos") && ready.contains("first-touch"), "{ready}");
    complaint(&[made(), "select $site"], 1);
    let unknown = complaint(&[made(), "--run", "first-touch", "--set", "site=3"], 1);
    assert!(unknown.contains("the query has no parameter $site"), "{unknown}");
    let unknown = complaint(&[made(), "select $side", "--set", "side=1", "--set", "site=3"], 1);
    assert!(unknown.contains("the query has no parameter $site"), "{unknown}");
    complaint(&[made(), "--no-such-option"], 2);
}

#[test]
fn it_only_reads() {
    let folder = scratch();
    let out = folder.path().join("out.csv");
    let copy = format!("copy (select 1) to '{}'", text(&out));
    for sql in [
        "create table x as select 1",
        "drop view tef",
        "insert into objects select * from objects",
        "set datafusion.x = 1",
        &copy,
    ] {
        complaint(&[made(), sql], 1);
    }
    let other = format!("create external table t stored as csv location '{}'", text(&out));
    complaint(&[made(), &other], 1);
    complaint(&[made(), "select * from '/etc/passwd'"], 1);
    assert!(!out.exists());
}

#[test]
fn damage_is_told_with_its_file() {
    let folder = scratch();
    let fresh = |name: &str| {
        let path = folder.path().join(name);
        trace(Kind::Latency, 3000, 50, 2, &path);
        path
    };
    let sql = "select count(*), sum(weight) from tef";
    let cut = fresh("cut.numatrace");
    let file = cut.join("accesses.parquet");
    let bytes = fs::read(&file).expect("read");
    fs::write(&file, &bytes[..bytes.len() / 2]).expect("written");
    let said = complaint(&[text(&cut), sql], 1);
    assert!(said.contains("cut.numatrace/accesses.parquet") && said.contains("bytes instead of"), "{said}");
    assert!(answer(&[text(&cut), "select count(*) from objects"]).contains("50"), "the other tables are sound");
    let flipped = fresh("flipped.numatrace");
    let mut bytes = fs::read(flipped.join("objects.parquet")).expect("read");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x40;
    fs::write(flipped.join("objects.parquet"), &bytes).expect("written");
    let said = complaint(&[text(&flipped), sql], 1);
    assert!(said.contains("flipped.numatrace/objects.parquet") && said.contains("checksum"), "{said}");
    let gone = fresh("gone.numatrace");
    fs::remove_file(gone.join("threads.parquet")).expect("removed");
    let said = complaint(&[text(&gone), sql], 1);
    assert!(said.contains("gone.numatrace/threads.parquet"), "{said}");
    fs::write(gone.join("meta.json"), "{").expect("written");
    assert!(complaint(&[text(&gone), sql], 1).contains("meta.json"));
    let nothing = complaint(&[text(folder.path()), sql], 1);
    assert!(nothing.contains("neither a trace nor a fleet"), "{nothing}");
    complaint(&["/no/such/trace", sql], 1);
    let unfinished = folder.path().join("unfinished.numatrace");
    fs::create_dir_all(unfinished.join("raw")).expect("made");
    assert!(complaint(&[text(&unfinished), sql], 1).contains("numapilot report"));
}

/// The checksum of `meta.json`.
fn crc32(bytes: &[u8]) -> u32 {
    let bit = |crc: u32, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
    !bytes.iter().fold(!0_u32, |crc, &byte| (0..8).fold(crc ^ u32::from(byte), bit))
}

/// Makes the only page of a file's first column claim to decompress to 2 GB. The header gets longer by some bytes, and the page shorter by as many.
fn claim_two_gigabytes(path: &Path) -> Vec<u8> {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    let reader = SerializedFileReader::new(fs::File::open(path).expect("the file is there")).expect("Parquet");
    let chunk = reader.metadata().row_group(0).column(0);
    assert_eq!(chunk.dictionary_page_offset(), None);
    let (start, size) = (chunk.data_page_offset() as usize, chunk.compressed_size() as usize);
    let mut bytes = fs::read(path).expect("read");
    let page = &bytes[start..start + size];
    let end_of_number = |at: usize| at + page[at..].iter().position(|byte| byte & 0x80 == 0).expect("an end") + 1;
    // A byte for the field, then a number: the page's type, its size when it is decompressed, and its size in the file.
    let unpacked = 3;
    let stored = end_of_number(unpacked) + 1;
    let rest = end_of_number(stored);
    let longer = 5 - (stored - 1 - unpacked);
    let mut folded = (stored..rest).map(|at| usize::from(page[at] & 0x7f) << (7 * (at - stored))).sum::<usize>();
    folded -= 2 * longer;
    let mut forged = [&page[..unpacked], &[0xfe_u8, 0xff, 0xff, 0xff, 0x0f], &page[stored - 1..]].concat();
    for at in stored..rest {
        let more = if at + 1 < rest { 0x80 } else { 0 };
        forged[at + longer] = (folded & 0x7f) as u8 | more;
        folded >>= 7;
    }
    forged.truncate(size);
    bytes[start..start + size].copy_from_slice(&forged);
    bytes
}

/// A checksum proves no good will: whoever makes a file makes its checksum, too.
#[test]
fn files_that_claim_too_much_are_refused_before_the_engine_believes_them() {
    let folder = scratch();
    let path = folder.path().join("made.numatrace");
    trace(Kind::Latency, 300, 20, 2, &path);
    let mut meta = Meta::read(&path).expect("a meta.json");
    let file = path.join("accesses.parquet");
    let bytes = claim_two_gigabytes(&file);
    fs::write(&file, &bytes).expect("written");
    meta.tables.get_mut("accesses").expect("listed").crc32 = crc32(&bytes);
    meta.tables.get_mut("objects").expect("listed").rows += 1;
    meta.write(&path).expect("written");
    let said = complaint(&[text(&path), "select max(time_ns) from accesses"], 1);
    assert!(
        said.contains("accesses.parquet: column `time_ns` of row group 0: a page decompresses to 2147483647 bytes"),
        "{said}"
    );
    let said = complaint(&[text(&path), "select count(*) from objects"], 1);
    assert!(said.contains("objects.parquet: has ") && said.contains(" rows instead of "), "{said}");
    assert!(answer(&[text(&path), "select count(*) as n from threads", "--format", "csv"]).starts_with("n\n"));
}

#[test]
fn memory_has_a_limit_with_a_remedy() {
    let folder = scratch();
    let path = folder.path().join("made.numatrace");
    trace(Kind::Latency, 200_000, 2000, 2, &path);
    let sql =
        "select address, time_ns, array_agg(weight) as w from accesses group by address, time_ns order by w limit 1";
    let said = complaint(&[text(&path), sql, "--memory", "1"], 1);
    assert!(said.contains("--memory") && said.contains("1 MiB"), "{said}");
    answer(&[text(&path), sql, "--memory", "2000"]);
}

#[test]
fn it_can_be_interrupted_and_leaves_nothing() {
    let folder = scratch();
    let out = folder.path().join("out.csv");
    let sql = "select sum(a.weight * b.weight) + sum(c.weight) from tef a cross join tef b cross join tef c";
    let mut child = Command::new(env!("CARGO_BIN_EXE_numapilot-query"))
        .args([made(), sql, "-o", text(&out)])
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    // Until the engine computes: the file that it will write is there.
    let deadline = Instant::now() + Duration::from_secs(120);
    while fs::read_dir(folder.path()).expect("read").count() == 0 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    // And until it has taken 0.3 s of processor time more.
    let ticks = || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).expect("it runs");
        let (_, fields) = stat.rsplit_once(") ").expect("a name in parentheses");
        fields.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<u64>().expect("a number")).sum::<u64>()
    };
    let computes_from = ticks() + 30;
    while ticks() < computes_from {
        assert!(Instant::now() < deadline, "it does not compute");
        std::thread::sleep(Duration::from_millis(20));
    }
    let pid = i32::try_from(child.id()).expect("a process id");
    // SAFETY: a signal to a child that was not waited for yet.
    unsafe { libc::kill(pid, libc::SIGINT) };
    let start = Instant::now();
    let status = child.wait().expect("it ends");
    assert!(start.elapsed() < Duration::from_secs(60), "it took {:?}", start.elapsed());
    assert_eq!(status.code(), Some(130), "{status}");
    assert_eq!(fs::read_dir(folder.path()).expect("read").count(), 0, "nothing half-written");
}

#[test]
fn queries_come_from_files_and_pipes_and_plans_are_shown() {
    let folder = scratch();
    let path = folder.path().join("q.sql");
    fs::write(&path, "-- a question\nselect 2 as two").expect("written");
    assert_eq!(answer(&[made(), "--file", text(&path), "--format", "csv"]), "two\n2\n");
    let piped = Command::new(env!("CARGO_BIN_EXE_numapilot-query"))
        .args([made(), "--format", "csv"])
        .stdin(fs::File::open(&path).expect("there"))
        .output()
        .expect("it runs");
    assert_eq!(String::from_utf8_lossy(&piped.stdout), "two\n2\n");
    let plan = answer(&[made(), "--explain", "--run", "types"]);
    assert!(plan.starts_with("logical_plan:\n") && plan.contains("/accesses.parquet"), "{plan}");
    let list = answer(&["--list"]);
    for name in ["handover", "fleet-types", "oef", "pages"] {
        assert!(list.contains(name), "{list}");
    }
    let help = query(&["--help"]);
    let help = String::from_utf8_lossy(&help.stdout);
    assert!(help.contains("Examples:") && help.lines().all(|line| line.chars().count() <= 130), "{help}");
}

#[test]
fn nested_nonsense_is_an_error_and_no_crash() {
    let deep = format!("select {}1{}", "(".repeat(5000), ")".repeat(5000));
    complaint(&[made(), &deep], 1);
    let long = format!("select {}1", "1 + ".repeat(200));
    let done = query(&[made(), &long]);
    assert!(done.status.code().is_some_and(|code| code <= 1), "{}", done.status);
    for sql in
        ["", ";", "select", "select 1; select 2", "\0", "select '", "explain", "select file_row_index()", "select $x"]
    {
        let sql = sql.replace('\0', "\u{1}");
        let path = Path::new(made());
        complaint(&[text(path), &sql], 1);
    }
}
