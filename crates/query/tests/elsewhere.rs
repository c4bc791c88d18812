//! The same views and scripts in other engines: what DuckDB and Polars answer must be our bytes. Spark joins in `make bench` (tools/fleet-check).

mod common;

use common::{fleet, fleet_check, scratch, text, trace};
use numapilot_fixtures::Kind;

#[test]
fn twenty_hosts_by_duckdb_and_polars() {
    let folder = scratch();
    fleet(20, folder.path());
    // A name that a less careful engine takes for a number, and one with an escape.
    std::fs::rename(folder.path().join("host=h0000"), folder.path().join("host=007")).expect("renamed");
    std::fs::rename(folder.path().join("host=h0001"), folder.path().join("host=a%20b")).expect("renamed");
    let said = fleet_check(&["--engines", "duckdb,polars", "--fleet", text(folder.path())]);
    assert_eq!(said.matches("the same bytes").count(), 2, "{said}");
}

#[test]
fn every_script_by_duckdb() {
    let folder = scratch();
    let make = |kind: Kind, accesses, objects| {
        let path = folder.path().join(format!("{} it's.numatrace", kind.word()));
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
