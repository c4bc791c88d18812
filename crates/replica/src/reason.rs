//! Why a mapping keeps its own file, or the copies of its file are gone: the codes that the preload library writes into the log (`c/remap_reasons.h`).

use std::fmt;

macro_rules! reasons {
    ($($name:ident, $word:literal, $text:literal;)*) => {
        /// Why a mapping was left as it is, or its copies were collapsed; displays as text for the user.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Reason {
            $(
                #[doc = concat!($text, ".")]
                $name,
            )*
        }

        impl Reason {
            /// Every reason, in the order of `c/remap_reasons.h`.
            pub const ALL: &'static [Reason] = &[$(Reason::$name),*];

            /// Its word in the log.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self {
                    $(Reason::$name => $word,)*
                }
            }

            /// The reason as a clause for the user.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self {
                    $(Reason::$name => $text,)*
                }
            }
        }
    };
}

reasons! {
    Unreadable, "unreadable", "cannot be read";
    Special, "special", "locked, device or otherwise special memory";
    ChangedPages, "changed-pages", "has pages that this process changed";
    FileNotOpened, "file-not-opened", "its file cannot be opened again";
    NotRegular, "not-regular", "not a regular file";
    OtherFile, "other-file", "its path now leads to another file";
    BeyondEnd, "beyond-end", "reaches beyond the end of its file";
    NotSealed, "not-sealed", "shared, and not sealed against writing and shrinking";
    FileTooLarge, "file-too-large", "the folder of copies cannot hold a file of that size";
    NoAddresses, "no-addresses", "no address space for its copy";
    NodeRefused, "node-refused", "the system refuses memory on the node";
    NoMemory, "no-memory", "no memory for its copy";
    NodeFull, "node-full", "no free memory on the node";
    FileUnreadable, "file-unreadable", "its file cannot be read";
    FileChanged, "file-changed", "its file changed while it was copied";
    FolderUnwritable, "folder-unwritable", "the folder of copies cannot be written";
    CopyIncomplete, "copy-incomplete", "its copy is incomplete";
    FolderNoexec, "folder-noexec", "copies may not be executed in their folder (mounted noexec)";
    NoFileAddresses, "no-file-addresses", "no address space for its file";
    MappingChanged, "mapping-changed", "the program changed the mapping meanwhile";
    MoveRefused, "move-refused", "the system refuses to move the mapping";
    AlreadyThere, "already-there", "on the node already";
    IsCollapsed, "is-collapsed", "was written, and is collapsed";
    NotPinned, "not-pinned", "the process is pinned to no node";
    FileGone, "file-gone", "its file is gone";
    TooManyGuards, "too-many-guards", "too many guarded mappings";
    NotGuarded, "not-guarded", "mapped where it cannot be guarded";
    MadeWritable, "made-writable", "made writable";
    Unmapped, "unmapped", "unmapped or moved";
    Written, "written", "written";
}

impl Reason {
    /// The reason with this word in the log.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Reason> {
        Reason::ALL.iter().copied().find(|reason| reason.word() == word)
    }

    /// Whether the node lacks memory for its copy: another node may have it.
    #[must_use]
    pub const fn is_lack_of_memory(self) -> bool {
        matches!(self, Reason::NodeRefused | Reason::NoMemory | Reason::NodeFull)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_writes_these_words() {
        let header = include_str!("../c/remap_reasons.h");
        let lines = header.lines().filter_map(|line| line.trim_start().strip_prefix("REASON("));
        let written: Vec<&str> = lines.filter_map(|line| line.split('"').nth(1)).collect();
        let known: Vec<&str> = Reason::ALL.iter().map(|reason| reason.word()).collect();
        assert_eq!(written.split_first(), Some((&"-", &known[..])));
        for reason in Reason::ALL {
            assert_eq!(Reason::from_word(reason.word()), Some(*reason));
        }
    }

    /// Their texts do not tell: that of special memory names memory, too.
    #[test]
    fn only_a_node_that_gives_no_memory_lacks_it() {
        let lacks: Vec<Reason> = Reason::ALL.iter().copied().filter(|reason| reason.is_lack_of_memory()).collect();
        assert_eq!(lacks, [Reason::NodeRefused, Reason::NoMemory, Reason::NodeFull]);
    }
}
