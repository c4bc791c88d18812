//! Declarations of a binary's static variables: names, files and lines from its DWARF.
//!
//! They are variables of files and functions, members of classes, variables of Fortran modules, and COMMON blocks: everything with one address that the
//! linker assigns.

use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use gimli::{AttributeValue, Operation};
use object::{Object, ObjectSymbol};

use crate::blocks;
use crate::debug_data::{Dwarf, Entry, References, UnitOf, opened, with_dwarf};
use crate::demangle::tidy;
use crate::separate::DebugFolders;
use crate::unresolved::Unresolved;

/// Declaration of a static variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declaration {
    /// Name in the source, without scopes.
    pub name: Arc<str>,
    /// Source file, or empty.
    pub file: Arc<str>,
    /// Line, or 0.
    pub line: u32,
}

/// Declarations of a binary's static variables, by offset (as the file counts addresses).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Declarations {
    variables: BTreeMap<u64, Declaration>,
    /// COMMON blocks that have no address in the debug information, by symbol name.
    blocks: BTreeMap<String, Declaration>,
}

impl Declarations {
    /// Reads the declarations from the binary at `path`, or from its separate debug file. There are none without debug information, and none after a
    /// damaged part.
    ///
    /// # Errors
    /// The file does not exist, or is not an ELF file.
    pub fn read(path: &Path) -> Result<Declarations, Unresolved> {
        Declarations::read_with(path, &DebugFolders::of_system())
    }

    /// Does what [`Declarations::read`] does, with separate debug files from these folders.
    ///
    /// # Errors
    /// The file does not exist, or is not an ELF file.
    pub fn read_with(path: &Path, folders: &DebugFolders) -> Result<Declarations, Unresolved> {
        let cache = blocks::open(path).map_err(|_| Unresolved::NoFile)?;
        let file = object::File::parse(&cache).map_err(|_| Unresolved::NotElf)?;
        let mut found = Declarations::default();
        // Once for both: each search reads all names of the debug file.
        let separate = folders.find_for(path, &file);
        with_dwarf(&file, &separate, |dwarf| found.add(dwarf));
        let separate = opened(&separate);
        if let Some(separate) = separate.as_ref().and_then(|cache| object::File::parse(cache).ok()) {
            found.place_blocks(&separate);
        }
        found.place_blocks(&file);
        Ok(found)
    }

    /// The declaration of the variable that begins at `offset`.
    #[must_use]
    pub fn find(&self, offset: u64) -> Option<&Declaration> {
        self.variables.get(&offset)
    }

    /// Assigns COMMON blocks the addresses of their symbols.
    fn place_blocks<'d>(&mut self, file: &impl Object<'d>) {
        if self.blocks.is_empty() {
            return;
        }
        for symbol in file.symbols().filter(|symbol| symbol.is_definition()) {
            if let Some(block) = symbol.name().ok().and_then(|name| self.blocks.get(name)) {
                self.variables.insert(symbol.address(), block.clone());
            }
        }
    }

    fn add(&mut self, dwarf: &Dwarf<'_>) {
        let mut units = dwarf.units();
        let mut references = References::new(dwarf);
        while let Ok(Some(header)) = units.next() {
            let Ok(unit) = dwarf.unit(header) else { continue };
            let here = UnitOf { dwarf, unit: Rc::new(unit) };
            // A damaged unit gives the declarations before the damage.
            let _ = UnitWalk { here, references: &mut references, files: BTreeMap::new() }.run(self);
        }
    }
}

/// A file of a line table: whether that is in the file's own debug information, where its unit begins, and the file's number.
type FileKey = (bool, Option<usize>, u64);

struct UnitWalk<'r, 'a, 'd> {
    here: UnitOf<'a, 'd>,
    references: &'r mut References<'a, 'd>,
    files: BTreeMap<FileKey, Arc<str>>,
}

impl<'d> UnitWalk<'_, '_, 'd> {
    fn run(mut self, found: &mut Declarations) -> gimli::Result<()> {
        let unit = Rc::clone(&self.here.unit);
        let mut entries = unit.entries();
        while let Some(entry) = entries.next_dfs()? {
            if !matches!(entry.tag(), gimli::DW_TAG_variable | gimli::DW_TAG_common_block) {
                continue;
            }
            if entry.tag() == gimli::DW_TAG_common_block {
                let linked = text(&self.here, entry, gimli::DW_AT_linkage_name);
                if let (Some(linked), Some(declaration)) = (linked, self.declaration(entry)) {
                    found.blocks.insert(linked, declaration);
                }
            } else if let Some(address) = self.address(entry)
                && let Some(declaration) = self.declaration(entry)
            {
                found.variables.entry(address).or_insert(declaration);
            }
        }
        Ok(())
    }

    /// The address that the linker assigned; `None` for variables on stacks or in registers.
    fn address(&self, entry: &Entry<'d>) -> Option<u64> {
        let AttributeValue::Exprloc(expression) = entry.attr_value(gimli::DW_AT_location)? else { return None };
        let mut operations = expression.operations(self.here.unit.encoding());
        let address = match operations.next().ok()?? {
            Operation::Address { address } => address,
            Operation::AddressIndex { index } => self.here.dwarf.address(&self.here.unit, index).ok()?,
            _ => return None,
        };
        (address != 0 && operations.next().ok()?.is_none()).then_some(address)
    }

    fn declaration(&mut self, entry: &Entry<'d>) -> Option<Declaration> {
        let (mut name, mut found) = (None, None);
        self.references.follow(&self.here, entry, |at, entry| {
            if name.is_none() {
                name = text(at, entry, gimli::DW_AT_name);
            }
            if found.is_none() {
                found = place(entry).map(|(file, line)| (at.clone(), file, line));
            }
        });
        let (file, line) = match found {
            Some((at, file, line)) => (self.file(&at, file), line),
            None => ("".into(), 0),
        };
        Some(Declaration { name: name?.into(), file, line })
    }

    /// The path of a file of a unit's line table.
    fn file(&mut self, at: &UnitOf<'_, 'd>, index: u64) -> Arc<str> {
        let is_own = std::ptr::eq(at.dwarf, self.here.dwarf);
        let key = (is_own, at.unit.header.debug_info_offset().map(|start| start.0), index);
        if let Some(known) = self.files.get(&key) {
            return known.clone();
        }
        let path: Arc<str> = path(at, index).unwrap_or_default().into();
        self.files.insert(key, path.clone());
        path
    }
}

fn text<'d>(at: &UnitOf<'_, 'd>, entry: &Entry<'d>, attribute: gimli::DwAt) -> Option<String> {
    Some(tidy(&at.text(entry.attr_value(attribute)?)?))
}

/// File, as a line table counts them, and line.
fn place(entry: &Entry<'_>) -> Option<(u64, u32)> {
    let line = entry.attr_value(gimli::DW_AT_decl_line)?.udata_value().filter(|&line| line > 0)?;
    let file = match entry.attr_value(gimli::DW_AT_decl_file)? {
        AttributeValue::FileIndex(index) => index,
        value => value.udata_value()?,
    };
    Some((file, u32::try_from(line).ok()?))
}

fn path(at: &UnitOf<'_, '_>, index: u64) -> Option<String> {
    let header = at.unit.line_program.as_ref()?.header();
    let file = header.file(index)?;
    let mut path = at.text(file.path_name())?;
    let folder = file.directory(header).and_then(|folder| at.text(folder));
    let base = at.unit.comp_dir.map(|folder| folder.to_string_lossy().into_owned());
    for folder in [folder, base].into_iter().flatten() {
        if !path.starts_with('/') && !folder.is_empty() {
            path = format!("{folder}/{path}");
        }
    }
    Some(tidy(&path))
}
