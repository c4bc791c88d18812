//! Machines, and the traffic model on them: predicts latencies and rates from how many threads of each node access the memory of each node.

use numapilot_machine::{Machine, NodeId, builtin_names};
use numapilot_report::text::end;
use numapilot_text::units::whole_percent;
use numapilot_traffic::{Background, Class, Load, MemorySystem, metrics};
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyDict};
use serde_json::json;

use crate::ffi::{Code, detached, error};
use crate::shown::{PyDocument, as_python};

/// A machine: its nodes, CPUs, memory and links.
#[pyclass(name = "Machine", module = "numapilot", frozen)]
pub struct PyMachine {
    machine: Machine,
}

impl PyMachine {
    pub fn new(machine: Machine) -> PyMachine {
        PyMachine { machine }
    }

    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    fn index_of(&self, node: u16) -> PyResult<usize> {
        let nodes = self.machine.nodes();
        nodes.iter().position(|known| known.id == NodeId(node)).ok_or_else(|| {
            let known: Vec<String> = nodes.iter().map(|node| node.id.to_string()).collect();
            error(
                Code::NotFound,
                format!("machine {} has no node {node}; it has {}", self.machine.name(), known.join(", ")),
            )
        })
    }

    /// Converts a dictionary of shares by node number to a list of shares by node index.
    fn shares(&self, shares: Option<Bound<'_, PyAny>>) -> PyResult<Vec<f64>> {
        let mut all = vec![0.0; self.machine.nodes().len()];
        let Some(shares) = shares.filter(|shares| !shares.is_none()) else { return Ok(all) };
        for (node, share) in shares.cast::<PyDict>()? {
            all[self.index_of(node.extract()?)?] = share.extract()?;
        }
        Ok(all)
    }

    fn class(&self, given: &Bound<'_, PyDict>) -> PyResult<Class> {
        const KNOWN: [&str; 6] = ["node", "threads", "outstanding", "think_ns", "reads", "writes"];
        for key in given.keys() {
            let key: String = key.extract()?;
            if !KNOWN.contains(&key.as_str()) {
                return Err(error(
                    Code::BadArgument,
                    format!("a class has no key {key:?}; known keys: {}", KNOWN.join(", ")),
                ));
            }
        }
        let number = |key: &str, default: f64| -> PyResult<f64> {
            given.get_item(key)?.map_or(Ok(default), |value| value.extract())
        };
        let node =
            given.get_item("node")?.ok_or_else(|| error(Code::BadArgument, "a class must have the key \"node\""))?;
        Ok(Class {
            from: self.index_of(node.extract()?)?,
            threads: number("threads", 1.0)?,
            outstanding: number("outstanding", 1.0)?,
            think_ns: number("think_ns", 0.0)?,
            reads: self.shares(given.get_item("reads")?)?,
            writes: self.shares(given.get_item("writes")?)?,
        })
    }
}

/// Names of the built-in models.
#[pyfunction]
pub fn machines() -> Vec<String> {
    builtin_names().map(str::to_owned).collect()
}

#[pymethods]
impl PyMachine {
    /// A built-in model by name, or a model file by path.
    #[staticmethod]
    fn load(name: &str) -> PyResult<PyMachine> {
        Machine::load(name).map(PyMachine::new).map_err(|why| error(Code::NotFound, why.to_string()))
    }

    #[getter]
    fn name(&self) -> &str {
        self.machine.name()
    }

    #[getter]
    fn nodes(&self) -> Vec<u16> {
        self.machine.nodes().iter().map(|node| node.id.0).collect()
    }

    /// The machine's description: what `numapilot topo --json` prints.
    #[getter]
    fn data<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        as_python(py, &self.machine)
    }

    /// Predicts, by the traffic model, a load's latencies, throughputs, utilisations and marginal costs.
    #[pyo3(signature = (classes, *, copies = Vec::new()))]
    fn traffic(
        &self,
        py: Python<'_>,
        classes: Vec<Bound<'_, PyDict>>,
        copies: Vec<(u16, u16, f64)>,
    ) -> PyResult<PyDocument> {
        let classes = classes.iter().map(|class| self.class(class)).collect::<PyResult<Vec<_>>>()?;
        let copy = |&(source, target, bytes_per_s): &(u16, u16, f64)| -> PyResult<Background> {
            Ok(Background { source: self.index_of(source)?, target: self.index_of(target)?, bytes_per_s })
        };
        let load = Load { classes, background: copies.iter().map(copy).collect::<PyResult<_>>()? };
        let answer = detached(py, || {
            let system = MemorySystem::new(&self.machine)?;
            let solution = system.solve(&load)?;
            let metrics = metrics(&system, &load, &solution, None);
            Ok((solution, metrics))
        })?;
        let (solution, metrics) =
            answer.map_err(|why: numapilot_traffic::TrafficError| error(Code::Model, why.to_string()))?;
        let text = in_words(&self.machine, &load, &solution);
        let mut data = json!(solution);
        data["predicted"] = json!(true);
        data["converged"] = json!(solution.converged());
        data["machine"] = json!(self.machine.name());
        data["nodes"] = json!(self.nodes());
        data["metrics"] = json!(metrics);
        Ok(PyDocument::new(data, text))
    }

    fn __repr__(&self) -> String {
        format!("<numapilot.Machine {}: {} nodes>", self.machine.name(), self.machine.nodes().len())
    }
}

fn in_words(machine: &Machine, load: &Load, solution: &numapilot_traffic::Solution) -> String {
    let mut lines = vec![format!("{}, predicted", machine.name())];
    for (index, class) in load.classes.iter().enumerate() {
        let node = machine.nodes()[class.from].id;
        let (latency, rate) = (solution.latency_ns[index], solution.throughput_per_s[index] / 1e6);
        lines.push(format!(
            "  {} threads on node {node}: {latency:.1} ns per access, {rate:.1} M accesses/s",
            class.threads
        ));
    }
    let busiest = solution.stations.iter().max_by(|a, b| a.utilisation.total_cmp(&b.utilisation));
    if let Some(station) = busiest {
        let which = match (station.controller, station.link) {
            (Some(node), _) => format!("controller of node {node}"),
            (None, Some(link)) => machine.link(link).map_or_else(String::new, |link| {
                format!("link from {} to {}", end(machine, link.from), end(machine, link.to))
            }),
            (None, None) => match (station.read_port, station.write_port) {
                (Some(node), _) => format!("reads of node {node}'s CPUs"),
                (None, Some(node)) => format!("writes of node {node}'s CPUs"),
                (None, None) => "none".to_owned(),
            },
        };
        lines.push(format!("  busiest: {which}, {}", whole_percent(station.utilisation)));
    }
    if !solution.converged() {
        lines.push("  the solution did not converge: the figures are approximate".to_owned());
    }
    lines.join("\n") + "\n"
}
