//! What this program changed in a thread's affinity.

use numapilot_kernel::affinity::CpuMask;

use super::undo_log::Binding;

/// The binding of a thread by this program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Affinity before the first binding.
    pub(crate) before: CpuMask,
    /// Affinity that this program set.
    pub(crate) ours: CpuMask,
}

impl Bound {
    /// State of a thread after `binding`, given its state before.
    pub(crate) fn after(binding: &Binding, known: Option<Bound>) -> Bound {
        let known = known.filter(|bound| bound.ours == binding.was);
        let before = known.map_or_else(|| binding.was.clone(), |bound| bound.before);
        Bound { before, ours: binding.now.clone() }
    }
}
