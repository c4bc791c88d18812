//! Writes a plan as its file's text, with the evidence as comments.

use std::fmt::Write;

use numapilot_text::style::columns;
use numapilot_text::terminal::is_unsafe;
use numapilot_text::toml::quoted;
use numapilot_text::units::exact_bytes;

use crate::VERSION;
use crate::plan::{Frame, Layout, ObjectRule, Placing, Plan};
use crate::policy::{NodeSet, Policy, weights_text};

/// Width at which comments are folded.
const WIDTH: usize = 120;

impl Plan {
    /// The plan as a file's text. [`Plan::parse`] gives the same plan back, except for `file`, lines, and comments folded at 120 columns.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let mut out = String::new();
        comments(&mut out, &self.about);
        let _ = writeln!(out, "version = {VERSION}");
        key(&mut out, "program", self.program.as_deref());
        key(&mut out, "machine", self.machine.as_deref());
        for rule in &self.objects {
            object(&mut out, rule);
        }
        for rule in &self.threads {
            out.push_str("\n[[thread]]\n");
            comments(&mut out, &rule.evidence);
            key(&mut out, "name", rule.name.as_deref());
            key(&mut out, "start", rule.start.as_deref());
            ranges(&mut out, "order", &rule.order);
            key(&mut out, "process", rule.process.as_deref());
            placing(&mut out, &rule.placing, rule.layout);
        }
        for rule in &self.processes {
            out.push_str("\n[[process]]\n");
            comments(&mut out, &rule.evidence);
            key(&mut out, "command", rule.command.as_deref());
            ranges(&mut out, "order", &rule.order);
            placing(&mut out, &rule.placing, rule.layout);
        }
        out
    }
}

fn key(out: &mut String, name: &str, value: Option<&str>) {
    if let Some(value) = value {
        let _ = writeln!(out, "{name} = {}", quoted(value));
    }
}

fn ranges(out: &mut String, name: &str, ranges: &[(u64, u64)]) {
    if !ranges.is_empty() {
        let part = |&(a, b): &(u64, u64)| if a == b { a.to_string() } else { format!("{a}-{b}") };
        let text = ranges.iter().map(part).collect::<Vec<_>>().join(",");
        let _ = writeln!(out, "{name} = {}", quoted(&text));
    }
}

/// Comment lines, folded at blanks; what would end the comment or steer a terminal becomes a blank.
fn comments(out: &mut String, lines: &[String]) {
    for line in lines {
        let clean: String = line.chars().map(|c| if is_unsafe(c) { ' ' } else { c }).collect();
        let mut row = String::from("#");
        for word in clean.split(' ') {
            if row.len() > 1 && columns(&row) + 1 + columns(word) > WIDTH {
                let _ = writeln!(out, "{}", row.trim_end());
                row = String::from("#");
            }
            row.push(' ');
            row.push_str(word);
        }
        let _ = writeln!(out, "{}", row.trim_end());
    }
}

fn frame_keys(frame: &Frame) -> Vec<(&'static str, String)> {
    let mut keys = Vec::new();
    let mut text = |name, value: &Option<String>| keys.extend(value.as_ref().map(|value| (name, quoted(value))));
    text("function", &frame.function);
    text("file", &frame.file);
    if let Some((first, last)) = frame.lines {
        keys.push(("line", if first == last { first.to_string() } else { quoted(&format!("{first}-{last}")) }));
    }
    keys.extend(frame.module.as_ref().map(|module| ("module", quoted(module))));
    keys.extend(frame.offset.map(|offset| ("offset", format!("{offset:#x}"))));
    keys
}

fn object(out: &mut String, rule: &ObjectRule) {
    out.push_str("\n[[object]]\n");
    comments(out, &rule.evidence);
    key(out, "name", Some(&rule.name));
    let matches = &rule.matches;
    for (name, value) in frame_keys(&matches.frame) {
        let _ = writeln!(out, "{name} = {value}");
    }
    if !matches.called_from.is_empty() {
        let table = |frame: &Frame| {
            let keys: Vec<String> =
                frame_keys(frame).into_iter().map(|(name, value)| format!("{name} = {value}")).collect();
            format!("{{ {} }}", keys.join(", "))
        };
        let tables: Vec<String> = matches.called_from.iter().map(table).collect();
        let _ = writeln!(out, "called_from = [{}]", tables.join(", "));
    }
    key(out, "symbol", matches.symbol.as_deref());
    key(out, "section", matches.section.as_deref());
    key(out, "mapped_file", matches.mapped_file.as_deref());
    key(out, "min_size", matches.min_size.map(exact_bytes).as_deref());
    key(out, "max_size", matches.max_size.map(exact_bytes).as_deref());
    ranges(out, "instances", &matches.instances);
    key(out, "process", matches.process.as_deref());
    policy(out, &rule.policy);
    if let Some(huge) = rule.huge_pages {
        let _ = writeln!(out, "huge_pages = {huge}");
    }
}

fn policy(out: &mut String, policy: &Policy) {
    key(out, "policy", Some(policy.name()));
    match policy {
        Policy::Node { node, strict } => {
            let _ = writeln!(out, "node = {node}");
            if *strict {
                out.push_str("strict = true\n");
            }
        }
        Policy::Interleave(nodes) | Policy::Split(nodes) => node_set(out, nodes),
        Policy::WeightedInterleave(weights) if !weights.is_empty() => key(out, "weights", Some(&weights_text(weights))),
        Policy::HandOver(hand_over) => key(out, "to", Some(&hand_over.to)),
        Policy::WeightedInterleave(_) | Policy::Local | Policy::FirstUse | Policy::Replicate => {}
    }
}

fn node_set(out: &mut String, nodes: &NodeSet) {
    key(out, "nodes", Some(&nodes.text()));
}

fn placing(out: &mut String, placing: &Placing, layout: Layout) {
    match placing {
        Placing::Nodes(nodes) => node_set(out, nodes),
        Placing::Cpus(cpus) => {
            key(out, "cpus", Some(&numapilot_machine::format_cpu_list(cpus.iter().map(|cpu| cpu.0))));
        }
    }
    if layout != Layout::Together {
        key(out, "layout", Some(layout.name()));
    }
}
