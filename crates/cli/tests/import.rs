//! `numapilot import`, from files of perf to the report: recordings made with perf (`testdata/perf`) and synthesised ones of the hardware's forms
//! (`testdata/perf-streams`), whose every access is known.

use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::Stdio;

use crate::common::*;
use serde_json::Value;

fn testdata(name: &str) -> PathBuf {
    root().join("testdata").join(name)
}

/// Imports a file; `meta.json` and the report.
fn imported(input: &Path, folder: &Path) -> (Value, Value) {
    let trace = folder.join("t.numatrace");
    let trace = trace.to_str().expect("UTF-8");
    run(&["import", "--force", "-o", trace, input.to_str().expect("UTF-8")]).succeeded();
    let meta = fs::read(Path::new(trace).join("meta.json")).expect("meta.json");
    let report = run(&["report", trace, "--json"]).succeeded().stdout;
    (serde_json::from_slice(&meta).expect("JSON"), serde_json::from_str(&report).expect("JSON"))
}

/// How the synthesised accesses were made (`truth` in `crates/perf/src/testing/streams.rs`): of the 560 numbers, those that pass.
fn numbers(pass: impl Fn(u64) -> bool) -> u64 {
    (0..560).filter(|&number| pass(number)).count() as u64
}

fn is_remote(number: u64) -> bool {
    matches!(number % 8, 1 | 3 | 5 | 6)
}

fn is_write(number: u64) -> bool {
    number % 10 == 9
}

/// No cache of the core answered: memory, or unknown.
fn is_memory(number: u64) -> bool {
    if is_write(number) { !number.is_multiple_of(7) } else { matches!(number % 7, 3 | 4 | 6) }
}

/// Loads that missed the first cache.
fn has_latency(number: u64) -> bool {
    !is_write(number) && !number.is_multiple_of(7)
}

/// Every access stands for the period, of SPE for what its driver makes of that.
const PERIOD: u64 = 10_000;

#[test]
fn an_import_that_is_killed_leaves_the_older_trace() {
    let folder = scratch();
    let trace = folder.path().join("t.numatrace");
    let (trace, input) = (trace.to_str().expect("UTF-8"), testdata("perf-streams/pebs.data"));
    let import = ["import", "--force", "-o", trace, input.to_str().expect("UTF-8")];
    run(&import).succeeded();
    let before = run(&["report", trace]).succeeded().stdout;
    // The kernel ends who writes more to a file than one block of 512 or 1,024 bytes.
    let mut limited = std::process::Command::new("sh");
    let ran = finish(limited.args(["-c", "ulimit -f 1; exec \"$@\"", "sh", BINARY]).args(import));
    assert_ne!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(run(&["report", trace]).succeeded().stdout, before);
}

#[test]
fn synthesised_streams_of_every_kind_give_the_accesses_they_were_made_of() {
    let folder = scratch();
    for (name, unknown_fills, latencies) in [
        ("ibs-zen4.data", false, numbers(has_latency)),
        ("pebs.data", false, numbers(has_latency)),
        ("pebs-big-endian.data", false, numbers(has_latency)),
        // No core tells that a line fill was under way, so that level stays unknown.
        ("spe-neoverse-n1.data", true, numbers(has_latency)),
    ] {
        let (meta, report) = imported(&testdata("perf-streams").join(name), folder.path());
        let memory = |n: u64| is_memory(n) || (unknown_fills && n % 7 == 5);
        assert_eq!(meta["engine"], "import", "{name}");
        assert_eq!(meta["simulated"], false, "{name}");
        assert_eq!(meta["import"]["accesses"], 560, "{name}");
        assert_eq!(meta["import"]["with_home"], 560, "{name}");
        assert_eq!(meta["import"]["with_cpu"], 560, "{name}");
        assert_eq!(meta["import"]["with_latency"], latencies, "{name}");
        assert_eq!(meta["import"]["answered_by_caches"], numbers(|n| !memory(n)), "{name}");
        assert_eq!(meta["duration_ns"], 559 * 1000 + 100, "{name}");
        let totals = &report["headline"]["totals"];
        assert_eq!(totals["samples"], numbers(memory), "{name}");
        // The driver of SPE drops what is no multiple of 256.
        let period = if name.starts_with("spe") { PERIOD / 256 * 256 } else { PERIOD };
        assert_eq!(totals["accesses"]["value"].as_f64(), Some((numbers(memory) * period) as f64), "{name}");
        let remote = numbers(|n| memory(n) && is_remote(n)) as f64 / numbers(memory) as f64;
        let found = totals["remote_share"]["value"].as_f64().expect("a share");
        assert!((found - remote).abs() < 1e-9, "{name}: {found} for {remote}");
        let writes = numbers(|n| memory(n) && is_write(n)) as f64 / numbers(memory) as f64;
        let found = totals["write_share"]["value"].as_f64().expect("a share");
        assert!((found - writes).abs() < 1e-9, "{name}: {found} for {writes}");
        let top = &report["headline"]["top"];
        assert_eq!((&top["name"], &top["kind"]), (&"allocator".into(), &"allocator".into()), "{name}");
        // Loads from memory take 200 cycles from the own node and 300 from the other.
        let (mut sum, mut count) = (0.0, 0.0);
        for number in (0..560).filter(|&n| memory(n) && !is_write(n)) {
            let fill = number % 7 == 5;
            sum += if fill { 90.0 } else { 200.0 + 100.0 * f64::from(is_remote(number)) };
            count += 1.0;
        }
        let latency = top["mean_latency_cycles"].as_f64().expect("a latency");
        assert!((latency - sum / count).abs() < 1e-6, "{name}: {latency}");
    }
}

/// The machine of the synthesised recordings, as a model: 2 GHz, so that their 200 cycles are 100 ns.
const TWO_NODES: &str = r#"
format = 1
name = "synthetic-two"
cpu = "made up"
clock_mhz = { value = 2000, source = "made up" }
[sources]
"made up" = "made up"
[[nodes]]
ids = [0, 1]
cpus = ["0-1", "2-3"]
source = "made up"
memory_gib = { value = 4, source = "made up" }
memory_bandwidth_gb_per_s = { value = 1000, source = "made up" }
[[links]]
pairs = [[0, 1]]
both_ways = true
kind = "link"
bandwidth_gb_per_s = { value = 1000, source = "made up" }
[[idle_latency]]
hops = 0
ns = { value = 90, source = "made up" }
[[idle_latency]]
hops = 1
ns = { value = 160, source = "made up" }
"#;

/// With a model of the machine, imports have predictions, and the latencies that were measured stand beside the model's.
#[test]
fn a_model_of_the_machine_gives_predictions_beside_measured_latencies() {
    let folder = scratch();
    let model = folder.path().join("two.toml");
    fs::write(&model, TWO_NODES).expect("a file");
    let (model, trace) = (model.display().to_string(), folder.path().join("t.numatrace").display().to_string());
    let input = testdata("perf-streams/pebs.data").display().to_string();
    let import = |machine: &str| run(&["import", "--force", "-o", &trace, "--machine", machine, &input]);
    import(&model).succeeded();
    let found = run(&["whatif", &trace, "--set", "*=interleave", "--json"]).succeeded().stdout;
    let found: Value = serde_json::from_str(&found).expect("JSON");
    assert_eq!(found["machine"], "synthetic-two");
    let measured = found["measured_latency"].as_array().expect("a list");
    // Node 1 made too few loads from its own memory to compare: 24.
    let pairs: Vec<_> = measured.iter().map(|pair| (pair["from"].as_u64(), pair["home"].as_u64())).collect();
    assert_eq!(pairs, [(Some(0), Some(0)), (Some(0), Some(1)), (Some(1), Some(0))], "{found}");
    for pair in measured {
        let of = |value: &Value| value.as_f64().expect("a number");
        let (ns, idle_ns) = if pair["from"] == pair["home"] { (100.0, 90.0) } else { (150.0, 160.0) };
        assert!((of(&pair["measured_ns"]["value"]) - ns).abs() < 1e-6, "cycles of 2 GHz: {pair}");
        assert!(of(&pair["predicted_ns"]) >= 0.99 * idle_ns, "under load: {pair}");
    }
    let text = run(&["whatif", &trace, "--set", "*=interleave"]).succeeded().stdout;
    assert!(text.contains("from node 0 to memory of node 0") && text.contains("100 ± 0 ns"), "{text}");
    let refused = import("opteron-8385");
    assert_ne!(refused.code, 0);
    assert!(Path::new(&trace).join("meta.json").is_file(), "what was imported before is kept");
    assert!(
        refused.stderr.contains("the recording is of nodes 0, 1, the model of nodes 0, 1, 2, 3"),
        "{}",
        refused.stderr
    );
}

/// Which latencies can narrow an interval depends on the sampler and the clock: the prediction says why none do.
#[test]
fn a_calibration_that_the_recording_cannot_bear_says_why() {
    let folder = scratch();
    let model = folder.path().join("two.toml");
    fs::write(&model, TWO_NODES).expect("a file");
    let (model, trace) = (model.display().to_string(), folder.path().join("t.numatrace").display().to_string());
    let whatif = |name: &str, more: &[&str]| {
        let input = testdata(&format!("perf-streams/{name}")).display().to_string();
        let import: &[&str] = &["import", "--force", "-o", &trace, "--machine", &model, &input];
        run(&[import, more].concat()).succeeded();
        let asked = run(&["whatif", &trace, "--set", "*=interleave", "--calibrate", "--json"]).succeeded().stdout;
        let plain = run(&["whatif", &trace, "--set", "*=interleave", "--json"]).succeeded().stdout;
        let (asked, plain): (Value, Value) =
            (serde_json::from_str(&asked).expect("JSON"), serde_json::from_str(&plain).expect("JSON"));
        assert_eq!((&asked["gain_low"], &asked["gain_high"]), (&plain["gain_low"], &plain["gain_high"]), "{name}");
        assert!(plain["uncertainty"]["calibration"].is_null(), "{plain}");
        asked["uncertainty"]["calibration"]["not_used"].as_str().expect("a reason").to_owned()
    };
    let of_pebs = whatif("pebs.data", &["--core-mhz-max", "2000"]);
    assert!(of_pebs.contains("Only latencies of AMD's IBS"), "{of_pebs}");
    let without_clock = whatif("ibs-zen4.data", &[]);
    assert!(without_clock.contains("--core-mhz-max"), "{without_clock}");
    // The recording's samples stand for far more accesses than a thread makes in its time.
    let too_many = whatif("ibs-zen4.data", &["--core-mhz-max", "2000"]);
    assert!(too_many.contains("accesses outstanding"), "{too_many}");
    let text = run(&["whatif", &trace, "--set", "*=interleave", "--calibrate"]).succeeded().stdout;
    assert!(text.contains("Not calibrated by measured latencies. Threads keep"), "{text}");
    let meta = fs::read_to_string(Path::new(&trace).join("meta.json")).expect("a file");
    let meta: Value = serde_json::from_str(&meta).expect("JSON");
    assert_eq!(meta["host"]["core_khz_max"], 2_000_000);
    assert_eq!(meta["config"]["events"][0]["config1"], 0);
}

/// Without physical addresses, on two nodes: the page's home is the node of the CPU that touched it first, and a note says so.
#[test]
fn first_touches_give_pages_their_homes() {
    let folder = scratch();
    let (meta, report) = imported(&testdata("perf-streams/page-faults.data"), folder.path());
    assert_eq!(meta["import"]["home_by_first_touch"], 560);
    assert_eq!(meta["tables"]["placements"]["rows"], 560);
    assert!(meta["notes"].to_string().contains("those of the page's first touch"), "{}", meta["notes"]);
    let totals = &report["headline"]["totals"];
    // First touches are local by construction: a share of them would read as one of accesses.
    assert!(totals["remote_share"].is_null(), "{totals}");
    assert_eq!(report["headline"]["verdict"], "page-faults");
    let served: Vec<f64> =
        totals["served"].as_array().expect("nodes").iter().filter_map(|node| node["value"].as_f64()).collect();
    assert_eq!(served, [280.0, 280.0]);
}

#[test]
fn recordings_of_perf_become_traces() {
    let folder = scratch();
    for (name, samples) in [("callgraph", 163), ("physical", 22), ("compressed", 32), ("pipe", 163), ("switches", 163)]
    {
        let (meta, report) = imported(&testdata("perf").join(name).with_extension("data"), folder.path());
        let import = &meta["import"];
        assert!(import["samples"].as_u64().expect("a count") >= samples.min(20), "{name}: {import}");
        assert_eq!(import["undecodable_records"], 0, "{name}");
        assert_eq!(import["page_faults"], import["accesses"], "{name}: every page fault has an address");
        assert_eq!(meta["command"][0], "sh", "{name}");
        assert!(meta["host"]["kernel"].as_str().is_some_and(|kernel| kernel.starts_with("6.")), "{name}");
        assert_eq!(report["recording"]["process_count"], 3, "{name}: a shell, its fork, and what that became by exec");
        assert!(
            meta["duration_ns"].as_u64().is_some_and(|ns| ns > 0 && ns < 10_000_000_000),
            "{name}: {}",
            meta["duration_ns"]
        );
        let notes = meta["notes"].to_string();
        assert!(notes.contains("page faults: they show which thread touched each page first"), "{name}: {notes}");
        // One node: every home is known without physical addresses.
        assert_eq!(import["with_home"], import["accesses"], "{name}");
    }
}

#[test]
fn call_chains_reach_the_report() {
    let folder = scratch();
    let trace = folder.path().join("c.numatrace");
    let trace = trace.to_str().expect("UTF-8");
    let input = testdata("perf/callgraph.data");
    run(&["import", "-q", "-o", trace, input.to_str().expect("UTF-8")]).succeeded();
    let report = run(&["report", trace, "--stacks", "--json"]).succeeded().stdout;
    let report: Value = serde_json::from_str(&report).expect("JSON");
    let stacks = report["stacks"].as_array().expect("stacks");
    let deep = stacks.iter().filter(|stack| stack["frames"].as_array().is_some_and(|frames| frames.len() >= 2));
    assert!(deep.count() > 0, "{report}");
}

#[test]
fn standard_input_gives_the_same_as_the_file() {
    let folder = scratch();
    let input = testdata("perf/pipe.data");
    let (from_file, _) = imported(&input, folder.path());
    let trace = folder.path().join("stdin.numatrace");
    let file = fs::File::open(&input).expect("the recording");
    let mut command = numapilot(&["import", "-q", "-", "-o", trace.to_str().expect("UTF-8")]);
    finish(command.stdin(Stdio::from(file))).succeeded();
    let meta: Value = serde_json::from_slice(&fs::read(trace.join("meta.json")).expect("meta")).expect("JSON");
    assert_eq!(meta["import"], from_file["import"]);
    assert_eq!(meta["tables"]["accesses"]["rows"], from_file["tables"]["accesses"]["rows"]);
}

/// Bad files give one message that names file, place and remedy, and leave nothing behind.
#[test]
fn what_is_no_sound_recording_is_refused_by_name() {
    let folder = scratch();
    let output = folder.path().join("bad.numatrace");
    let refuse = |bytes: &[u8], words: &[&str]| {
        let input = folder.path().join("bad.data");
        fs::write(&input, bytes).expect("a file");
        let ran = run(&["import", "-o", output.to_str().expect("UTF-8"), input.to_str().expect("UTF-8")]);
        assert_eq!(ran.code, 1, "{}", ran.stderr);
        for word in words.iter().chain(&["bad.data"]) {
            assert!(ran.stderr.contains(word), "{word:?} is not in: {}", ran.stderr);
        }
        assert!(!output.exists(), "something was left behind");
    };
    let whole = fs::read(testdata("perf/callgraph.data")).expect("the recording");
    refuse(b"", &["is empty", "record again"]);
    refuse(b"PERFFILE\x68\0\0\0\0\0\0\0", &["version 1", "newer perf"]);
    refuse(&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3], &["by gzip", "gunzip <FILE"]);
    refuse(b"<html>not a recording</html>", &["is not a perf.data file", "perf record"]);
    refuse(&whole[..50], &["at byte", "cannot be read"]);
    let mut damaged = whole.clone();
    damaged[8] = 99;
    refuse(&damaged, &["at byte", "header's size"]);
    let folder_input = run(&["import", folder.path().to_str().expect("UTF-8")]);
    assert_eq!(folder_input.code, 1);
    assert!(folder_input.stderr.contains("is a folder without the file `data`"), "{}", folder_input.stderr);
}

/// A record that claims to be smaller than its own header costs itself: what follows is found again, and the report says what is missing.
#[test]
fn a_damaged_record_costs_itself_and_is_told() {
    let folder = scratch();
    let whole = fs::read(testdata("perf/callgraph.data")).expect("the recording");
    let (sound, _) = imported(&testdata("perf/callgraph.data"), folder.path());
    let first = usize::try_from(u64::from_le_bytes(whole[40..48].try_into().expect("eight"))).expect("a place");
    let mut damaged = whole.clone();
    let second = first + usize::from(u16::from_le_bytes(damaged[first + 6..first + 8].try_into().expect("two")));
    damaged[second + 6] = 3;
    damaged[second + 7] = 0;
    let input = folder.path().join("damaged.data");
    fs::write(&input, damaged).expect("a file");
    let (meta, report) = imported(&input, folder.path());
    assert_eq!(meta["import"]["damaged_places"], 1, "{}", meta["import"]);
    let missing = sound["import"]["samples"].as_u64().unwrap_or(0) - meta["import"]["samples"].as_u64().unwrap_or(0);
    assert!(missing <= 1, "{missing} samples are gone");
    assert!(
        meta["notes"].to_string().contains(&format!("damaged.data: damaged in 1 place, the first at byte {second}"))
    );
    assert!(report["limits"].to_string().contains("1 record of perf, or damaged stretch of them, is missing"));
}

/// Samples of cycles that have addresses: the report says what was sampled, and claims nothing about accesses in any form.
#[test]
fn samples_of_cycles_make_no_claims_about_accesses() {
    let folder = scratch();
    let mut bytes = fs::read(testdata("perf-streams/page-faults.data")).expect("the recording");
    let attrs = usize::try_from(u64::from_le_bytes(bytes[24..32].try_into().expect("eight"))).expect("a place");
    // The event becomes `cycles`: hardware event 0.
    bytes[attrs..attrs + 4].fill(0);
    bytes[attrs + 8..attrs + 16].fill(0);
    let input = folder.path().join("cycles.data");
    fs::write(&input, bytes).expect("a file");
    let (meta, report) = imported(&input, folder.path());
    assert_eq!((&meta["import"]["accesses"], &meta["import"]["other_events"]), (&0.into(), &560.into()));
    assert_eq!(report["headline"]["totals"], Value::Null);
    assert_eq!(report["headline"]["verdict"], "not-sampled");
    assert_eq!((&report["matrix"], &report["links"]), (&Value::Null, &Value::Null));
    let sampled = &report["recording"]["sampled_events"][0];
    assert_eq!(
        (&sampled["event"], &sampled["samples"], &sampled["unit"]),
        (&"cycles".into(), &560.into(), &"cycles".into())
    );
    let trace = folder.path().join("t.numatrace");
    let trace = trace.to_str().expect("UTF-8");
    let page = folder.path().join("page.html");
    let text = run(&["report", trace, "--html", page.to_str().expect("UTF-8")]).succeeded().stdout;
    assert!(text.contains("unknown: no event of memory accesses was sampled"), "{text}");
    assert!(text.contains("560 samples of `cycles` for 560 cycles"), "{text}");
    assert!(!text.contains("OBJECTS") && !text.contains(" remote"), "{text}");
    let page = fs::read_to_string(page).expect("the page");
    assert!(page.contains("Memory accesses were not sampled"), "the page's summary");
    let check = run(&["check", "--max-remote", "90%", "--trace", trace]);
    assert_ne!(check.code, 0, "a limit on what nobody knows was kept: {}", check.stdout);
}

/// Page faults are first touches: the report of an import speaks of pages as that of engine `fault` does.
#[test]
fn imported_page_faults_are_reported_as_first_touches() {
    let folder = scratch();
    let trace = folder.path().join("f.numatrace");
    let trace = trace.to_str().expect("UTF-8");
    let input = testdata("perf-streams/page-faults.data");
    run(&["import", "-q", "-o", trace, input.to_str().expect("UTF-8")]).succeeded();
    let text = run(&["report", trace]).succeeded().stdout;
    assert!(text.contains("Touched first") && text.contains("OBJECTS BY PAGES"), "{text}");
    assert!(!text.contains("memory accesses ("), "{text}");
    let is_of_accesses = |text: &str| {
        let words =
            ["memory access", "sampled access", "of accesses", "ACCESSES\n", " accesses remote", "accesses / s"];
        words.into_iter().find(|words| text.contains(words)).map(str::to_owned)
    };
    for drill in ["--matrix", "--functions", "--stacks", "--threads", "--instances"] {
        let text = run(&["report", trace, drill]).succeeded().stdout;
        // Behind the head and the notes, which say that faults are no accesses.
        let tables = text.splitn(3, "\n\n").nth(2).expect("the tables");
        assert_eq!(is_of_accesses(tables), None, "{drill}: {tables}");
        assert!(tables.to_lowercase().contains("faults"), "{drill}: {tables}");
    }
    for view in ["matrix", "objects", "timeline", "pages", "flame", "imbalance"] {
        let picture = run(&["report", trace, "--svg", "-", "--view", view]).succeeded().stdout;
        assert_eq!(is_of_accesses(&picture), None, "{view}: {picture}");
        assert!(picture.to_lowercase().contains("page fault"), "{view}: {picture}");
    }
    let json: Value = serde_json::from_str(&run(&["report", trace, "--json"]).succeeded().stdout).expect("JSON");
    assert_eq!(json["counted"], "page faults");
    let page = folder.path().join("f.html");
    run(&["report", trace, "--html", page.to_str().expect("UTF-8")]).succeeded();
    let page = fs::read_to_string(&page).expect("the page");
    assert!(
        page.contains("Page faults were recorded, not accesses") && !page.contains("Nothing to fix"),
        "the page's verdict"
    );
    let refused = run(&["check", "--max-remote", "50%", "--trace", trace]);
    assert_ne!(refused.code, 0);
    assert!(refused.stderr.contains("does not show how often memory is accessed"), "{}", refused.stderr);
    let json = run(&["check", "--json", "--max-remote", "50%", "--trace", trace]).stdout;
    assert!(json.contains("\"passed\": false"), "{json}");
}

/// Of hardware's samples many are cache hits: what an object's own rows count are memory accesses, as the report's head does.
#[test]
fn cache_hits_are_no_accesses_of_objects() {
    let folder = scratch();
    let (_, report) = imported(&testdata("perf-streams/ibs-zen4.data"), folder.path());
    let trace = folder.path().join("t.numatrace");
    let trace = trace.to_str().expect("UTF-8");
    let all = report["headline"]["totals"]["samples"].as_u64().expect("a count");
    assert!(all < 560, "{all}");
    let shown = run(&["report", trace, "--json", "--object", "allocator"]).succeeded().stdout;
    let shown: Value = serde_json::from_str(&shown).expect("JSON");
    let threads = shown["objects"][0]["threads"].as_array().expect("threads");
    let samples: u64 = threads.iter().filter_map(|thread| thread["samples"].as_u64()).sum();
    assert_eq!(samples, shown["objects"][0]["row"]["samples"].as_u64().expect("a count"), "{shown}");
    // Nor does such a recording say how many accesses there were over time.
    let refused = run(&["simulate", trace, "--policy", "first-touch", "--machine", "xeon-2s"]);
    assert_ne!(refused.code, 0);
    assert!(refused.stderr.contains("how many accesses its threads made"), "{}", refused.stderr);
}

/// `perf record --threads` writes a folder: one file with the facts, and one per thread with records only.
#[test]
fn folders_of_recorder_threads_are_one_recording() {
    let folder = scratch();
    let (meta, _) = imported(&testdata("perf/threads.data"), folder.path());
    assert_eq!(
        meta["import"]["samples"],
        fs::read_to_string(testdata("perf/threads.txt")).unwrap().trim().parse::<u64>().unwrap()
    );
    assert_eq!(meta["import"]["undecodable_records"], 0);
    assert_eq!(meta["import"]["accesses"], meta["import"]["page_faults"]);
}

#[test]
fn a_recording_that_is_cut_gives_what_it_has_and_says_so() {
    let folder = scratch();
    let whole = fs::read(testdata("perf/callgraph.data")).expect("the recording");
    let cut = folder.path().join("cut.data");
    fs::write(&cut, &whole[..whole.len() / 2]).expect("a file");
    let (meta, _) = imported(&cut, folder.path());
    assert!(meta["import"]["samples"].as_u64().is_some_and(|samples| samples > 10), "{}", meta["import"]);
    assert!(
        meta["notes"].to_string().contains("cut.data: the file ends in the middle of a record at byte"),
        "{}",
        meta["notes"]
    );
}
