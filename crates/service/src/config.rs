//! The daemon's configuration: a TOML file with every setting of `balance`. It is checked completely before any setting takes effect.
//! `packaging/numapilot.toml` shows all keys.

use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;

use numapilot_balancer::balancing_loop::Tunables;
use numapilot_host::Pid;
use numapilot_text::quantity;
use serde::Deserialize;
use toml::Spanned;

use crate::address::Address;
use crate::control::ControlSettings;
use crate::error::ServiceError;
use crate::journal::JournalSettings;
use crate::places::Places;

/// Which processes are managed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who {
    /// Every process of the machine.
    System,
    /// The processes of a cgroup, given by its folder.
    Cgroup(PathBuf),
    /// The processes of these systemd units, whenever they run.
    Units(Vec<String>),
    /// The processes with these ids.
    Processes(Vec<Pid>),
}

/// Settings of the metrics page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricsSettings {
    /// Address on which the page is served.
    pub listen: Address,
    /// Whether other machines may read it.
    pub allow_remote: bool,
    /// Whether metrics of single processes (process id and user, never a name) are shown too.
    pub per_process: bool,
}

/// A complete configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Which processes are managed.
    pub who: Who,
    /// Whether whole processes are placed instead of pages.
    pub pack: bool,
    /// The policy with its options.
    pub policy: String,
    /// Settings that may change while the loop runs (SIGHUP, `ctl reload`).
    pub tunables: Tunables,
    /// Dry run: nothing is moved and no setting changed.
    pub dry_run: bool,
    /// Whether the kernel's settings stay unchanged.
    pub keep_settings: bool,
    /// Whether loaded latencies are probed.
    pub probes: bool,
    /// Whether the processor's access samples are used as evidence.
    pub samples: bool,
    /// Whether memory for which a program has set a memory policy is moved too.
    pub bound_memory: bool,
    /// Maximum number of pages in the evidence table.
    pub table_pages: usize,
    /// Model of this machine; `None`: as the firmware describes it.
    pub machine: Option<String>,
    /// Seed of random numbers.
    pub seed: u64,
    /// Settings of the journal; `None`: no journal.
    pub journal: Option<JournalSettings>,
    /// Settings of the control socket; `None`: no control socket.
    pub control: Option<ControlSettings>,
    /// Settings of the metrics page; `None`: no metrics.
    pub metrics: Option<MetricsSettings>,
    /// Folder for the record of settings to restore.
    pub state: PathBuf,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Raw {
    system: Option<bool>,
    cgroup: Option<PathBuf>,
    unit: Option<Spanned<Vec<String>>>,
    pid: Option<Vec<Pid>>,
    pack: Option<Spanned<bool>>,
    policy: Option<Spanned<String>>,
    max_harm: Option<Spanned<String>>,
    interval: Option<Spanned<String>>,
    rate: Option<Spanned<String>>,
    keep: Option<Spanned<String>>,
    max_pressure: Option<Spanned<String>>,
    dry_run: Option<bool>,
    keep_settings: Option<bool>,
    probes: Option<bool>,
    samples: Option<bool>,
    bound_memory: Option<bool>,
    table_pages: Option<Spanned<u64>>,
    machine: Option<String>,
    seed: Option<u64>,
    journal: Option<RawJournal>,
    control: Option<RawControl>,
    metrics: Option<RawMetrics>,
    state: Option<RawState>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RawJournal {
    enabled: Option<bool>,
    file: Option<PathBuf>,
    max_size: Option<Spanned<String>>,
    parts: Option<Spanned<u32>>,
    keep_free: Option<Spanned<String>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RawControl {
    enabled: Option<bool>,
    socket: Option<PathBuf>,
    mode: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RawMetrics {
    listen: Spanned<String>,
    #[serde(default)]
    allow_remote: bool,
    #[serde(default)]
    per_process: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RawState {
    folder: Option<PathBuf>,
}

impl Config {
    /// Reads a configuration file.
    ///
    /// # Errors
    /// The file cannot be read, or has an error; the message names the line.
    pub fn load(path: &Path) -> Result<Config, ServiceError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ServiceError::file(path, "read the configuration", source))?;
        Config::parse(path, &text, &Places::usual())
    }

    fn parse(path: &Path, text: &str, places: &Places) -> Result<Config, ServiceError> {
        let fail = Fail { path, text };
        let raw: Raw = toml::from_str(text)
            .map_err(|error| fail.at(error.span().map(|span| span.start), error.message().trim().to_owned()))?;
        let who = fail.who(&raw)?;
        let pack = fail.pack(&raw)?;
        if let Some(policy) = &raw.policy
            && policy.get_ref().trim().is_empty()
        {
            return Err(fail.at(
                Some(policy.span().start),
                "the policy's name is empty; docs/policies.md lists the policies".to_owned(),
            ));
        }
        let usual = Tunables::default();
        let tunables = Tunables {
            max_harm: fail.value(raw.max_harm, quantity::part)?.unwrap_or(usual.max_harm),
            interval: fail.value(raw.interval, interval)?.unwrap_or(usual.interval),
            bytes_per_s: fail.value(raw.rate, rate)?.or(usual.bytes_per_s),
            keep_bytes: fail.value(raw.keep, quantity::bytes)?.unwrap_or(usual.keep_bytes),
            max_pressure: fail.value(raw.max_pressure, quantity::part)?.unwrap_or(usual.max_pressure),
        };
        Ok(Config {
            who,
            pack,
            policy: raw.policy.map_or_else(|| "pilot".to_owned(), Spanned::into_inner),
            tunables,
            dry_run: raw.dry_run.unwrap_or(false),
            keep_settings: raw.keep_settings.unwrap_or(false),
            probes: raw.probes.unwrap_or(true),
            samples: raw.samples.unwrap_or(true),
            bound_memory: raw.bound_memory.unwrap_or(false),
            table_pages: fail.table(raw.table_pages)?,
            machine: raw.machine,
            seed: raw.seed.unwrap_or(1),
            journal: fail.journal(raw.journal.unwrap_or_default(), places)?,
            control: fail.control(raw.control.unwrap_or_default(), places)?,
            metrics: raw.metrics.map(|raw| fail.metrics(raw)).transpose()?,
            state: raw.state.and_then(|state| state.folder).unwrap_or_else(|| places.state.clone()),
        })
    }

    /// Names of settings that differ from `other` and require a restart.
    #[must_use]
    pub fn needs_restart(&self, other: &Config) -> Vec<&'static str> {
        let pairs: [(&'static str, bool); 15] = [
            ("system, cgroup, unit or pid", self.who == other.who),
            ("pack", self.pack == other.pack),
            ("policy", self.policy == other.policy),
            ("dry-run", self.dry_run == other.dry_run),
            ("keep-settings", self.keep_settings == other.keep_settings),
            ("probes", self.probes == other.probes),
            ("samples", self.samples == other.samples),
            ("bound-memory", self.bound_memory == other.bound_memory),
            ("table-pages", self.table_pages == other.table_pages),
            ("machine", self.machine == other.machine),
            ("seed", self.seed == other.seed),
            ("journal", self.journal == other.journal),
            ("control", self.control == other.control),
            ("metrics", self.metrics == other.metrics),
            ("state", self.state == other.state),
        ];
        pairs.into_iter().filter(|(_, is_same)| !is_same).map(|(name, _)| name).collect()
    }
}

fn interval(text: &str) -> Result<Duration, String> {
    let time = quantity::time(text)?;
    let is_sound = (Duration::from_millis(1)..=Duration::from_secs(3600)).contains(&time);
    if is_sound { Ok(time) } else { Err("the interval must be between 1ms and 1h".to_owned()) }
}

fn rate(text: &str) -> Result<u64, String> {
    match quantity::bytes(text)? {
        0 => Err("a rate of 0 moves nothing: use dry-run for that".to_owned()),
        bytes => Ok(bytes),
    }
}

fn mode(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text.trim_start_matches("0o"), 8) {
        Ok(mode) if mode <= 0o777 && mode & 0o200 != 0 => Ok(mode),
        _ => Err("permissions are octal digits with the owner's right to write, such as 0666 or 0600".to_owned()),
    }
}

/// Makes errors that name their place in a file.
struct Fail<'a> {
    path: &'a Path,
    text: &'a str,
}

impl Fail<'_> {
    fn at(&self, offset: Option<usize>, what: String) -> ServiceError {
        let line =
            offset.map(|offset| self.text.as_bytes().iter().take(offset).filter(|&&byte| byte == b'\n').count() + 1);
        ServiceError::Content { path: self.path.to_owned(), line, what }
    }

    fn value<R, T>(
        &self,
        raw: Option<Spanned<R>>,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<T>, ServiceError>
    where
        R: AsRef<str>,
    {
        raw.map(|raw| read(raw.get_ref().as_ref()).map_err(|what| self.at(Some(raw.span().start), what))).transpose()
    }

    fn who(&self, raw: &Raw) -> Result<Who, ServiceError> {
        let named = [
            (raw.system == Some(true)).then_some(Who::System),
            raw.cgroup.clone().map(Who::Cgroup),
            raw.unit.as_ref().map(|units| self.units(units)).transpose()?.map(Who::Units),
            raw.pid.clone().map(Who::Processes),
        ];
        let mut named: Vec<Who> = named.into_iter().flatten().collect();
        match (named.pop(), named.is_empty()) {
            (Some(who), true) => Ok(who),
            (None, _) => Err(self
                .at(None, "no process is selected: set one of `system = true`, `cgroup`, `unit` and `pid`".to_owned())),
            _ => Err(self.at(None, "set only one of `system`, `cgroup`, `unit` and `pid`".to_owned())),
        }
    }

    /// Names of units, each as `systemctl` takes it.
    fn units(&self, units: &Spanned<Vec<String>>) -> Result<Vec<String>, ServiceError> {
        let is_name = |unit: &String| !unit.trim().is_empty() && !unit.contains('/');
        match units.get_ref().iter().find(|unit| !is_name(unit)) {
            None if !units.get_ref().is_empty() => Ok(units.get_ref().clone()),
            wrong => {
                let which = wrong.map_or("an empty list".to_owned(), |unit| format!("{unit:?}"));
                let what = format!("{which} names no systemd unit: a name such as \"postgresql\" is wanted");
                Err(self.at(Some(units.span().start), what))
            }
        }
    }

    /// Settings about pages are refused if whole processes are placed.
    fn pack(&self, raw: &Raw) -> Result<bool, ServiceError> {
        let Some(pack) = raw.pack.as_ref().filter(|pack| *pack.get_ref()) else { return Ok(false) };
        let of_pages = [
            ("policy", raw.policy.is_some()),
            ("probes", raw.probes.is_some()),
            ("samples", raw.samples.is_some()),
            ("table-pages", raw.table_pages.is_some()),
        ];
        match of_pages.iter().find(|(_, is_set)| *is_set) {
            Some((name, _)) => {
                let what =
                    format!("`pack = true` places whole processes, but `{name}` applies to pages: remove one of them");
                Err(self.at(Some(pack.span().start), what))
            }
            None => Ok(true),
        }
    }

    fn table(&self, raw: Option<Spanned<u64>>) -> Result<usize, ServiceError> {
        let Some(raw) = raw else { return Ok(4 << 20) };
        match usize::try_from(*raw.get_ref()) {
            Ok(pages @ 1024..=0x1_0000_0000) => Ok(pages),
            _ => Err(self.at(Some(raw.span().start), "table-pages must be between 1024 and 4294967296".to_owned())),
        }
    }

    fn journal(&self, raw: RawJournal, places: &Places) -> Result<Option<JournalSettings>, ServiceError> {
        let mut settings = JournalSettings::new(raw.file.unwrap_or_else(|| places.journal.clone()));
        if let Some(size) = raw.max_size {
            let start = size.span().start;
            settings.max_bytes = self.value(Some(size), quantity::bytes)?.unwrap_or(settings.max_bytes);
            if settings.max_bytes < 64 << 10 {
                return Err(self.at(Some(start), "max-size must be 64K or more".to_owned()));
            }
        }
        if let Some(parts) = raw.parts {
            if *parts.get_ref() > 100 {
                return Err(self.at(Some(parts.span().start), "parts must be between 0 and 100".to_owned()));
            }
            settings.keep = parts.into_inner();
        }
        if let Some(bytes) = self.value(raw.keep_free, quantity::bytes)? {
            settings.keep_free_bytes = bytes;
        }
        Ok(raw.enabled.unwrap_or(true).then_some(settings))
    }

    fn control(&self, raw: RawControl, places: &Places) -> Result<Option<ControlSettings>, ServiceError> {
        let path = raw.socket.unwrap_or_else(|| places.control.clone());
        let settings = ControlSettings { path, mode: self.value(raw.mode, mode)?.unwrap_or(0o666) };
        Ok(raw.enabled.unwrap_or(true).then_some(settings))
    }

    fn metrics(&self, raw: RawMetrics) -> Result<MetricsSettings, ServiceError> {
        let start = raw.listen.span().start;
        let listen: Address =
            raw.listen.get_ref().parse().map_err(|error: ServiceError| self.at(Some(start), error.to_string()))?;
        if !listen.is_local() && !raw.allow_remote {
            let refusal = ServiceError::NotLocal { address: listen.to_string() };
            return Err(self.at(Some(start), format!("{refusal} (`allow-remote = true`)")));
        }
        Ok(MetricsSettings { listen, allow_remote: raw.allow_remote, per_process: raw.per_process })
    }
}

#[cfg(test)]
mod tests {
    //! Files that are right, and others.

    use proptest::prelude::*;

    use super::*;

    fn places() -> Places {
        Places { control: "/run/c".into(), journal: "/log/j".into(), state: "/state".into() }
    }

    fn parse(text: &str) -> Result<Config, String> {
        Config::parse(Path::new("n.toml"), text, &places()).map_err(|error| error.to_string())
    }

    #[test]
    fn everything_has_a_default_but_who() {
        let config = parse("system = true").unwrap();
        assert_eq!((&config.who, config.policy.as_str(), config.tunables.max_harm), (&Who::System, "pilot", 0.01));
        assert_eq!(config.journal.unwrap().file, PathBuf::from("/log/j"));
        assert_eq!(config.control.unwrap().path, PathBuf::from("/run/c"));
        assert_eq!((config.metrics, config.state), (None, PathBuf::from("/state")));
    }

    #[test]
    fn units_are_named_as_systemd_names_them() {
        let config = parse("unit = [\"postgresql\", \"nginx.service\"]").unwrap();
        assert_eq!(config.who, Who::Units(vec!["postgresql".to_owned(), "nginx.service".to_owned()]));
        assert_eq!(config.needs_restart(&parse("unit = [\"nginx\"]").unwrap()), ["system, cgroup, unit or pid"]);
    }

    #[test]
    fn every_key_is_taken() {
        let config = parse(
            "pid = [1, 2]\npolicy = \"carrefour:gate=10\"\nmax-harm = \"0.5%\"\ninterval = \"250ms\"\nrate = \"200M\"\nkeep = \"1G\"\nmax-pressure = \"25%\"\n\
             dry-run = true\nkeep-settings = true\nprobes = false\nsamples = false\nbound-memory = true\ntable-pages = 2048\nmachine = \"epyc-2s\"\nseed = 7\n\
             [journal]\nenabled = true\nfile = \"/j\"\nmax-size = \"1M\"\nparts = 2\nkeep-free = \"0\"\n\
             [control]\nenabled = true\nsocket = \"/c\"\nmode = \"0600\"\n\
             [metrics]\nlisten = \"0.0.0.0:9105\"\nallow-remote = true\nper-process = true\n[state]\nfolder = \"/s\"\n",
        )
        .unwrap();
        assert_eq!(config.who, Who::Processes(vec![Pid(1), Pid(2)]));
        assert_eq!((config.tunables.bytes_per_s, config.tunables.max_pressure), (Some(200 << 20), 0.25));
        assert_eq!((config.tunables.interval, config.tunables.keep_bytes), (Duration::from_millis(250), 1 << 30));
        assert_eq!(config.journal.as_ref().unwrap().max_bytes, 1 << 20);
        assert_eq!(config.control.as_ref().unwrap().mode, 0o600);
        assert!(
            config.metrics.as_ref().unwrap().per_process
                && config.dry_run
                && config.keep_settings
                && !config.probes
                && !config.samples
                && config.bound_memory
        );
        let without = parse("system = true\n[journal]\nenabled = false\n[control]\nenabled = false").unwrap();
        assert_eq!((&without.journal, &without.control), (&None, &None));
        assert_eq!(without.needs_restart(&config).len(), 14);
        let packing = parse("system = true\npack = true").unwrap();
        let paying = parse("system = true\npack = true\nmax-harm = \"2%\"").unwrap();
        assert!(
            paying.pack && (paying.tunables.max_harm - 0.02).abs() < 1e-12,
            "moving whole processes is paid for, too"
        );
        assert!(packing.pack && packing.needs_restart(&parse("system = true").unwrap()) == ["pack"]);
        let wrong = parse("system = true\npack = true\npolicy = \"pilot\"").unwrap_err();
        assert!(wrong.contains("n.toml, line 2") && wrong.contains("`policy` applies to pages"), "{wrong}");
        let tuned = Config { tunables: Tunables { max_harm: 0.5, ..config.tunables.clone() }, ..config.clone() };
        assert_eq!(config.needs_restart(&tuned), Vec::<&str>::new());
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for (text, line, part) in [
            ("system = true\npolcy = \"x\"", Some(2), "polcy"),
            ("system = true\n\nmax-harm = \"lots\"", Some(3), "percentage"),
            ("system = true\ninterval = \"0\"", Some(2), "between 1ms"),
            ("system = true\nrate = \"0\"", Some(2), "dry-run"),
            ("system = true\nmax-pressure = \"101%\"", Some(2), "between 0 and 100"),
            ("system = true\npolicy = \"\"", Some(2), "empty"),
            ("system = true\ntable-pages = 3", Some(2), "table-pages"),
            ("system = true\n[metrics]\nlisten = \"example.org\"", Some(3), "not an address"),
            ("system = true\n[metrics]\nlisten = \"0.0.0.0:1\"", Some(3), "allow-remote"),
            ("system = true\n[control]\nmode = \"0999\"", Some(3), "octal"),
            ("system = true\n[journal]\nmax-size = \"1\"", Some(3), "64K"),
            ("system = true\n[journal]\nparts = 1000", Some(3), "parts"),
            ("system = 3", Some(1), "boolean"),
            ("system = ", Some(1), ""),
            ("", None, "no process is selected"),
            ("system = false", None, "no process is selected"),
            ("system = true\npid = [1]", None, "only one"),
            ("unit = [\"nginx\"]\npid = [1]", None, "only one"),
            ("seed = 1\nunit = []", Some(2), "an empty list"),
            ("unit = [\"nginx\", \"a/b\"]", Some(1), "\"a/b\" names no systemd unit"),
        ] {
            let error = parse(text).unwrap_err();
            let place = line.map_or("n.toml: ".to_owned(), |line| format!("n.toml, line {line}: "));
            assert!(error.starts_with(&place) && error.contains(part), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_an_answer(text in "[ -~\n]{0,200}") {
            let _ = parse(&text);
        }
    }
}
