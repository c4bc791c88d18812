//! Code addresses without a name: why, and what helps. It is stored in `meta.json` under `unresolved`, which reports show.

use numapilot_symbols::Unresolved;

use crate::model::Location;
use crate::symbolise::Names;

/// Names of mappings that hold the kernel's code.
const KERNELS: [&str; 3] = ["[kernel]", "[vdso]", "[vsyscall]"];
/// Memory that holds data, which a walk along frame pointers takes for return addresses in code without frame pointers.
const DATA: [&str; 2] = ["[stack]", "[heap]"];

/// Their number by binary, with the reason and the remedy.
pub(crate) fn rows(names: &Names) -> serde_json::Value {
    let rows = names.unresolved.iter().map(|((module, why), count)| {
        serde_json::json!({ "module": &**module, "why": why.to_string(), "remedy": remedy(module, *why), "count": count })
    });
    rows.collect()
}

fn remedy(module: &str, why: Unresolved) -> String {
    match why {
        Unresolved::InMemoryOnly if KERNELS.contains(&module) => "the kernel's own code: nothing to do".to_owned(),
        Unresolved::InMemoryOnly if DATA.contains(&module) => "no code: a call stack was followed wrongly".to_owned(),
        Unresolved::InMemoryOnly if module == Location::UNMAPPED => {
            "in no memory that was known there: mostly no code, but a call stack that was followed wrongly".to_owned()
        }
        Unresolved::InMemoryOnly => {
            "if a runtime generated it, have it write its names for perf: `java -XX:+UnlockDiagnosticVMOptions \
             -XX:+DumpPerfMapAtExit`, `node --perf-basic-prof`, `python3 -X perf`; if none did, it is no code, but a call stack that was followed wrongly"
                .to_owned()
        }
        Unresolved::NoFile => "keep the binaries where they were".to_owned(),
        Unresolved::NotElf | Unresolved::OtherBuild => "keep the recorded binary, or record again".to_owned(),
        Unresolved::NoSymbol => numapilot_symbols::advice(module),
        Unresolved::NotCode => "no code: a call stack was followed wrongly".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a program in C, which generates no code, the report said how Java writes names.
    #[test]
    fn only_code_that_may_be_generated_is_to_be_named_by_its_runtime() {
        let told = |module| remedy(module, Unresolved::InMemoryOnly);
        assert!(told("[anon]").contains("node --perf-basic-prof") && told("[anon:v8]").contains("for perf"));
        assert!(told("[anon]").ends_with("if none did, it is no code, but a call stack that was followed wrongly"));
        for module in ["[stack]", "[heap]", Location::UNMAPPED] {
            assert!(told(module).contains("followed wrongly") && !told(module).contains("perf"), "{module}");
        }
        assert!(told("[vdso]").contains("the kernel's own"));
    }
}
