//! Where the bytes of an output file go that a user named. A regular file is written beside its name and renamed when it is complete; a device, a pipe or a
//! file that is open already (`/dev/null`, `/dev/stdout`, `>(command)`) is written as it is, because a rename would put a file in its place.

use std::fs;
use std::fs::File;
use std::io;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::path::PathBuf;

/// Symbolic links that the kernel follows in one path (path_resolution(7)).
const LINKS_MAX: usize = 40;

/// What a name stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// A regular file, or nothing yet: the path that remains when symbolic links were followed.
    File(PathBuf),
    /// What must stay what it is: to be opened and written.
    Stream,
}

impl Destination {
    /// What the path stands for now. Nothing is opened.
    #[must_use]
    pub fn of(path: &Path) -> Destination {
        let mut at = path.to_owned();
        for _ in 0..LINKS_MAX {
            let Ok(target) = fs::read_link(&at) else {
                let stays = fs::metadata(&at).is_ok_and(|data| !data.is_file() && !data.is_dir());
                return if stays { Destination::Stream } else { Destination::File(at) };
            };
            // The kernel's links to open files: their text is no path that could be written beside.
            if is_below_proc(&at) {
                return Destination::Stream;
            }
            at = at.parent().unwrap_or(Path::new("")).join(target);
        }
        Destination::Stream
    }
}

/// Opens what must stay what it is. A file that is standard output or error already is written where these are: opened anew, it would be written from its
/// beginning, over what is there. Any other regular file (`/dev/fd/3`) is appended to.
///
/// # Errors
/// The system's.
pub fn open_stream(path: &Path) -> io::Result<File> {
    let named = fs::metadata(path)?;
    if !named.is_file() {
        return File::options().write(true).open(path);
    }
    let own = [io::stdout().as_fd().try_clone_to_owned(), io::stderr().as_fd().try_clone_to_owned()];
    let is_it = |file: &File| file.metadata().is_ok_and(|is| (is.dev(), is.ino()) == (named.dev(), named.ino()));
    match own.into_iter().flatten().map(File::from).find(is_it) {
        Some(file) => Ok(file),
        None => File::options().append(true).open(path),
    }
}

fn is_below_proc(link: &Path) -> bool {
    let folder = link.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::canonicalize(folder).is_ok_and(|folder| folder.starts_with("/proc"))
}

/// A file that gets its name only when it is complete. If it is dropped before, it is removed. (A [`Destination::Stream`] gets its bytes at once.)
#[derive(Debug)]
pub struct PendingFile {
    file: File,
    /// Temporary name and final one, until the file has the latter.
    names: Option<(PathBuf, PathBuf)>,
}

impl PendingFile {
    /// Creates a temporary file in the folder of what `path` stands for, with the permissions of the file that it will replace.
    ///
    /// # Errors
    /// The system's.
    pub fn create(path: &Path) -> io::Result<PendingFile> {
        let Destination::File(name) = Destination::of(path) else {
            return Ok(PendingFile { file: open_stream(path)?, names: None });
        };
        let mut temporary = name.as_os_str().to_owned();
        temporary.push(format!(".{}.tmp", std::process::id()));
        let temporary = PathBuf::from(temporary);
        let file = File::create(&temporary)?;
        let replaced = fs::metadata(&name).map(|data| data.permissions());
        let pending = PendingFile { file, names: Some((temporary, name)) };
        if let Ok(permissions) = replaced {
            pending.file.set_permissions(permissions)?;
        }
        Ok(pending)
    }

    /// Gives the completed file its name.
    ///
    /// # Errors
    /// The system's; the temporary file is removed then.
    pub fn finish(mut self) -> io::Result<()> {
        if let Some((temporary, name)) = &self.names {
            fs::rename(temporary, name)?;
            self.names = None;
        }
        Ok(())
    }
}

impl Write for PendingFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for PendingFile {
    fn drop(&mut self) {
        if let Some((temporary, _)) = &self.names {
            let _ = fs::remove_file(temporary);
        }
    }
}

#[cfg(test)]
mod tests {
    //! Names as users give them.

    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::fs::symlink;

    use super::*;

    fn write(path: &Path) {
        let mut file = PendingFile::create(path).expect("created");
        file.write_all(b"new").expect("written");
        file.finish().expect("named");
    }

    #[test]
    fn devices_and_open_files_stay_what_they_are() {
        let folder = tempfile::tempdir().expect("a folder");
        let link = folder.path().join("link");
        symlink("/dev/null", &link).expect("a link");
        write(&link);
        assert_eq!(fs::read_link(&link).expect("still a link"), Path::new("/dev/null"));
        let open = File::create(folder.path().join("open")).expect("a file");
        let by_number = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&open));
        assert_eq!(Destination::of(Path::new(&by_number)), Destination::Stream);
        assert_eq!(Destination::of(Path::new("/dev/null")), Destination::Stream);
        write(Path::new(&by_number));
        write(Path::new(&by_number));
        assert_eq!(fs::read(folder.path().join("open")).expect("a file"), b"newnew");
    }

    #[test]
    fn links_lead_to_the_file_that_is_replaced() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, link, dangling) =
            (folder.path().join("file"), folder.path().join("link"), folder.path().join("dangling"));
        fs::write(&file, "old").expect("written");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("set");
        symlink("file", &link).expect("a link");
        symlink("missing", &dangling).expect("a link");
        write(&link);
        write(&dangling);
        assert!(fs::read_link(&link).is_ok() && fs::read_link(&dangling).is_ok());
        assert_eq!(fs::read(&file).expect("it is there"), b"new");
        assert_eq!(fs::read(folder.path().join("missing")).expect("it is there"), b"new");
        assert_eq!(fs::metadata(&file).expect("it is there").permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn nothing_is_left_of_a_file_that_was_not_completed() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("file");
        fs::write(&file, "old").expect("written");
        drop(PendingFile::create(&file).expect("created"));
        assert_eq!(fs::read(&file).expect("it is there"), b"old");
        assert_eq!(fs::read_dir(folder.path()).expect("the folder").count(), 1);
    }
}
