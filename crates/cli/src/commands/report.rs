//! `numapilot report`: opens a trace, analyses the part that the arguments select, and renders it.

use std::time::Duration;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;
use indicatif::ProgressBar;
use numapilot_flows::Evidence;
use numapilot_flows::Filter;
use numapilot_flows::Named;
use numapilot_flows::Trace;
use numapilot_insight::Analysis;
use numapilot_insight::Findings;
use numapilot_insight::ObjectDetail;
use numapilot_insight::Surveyed;
use numapilot_insight::link_traffic;
use numapilot_machine::Machine;
use numapilot_machine::NodeId;
use numapilot_report::Counted;
use numapilot_report::Heading;
use numapilot_report::export::Export;
use numapilot_report::export::ExportError;
use numapilot_report::findings;
use numapilot_report::html;
use numapilot_report::json;
use numapilot_report::text;
use numapilot_text::style::Look;
use numapilot_trace::ids::ThreadIndex;
use numapilot_trace::ids::TimeNs;
use numapilot_trace::name;
use serde_json::Value;
use serde_json::json as value;

use crate::args::ReportArgs;
use crate::commands::exports;
use crate::commands::objects::choose_blocks;
use crate::commands::objects::choose_objects;
use crate::commands::planned;
use crate::commands::summary::refuse_blind;
use crate::output;

/// Slices of program time in drill-downs: one character each.
const TIME_SLICES: usize = 32;
/// Stretches of pages in drill-downs: one line each.
const PAGE_STRETCHES: usize = 16;

/// Renders the report, and writes the files that the arguments name.
pub fn run(arguments: &ReportArgs) -> Result<()> {
    let bar = output::spinner(&format!("reading {}", arguments.trace.display()));
    let done = report(arguments, &bar);
    bar.finish_and_clear();
    done
}

/// `bar`: the progress, which goes before anything is printed.
fn report(arguments: &ReportArgs, bar: &ProgressBar) -> Result<()> {
    let export = &arguments.export;
    let files = [&arguments.html, &arguments.plan, &export.svg, &export.pprof, &export.firefox, &export.csv];
    let is_taken = output::takes_standard_output(&files)?;
    let trace = Trace::open(&arguments.trace)?;
    let machine = trace.machine();
    let heading = Heading::of(&name::find(&arguments.trace), &trace, machine.as_ref());
    bar.set_message("analysing");
    let view = View { arguments, trace: &trace, machine: machine.as_ref(), heading: &heading };
    let analysis = view.analysis()?;
    let mut surveyed = Surveyed::default();
    let found = view.findings(&analysis, &mut surveyed);
    if is_taken {
        bar.finish_and_clear();
    }
    if let Some(path) = &arguments.html {
        output::write_file(path, &view.page(&analysis, &found))?;
    }
    let mut of_plan = String::new();
    if let Some(path) = &arguments.plan {
        refuse_blind(&analysis).context("--plan")?;
        let mut plan = planned::plan(&found, &trace, machine.as_ref());
        if let Some(machine) = &machine {
            planned::add_price(&mut plan, &analysis, machine, &mut surveyed);
        }
        output::write_file(path, &plan.to_toml())?;
        if !planned::has_rules(&plan) {
            of_plan = format!(" ({})", planned::NO_RULE);
        }
    }
    let mut written = view.export(&analysis)?;
    if is_taken {
        return Ok(());
    }
    written.extend(arguments.plan.iter().map(|path| format!("Plan: {}{of_plan}", path.display())));
    written.extend(arguments.html.iter().map(|path| format!("Page: {}", path.display())));
    if arguments.json {
        let told = view.json(&analysis, &found)?;
        bar.finish_and_clear();
        return output::print_json(&told);
    }
    let told = view.text(&analysis, &found, output::look(&arguments.look))?;
    bar.finish_and_clear();
    output::print(&told)?;
    if written.is_empty() { Ok(()) } else { output::print(&format!("\n{}\n", written.join("\n"))) }
}

/// A trace with the arguments that select what is shown of it.
struct View<'a> {
    arguments: &'a ReportArgs,
    trace: &'a Trace,
    machine: Option<&'a Machine>,
    heading: &'a Heading,
}

impl View<'_> {
    fn analysis(&self) -> Result<Analysis<'_>> {
        let analysis = Analysis::on(self.trace, self.machine, Filter::default());
        let filter = self.filter(analysis.nodes())?;
        Ok(analysis.with(filter))
    }

    fn filter(&self, nodes: &[NodeId]) -> Result<Filter> {
        let mut filter = Filter::default();
        if self.arguments.from.is_some() || self.arguments.to.is_some() {
            let from = moment_ns(self.arguments.from.unwrap_or(Duration::ZERO));
            let to = moment_ns(self.arguments.to.unwrap_or(Duration::MAX));
            if from >= to {
                bail!("--from and --to leave no time between them; --from must be less than --to");
            }
            filter.time = Some(TimeNs(from)..TimeNs(to));
        }
        if let Some(node) = self.arguments.node {
            if !nodes.contains(&node) {
                let known: Vec<String> = nodes.iter().map(ToString::to_string).collect();
                bail!("--node {node}: the machine has nodes {}", known.join(", "));
            }
            filter.node = Some(node);
        }
        filter.is_remote = self.arguments.remote.then_some(true);
        Ok(filter)
    }

    /// Writes the files that the arguments name.
    fn export(&self, analysis: &Analysis<'_>) -> Result<Vec<String>> {
        let arguments = self.arguments;
        if !arguments.export.is_any() {
            return Ok(Vec::new());
        }
        let of_heap = arguments.heap || analysis.is_heap_only();
        let (analysis, scope) = self.chosen(analysis, of_heap)?;
        let scope = scope.join(", ");
        let export = Export { heading: self.heading, analysis: &analysis, machine: self.machine, scope: &scope };
        exports::write(&arguments.export, &export, of_heap)
    }

    /// Only what `--object` and `--thread` select as well, and all filters in words. `of_heap`: an object is heap blocks, accessed or not.
    fn chosen(&self, analysis: &Analysis<'_>, of_heap: bool) -> Result<(Analysis<'_>, Vec<String>)> {
        let arguments = self.arguments;
        let mut filter = analysis.filter().clone();
        let mut scope = self.scope();
        if let Some(name) = &arguments.object {
            let choose = if of_heap { choose_blocks } else { choose_objects };
            match choose(self.trace, "--object", name)?.as_slice() {
                [Named::Site(site)] => filter.site = Some(*site),
                [Named::Object(object)] => filter.object = Some(*object),
                several => {
                    let numbers = several.iter().filter_map(|chosen| match chosen {
                        Named::Site(site) => Some(format!("S{}", site.0)),
                        Named::Object(_) => None,
                    });
                    let numbers: Vec<String> = numbers.collect();
                    bail!(
                        "--object {name}: several sites have that name, and files and the heap show only one; choose one of {}",
                        numbers.join(", ")
                    );
                }
            }
            scope.insert(0, format!("object {name}"));
        }
        if let Some(name) = &arguments.thread {
            filter.thread = Some(self.choose_thread(name)?);
            scope.push(format!("thread {name}"));
        }
        Ok((Analysis::on(self.trace, self.machine, filter), scope))
    }

    /// The filters as text, one phrase each; empty for the whole recording.
    fn scope(&self) -> Vec<String> {
        let arguments = self.arguments;
        let mut scope = Vec::new();
        let [from, to] = [arguments.from, arguments.to].map(|moment| moment.map(|moment| moment.as_secs_f64()));
        match (from, to) {
            (Some(from), Some(to)) => scope.push(format!("{from} s to {to} s")),
            (Some(from), None) => scope.push(format!("from {from} s on")),
            (None, Some(to)) => scope.push(format!("before {to} s")),
            (None, None) => {}
        }
        scope.extend(arguments.node.map(|node| format!("threads on node {node}")));
        scope.extend(arguments.remote.then(|| "remote accesses".to_owned()));
        scope
    }

    fn page(&self, analysis: &Analysis<'_>, findings: &Findings) -> String {
        let version = env!("CARGO_PKG_VERSION");
        html::html(&html::Page { heading: self.heading, machine: self.machine, analysis, findings, version })
    }

    fn program_time_ns(&self, analysis: &Analysis<'_>) -> u64 {
        match &analysis.filter().time {
            Some(time) => time.end.0.min(self.heading.program_time_ns).saturating_sub(time.start.0),
            None => self.heading.program_time_ns,
        }
    }

    /// The report as text: the headline, then the sections that the arguments select.
    fn text(&self, analysis: &Analysis<'_>, found: &Findings, look: Look) -> Result<String> {
        let arguments = self.arguments;
        let counted = Counted::of(self.trace);
        let touches = analysis.touches();
        let is_heap_only = analysis.is_heap_only();
        let headline = match &touches {
            Some(touches) => text::touches(touches, analysis.nodes()),
            None if is_heap_only => text::heap_headline(&self.heading.engine.to_string(), look),
            None => text::headline(&analysis.headline(), analysis.nodes(), look),
        };
        let headline = text::missing(self.heading, look) + &headline;
        let mut parts = vec![headline, text::heading(self.heading, look)];
        let section = |title: &str, body: String| format!("{}\n{body}", look.heading(title));
        // Findings are based on memory accesses; page faults are none.
        let is_of_accesses = touches.is_none() && self.trace.evidence() == Evidence::Accesses && !is_heap_only;
        if is_of_accesses && (arguments.findings || self.is_whole()) {
            let body = findings::text(found, self.trace, self.machine, arguments.findings, look);
            parts.push(section("FINDINGS", body));
        }
        if self.trace.evidence() == Evidence::Other {
            // Without samples of accesses, tables of them would show zero where the truth is unknown.
            return Ok(parts.join("\n"));
        }
        let before = parts.len();
        if !is_heap_only {
            parts.extend(self.details_text(analysis, look)?);
        }
        if arguments.instances {
            let rows = analysis.objects(None, usize::MAX);
            parts.push(section(
                "OBJECT INSTANCES",
                text::objects(&rows, analysis.nodes(), arguments.top, look, counted),
            ));
        }
        if arguments.threads {
            let khz = Some(f64::from(self.trace.meta().clock.khz)).filter(|khz| *khz > 0.0);
            parts.push(section("THREADS", text::threads(&analysis.threads(), self.trace, khz, look)));
        }
        if arguments.functions {
            let rows = analysis.functions();
            parts.push(section("FUNCTIONS", text::functions(&rows, self.trace, arguments.top, look)));
        }
        if arguments.stacks {
            parts.push(section("CALL STACKS", text::stacks(&analysis.stacks(), self.trace, arguments.top, look)));
        }
        if arguments.heap || (is_heap_only && parts.len() == before) {
            parts.push(section("HEAP", self.heap_text(analysis, look)?));
        }
        if arguments.matrix {
            parts.push(section("NODE TO NODE", text::matrix(&analysis.matrix(), look, counted)));
            parts.push(section("LINKS", self.links_text(analysis, look)));
        }
        if let (Some(touches), true) = (&touches, parts.len() == before) {
            let rows = text::touched_objects(&touches.sites, self.trace, analysis.nodes(), arguments.top, look);
            parts.push(section("OBJECTS BY PAGES", rows));
        } else if parts.len() == before {
            let rows = analysis.sites();
            parts.push(section("OBJECTS", text::objects(&rows, analysis.nodes(), arguments.top, look, counted)));
            parts.push(section("NODE TO NODE", text::matrix(&analysis.matrix(), look, counted)));
        }
        Ok(parts.join("\n"))
    }

    /// The findings; empty if neither the report nor a file shows them. `surveyed`: what they leave to a plan's price.
    fn findings(&self, analysis: &Analysis<'_>, surveyed: &mut Surveyed) -> Findings {
        let asked = self.arguments;
        let is_wanted = asked.findings || asked.plan.is_some() || asked.html.is_some() || self.is_whole();
        match (is_wanted, asked.plan.is_some()) {
            (false, _) => Findings::default(),
            (true, false) => analysis.findings(self.machine),
            (true, true) => analysis.findings_surveyed(self.machine, surveyed),
        }
    }

    /// Whether the report covers the whole recording, without filters or drill-downs.
    fn is_whole(&self) -> bool {
        let asked = self.arguments;
        let drills = asked.functions || asked.stacks || asked.threads || asked.matrix || asked.instances || asked.heap;
        !drills && asked.object.is_none() && asked.thread.is_none() && self.scope().is_empty()
    }

    fn links_text(&self, analysis: &Analysis<'_>, look: Look) -> String {
        let Some(machine) = self.machine else { return "  the trace holds no description of its machine\n".to_owned() };
        let matrix = analysis.matrix();
        let (links, unrouted) = link_traffic(&matrix, machine, self.program_time_ns(analysis));
        text::links(&links, machine, (unrouted, matrix.unknown), look, Counted::of(self.trace))
    }

    /// The object and the thread that the arguments name, by their accesses.
    fn details_text(&self, analysis: &Analysis<'_>, look: Look) -> Result<Vec<String>> {
        let mut parts = Vec::new();
        if let Some(name) = &self.arguments.object {
            let details = self.object_details(analysis, name, slices(look))?;
            let shown =
                |detail: &ObjectDetail| text::object(detail, self.trace, analysis.nodes(), self.arguments.top, look);
            parts.extend(details.iter().map(shown));
        }
        if let Some(name) = &self.arguments.thread {
            let thread = self.choose_thread(name)?;
            let detail = analysis.thread_detail(thread, slices(look)).context("no such thread")?;
            parts.push(text::thread(&detail, self.trace, analysis.nodes(), self.arguments.top, look));
        }
        Ok(parts)
    }

    fn heap_text(&self, analysis: &Analysis<'_>, look: Look) -> Result<String> {
        let (analysis, _) = self.chosen(analysis, true)?;
        let (profile, sampled) = (analysis.heap(), analysis.sampled_heap());
        if profile.is_none() && sampled.is_none() {
            return Err(ExportError::NoHeap).context("--heap");
        }
        let top = self.arguments.top;
        // A filter may leave one of the two heaps alone.
        let has_sampled = sampled.as_ref().is_some_and(|sampled| !sampled.sites.is_empty());
        let profile = profile.filter(|profile| !has_sampled || !profile.sites.is_empty());
        let mut parts: Vec<String> = profile.iter().map(|profile| text::heap(profile, self.trace, top, look)).collect();
        if let Some(sampled) = sampled.filter(|_| has_sampled || profile.is_none()) {
            let title = look.heading("OBJECTS OF JAVA, ESTIMATED FROM SAMPLES");
            parts.push(format!("{title}\n{}", text::sampled_heap(&sampled, top, look)));
        }
        Ok(parts.join("\n"))
    }

    /// The objects that a name denotes, each in detail; those without an access that passes the filters are left out.
    fn object_details(&self, analysis: &Analysis<'_>, name: &str, slices: usize) -> Result<Vec<ObjectDetail>> {
        let chosen = choose_objects(self.trace, "--object", name)?;
        let details: Vec<ObjectDetail> = chosen
            .iter()
            .filter_map(|chosen| match chosen {
                Named::Site(site) => analysis.site_detail(*site, slices, PAGE_STRETCHES),
                Named::Object(object) => analysis.object_detail(*object, slices, PAGE_STRETCHES),
            })
            .collect();
        if details.is_empty() { bail!(none_to(self.trace)) } else { Ok(details) }
    }

    fn json(&self, analysis: &Analysis<'_>, found: &Findings) -> Result<Value> {
        let arguments = self.arguments;
        let top = arguments.top;
        let links =
            self.machine.map(|machine| link_traffic(&analysis.matrix(), machine, self.program_time_ns(analysis)).0);
        let mut out = json::overview(self.heading, analysis, &links.unwrap_or_default(), top);
        if let Some(touches) = analysis.touches() {
            out["page_faults"] = value!(touches);
        } else if self.trace.evidence() == Evidence::Accesses && (arguments.findings || self.is_whole()) {
            out["findings"] = findings::json(found, self.trace, self.machine);
        }
        let is_heap_only = analysis.is_heap_only();
        if let Some(name) = arguments.object.as_ref().filter(|_| !is_heap_only) {
            out["objects"] = value!(self.object_details(analysis, name, TIME_SLICES)?);
        }
        if let Some(name) = arguments.thread.as_ref().filter(|_| !is_heap_only) {
            let thread = self.choose_thread(name)?;
            out["thread"] = value!(analysis.thread_detail(thread, TIME_SLICES).context("no such thread")?);
        }
        if arguments.instances {
            out["instances"] = value!(analysis.objects(None, top));
        }
        if arguments.threads {
            out["threads"] = value!(analysis.threads());
        }
        if arguments.functions {
            out["functions"] = value!(analysis.functions().into_iter().take(top).collect::<Vec<_>>());
        }
        if arguments.heap || is_heap_only {
            let (analysis, _) = self.chosen(analysis, true)?;
            let (profile, sampled) = (analysis.heap(), analysis.sampled_heap());
            if profile.is_none() && sampled.is_none() {
                return Err(ExportError::NoHeap).context("--heap");
            }
            if let Some(mut profile) = profile {
                profile.sites.truncate(top);
                profile.threads.truncate(top);
                out["heap"] = value!(profile);
            }
            if let Some(mut sampled) = sampled {
                sampled.sites.truncate(top);
                out["sampled_heap"] = value!(sampled);
            }
        }
        if arguments.stacks {
            let rows: Vec<_> = analysis.stacks().into_iter().take(top).collect();
            out["stacks"] = json::stacks(&rows, self.trace);
        }
        Ok(out)
    }

    /// The thread with this number, else the first with this name or start function.
    fn choose_thread(&self, name: &str) -> Result<ThreadIndex> {
        let threads = self.trace.threads();
        if let Ok(index) = name.parse().map(ThreadIndex) {
            self.trace.thread(index).with_context(|| {
                format!("--thread {name}: the trace has threads 0 to {}", threads.len().saturating_sub(1))
            })?;
            return Ok(index);
        }
        let thread = threads.iter().find(|thread| &*thread.name == name || &*thread.start_function == name);
        Ok(thread.with_context(|| format!("--thread {name}: no thread has that name"))?.index)
    }
}

/// Number of slices of program time that fit in a line of this width.
fn slices(look: Look) -> usize {
    if look.width >= 96 { TIME_SLICES } else { TIME_SLICES / 4 }
}

/// A moment of program time in nanoseconds; the greatest number for later ones.
fn moment_ns(moment: Duration) -> u64 {
    u64::try_from(moment.as_nanos()).unwrap_or(u64::MAX)
}

/// The message that no recorded access or fault is to the chosen object.
fn none_to(trace: &Trace) -> String {
    let what = Counted::of(trace).or_faults("sampled access to", "page fault on");
    format!("no {what} that object (with these filters)")
}
