//! The file `/proc/cpuinfo`: for each processor lines of a name, blanks, a colon and a value. The names are those of the architecture.

use crate::Root;

/// Its text; empty where it is not there.
#[must_use]
pub fn read(root: &Root) -> String {
    root.text("proc/cpuinfo").unwrap_or_default()
}

/// The first value of a field that has one of these names; `None`: there is none, or only empty ones.
#[must_use]
pub fn field<'a>(text: &'a str, names: &[&str]) -> Option<&'a str> {
    let of_line = |line: &'a str| {
        let (name, value) = line.split_once(':')?;
        Some(value.trim()).filter(|value| names.contains(&name.trim()) && !value.is_empty())
    };
    text.lines().find_map(of_line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_read_by_its_whole_name() {
        let text = "processor\t: 0\nmodel\t\t: 85\nmodel name\t: A: B @ 2 GHz\nflags\t\t: fpu ht\npower management:\n\nprocessor\t: 1\nmodel\t\t: 86\n";
        assert_eq!((field(text, &["model"]), field(text, &["model name"])), (Some("85"), Some("A: B @ 2 GHz")));
        assert_eq!(field(text, &["cpu", "flags"]), Some("fpu ht"));
        assert_eq!([field(text, &["power management"]), field(text, &["name"]), field("", &["model"])], [None; 3]);
    }

    #[test]
    fn the_file_is_read_under_the_root() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read(&Root::new(folder.path())), "");
        std::fs::create_dir(folder.path().join("proc")).unwrap();
        std::fs::write(folder.path().join("proc/cpuinfo"), "model\t: 85\n").unwrap();
        assert_eq!(read(&Root::new(folder.path())), "model\t: 85");
        assert!(!read(&Root::default()).is_empty());
    }
}
