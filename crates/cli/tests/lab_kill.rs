//! The daemon killed at random moments, over and over, in the lab: the programs' output stays, no page is lost, and the next start puts the system's
//! settings and the threads' affinities back. Ten times by default; `NUMAPILOT_KILLS=100` for more, `NUMAPILOT_SEED` for other moments.

use std::process::Command;
use std::time::Duration;

use crate::common::*;
use numapilot_lab::{Lab, Topology};
use numapilot_random::Linear;

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

/// Moments in which a daemon starts, reads settings and maps, binds threads, moves pages, or has long settled: most are early.
fn moments(count: u64, seed: u64) -> Vec<f64> {
    let mut random = Linear::new(seed);
    let mut unit = || random.index(1 << 31) as f64 / (1_u64 << 31) as f64;
    (0..count).map(|_| 0.01 + 1.5 * unit().powi(2)).collect()
}

/// What the guest runs. Odd kills hit the loop, even ones the packer, which binds threads from its fourth look on: it measures first how fast they are.
fn script(moments: &[f64]) -> String {
    let waits: Vec<String> = moments.iter().map(|moment| format!("{moment:.3}")).collect();
    // The programs last until they are told to end: they sleep most of the time, and how much of the guest's passes meanwhile depends on the host.
    let seconds = 1_000_000;
    format!(
        r#"
debug=/sys/kernel/debug/sched/numa_balancing
settings() {{ cat /proc/sys/kernel/numa_balancing $debug/scan_delay_ms $debug/scan_period_min_ms $debug/scan_period_max_ms | tr '\n' ' '; }}
affinities() {{ for pid in "$@"; do grep -h Cpus_allowed_list /proc/$pid/task/*/status; done | sort | uniq -c | tr '\n' ' '; }}
state() {{ settings; affinities $first $second; }}
echo 0 > /proc/sys/kernel/numa_balancing
# From the guest's memory it starts sooner than from the host's files.
cp "$numapilot" numapilot && numapilot=/tmp/numapilot
"$moves" shared 1 1 > plain 2>/dev/null
export MOVES_FREE=1 MOVES_PAUSE_US=8000
"$moves" shared 1 {seconds} > first.out 2> first.err & first=$!
"$moves" shared 1 {seconds} > second.out 2> second.err & second=$!
ready first.err; ready second.err
before=$(state) settings_before=$(settings) affinities_before=$(affinities $first $second)
echo "BEFORE $before"
round=0 changed=0 bound=0 settled=0
for wait in {waits}; do
    round=$((round + 1))
    pack=; [ $((round % 2)) = 0 ] && pack=--pack
    "$numapilot" balance --pid $first,$second --json $pack > events & daemon=$!
    # Every fifth dies wherever in its start it is; the others once they have begun, the packer about when it has first measured who is busy.
    if [ $((round % 5)) != 0 ]; then
        until grep -q '"event":"start"' events || ! kill -0 $daemon; do sleep 0.02; done
        [ -z "$pack" ] || sleep 5.7
    fi
    # Every fourth dies when threads are bound for sure.
    tries=0
    while [ $((round % 4)) = 0 ] && [ $tries -lt 60 ] && [ "$(affinities $first $second)" = "$affinities_before" ]; do
        tries=$((tries + 1)); sleep 0.1
    done
    sleep $wait
    kill -9 $daemon || echo "FAILED the daemon had ended before the kill of round $round"
    wait $daemon
    [ "$(settings)" = "$settings_before" ] || changed=$((changed + 1))
    [ "$(affinities $first $second)" = "$affinities_before" ] || bound=$((bound + 1))
    "$numapilot" balance --pid $first,$second --quiet --keep-settings --no-probes --for 1ms || echo "FAILED the next start after round $round"
    after=$(state)
    [ "$after" = "$before" ] && settled=$((settled + 1)) || echo "FAILED round $round (killed after $wait s$pack): $after"
done 2> kills.err
echo "ROUNDS $round with settings changed at the kill $changed, with affinities changed $bound, put back by the next start $settled"
grep -v Killed kills.err | sort | uniq -c | head -5
kill -0 $first $second || echo FAILED a program has ended
kill -USR1 $first $second
wait $first; echo "status $?"; wait $second; echo "status $?"
echo "SUMS $(grep -h '^checksum' plain first.out second.out | sort -u | wc -l)"
for program in first second; do grep '"at"' $program.out | tail -1; done
"#,
        waits = waits.join(" ")
    )
}

#[test]
fn a_killed_daemon_loses_no_page_and_leaves_nothing_changed() {
    if !numapilot_lab::wanted("kill -9 of the daemon") {
        return;
    }
    let (kills, seed) = (number("NUMAPILOT_KILLS", 10), number("NUMAPILOT_SEED", 7));
    let folder = scratch();
    let moves = build_plain(folder.path(), "moves", include_str!("programs/moves.c"), &[]);
    // The binary is read once before anything is timed: on a busy host that takes seconds, of which the programs last a few.
    let prelude =
        "$numapilot --version > /dev/null; ready() { until grep -q ready $1; do sleep 0.05; done; }; cd /tmp; ";
    let script = format!("moves={} numapilot={BINARY}; {prelude}{}", moves.display(), script(&moments(kills, seed)));
    let lab = Lab::new(Topology::symmetric(2)).icount(true).time_limit(Duration::from_secs(900 + 90 * kills));
    let outcome = lab.run(Command::new("sh").args(["-c", &script])).expect("the lab").expect_success();
    eprintln!("seed {seed}; {}, {:.1} s\n{}{}", outcome.how, outcome.run.as_secs_f64(), outcome.stdout, outcome.stderr);
    let output = &outcome.stdout;
    assert!(!output.contains("FAILED"), "seed {seed}");
    assert!(output.contains(&format!("put back by the next start {kills}\n")), "seed {seed}");
    // The number of restores means something only if there was something to restore.
    let words: Vec<&str> =
        output.lines().find(|line| line.starts_with("ROUNDS")).expect("a sum").split([' ', ',']).collect();
    let after = |name: &str| words[words.iter().position(|word| *word == name).expect(name) + 1].parse::<u64>().ok();
    let (changed, bound) = (
        after("kill").expect("a count"),
        words.iter().filter_map(|word| word.parse::<u64>().ok()).nth(2).expect("a count"),
    );
    assert!(
        changed * 10 >= kills && bound * 10 >= kills,
        "seed {seed}: {changed} with settings, {bound} with affinities"
    );
    assert_eq!(output.matches("status 0\n").count(), 2, "seed {seed}");
    assert!(output.contains("SUMS 1\n"), "checksums are those of a run without a daemon; seed {seed}");
    assert_eq!(output.matches("\"nowhere\": 0").count(), 2, "no page is lost; seed {seed}");
}
