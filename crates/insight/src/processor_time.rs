//! The processor time of a recording on a real machine, which shows neither waits nor counters: how long its processes ran at all.

use numapilot_trace::meta::Meta;

/// User and system time of all processes of a recording, as the kernel counted them; `None` where it was not read, or is too short to be counted.
pub(crate) fn processor_ns(meta: &Meta) -> Option<f64> {
    let rows = meta.more.get("processor_time")?.as_array()?;
    let of = |name: &str| rows.iter().try_fold(0_u64, |sum, row| Some(sum.saturating_add(row.get(name)?.as_u64()?)));
    let ns = of("user_ns")?.saturating_add(of("system_ns")?) as f64;
    Some(ns).filter(|ns| *ns > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_time_of_a_real_machine_is_the_kernels() {
        let of = |rows: &str| {
            let head = r#""format": {"major": 1}, "tool_version": "1", "engine": "fault", "simulated": false"#;
            let text = format!(r#"{{{head}, "processor_time": {rows}}}"#);
            processor_ns(&Meta::parse(text.as_bytes(), std::path::Path::new("meta.json")).expect("a meta.json"))
        };
        let two = r#"[{"pid": 1, "user_ns": 100, "system_ns": 5}, {"pid": 2, "user_ns": 30, "system_ns": 5}]"#;
        assert_eq!(of(two), Some(140.0));
        assert_eq!(of(r#"[{"pid": 1, "user_ns": 0, "system_ns": 0}]"#), None);
        assert_eq!(of(r#"[{"pid": 1, "user_ns": 7}]"#), None);
        assert_eq!((of("null"), of("[]")), (None, None));
        assert_eq!(processor_ns(&Meta::default()), None);
    }
}
