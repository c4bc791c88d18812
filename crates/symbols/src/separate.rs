//! Separate debug files, which distributions strip from their binaries and package separately.
//!
//! A binary names its debug file by its build id (`FOLDER/.build-id/ab/cdef.debug`) and by a link, `.gnu_debuglink`: a file name with the CRC of the file's
//! contents, looked for beside the binary, in `.debug` beside it, and in `FOLDER/` + the binary's folder. Folders are `/usr/lib/debug`, or what
//! `NUMAPILOT_DEBUG_DIRS` lists. Both are as GDB does it ("Debugging Information in Separate Files" in its manual). A file that is not of the binary is
//! refused, and the reason kept. `dwz` moves what several debug files share to one more, named by `.gnu_debugaltlink`: it is found by path or build id.
//!
//! Not read: the symbols that Fedora keeps in `.gnu_debugdata`; servers (`$DEBUGINFOD_URLS`); files of split debug information (`.dwo`).

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use object::{Object, ObjectSection, ObjectSymbol};

use crate::blocks;

/// Environment variable with the folders of debug files, separated by colons.
const FOLDERS_VARIABLE: &str = "NUMAPILOT_DEBUG_DIRS";
/// Folder in which distributions install debug files.
const FOLDER: &str = "/usr/lib/debug";
/// Bytes that are read at a time for a checksum.
const BLOCK: usize = 1 << 20;
/// Largest expansion of a deflated section (zlib's technical notes: 1032 to 1); a section that claims more is damaged.
const GROWTH_MAX: u64 = 1032;
/// Decompressed size, bytes, up to which a section may claim any expansion.
const SMALL_SECTION: u64 = 64 << 20;
/// Most bytes of debug information in one file, decompressed.
const FILE_BYTES_MAX: u64 = 16 << 30;

/// Why a debug file is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It cannot be opened or read.
    #[error("it cannot be read")]
    Unreadable,
    /// It is not an ELF file, or is truncated or damaged.
    #[error("it is not an ELF file, or is cut off or damaged")]
    Damaged,
    /// Its build ID is not the binary's.
    #[error("it belongs to another build (its build ID differs)")]
    OtherBuild,
    /// Its checksum is not the one in the binary's link.
    #[error("it belongs to another build (its checksum differs)")]
    OtherChecksum,
    /// It is stripped itself: it has neither symbols nor debug information.
    #[error("it holds neither symbols nor debug information")]
    Empty,
}

/// Folders in which separate debug files are looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DebugFolders(Vec<PathBuf>);

impl Default for DebugFolders {
    fn default() -> Self {
        Self::of_system()
    }
}

impl DebugFolders {
    /// Searches these folders, in this order.
    pub fn new(folders: impl IntoIterator<Item = PathBuf>) -> DebugFolders {
        DebugFolders(folders.into_iter().collect())
    }

    /// The folders in `NUMAPILOT_DEBUG_DIRS`, or else `/usr/lib/debug`.
    #[must_use]
    pub fn of_system() -> DebugFolders {
        match std::env::var_os(FOLDERS_VARIABLE) {
            Some(folders) => {
                DebugFolders(std::env::split_paths(&folders).filter(|f| !f.as_os_str().is_empty()).collect())
            }
            None => DebugFolders(vec![FOLDER.into()]),
        }
    }

    /// The folders, in the order of the search.
    #[must_use]
    pub fn folders(&self) -> &[PathBuf] {
        &self.0
    }

    /// Finds the debug file of the binary at `path`. A binary that cannot be read has none.
    #[must_use]
    pub fn find(&self, path: &Path) -> Separate {
        let Ok(cache) = blocks::open(path) else { return Separate::default() };
        object::File::parse(&cache).map(|file| self.find_for(path, &file)).unwrap_or_default()
    }

    /// Finds the debug file of `binary`, which was read from `path`.
    pub(crate) fn find_for<'d>(&self, path: &Path, binary: &impl Object<'d>) -> Separate {
        let build_id = binary.build_id().ok().flatten().filter(|id| id.len() > 1).map(<[u8]>::to_vec);
        let link = binary.gnu_debuglink().ok().flatten();
        let mut found = Separate {
            has_symbols: binary.symbols().next().is_some(),
            has_debug: has_debug(binary),
            build_id: build_id.as_deref().map(hex),
            link: link.map(|(name, _)| String::from_utf8_lossy(name).into_owned()),
            ..Separate::default()
        };
        if found.has_debug {
            return found;
        }
        if let Some(id) = &build_id {
            for candidate in self.by_build_id(id) {
                if found.takes(candidate, |file| of_build(file, id)) {
                    break;
                }
            }
        }
        if let (None, Some((name, crc))) = (&found.file, link) {
            for candidate in self.by_link(path, name) {
                let is_it = |file: &Path| of_link(file, crc, build_id.as_deref());
                if found.takes(candidate, is_it) {
                    break;
                }
            }
        }
        if let Some(file) = found.file.clone() {
            found.shared = self.shared_of(&file, &mut found.refused);
        }
        found
    }

    fn by_build_id(&self, id: &[u8]) -> impl Iterator<Item = PathBuf> {
        let hex = hex(id);
        self.0.iter().map(move |folder| folder.join(".build-id").join(&hex[..2]).join(format!("{}.debug", &hex[2..])))
    }

    fn by_link(&self, binary: &Path, name: &[u8]) -> Vec<PathBuf> {
        use std::os::unix::ffi::OsStrExt;
        let name = Path::new(std::ffi::OsStr::from_bytes(name));
        // The link must be a file name without a path, by the format's rule; this also keeps a hostile one within the folders.
        let is_name = name.components().count() == 1 && name.file_name().is_some();
        let Some(folder) = binary.canonicalize().ok().and_then(|path| Some(path.parent()?.to_owned())) else {
            return Vec::new();
        };
        if !is_name {
            return Vec::new();
        }
        let below = folder.strip_prefix("/").unwrap_or(&folder).to_owned();
        let beside = [folder.join(name), folder.join(".debug").join(name)];
        let own = binary.canonicalize().unwrap_or_default();
        let all = beside.into_iter().chain(self.0.iter().map(|debug| debug.join(&below).join(name)));
        all.filter(|candidate| *candidate != own).collect()
    }

    /// The file of `dwz` that the debug file at `path` refers to.
    fn shared_of(&self, path: &Path, refused: &mut Vec<(PathBuf, Refusal)>) -> Shared {
        let Ok(cache) = blocks::open(path) else { return Shared::None };
        let Ok(file) = object::File::parse(&cache) else { return Shared::None };
        let Some((name, id)) = file.gnu_debugaltlink().ok().flatten() else { return Shared::None };
        use std::os::unix::ffi::OsStrExt;
        let name = Path::new(std::ffi::OsStr::from_bytes(name));
        let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        // Joining keeps an absolute name unchanged.
        let named = real.parent().map(|folder| folder.join(name));
        let by_id = (id.len() > 1).then(|| self.by_build_id(id)).into_iter().flatten();
        for candidate in named.into_iter().chain(by_id).filter(|candidate| candidate.is_file()) {
            match of_build(&candidate, id) {
                Ok(()) => return Shared::File(candidate),
                Err(why) => refused.push((candidate, why)),
            }
        }
        Shared::Missing(name.to_string_lossy().into_owned())
    }
}

/// Debug information that several debug files share, taken out of them by `dwz`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Shared {
    /// The debug file has no shared part.
    #[default]
    None,
    /// The file with the shared part.
    File(PathBuf),
    /// The file of this name does not exist.
    Missing(String),
}

/// Sources of a binary's names: in the binary itself, and in separate files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Separate {
    /// Its separate debug file, if there is one.
    pub file: Option<PathBuf>,
    /// The part of it that `dwz` moved to a shared file.
    pub shared: Shared,
    /// Files in the place of its debug file that were refused, with the reason.
    pub refused: Vec<(PathBuf, Refusal)>,
    /// Whether the binary itself has a symbol table, besides the dynamic one.
    pub has_symbols: bool,
    /// Whether the binary itself has debug information.
    pub has_debug: bool,
    /// Its build ID, in hexadecimal digits.
    pub build_id: Option<String>,
    /// File name in its `.gnu_debuglink`.
    pub link: Option<String>,
}

impl Separate {
    fn takes(&mut self, candidate: PathBuf, is_it: impl Fn(&Path) -> Result<(), Refusal>) -> bool {
        if !candidate.is_file() || self.refused.iter().any(|(refused, _)| *refused == candidate) {
            return false;
        }
        match is_it(&candidate) {
            Ok(()) => self.file = Some(candidate),
            Err(why) => self.refused.push((candidate, why)),
        }
        self.file.is_some()
    }

    /// Advice on how to get names for addresses of this binary that have none: one sentence without its full stop.
    #[must_use]
    pub fn advice(&self, folders: &DebugFolders) -> String {
        if let Some(file) = &self.file {
            let rest = match &self.shared {
                Shared::Missing(name) => format!("; the file {name} that dwz moved a part of it to is missing"),
                _ => String::new(),
            };
            return format!("its debug file {} has none either{rest}", file.display());
        }
        if self.has_symbols || self.has_debug {
            return "its symbol table has none there: stubs of the linker, or code without symbols".to_owned();
        }
        let refused = self.refused.iter().map(|(path, why)| format!("{} is not used: {why}; ", path.display()));
        let refused: String = refused.collect();
        let places = folders.0.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(", ");
        let places = if places.is_empty() { "any folder".to_owned() } else { places };
        match (&self.build_id, &self.link) {
            (Some(id), _) => format!(
                "{refused}no debug file of build id {id} in {places}: install its debug symbols \
                 (on Debian and Ubuntu `find-dbgsym-packages FILE` names the package, on Fedora and Red Hat `dnf debuginfo-install PACKAGE` installs them), \
                 or keep its symbol table (no strip)"
            ),
            (None, Some(link)) => format!(
                "{refused}no debug file {link} in {places}: install its debug symbols, or keep its symbol table (no strip)"
            ),
            (None, None) => {
                "it was stripped, and has no build id by which debug symbols would be found: keep its symbol table (no strip)".to_owned()
            }
        }
    }
}

/// Advice on how to get names for addresses of the binary at `path` that have none; it searches the system's folders for debug files.
#[must_use]
pub fn advice(path: &str) -> String {
    let folders = DebugFolders::of_system();
    folders.find(Path::new(path)).advice(&folders)
}

fn has_debug<'d>(file: &impl Object<'d>) -> bool {
    // `objcopy --only-keep-debug` of a binary without debug information leaves nothing; an emptied section is none.
    file.section_by_name(".debug_info").is_some_and(|section| section.size() > 0)
}

fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn of_build(path: &Path, id: &[u8]) -> Result<(), Refusal> {
    usable(path, |found| if found == Some(id) { Ok(()) } else { Err(Refusal::OtherBuild) })
}

fn of_link(path: &Path, crc: u32, id: Option<&[u8]>) -> Result<(), Refusal> {
    if checksum(path).map_err(|_| Refusal::Unreadable)? != crc {
        return Err(Refusal::OtherChecksum);
    }
    usable(path, |found| match (found, id) {
        (Some(found), Some(id)) if found != id => Err(Refusal::OtherBuild),
        _ => Ok(()),
    })
}

fn usable(path: &Path, is_it: impl Fn(Option<&[u8]>) -> Result<(), Refusal>) -> Result<(), Refusal> {
    let cache = blocks::open(path).map_err(|_| Refusal::Unreadable)?;
    let file = object::File::parse(&cache).map_err(|_| Refusal::Damaged)?;
    is_it(file.build_id().map_err(|_| Refusal::Damaged)?)?;
    if !has_plausible_sizes(&file) || file.symbols().any(|symbol| symbol.name().is_err()) {
        return Err(Refusal::Damaged);
    }
    if file.symbols().next().is_none() && !has_debug(&file) { Err(Refusal::Empty) } else { Ok(()) }
}

/// The checksum in a `.gnu_debuglink`: CRC-32 of the whole file.
fn checksum(path: &Path) -> std::io::Result<u32> {
    let mut file = File::open(path)?;
    let (mut hasher, mut block) = (crc32fast::Hasher::new(), vec![0; BLOCK]);
    loop {
        match file.read(&mut block)? {
            0 => return Ok(hasher.finalize()),
            bytes => hasher.update(&block[..bytes]),
        }
    }
}

/// Whether the sizes that compressed sections claim are plausible, because decompression allocates that much memory.
pub(crate) fn has_plausible_sizes<'d>(file: &impl Object<'d>) -> bool {
    let mut total = 0_u64;
    file.sections().all(|section| {
        let Ok(range) = section.compressed_file_range() else { return true };
        if range.format == object::CompressionFormat::None {
            return true;
        }
        total = total.saturating_add(range.uncompressed_size);
        let growth = range.compressed_size.saturating_mul(GROWTH_MAX);
        total <= FILE_BYTES_MAX && range.uncompressed_size <= growth.max(SMALL_SECTION)
    })
}
