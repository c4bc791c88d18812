//! What to call a process: the title that it has given itself (`postgres: checkpointer`), else its name.

use crate::Pid;
use crate::Root;
use crate::patient::read_patiently;

/// Bytes of a command line that are read.
const LINE_MAX: u64 = 4096;
/// Bytes of a title that are read: longer ones are cut.
const TITLE_MAX: usize = 256;
/// Bytes of a name (`comm`), which the kernel cuts longer ones to.
const NAME_MAX: usize = 15;

/// The title that a program has written over its command line, as PostgreSQL, nginx, Redis and OpenSSH do; where it has none, its name (`comm`). Empty: the
/// process has ended.
#[must_use]
pub fn title(root: &Root, pid: Pid, buffer: &mut Vec<u8>) -> String {
    let name = match root.read(&format!("proc/{pid}/comm"), buffer) {
        Ok(name) => name.trim_ascii_end().to_vec(),
        Err(_) => return String::new(),
    };
    titled(root, pid, &name, buffer)
}

/// As [`title`], of a process whose name was read from `/proc/PID/stat`: one file less is read. Its name, if it has ended.
#[must_use]
pub fn title_of_named(root: &Root, pid: Pid, name: &str, buffer: &mut Vec<u8>) -> String {
    // In that file the kernel writes some characters as escapes; and whoever read it has replaced what is no UTF-8.
    if name.is_empty() || name.contains(['\\', char::REPLACEMENT_CHARACTER]) {
        return title(root, pid, buffer);
    }
    titled(root, pid, name.trim_ascii_end().as_bytes(), buffer)
}

fn titled(root: &Root, pid: Pid, name: &[u8], buffer: &mut Vec<u8>) -> String {
    // Of a process whose memory cannot be read its name is shown.
    let _ = read_patiently(&root.path().join(format!("proc/{pid}/cmdline")), LINE_MAX, buffer);
    let text = own_title(name, buffer).unwrap_or(name);
    String::from_utf8_lossy(text).into_owned()
}

/// The title in a command line; `None`: it holds arguments. A program that writes a title puts all of it where its first argument was, with its name first.
fn own_title<'a>(name: &[u8], line: &'a [u8]) -> Option<&'a [u8]> {
    let first = line.split(|&byte| byte == 0).next()?.trim_ascii_end();
    let first = &first[..first.len().min(TITLE_MAX)];
    let end = first.iter().position(|byte| matches!(byte, b' ' | b':'))?;
    let program = first[..end].rsplit(|&byte| byte == b'/').next()?;
    (!name.is_empty() && &program[..program.len().min(NAME_MAX)] == name).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_are_told_from_arguments() {
        let of = |name: &str, line: &str| {
            own_title(name.as_bytes(), line.as_bytes()).map(|title| String::from_utf8_lossy(title).into_owned())
        };
        assert_eq!(of("postgres", "postgres: checkpointer \0\0\0").as_deref(), Some("postgres: checkpointer"));
        assert_eq!(of("nginx", "nginx: worker process\0").as_deref(), Some("nginx: worker process"));
        assert_eq!(
            of("redis-server", "/usr/bin/redis-server 127.0.0.1:6379\0").as_deref(),
            Some("/usr/bin/redis-server 127.0.0.1:6379")
        );
        assert_eq!(
            of("a-very-long-nam", "a-very-long-name-indeed: idle\0").as_deref(),
            Some("a-very-long-name-indeed: idle")
        );
        for (name, line) in [
            ("postgres", "/usr/lib/postgresql/15/bin/postgres\0-D\0/data"),
            ("run", "/opt/My App/run\0x"),
            ("sh", ""),
            ("", ": x"),
            ("sleep", "sleep\x00100"),
        ] {
            assert_eq!(of(name, line), None, "{name}: {line}");
        }
    }

    #[test]
    fn a_process_without_a_title_has_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let put = |file: &str, text: &str| {
            std::fs::create_dir_all(folder.path().join("proc/7")).unwrap();
            std::fs::write(folder.path().join("proc/7").join(file), text).unwrap();
        };
        let root = Root::new(folder.path());
        assert_eq!(title(&root, Pid(7), &mut Vec::new()), "");
        put("comm", "nginx\n");
        assert_eq!(title(&root, Pid(7), &mut Vec::new()), "nginx");
        put("cmdline", "nginx: master process nginx -g x;\0");
        assert_eq!(title(&root, Pid(7), &mut Vec::new()), "nginx: master process nginx -g x;");
    }

    /// `top` has names from another file: with thousands of processes, each title took two files where one is enough.
    #[test]
    fn a_name_that_is_known_is_not_read_again_unless_it_was_written_as_escapes() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("proc/7")).unwrap();
        let put = |file: &str, text: &str| std::fs::write(folder.path().join("proc/7").join(file), text).unwrap();
        let root = Root::new(folder.path());
        let of = |name: &str| title_of_named(&root, Pid(7), name, &mut Vec::new());
        assert_eq!(of("nginx"), "nginx", "no command line");
        put("cmdline", "nginx: worker process\0");
        assert_eq!(of("nginx"), "nginx: worker process", "without the file of the name");
        assert_eq!(of("sh"), "sh");
        put("comm", "new\nline\n");
        put("cmdline", "");
        assert_eq!(of("new\\nline"), "new\nline");
    }
}
