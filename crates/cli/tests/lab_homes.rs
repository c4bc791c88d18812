//! Page homes on the simulated machine beside a real kernel's, in one run of a workload in the lab: its threads run on
//! the nodes that the simulated machine has them on, and the kernel says where each page is.

mod common;

use common::*;
use numapilot_lab::Lab;
use numapilot_lab::Topology;
use numapilot_lab::homes::Comparison;

const TEST: &str = "pages_have_the_same_homes_as_on_a_real_kernel";

#[test]
fn pages_have_the_same_homes_as_on_a_real_kernel() {
    if !numapilot_lab::wanted(TEST) {
        return;
    }
    let program = workload("psearchy").display().to_string();
    let command = [program.as_str(), "--size", "test", "--threads", "4"].map(str::to_owned);
    let comparison = Comparison {
        recorder: BINARY.into(),
        engine: "instrument".to_owned(),
        machine: "opteron-8385".to_owned(),
        command: command.into(),
        folder: None,
    };
    let compared = comparison.run(&Lab::new(Topology::opteron(4)).icount(true)).expect("the lab");
    assert_eq!(compared.exit, 0, "{}", compared.stdout);
    let data = compared.homes.sum(|kind| matches!(kind, "heap" | "anonymous" | "static"));
    eprintln!("{}: {data:?}, same by node: {:?}", compared.how, compared.homes.same_on);
    // A program whose pages are all on one node would show nothing.
    assert!(
        compared.homes.same_on.values().filter(|&&pages| pages >= 100).count() >= 4,
        "{:?}",
        compared.homes.same_on
    );
    assert!(data.share_explained() >= 0.99, "{data:?}: {:x?}", compared.homes.examples);
    // Reasons that are known explain a few pages per thread, no more.
    assert!(data.share_same() >= 0.98, "{data:?}");
}
