//! What `pilot` costs programs that give it little, or the wrong things, to go by: such as are drawn at random, and such as change just when it has moved
//! their pages. All times are simulated.

use numapilot_machine::Machine;
use numapilot_placement::policy_by_name;
use numapilot_random::Random;
use numapilot_simulator::{Options, Simulation, synthetic};

/// How much longer a program runs under `pilot` than where its pages stay, as a share; below 0: it gains.
fn loss(name: &str, text: &str) -> f64 {
    let program = synthetic::parse(text, name).expect("a sound description");
    let machine = Machine::load("opteron-8385").expect("built-in");
    let run = |policy: &str| {
        let mut policy = policy_by_name(policy, &machine, 1).expect("known");
        let simulation = Simulation::new(&program, &machine, Options::default()).expect("they fit");
        simulation.run(policy.as_mut(), &mut |_| true).expect("runs to its end").run_time_ns
    };
    run("pilot") / run("first-touch") - 1.0
}

/// A program of `threads` threads that use one region of memory.
fn head(threads: u64, mib: u64, first_touch: &str, repeat: u64) -> String {
    format!(
        "format = 1\nname = 'random'\nrepeat = {repeat}\n[[region]]\nname = 'r'\nmib = {mib}\nfirst_touch = '{first_touch}'\ngroup = 'g'\n\
         [[group]]\nname = 'g'\nthreads = {threads}\n"
    )
}

/// A phase: `times` times `ms` milliseconds. `work`: accesses per microsecond, outstanding ones, tenths of them that write. `on`: which pages, by whom.
fn phase(name: u64, (times, ms): (u64, u64), work: [u64; 3], on: &str) -> String {
    let [accesses, outstanding, writes] = work;
    format!(
        "[[phase]]\nname = 'p{name}'\ntimes = {times}\n[[phase.work]]\ngroup = 'g'\nms = {ms}\naccesses_per_us = {accesses}\n\
         outstanding = {outstanding}\n[[phase.work.on]]\nregion = 'r'\n{on}writes = 0.{writes}\n"
    )
}

fn one_of<const N: usize>(random: &mut Random, values: [u64; N]) -> u64 {
    values[random.index(N)]
}

/// Phases of 25 to 800 ms, again and again for 1.2 s, in which each thread uses a part of its own, another's, or all use the same.
fn drawn(seed: u64) -> String {
    let mut random = Random::new(seed);
    let threads = one_of(&mut random, [4, 8, 16, 32]);
    let mib = one_of(&mut random, [8, 16, 32, 64]);
    let first_touch = ["parts", "first"][random.index(2)];
    let phases = 1 + random.below(4);
    let span_ms = one_of(&mut random, [25, 50, 100, 200, 400, 800]);
    let mut text = head(threads, mib, first_touch, (1200 / (span_ms * phases)).max(1));
    for number in 0..phases {
        let accesses = one_of(&mut random, [1, 4, 8, 20]);
        let outstanding = 1 + random.below(6);
        let pattern = random.below(3);
        let shift = random.below(threads);
        let ms = one_of(&mut random, [1, 5, 25]);
        let writes = random.below(5);
        let [from, to] = [number, number + 1].map(|part| part as f64 / phases as f64);
        let on = match pattern {
            0 => format!("pattern = 'parts'\nshift = {shift}\n"),
            1 => String::new(),
            _ => format!("from = {from:?}\nto = {to:?}\n"),
        };
        text += &phase(number, ((span_ms / ms).max(1), ms), [accesses, outstanding, writes], &on);
    }
    text
}

/// Of sixty programs of 2.4 s that were drawn in the same way, one lost more than 1 % (1.5 %), and 37 gained as much or more.
#[test]
fn no_program_of_those_drawn_at_random_loses_more_than_a_hundredth() {
    let losses: Vec<f64> = (1000..1012).map(|seed| loss("random", &drawn(seed))).collect();
    for (loss, seed) in losses.iter().zip(1000..) {
        assert!(*loss < 0.01, "seed {seed}: {loss}, of {losses:?}");
    }
    let gained = losses.iter().filter(|loss| **loss < -0.1).count();
    assert!(gained >= 3, "{gained} of {losses:?}");
}

/// Two phases that alternate, in which neighbours exchange their parts: each time that pages have moved to their users, these change. This is the worst of the
/// lengths that were tried, from 25 ms to 1.2 s.
#[test]
fn a_program_that_changes_whenever_its_pages_have_moved_loses_a_bounded_share() {
    let span_ms = 150;
    let shifted = |shift: u64| {
        let on = format!("pattern = 'parts'\nshift = {shift}\n");
        phase(shift, (span_ms / 5, 5), [8, 3, 4], &on)
    };
    let text = head(16, 64, "parts", 2400 / (2 * span_ms)) + &shifted(0) + &shifted(1);
    let loss = loss("adversary", &text);
    assert!(loss < 0.05, "{loss}");
}
