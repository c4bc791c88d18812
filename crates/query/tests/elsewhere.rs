//! The same views and scripts in other engines: what DuckDB and Polars answer must be our bytes. Spark joins in `make bench` (tools/fleet-check).

use crate::common::{answer, fleet, fleet_check, scratch, text, trace};
use numapilot_fixtures::Kind;

#[test]
fn twenty_hosts_by_duckdb_and_polars() {
    let scratch = scratch();
    // A name that engines take for a pattern.
    let folder = scratch.path().join("fleet [1]");
    fleet(20, &folder);
    // A name that a less careful engine takes for a number, and one with an escape.
    std::fs::rename(folder.join("host=h0000"), folder.join("host=007")).expect("renamed");
    std::fs::rename(folder.join("host=h0001"), folder.join("host=a%20b")).expect("renamed");
    let said = fleet_check(&["--engines", "duckdb,polars", "--fleet", text(&folder)]);
    assert_eq!(said.matches("the same bytes").count(), 2, "{said}");
}

#[test]
fn runs_without_their_metadata_are_not_named_to_other_engines() {
    let folder = scratch();
    fleet(2, folder.path());
    std::fs::remove_file(folder.path().join("host=h0001/run=2026-11-02/meta.json")).expect("removed");
    for engine in ["duckdb", "spark", "polars"] {
        let said = answer(&[text(folder.path()), "--views-for", engine]);
        assert!(!said.contains("host=*"), "{engine}: {said}");
        assert!(!said.contains("run=2026-11-02"), "{engine}: {said}");
        for run in ["host=h0000/run=2026-11-01/accesses.parquet", "host=h0001/run=2026-11-01/objects.parquet"] {
            assert!(said.contains(run), "{engine}: {said}");
        }
    }
}

#[test]
fn a_fleet_with_an_unfinished_run_by_duckdb_and_polars() {
    let scratch = scratch();
    let folder = scratch.path().join("fleet [1]");
    fleet(4, &folder);
    let unfinished = folder.join("host=h0003/run=2026-11-02");
    std::fs::remove_file(unfinished.join("meta.json")).expect("removed");
    std::fs::remove_file(unfinished.join("objects.parquet")).expect("removed");
    let said = fleet_check(&["--engines", "duckdb,polars", "--fleet", text(&folder)]);
    assert_eq!(said.matches("the same bytes").count(), 2, "{said}");
}

#[test]
fn every_script_by_duckdb() {
    let folder = scratch();
    let make = |kind: Kind, accesses, objects| {
        let path = folder.path().join(format!("{} it's [1].numatrace", kind.word()));
        trace(kind, accesses, objects, 3, &path);
        path
    };
    let made = [
        make(Kind::Losses, 5000, 200),
        make(Kind::Latency, 5000, 200),
        make(Kind::HostileNames, 3000, 300),
        make(Kind::OneAccess, 1, 1),
        make(Kind::Empty, 0, 0),
    ];
    let mut arguments = vec!["--trace"];
    arguments.extend(made.iter().map(|path| text(path)));
    let said = fleet_check(&arguments);
    assert_eq!(said.matches("the same bytes").count(), 8 * made.len(), "{said}");
}
