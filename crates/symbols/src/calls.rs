//! Which of several calls a return address belongs to, in the order in which the code makes them.
//!
//! Compilers that write no columns (gfortran) give every allocation of a statement the same place. Their calls stand in the code in the order of the source:
//! the calls of the same function, from the same function at the same place, are counted in the machine code. Calls are told by their target, which no other
//! bytes hold by chance; x86-64 (`call` to an address, or through the global offset table) and AArch64 (`bl`).

use std::collections::HashMap;
use std::path::Path;

use object::{Architecture, Object, ObjectSection, ObjectSymbol, SymbolKind};

use crate::blocks;
use crate::debug_data::opened;
use crate::resolver::{ElfSymbolizer, Resolved, ResolvedFrame, Symbolizer};
use crate::separate::DebugFolders;

/// Larger functions are not searched.
const FUNCTION_BYTES_MAX: u64 = 16 << 20;

/// The position of a call among the calls at the same place in the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallOrder {
    /// Number of the call, from 0, by ascending address.
    pub index: usize,
    /// Number of calls at that place.
    pub count: usize,
}

/// Finds [`CallOrder`]s in the binaries on this machine.
#[derive(Debug, Default)]
pub struct CallOrders {
    symbolizer: ElfSymbolizer,
    /// Return offsets of the calls of one target in one function, by binary and any of them.
    known: HashMap<(String, u64), Vec<u64>>,
}

impl CallOrders {
    /// The order of the call that returns right after `offset` (the last byte of the call) in the binary at `path`, among the calls with the same `inlined`
    /// outermost frames: as many as the caller knows to be its own. `None` if the machine code does not show it.
    pub fn order(&mut self, path: &str, offset: u64, frames: usize) -> Option<CallOrder> {
        let after = offset.checked_add(1)?;
        let key = (path.to_owned(), after);
        if !self.known.contains_key(&key) {
            let calls = same_calls(path, after).unwrap_or_default();
            self.known.insert(key.clone(), calls);
        }
        let calls = self.known.get(&key)?;
        let offsets: Vec<u64> = calls.iter().map(|after| after - 1).collect();
        let resolved = self.symbolizer.resolve(path, &[], &offsets);
        let place = |resolved: &Resolved| -> Option<Vec<ResolvedFrame>> {
            let all = resolved.as_ref().ok()?;
            let own = all.get(all.len().checked_sub(frames)?..)?;
            Some(own.iter().map(|frame| ResolvedFrame { column: 0, ..frame.clone() }).collect())
        };
        let own = place(resolved.get(calls.iter().position(|&call| call == after)?)?)?;
        let alike: Vec<u64> = calls
            .iter()
            .zip(&resolved)
            .filter(|(_, at)| place(at).as_ref() == Some(&own))
            .map(|(&call, _)| call)
            .collect();
        Some(CallOrder { index: alike.iter().position(|&call| call == after)?, count: alike.len() })
    }
}

/// Return offsets of all calls, in the function that holds the call that returns to `after`, of what that one calls.
fn same_calls(path: &str, after: u64) -> Option<Vec<u64>> {
    let cache = blocks::open(path).ok()?;
    let file = object::File::parse(&cache).ok()?;
    let call = after.checked_sub(1)?;
    let separate = opened(&DebugFolders::of_system().find_for(Path::new(path), &file));
    let separate = separate.as_ref().and_then(|cache| object::File::parse(cache).ok());
    let symbols = file.symbols().chain(file.dynamic_symbols()).chain(separate.iter().flat_map(|file| file.symbols()));
    let function = symbols.filter(|symbol| symbol.kind() == SymbolKind::Text).find(|symbol| {
        symbol.size() <= FUNCTION_BYTES_MAX && (symbol.address()..symbol.address() + symbol.size()).contains(&call)
    })?;
    let (start, size) = (function.address(), function.size());
    let section =
        file.sections().find(|section| (section.address()..section.address() + section.size()).contains(&start))?;
    let code = section.data_range(start, size).ok().flatten()?;
    let target = match file.architecture() {
        Architecture::X86_64 => target_x86,
        Architecture::Aarch64 => target_arm,
        _ => return None,
    };
    let wanted = target(code, start, usize::try_from(after - start).ok()?)?;
    let returns = (1..=code.len()).filter(|&end| target(code, start, end) == Some(wanted));
    Some(returns.map(|end| start + end as u64).collect())
}

/// What a call that ends at `end` of `code` calls, and how.
fn target_x86(code: &[u8], start: u64, end: usize) -> Option<(u8, u64)> {
    let field = code.get(end.checked_sub(4)?..end)?;
    let target = (start + end as u64).wrapping_add_signed(i64::from(i32::from_le_bytes(field.try_into().ok()?)));
    let direct = end.checked_sub(5).is_some_and(|at| code[at] == 0xe8);
    let through = end.checked_sub(6).is_some_and(|at| code[at..at + 2] == [0xff, 0x15]);
    match (direct, through) {
        (_, true) => Some((2, target)),
        (true, _) => Some((1, target)),
        _ => None,
    }
}

fn target_arm(code: &[u8], start: u64, end: usize) -> Option<(u8, u64)> {
    let at = end.checked_sub(4).filter(|at| at % 4 == 0)?;
    let word = u32::from_le_bytes(code.get(at..end)?.try_into().ok()?);
    let offset = i64::from((word << 6) as i32 >> 6) * 4;
    (word >> 26 == 0x25).then(|| (1, (start + at as u64).wrapping_add_signed(offset)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_told_by_their_targets() {
        // call +0x10; nop; call *0x20(%rip)
        let code = [0xe8, 0x10, 0, 0, 0, 0x90, 0xff, 0x15, 0x20, 0, 0, 0];
        assert_eq!(target_x86(&code, 0x1000, 5), Some((1, 0x1015)));
        assert_eq!(target_x86(&code, 0x1000, 12), Some((2, 0x102c)));
        assert_eq!(target_x86(&code, 0x1000, 6), None);
        // bl -8
        let word = (0x9400_0000_u32 | (0x3ff_ffff & -2_i32 as u32)).to_le_bytes();
        assert_eq!(target_arm(&word, 0x1000, 4), Some((1, 0xff8)));
        assert_eq!(target_arm(&word, 0x1000, 3), None);
    }

    #[test]
    fn no_binary_no_order() {
        assert_eq!(CallOrders::default().order("/nonexistent", 5, 1), None);
        assert_eq!(CallOrders::default().order("/proc/self/exe", u64::MAX, 1), None);
    }
}
