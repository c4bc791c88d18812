//! What this program changed in a thread's affinity.

use numapilot_kernel::affinity;
use numapilot_kernel::affinity::CpuMask;

use super::undo_log::Binding;

/// The binding of a thread by this program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Affinity before the first binding.
    pub(crate) before: CpuMask,
    /// Affinity that this program set.
    pub(crate) ours: CpuMask,
    /// Whether the thread was not bound itself, but inherited the affinity of one that was.
    pub(crate) is_inherited: bool,
}

impl Bound {
    /// State of a thread after `binding`, given its state before.
    pub(crate) fn after(binding: &Binding, known: Option<Bound>) -> Bound {
        let known = known.filter(|bound| bound.ours == binding.was);
        let before = known.map_or_else(|| binding.was.clone(), |bound| bound.before);
        Bound { before, ours: binding.now.clone(), is_inherited: false }
    }

    /// State of a new thread with this affinity, if it has inherited it from a thread that was bound in one of these ways. Where several have the same
    /// affinity now, it gets back what all of their threads were allowed before.
    pub(crate) fn inherited(mask: &CpuMask, bindings: &[Bound]) -> Option<Bound> {
        let is_known = bindings.is_empty() || bindings.iter().any(|bound| bound.ours == *mask);
        let online = if is_known { None } else { affinity::online() };
        Bound::inherited_with(mask, bindings, online.as_ref())
    }

    /// `online`: the CPUs that are, where some of those that a thread was bound to may not be.
    fn inherited_with(mask: &CpuMask, bindings: &[Bound], online: Option<&CpuMask>) -> Option<Bound> {
        let mut alike = bindings.iter().filter(|bound| affinity::is_still_with(mask, &bound.ours, online));
        let first = alike.next()?;
        let before = alike.fold(first.before.clone(), |all, one| all.and(&one.before));
        Some(Bound { before, ours: first.ours.clone(), is_inherited: true })
    }

    /// Whether both are the same change of an affinity.
    pub(crate) fn is_same_change(&self, other: &Bound) -> bool {
        self.before == other.before && self.ours == other.ours
    }
}

#[cfg(test)]
mod tests {
    //! Masks of a few CPUs.

    use numapilot_machine::CpuId;

    use super::*;

    fn mask(cpus: &[u32]) -> CpuMask {
        cpus.iter().copied().map(CpuId).collect()
    }

    #[test]
    fn an_inherited_affinity_is_known_by_what_was_set_and_gives_back_what_all_had() {
        let bound =
            |before: &[u32], ours: &[u32]| Bound { before: mask(before), ours: mask(ours), is_inherited: false };
        let bindings = [bound(&[0, 1, 2, 3], &[0, 1]), bound(&[0, 1, 2, 4], &[0, 1]), bound(&[0, 1, 2, 3], &[2, 3])];
        assert_eq!(Bound::inherited(&mask(&[0, 1, 2]), &bindings), None, "its own");
        let found = Bound::inherited(&mask(&[0, 1]), &bindings).unwrap();
        assert_eq!((found.before.clone(), found.is_inherited), (mask(&[0, 1, 2]), true));
        assert_eq!(Bound::inherited(&mask(&[2, 3]), &bindings).unwrap().before, mask(&[0, 1, 2, 3]));
        // CPU 3 is offline: the kernel shows the rest.
        let online = mask(&[0, 1, 2, 4]);
        let found = Bound::inherited_with(&mask(&[2]), &bindings, Some(&online)).unwrap();
        assert_eq!((found.ours, found.before), (mask(&[2, 3]), mask(&[0, 1, 2, 3])));
        assert_eq!(Bound::inherited_with(&mask(&[2]), &bindings, None), None);
    }
}
