//! Parses a plan file's text.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use numapilot_machine::{CpuId, MemoryTier, NodeId, parse_cpu_list};
use toml::de::DeTable;

use crate::error::PlanError;
use crate::plan::{Frame, Layout, ObjectMatch, ObjectRule, Placing, Plan, ProcessRule, ThreadRule};
use crate::policy::{HandOver, NodeSet, Policy};
use crate::table::{Source, Table};
use crate::{MAX_RULES, VERSION};

/// Most bytes of a plan file.
const BYTES_MAX: u64 = 16 << 20;
/// Highest node number that a plan may name.
const NODE_MAX: u64 = 63;
/// Frames that `called_from` may list.
const CALLERS_MAX: usize = 7;

impl Plan {
    /// Reads a plan file.
    ///
    /// # Errors
    /// The file cannot be read, or its text is not a valid plan; the error gives the line and a remedy.
    pub fn load(path: &Path) -> Result<Plan, PlanError> {
        let refused = |error| PlanError::Read { path: path.to_owned(), error };
        let mut bytes = Vec::new();
        // A device may have no end.
        File::open(path).map_err(refused)?.take(BYTES_MAX + 1).read_to_end(&mut bytes).map_err(refused)?;
        if bytes.len() as u64 > BYTES_MAX {
            return Err(refused(std::io::Error::other(format!("it has more than {} MiB", BYTES_MAX >> 20))));
        }
        Plan::read(bytes, &path.display().to_string())
    }

    fn read(bytes: Vec<u8>, file: &str) -> Result<Plan, PlanError> {
        let text = String::from_utf8(bytes).map_err(|error| {
            let position = error.utf8_error().valid_up_to();
            let valid = String::from_utf8_lossy(&error.as_bytes()[..position]);
            let source = Source { file, text: &valid };
            source.error(&(position..position), "this is no UTF-8", "save the file as UTF-8 (docs/plan-format.md)")
        })?;
        Plan::parse(&text, file)
    }

    /// Parses a plan; `file` is its name in messages.
    ///
    /// # Errors
    /// The text is not a valid plan; the error gives the line and a remedy.
    pub fn parse(text: &str, file: &str) -> Result<Plan, PlanError> {
        let source = Source { file, text };
        let root = DeTable::parse(text).map_err(|error| {
            let span = error.span().unwrap_or(0..0);
            source.error(&span, error.message().trim().to_owned(), "plans are TOML (docs/plan-format.md)")
        })?;
        let top = Table::new(&source, root.get_ref(), "the plan", 0..0);
        let version = top.integer("version", u64::MAX)?.ok_or_else(|| {
            top.error("no `version`", format!("begin it with `version = {VERSION}` (docs/plan-format.md)"))
        })?;
        if version != u64::from(VERSION) {
            let remedy = format!("this numapilot reads version {VERSION}; use the numapilot that wrote the plan");
            return Err(top.error_at("version", format!("{version} is unknown"), remedy));
        }
        let plan = Plan {
            file: file.to_owned(),
            about: source.comments_after(0),
            program: top.string("program")?,
            machine: top.string("machine")?,
            objects: rules(&top, "object", "[[object]]", object)?,
            threads: rules(&top, "thread", "[[thread]]", thread)?,
            processes: rules(&top, "process", "[[process]]", process)?,
        };
        top.finish()?;
        if plan.objects.is_empty() && plan.threads.is_empty() && plan.processes.is_empty() {
            return Err(top.error("no rule", "add an [[object]], a [[thread]] or a [[process]]"));
        }
        Ok(plan)
    }
}

fn rules<T>(
    top: &Table<'_>,
    key: &'static str,
    title: &'static str,
    read: fn(&Table<'_>) -> Result<T, PlanError>,
) -> Result<Vec<T>, PlanError> {
    let tables = top.tables(key, title)?;
    if tables.len() > MAX_RULES {
        return Err(tables[MAX_RULES].error(format!("more than {MAX_RULES} rules"), "merge rules by patterns (`*`)"));
    }
    tables.iter().map(|table| read(table).and_then(|rule| table.finish().map(|()| rule))).collect()
}

fn object(table: &Table<'_>) -> Result<ObjectRule, PlanError> {
    let matches = object_match(table)?;
    let name = table.string("name")?.or_else(|| default_name(&matches)).unwrap_or_else(|| "all".to_owned());
    let policy = policy(table)?;
    Ok(ObjectRule {
        name,
        evidence: table.comments(),
        matches,
        policy,
        huge_pages: table.boolean("huge_pages")?,
        line: table.line(),
    })
}

/// The name, in summaries, of a rule that has no `name`.
fn default_name(matches: &ObjectMatch) -> Option<String> {
    let frame = &matches.frame;
    let named = [&matches.symbol, &matches.section, &matches.mapped_file, &frame.function];
    if let Some(name) = named.into_iter().flatten().next() {
        return Some(name.clone());
    }
    frame.file.as_ref().map(|file| frame.lines.map_or(file.clone(), |(line, _)| format!("{file}:{line}")))
}

fn object_match(table: &Table<'_>) -> Result<ObjectMatch, PlanError> {
    let callers = table.tables("called_from", "called_from")?;
    if callers.len() > CALLERS_MAX {
        return Err(table.error_at(
            "called_from",
            format!("{} frames", callers.len()),
            format!("name at most {CALLERS_MAX}"),
        ));
    }
    let caller = |table: &Table<'_>| {
        let frame = frame(table)?;
        table.finish()?;
        if frame.names_code() {
            Ok(frame)
        } else {
            Err(table.error("it names no code", "give function, file or offset"))
        }
    };
    let found = ObjectMatch {
        frame: frame(table)?,
        called_from: callers.iter().map(caller).collect::<Result<_, _>>()?,
        symbol: table.string("symbol")?,
        mapped_file: table.string("mapped_file")?,
        section: table.string("section")?,
        min_size: table.size("min_size")?,
        max_size: table.size("max_size")?,
        instances: table.ranges("instances")?,
        process: table.string("process")?,
    };
    if let (Some(min), Some(max)) = (found.min_size, found.max_size)
        && max < min
    {
        return Err(table.error_at("max_size", "it is below min_size", "swap them"));
    }
    let kinds = [found.symbol.is_some(), found.section.is_some(), found.mapped_file.is_some()];
    let kinds = kinds.iter().filter(|given| **given).count();
    let names_code = found.frame.names_code() || !found.called_from.is_empty();
    if kinds > 1 || (kinds == 1 && names_code) {
        return Err(table.error(
            "it matches objects of several kinds",
            "give one of symbol, section, mapped_file, or the code that allocates (function, file, offset)",
        ));
    }
    if kinds == 1 && !found.instances.is_empty() {
        return Err(table.error_at("instances", "only allocated objects have instance numbers", "leave the key out"));
    }
    Ok(found)
}

fn frame(table: &Table<'_>) -> Result<Frame, PlanError> {
    let line = table.ranges("line")?;
    let frame = Frame {
        function: table.string("function")?,
        file: table.string("file")?,
        lines: line.first().map(|&(a, b)| (u32::try_from(a).unwrap_or(u32::MAX), u32::try_from(b).unwrap_or(u32::MAX))),
        module: table.string("module")?,
        offset: table.integer("offset", u64::MAX >> 17)?,
    };
    if line.len() > 1 {
        return Err(table.error_at("line", "several ranges", "give one line, or one range such as \"10-20\""));
    }
    if frame.lines.is_some() && frame.file.is_none() {
        return Err(table.error_at("line", "a line without a file", "add `file`"));
    }
    if frame.offset.is_some() && frame.module.is_none() {
        return Err(table.error_at(
            "offset",
            "an offset without a module",
            "add `module`, the binary to which the offset refers",
        ));
    }
    Ok(frame)
}

fn policy(table: &Table<'_>) -> Result<Policy, PlanError> {
    let known = Policy::NAMES.join(", ");
    let name = table.string("policy")?.ok_or_else(|| table.error("no `policy`", format!("add one of {known}")))?;
    let policy = match name.as_str() {
        "node" => {
            let node = table.integer("node", NODE_MAX)?;
            let node = node.ok_or_else(|| table.error("policy `node` without a node", "add `node = N`"))?;
            Policy::Node { node: NodeId(node as u16), strict: table.boolean("strict")?.unwrap_or(false) }
        }
        "interleave" => Policy::Interleave(nodes(table)?),
        "weighted-interleave" => Policy::WeightedInterleave(weights(table)?),
        "local" => Policy::Local,
        "first-use" => Policy::FirstUse,
        "split" => Policy::Split(nodes(table)?),
        "replicate" => Policy::Replicate,
        "hand-over" => {
            let to = table.string("to")?.ok_or_else(|| {
                table.error(
                    "policy `hand-over` without receiving threads",
                    "add `to`, the name or start function of the threads that take the object over",
                )
            })?;
            Policy::HandOver(HandOver { to })
        }
        _ => return Err(table.error_at("policy", format!("{name:?} is unknown"), format!("use one of {known}"))),
    };
    let belongs = [("node", "node"), ("strict", "node"), ("weights", "weighted-interleave"), ("to", "hand-over")];
    if let Some((key, owner)) = belongs.iter().find(|(key, owner)| table.has(key) && *owner != name) {
        return Err(table.error_at(
            key,
            format!("policy `{name}` takes no such key"),
            format!("it belongs to policy `{owner}`"),
        ));
    }
    if table.has("nodes") && !matches!(policy, Policy::Interleave(_) | Policy::Split(_)) {
        return Err(table.error_at(
            "nodes",
            format!("policy `{name}` takes no such key"),
            "it belongs to `interleave` and `split`",
        ));
    }
    Ok(policy)
}

fn nodes(table: &Table<'_>) -> Result<NodeSet, PlanError> {
    let Some(text) = table.string("nodes")? else { return Ok(NodeSet::All) };
    if text == "all" {
        return Ok(NodeSet::All);
    }
    if let Some(name) = text.strip_prefix("tier:") {
        let tier = MemoryTier::ALL.into_iter().find(|tier| tier.name() == name);
        let remedy = "write \"tier:fast\", \"tier:slow\" or \"tier:wide\"";
        return tier
            .map(NodeSet::Tier)
            .ok_or_else(|| table.error_at("nodes", format!("{name:?} is no tier of memory"), remedy));
    }
    let remedy = "write \"all\" or a list such as \"0-3\"";
    let ids = parse_cpu_list(&text).map_err(|error| table.error_at("nodes", error.to_string(), remedy))?;
    if ids.is_empty() || ids.iter().any(|id| u64::from(*id) > NODE_MAX) {
        return Err(table.error_at("nodes", format!("{text:?} is not a list of nodes from 0 to {NODE_MAX}"), remedy));
    }
    Ok(NodeSet::Listed(ids.into_iter().map(|id| NodeId(id as u16)).collect()))
}

fn weights(table: &Table<'_>) -> Result<Vec<(NodeId, u32)>, PlanError> {
    let Some(text) = table.string("weights")? else { return Ok(Vec::new()) };
    let pair = |piece: &str| {
        let (node, weight) = piece.split_once(':')?;
        let node = node.trim().parse::<u16>().ok().filter(|node| u64::from(*node) <= NODE_MAX)?;
        let weight = weight.trim().parse::<u32>().ok().filter(|weight| (1..=255).contains(weight))?;
        Some((NodeId(node), weight))
    };
    let pairs: Option<Vec<(NodeId, u32)>> = text.split(',').map(pair).collect();
    let mut pairs = pairs.ok_or_else(|| {
        table.error_at(
            "weights",
            format!("{text:?} is not a list of weights"),
            "write node:weight, as in \"0:3,1:1\"; weights 1 to 255",
        )
    })?;
    pairs.sort_unstable();
    match pairs.windows(2).find(|two| two[0].0 == two[1].0) {
        Some(two) => Err(table.error_at("weights", format!("node {} twice", two[0].0), "give each node one weight")),
        None => Ok(pairs),
    }
}

fn placing(table: &Table<'_>) -> Result<(Placing, Layout), PlanError> {
    let layout = match table.string("layout")?.as_deref() {
        None | Some("together") => Layout::Together,
        Some("spread") => Layout::Spread,
        Some(other) => {
            return Err(table.error_at("layout", format!("{other:?} is unknown"), "use \"together\" or \"spread\""));
        }
    };
    let has_nodes = table.has("nodes");
    let nodes = nodes(table)?;
    if let NodeSet::Tier(_) = nodes {
        let remedy = "name nodes, or write \"all\" for all that have CPUs";
        return Err(table.error_at("nodes", "a tier is memory, on which no thread runs", remedy));
    }
    let Some(text) = table.string("cpus")? else {
        let missing = || table.error("it has neither `nodes` nor `cpus`", "add `nodes` or `cpus`");
        return if has_nodes { Ok((Placing::Nodes(nodes), layout)) } else { Err(missing()) };
    };
    if has_nodes {
        return Err(table.error_at("cpus", "both `nodes` and `cpus`", "give one of them"));
    }
    let remedy = "write a list such as \"0-7,16\"";
    let cpus = parse_cpu_list(&text).map_err(|error| table.error_at("cpus", error.to_string(), remedy))?;
    if cpus.is_empty() || cpus.iter().any(|cpu| *cpu >= 1024) {
        return Err(table.error_at("cpus", format!("{text:?} is not a list of CPUs from 0 to 1023"), remedy));
    }
    Ok((Placing::Cpus(cpus.into_iter().map(CpuId).collect()), layout))
}

fn thread(table: &Table<'_>) -> Result<ThreadRule, PlanError> {
    let (placing, layout) = placing(table)?;
    Ok(ThreadRule {
        evidence: table.comments(),
        name: table.string("name")?,
        start: table.string("start")?,
        order: table.ranges("order")?,
        process: table.string("process")?,
        placing,
        layout,
        line: table.line(),
    })
}

fn process(table: &Table<'_>) -> Result<ProcessRule, PlanError> {
    let (placing, layout) = placing(table)?;
    Ok(ProcessRule {
        evidence: table.comments(),
        command: table.string("command")?,
        order: table.ranges("order")?,
        placing,
        layout,
        line: table.line(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The message gave no line, and what read the file no end.
    #[test]
    fn a_file_that_is_no_text_is_refused_with_its_line() {
        let read = |bytes: &[u8]| Plan::read(bytes.to_vec(), "plan.toml").map_err(|error| error.to_string());
        let why = read(b"version = 1\n# caf\xe9\n").unwrap_err();
        assert!(why.starts_with("plan.toml:2: this is no UTF-8; save the file as UTF-8"), "{why}");
        assert!(read(b"version = 1\n[[object]]\npolicy = \"local\" # caf\xc3\xa9\n").is_ok());
        let endless = Plan::load(Path::new("/dev/zero")).unwrap_err().to_string();
        assert!(endless.contains("more than 16 MiB"), "{endless}");
    }

    #[test]
    fn keys_that_are_read_twice_are_listed_once() {
        let why = Plan::parse("version = 1\n[[object]]\npolicy = \"local\"\nxyz = 1\n", "p").unwrap_err().to_string();
        assert_eq!(why.matches("min_size").count(), 1, "{why}");
    }
}
