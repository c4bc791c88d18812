//! Prometheus's text exposition format, version 0.0.4 (prometheus.io/docs/instrumenting/exposition_formats), and its rules for names.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::Kind;
use super::MetricFamily;

/// Encodes these families as text, in their order.
#[must_use]
pub fn encode(families: &[MetricFamily]) -> String {
    let mut out = String::new();
    for family in families.iter().filter(|family| !family.samples.is_empty()) {
        let kind = match family.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        let _ = writeln!(out, "# HELP {} {}", family.name, escaped(family.help, false));
        let _ = writeln!(out, "# TYPE {} {kind}", family.name);
        for sample in &family.samples {
            out.push_str(family.name);
            for (index, (name, value)) in sample.labels.iter().enumerate() {
                let before = if index == 0 { '{' } else { ',' };
                let _ = write!(out, "{before}{name}=\"{}\"", escaped(value, true));
            }
            if !sample.labels.is_empty() {
                out.push('}');
            }
            let _ = writeln!(out, " {}", number(sample.value));
        }
    }
    out
}

fn number(value: f64) -> String {
    match value {
        value if value.is_nan() => "NaN".to_owned(),
        f64::INFINITY => "+Inf".to_owned(),
        f64::NEG_INFINITY => "-Inf".to_owned(),
        value => value.to_string(),
    }
}

fn escaped(text: &str, quotes: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '"' if quotes => out.push_str("\\\""),
            c => out.push(c),
        }
    }
    out
}

/// Violations of the format and of Prometheus's naming conventions in the names and labels of these families; for tests.
#[must_use]
pub fn problems(families: &[MetricFamily]) -> Vec<String> {
    let mut out = Vec::new();
    let mut names = BTreeSet::new();
    for family in families {
        let name = family.name;
        let word = |text: &str, also: &str| {
            let first = text.chars().next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
            first && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || also.contains(c))
        };
        if !word(name, ":") {
            out.push(format!("{name}: no valid name"));
        }
        if !names.insert(name) {
            out.push(format!("{name}: twice"));
        }
        if (family.kind == Kind::Counter) != name.ends_with("_total") {
            out.push(format!("{name}: counters, and only they, end in _total"));
        }
        if name.split('_').any(|part| ["ms", "ns", "us", "percent", "kib", "mib", "milliseconds"].contains(&part)) {
            out.push(format!("{name}: not a base unit (seconds, bytes, ratio)"));
        }
        if family.help.is_empty() {
            out.push(format!("{name}: no help"));
        }
        let mut seen = BTreeSet::new();
        for sample in &family.samples {
            for (label, _) in &sample.labels {
                if !word(label, "") || label.starts_with("__") {
                    out.push(format!("{name}: label {label:?} is no valid name"));
                }
            }
            let mut labels = sample.labels.clone();
            labels.sort();
            if !seen.insert(labels) {
                out.push(format!("{name}: {:?} twice", sample.labels));
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    //! The format, written and read back by an independent reader.

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn families_are_written_as_prometheus_reads_them() {
        let families = [
            MetricFamily::counter("a_bytes_total", "Bytes.\nAnd \\ more").value(12.0),
            MetricFamily::gauge("empty", "Left out"),
            MetricFamily::gauge("b_ratio", "Shares")
                .with(&[("node", &0), ("name", &"q\"\\\n")], 0.25)
                .with(&[("node", &1)], f64::NAN),
            MetricFamily::gauge("c", "Ends").with(&[], f64::INFINITY).with(&[("x", &"")], -1e300),
        ];
        let text = encode(&families);
        let tiny = format!("c{{x=\"\"}} -1{}\n", "0".repeat(300));
        let expected = "# HELP a_bytes_total Bytes.\\nAnd \\\\ more\n# TYPE a_bytes_total counter\na_bytes_total 12\n\
             # HELP b_ratio Shares\n# TYPE b_ratio gauge\nb_ratio{node=\"0\",name=\"q\\\"\\\\\\n\"} 0.25\nb_ratio{node=\"1\"} NaN\n\
             # HELP c Ends\n# TYPE c gauge\nc +Inf\n"
            .to_owned()
            + &tiny;
        assert_eq!(text, expected);
    }

    #[test]
    fn bad_names_are_found() {
        let families = [
            MetricFamily::counter("moved", "x"),
            MetricFamily::gauge("time_ms", "x"),
            MetricFamily::gauge("9lives", ""),
            MetricFamily::gauge("ok", "x").with(&[("a-b", &1)], 1.0).with(&[("a-b", &1)], 2.0),
            MetricFamily::gauge("ok", "x"),
        ];
        let found = problems(&families).join("\n");
        for part in ["_total", "base unit", "no valid name", "no help", "a-b", "twice"] {
            assert!(found.contains(part), "{part} not in {found}");
        }
    }

    /// Label values of one line, by the grammar.
    fn labels_of(line: &str) -> Vec<(String, String)> {
        let mut out = Vec::new();
        let Some((_, rest)) = line.split_once('{') else { return out };
        let mut chars = rest.chars();
        loop {
            let name: String = chars.by_ref().take_while(|&c| c != '=').collect();
            assert_eq!(chars.next(), Some('"'));
            let mut value = String::new();
            loop {
                match chars.next().expect("a closing quote") {
                    '"' => break,
                    '\\' => value.push(match chars.next() {
                        Some('n') => '\n',
                        Some(c @ ('\\' | '"')) => c,
                        other => panic!("escape {other:?}"),
                    }),
                    c => value.push(c),
                }
            }
            out.push((name, value));
            match chars.next() {
                Some(',') => {}
                Some('}') => return out,
                other => panic!("{other:?} after a label"),
            }
        }
    }

    proptest! {
        #[test]
        fn any_label_and_number_reads_back(label in any::<String>(), other in "[ -~]{0,20}", value in any::<f64>()) {
            let family = MetricFamily::gauge("x", "y").with(&[("l", &label), ("m", &other)], value);
            let text = encode(&[family]);
            let line = text.lines().nth(2).unwrap();
            // A line feed inside a label must not break the line; other line ends are none to Prometheus.
            prop_assert_eq!(text.matches('\n').count(), 3);
            prop_assert_eq!(labels_of(line), vec![("l".to_owned(), label), ("m".to_owned(), other)]);
            let back: f64 = line.rsplit(' ').next().unwrap().parse().unwrap();
            prop_assert!(back == value || back.is_nan() && value.is_nan());
        }
    }
}
