//! Checks that `include/numapilot.h` is what cbindgen generates from these sources.

use std::fs;
use std::path::Path;

use cbindgen::{Builder, Config, DocumentationStyle, EnumConfig, ExportConfig, Language, RenameRule, Style};

const SOURCES: &[&str] =
    &["ffi.rs", "trace.rs", "rows.rs", "code.rs", "filter.rs", "flow.rs", "statistics.rs", "arrow.rs"];
const NAMES: &[(&str, &str)] = &[
    ("TraceHandle", "numapilot_trace"),
    ("FlowHandle", "numapilot_flow"),
    ("TraceInfo", "numapilot_info"),
    ("ObjectRow", "numapilot_object"),
    ("SiteRow", "numapilot_site"),
    ("ThreadRow", "numapilot_thread"),
    ("ProcessRow", "numapilot_process"),
    ("FrameRow", "numapilot_frame"),
    ("FilterRow", "numapilot_filter"),
    ("AccessRow", "numapilot_access"),
    ("EstimateRow", "numapilot_estimate"),
    ("StatisticsRow", "numapilot_statistics"),
    ("Condition", "numapilot_condition"),
    ("Kind", "numapilot_kind"),
    ("AccessFlag", "numapilot_access_flag"),
];

fn made() -> String {
    let crate_root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let part = |name: &str| fs::read_to_string(crate_root.join("include").join(name)).expect("a part of the header");
    let config = Config {
        language: Language::C,
        cpp_compat: true,
        style: Style::Both,
        header: Some(part("head.h.in").trim_end().to_owned()),
        after_includes: Some(part("arrow.h.in")),
        trailer: Some(part("tail.h.in").trim_end().to_owned()),
        include_guard: Some("NUMAPILOT_H".to_owned()),
        no_includes: true,
        sys_includes: ["stddef.h", "stdint.h", "string.h"].map(str::to_owned).to_vec(),
        documentation_style: DocumentationStyle::C99,
        line_length: 150,
        usize_is_size_t: true,
        export: ExportConfig {
            include: ["Condition", "Kind", "AccessFlag"].map(str::to_owned).to_vec(),
            exclude: ["ArrowSchema", "ArrowArray", "ArrowArrayStream"].map(str::to_owned).to_vec(),
            rename: NAMES.iter().map(|&(from, to)| (from.to_owned(), to.to_owned())).collect(),
            ..ExportConfig::default()
        },
        enumeration: EnumConfig { rename_variants: RenameRule::QualifiedScreamingSnakeCase, ..EnumConfig::default() },
        ..Config::default()
    };
    let builder = SOURCES
        .iter()
        .fold(Builder::new().with_config(config), |builder, name| builder.with_src(crate_root.join("src").join(name)));
    let mut text = Vec::new();
    builder.generate().expect("the sources are read").write(&mut text);
    String::from_utf8(text).expect("UTF-8")
}

#[test]
fn the_header_is_what_the_sources_make_of_it() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/numapilot.h");
    let made = made();
    if std::env::var_os("NUMAPILOT_WRITE_HEADER").is_some() {
        fs::write(&path, &made).expect("written");
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == made,
        "include/numapilot.h is out of date: NUMAPILOT_WRITE_HEADER=1 cargo test -p numapilot-capi --test all header::"
    );
}
