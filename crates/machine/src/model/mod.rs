//! Reads model files: TOML, one figure at a time with its source, into a checked [`Machine`].

mod cpus;
mod file;
mod pairs;
mod unknowns;

use std::fs;
use std::ops::Range;
use std::path::Path;

use toml::Spanned;

use crate::check;
use crate::error::{MachineError, Problem};
use crate::hardware::{
    Bounded, CoreFigures, Endpoint, Figure, FigureValue, Link, MachineSource, Router, TrafficFigures,
};
use crate::ids::{LinkId, NodeId, RouterId, SocketId};
use crate::machine::Machine;
use crate::parts::{MachineParts, RouteParts};
use file::{FORMAT, ModelFile, RawEnd, RawFigure};

/// Model files are a few KiB; what is longer than this is something else.
const FILE_BYTES_MAX: u64 = 1 << 20;
const GIB: f64 = (1u64 << 30) as f64;
const GB: f64 = 1e9;

/// Reads a model file.
pub fn read_file(path: &Path) -> Result<Machine, MachineError> {
    let failed = |error| MachineError::Read {
        path: path.to_owned(),
        error,
        remedy: "check the path; `numapilot topo --list` names the built-in models".to_owned(),
    };
    let length = fs::metadata(path).map_err(failed)?.len();
    if length > FILE_BYTES_MAX {
        return Err(failed(std::io::Error::other(format!(
            "it has {length} bytes, which is too large for a model file"
        ))));
    }
    let text = fs::read_to_string(path).map_err(failed)?;
    read(&text, &path.display().to_string(), MachineSource::Model { path: path.to_owned() })
}

/// Reads the text of a model file.
pub fn read(text: &str, file: &str, source: MachineSource) -> Result<Machine, MachineError> {
    let raw: ModelFile = toml::from_str(text).map_err(|error| MachineError::Syntax {
        file: file.to_owned(),
        line: error.span().map(|span| line_of(text, span.start)),
        what: error.message().replace('\n', ", "),
    })?;
    let mut reader = Reader { text, file, raw: &raw, figures: Vec::new(), link_spans: Vec::new(), rule_of: Vec::new() };
    reader.machine(source)
}

fn line_of(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|&b| b == b'\n').count() + 1
}

/// One reading: the file, and what was gathered so far.
struct Reader<'a> {
    text: &'a str,
    file: &'a str,
    raw: &'a ModelFile,
    figures: Vec<Figure>,
    /// Where in the text each link was described, for messages about links.
    link_spans: Vec<Range<usize>>,
    /// `[from][to]`, by position: the `[[idle_latency]]` that the pair goes by, which is the last that fits.
    rule_of: Vec<Vec<Option<usize>>>,
}

impl Reader<'_> {
    fn machine(&mut self, source: MachineSource) -> Result<Machine, MachineError> {
        let raw = self.raw;
        self.header()?;
        let clock = self.figure("clock_mhz", "MHz", &raw.clock_mhz, check::CLOCK_MHZ_MIN, check::CLOCK_MHZ_MAX)?;
        let coherence = raw.coherence.as_ref().map(|spanned| -> Result<_, MachineError> {
            let given = spanned.get_ref();
            let words =
                serde_json::to_value(given.value).ok().and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default();
            self.fact("coherence", words, &given.source, given.estimate, spanned.span())?;
            Ok(given.value)
        });
        let coherence = coherence.transpose()?;
        let (nodes, cpus) = self.nodes()?;
        let caches = self.caches(&nodes, &cpus)?;
        let routers = self.routers()?;
        let links = self.links(&routers)?;
        let routes = self.routes(&routers, &links)?;
        let count = nodes.len();
        let bare = MachineParts {
            name: raw.name.get_ref().clone(),
            source,
            cpu_model: Some(raw.cpu.clone()),
            description: raw.description.clone(),
            clock_mhz: Some(clock),
            coherence,
            nodes,
            cpus,
            caches,
            routers,
            links,
            routing: raw.routing,
            routes,
            distances: vec![vec![None; count]; count],
            idle_latency_ns: vec![vec![None; count]; count],
            traffic: self.traffic()?,
            core: self.core()?,
            figures: Vec::new(),
            unknowns: Vec::new(),
            notes: Vec::new(),
        };
        if bare.links.is_empty() && count > 1 {
            let problem = Problem::new(
                "links",
                format!("there are {count} nodes, but no links"),
                "add the [[links]] that join the nodes",
            );
            return Err(self.error(problem, None));
        }
        // Latencies may be given by number of hops, which only the checked machine knows.
        let mut machine = Machine::try_from(bare).map_err(|problem| self.located(problem))?;
        let (latencies, distances, notes) = self.pairs(&machine)?;
        let mut parts = MachineParts::from(machine);
        parts.idle_latency_ns = latencies;
        parts.distances = distances;
        parts.notes = notes;
        parts.unknowns = self.unknowns(&parts)?;
        parts.figures = std::mem::take(&mut self.figures);
        machine = Machine::try_from(parts).map_err(|problem| self.located(problem))?;
        Ok(machine)
    }

    fn header(&self) -> Result<(), MachineError> {
        let format = &self.raw.format;
        if *format.get_ref() != FORMAT {
            let what = format!("format {}, and this program reads format {FORMAT}", format.get_ref());
            return Err(
                self.error(Problem::new("format", what, format!("write `format = {FORMAT}`")), Some(format.span()))
            );
        }
        let name = &self.raw.name;
        let valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.get_ref().is_empty() || name.get_ref().len() > 64 || !name.get_ref().chars().all(valid) {
            let what = format!("{:?} is not a valid model name", name.get_ref());
            let remedy = "use 1 to 64 letters, digits, '-', '_' and '.'";
            return Err(self.error(Problem::new("name", what, remedy), Some(name.span())));
        }
        Ok(())
    }

    /// An error at a place in the text.
    fn error(&self, problem: Problem, span: Option<Range<usize>>) -> MachineError {
        problem.in_file(self.file, span.map(|span| line_of(self.text, span.start)))
    }

    /// An error that the machine's own check found: its place says which table it is in.
    fn located(&self, problem: Problem) -> MachineError {
        let table = problem.place.split([' ', '[']).next().unwrap_or_default().to_owned();
        let link =
            problem.place.strip_prefix("links (link ").and_then(|rest| rest.split(',').next()?.parse::<usize>().ok());
        let span = link.and_then(|index| self.link_spans.get(index).cloned()).or_else(|| {
            let start = self
                .text
                .find(&format!("[[{table}]]"))
                .or_else(|| self.text.find(&format!("\n{table} =")).map(|at| at + 1))?;
            Some(start..start)
        });
        self.error(problem, span)
    }

    /// Resolves a source: a key of `[sources]`, or, when it has several words, itself.
    fn source(&self, place: &str, source: &str, span: Range<usize>) -> Result<String, MachineError> {
        if let Some(full) = self.raw.sources.get(source) {
            return Ok(full.clone());
        }
        if source.trim().contains(' ') {
            return Ok(source.trim().to_owned());
        }
        let what = format!("its source {source:?} is not in [sources]");
        let remedy = "add it there, or say in words where the value is from";
        Err(self.error(Problem::new(place, what, remedy), Some(span)))
    }

    /// Takes a number: finite, within bounds, with a source.
    fn figure(
        &mut self,
        place: &str,
        unit: &str,
        raw: &Spanned<RawFigure>,
        min: f64,
        max: f64,
    ) -> Result<f64, MachineError> {
        let given = raw.get_ref();
        check::within(place, "the value", given.value, min, max, unit).map_err(|p| self.error(p, Some(raw.span())))?;
        let source = self.source(place, &given.source, raw.span())?;
        self.figures.push(Figure {
            place: place.to_owned(),
            value: FigureValue::Number(given.value),
            unit: unit.to_owned(),
            source,
            estimate: given.estimate,
            range: given.range,
        });
        if let Some((low, high)) = given.range {
            let in_reason = |bound: f64| check::within(place, "a bound of its range", bound, min, max, unit);
            in_reason(low).and_then(|()| in_reason(high)).map_err(|p| self.error(p, Some(raw.span())))?;
            if !(low <= given.value && given.value <= high) {
                let what = format!("its range {low} to {high} {unit} does not hold its value {}", given.value);
                let problem =
                    Problem::new(place, what, "give the least and the most that it may be, `range = [LEAST, MOST]`");
                return Err(self.error(problem, Some(raw.span())));
            }
        }
        Ok(given.value)
    }

    /// Takes a whole number.
    fn whole(
        &mut self,
        place: &str,
        unit: &str,
        raw: &Spanned<RawFigure>,
        min: f64,
        max: f64,
    ) -> Result<u64, MachineError> {
        let value = self.figure(place, unit, raw, min, max)?;
        if value.fract() != 0.0 {
            let problem = Problem::new(place, format!("{value} {unit}"), "give a whole number");
            return Err(self.error(problem, Some(raw.span())));
        }
        Ok(value as u64)
    }

    /// Records the source of a fact that is not a number.
    fn fact(
        &mut self,
        place: &str,
        words: String,
        source: &str,
        estimate: bool,
        span: Range<usize>,
    ) -> Result<(), MachineError> {
        let source = self.source(place, source, span)?;
        self.figures.push(Figure {
            place: place.to_owned(),
            value: FigureValue::Text(words),
            unit: String::new(),
            source,
            estimate,
            range: None,
        });
        Ok(())
    }

    fn routers(&self) -> Result<Vec<Router>, MachineError> {
        let mut routers: Vec<Router> = Vec::new();
        for (index, spanned) in self.raw.routers.iter().enumerate() {
            let given = spanned.get_ref();
            if given.name.trim().is_empty() || routers.iter().any(|r| r.name == given.name) {
                let what = format!("the name {:?} is empty or taken", given.name);
                let problem = Problem::new(format!("routers[{index}].name"), what, "give each router a unique name");
                return Err(self.error(problem, Some(spanned.span())));
            }
            routers.push(Router { name: given.name.clone(), socket: given.socket.map(SocketId) });
        }
        Ok(routers)
    }

    fn end(&self, raw: &RawEnd, routers: &[Router], place: &str, span: Range<usize>) -> Result<Endpoint, MachineError> {
        match raw {
            RawEnd::Node(id) => Ok(Endpoint::Node(NodeId(*id))),
            RawEnd::Router(name) => match routers.iter().position(|r| r.name == *name) {
                Some(index) => Ok(Endpoint::Router(RouterId(index as u16))),
                None => {
                    let problem = Problem::new(
                        place,
                        format!("there is no router {name:?}"),
                        "add it as [[routers]], or give a node's number",
                    );
                    Err(self.error(problem, Some(span)))
                }
            },
        }
    }

    fn links(&mut self, routers: &[Router]) -> Result<Vec<Link>, MachineError> {
        let mut links = Vec::new();
        let raw = self.raw;
        for (index, spanned) in raw.links.iter().enumerate() {
            let given = spanned.get_ref();
            let place = format!("links[{index}]");
            let (min, max) = (check::BANDWIDTH_MIN / GB, check::BANDWIDTH_MAX / GB);
            let bandwidth =
                self.figure(&format!("{place}.bandwidth_gb_per_s"), "GB/s", &given.bandwidth_gb_per_s, min, max)?;
            let latency = given.latency_ns.as_ref();
            let latency = latency
                .map(|l| self.figure(&format!("{place}.latency_ns"), "ns", l, 0.0, check::LINK_LATENCY_NS_MAX))
                .transpose()?;
            for (a, b) in &given.pairs {
                let a = self.end(a, routers, &place, spanned.span())?;
                let b = self.end(b, routers, &place, spanned.span())?;
                let directions = if given.both_ways { vec![(a, b), (b, a)] } else { vec![(a, b)] };
                for (from, to) in directions {
                    let Ok(id) = u16::try_from(links.len()) else {
                        let problem = Problem::new(place, "too many links", "describe at most 8192 links");
                        return Err(self.error(problem, Some(spanned.span())));
                    };
                    self.link_spans.push(spanned.span());
                    links.push(Link {
                        id: LinkId(id),
                        from,
                        to,
                        bandwidth_bytes_per_s: bandwidth * GB,
                        latency_ns: latency,
                        kind: given.kind.clone(),
                    });
                }
            }
        }
        Ok(links)
    }

    /// The figures of `[traffic]`, each optional.
    fn core(&mut self) -> Result<CoreFigures, MachineError> {
        let raw = &self.raw.core;
        let mut optional = |name: &str, unit: &str, figure: &Option<Spanned<RawFigure>>, (min, max): (f64, f64)| {
            let Some(given) = figure else { return Ok(None) };
            let value = self.figure(&format!("core.{name}"), unit, given, min, max)?;
            let (low, high) = given.get_ref().range.unwrap_or((value, value));
            Ok(Some(Bounded { value, low, high }))
        };
        Ok(CoreFigures {
            window_instructions: optional(
                "window_instructions",
                "instructions",
                &raw.window_instructions,
                check::CORE_WINDOW,
            )?,
            outstanding_misses: optional("outstanding_misses", "misses", &raw.outstanding_misses, check::OUTSTANDING)?,
        })
    }

    fn traffic(&mut self) -> Result<TrafficFigures, MachineError> {
        let queueing_delay = self.queueing_delay()?;
        let raw = &self.raw.traffic;
        let mut optional = |name: &str, unit: &str, figure: &Option<Spanned<RawFigure>>, (min, max): (f64, f64)| {
            figure.as_ref().map(|f| self.figure(&format!("traffic.{name}"), unit, f, min, max)).transpose()
        };
        Ok(TrafficFigures {
            controller_efficiency: optional(
                "controller_efficiency",
                "of peak",
                &raw.controller_efficiency,
                check::EFFICIENCY,
            )?,
            write_turnaround: optional(
                "write_turnaround",
                "of a read's time",
                &raw.write_turnaround,
                check::TURNAROUND,
            )?,
            crowding: optional("crowding", check::CROWDING_UNIT, &raw.crowding, check::CROWDING)?,
            message_bytes: optional("message_bytes", "bytes", &raw.message_bytes, check::MESSAGE_BYTES)?,
            answer_bytes: optional("answer_bytes", "bytes", &raw.answer_bytes, check::MESSAGE_BYTES)?,
            completion_bytes: optional("completion_bytes", "bytes", &raw.completion_bytes, check::MESSAGE_BYTES)?,
            release_bytes: optional("release_bytes", "bytes", &raw.release_bytes, check::MESSAGE_BYTES)?,
            link_efficiency: optional("link_efficiency", "of peak", &raw.link_efficiency, check::EFFICIENCY)?,
            stream_outstanding: optional(
                "stream_outstanding",
                "accesses",
                &raw.stream_outstanding,
                check::OUTSTANDING,
            )?,
            stride_outstanding: optional(
                "stride_outstanding",
                "accesses",
                &raw.stride_outstanding,
                check::OUTSTANDING,
            )?,
            stride_outstanding_loaded: optional(
                "stride_outstanding_loaded",
                "accesses",
                &raw.stride_outstanding_loaded,
                check::OUTSTANDING,
            )?,
            queueing_delay,
        })
    }

    /// How far queueing delays that were measured are from the traffic model's: a range without which the figure says nothing.
    fn queueing_delay(&mut self) -> Result<Option<Bounded>, MachineError> {
        let raw = self.raw;
        let Some(given) = &raw.traffic.queueing_delay else { return Ok(None) };
        let (place, (min, max)) = (check::QUEUEING_DELAY_PLACE, check::QUEUEING_DELAY);
        let value = self.figure(place, check::QUEUEING_DELAY_UNIT, given, min, max)?;
        let Some((low, high)) = given.get_ref().range else {
            let remedy =
                "give the least and the most that measured delays are over the model's, `range = [LEAST, MOST]`";
            return Err(self.error(Problem::new(place, "it has no range", remedy), Some(given.span())));
        };
        let bounded = Bounded { value, low, high };
        check::queueing_delay(bounded).map_err(|problem| self.error(problem, Some(given.span())))?;
        Ok(Some(bounded))
    }

    /// Explicit routes: lists of ends, turned into links.
    fn routes(&self, routers: &[Router], links: &[Link]) -> Result<Vec<RouteParts>, MachineError> {
        let mut routes: Vec<RouteParts> = Vec::new();
        for (index, spanned) in self.raw.routes.iter().enumerate() {
            let place = format!("routes[{index}].paths");
            let error = |what: String, remedy: &str| {
                self.error(Problem::new(place.clone(), what, remedy), Some(spanned.span()))
            };
            let mut ends: Option<(NodeId, NodeId)> = None;
            let mut paths = Vec::new();
            for raw in &spanned.get_ref().paths {
                let stops = raw
                    .iter()
                    .map(|end| self.end(end, routers, &place, spanned.span()))
                    .collect::<Result<Vec<_>, _>>()?;
                let (Some(&Endpoint::Node(from)), Some(&Endpoint::Node(to))) = (stops.first(), stops.last()) else {
                    return Err(error(
                        "a path does not begin and end at nodes".into(),
                        "write the path from its first node to its last",
                    ));
                };
                if *ends.get_or_insert((from, to)) != (from, to) {
                    return Err(error(
                        "its paths join different pairs of nodes".into(),
                        "give each pair a [[routes]] of its own",
                    ));
                }
                let mut path = Vec::new();
                for (at, pair) in stops.windows(2).enumerate() {
                    let link = links.iter().find(|l| l.from == pair[0] && l.to == pair[1]).ok_or_else(|| {
                        let what = format!("step {} of the path from node {from} to node {to} has no link", at + 1);
                        error(what, "add the link (mind its direction), or take another way")
                    })?;
                    path.push(link.id);
                }
                paths.push(path);
            }
            let Some((from, to)) = ends else {
                return Err(error("it has no path".into(), "give at least one"));
            };
            routes.push(RouteParts { from, to, paths });
        }
        Ok(routes)
    }
}
