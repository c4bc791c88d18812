//! Settings of a whole process: memory policy and CPUs, as `numactl` sets them. Processes that it starts inherit both.

use std::io;

use numapilot_plan::{NodeSet, Plan, Policy};

use crate::error::ApplyError;

const MPOL_PREFERRED: libc::c_int = 1;
const MPOL_BIND: libc::c_int = 2;
const MPOL_INTERLEAVE: libc::c_int = 3;
const MPOL_LOCAL: libc::c_int = 4;
const MPOL_PREFERRED_MANY: libc::c_int = 5;
const MPOL_WEIGHTED_INTERLEAVE: libc::c_int = 6;
const MPOL_F_NUMA_BALANCING: libc::c_int = 1 << 13;
const MPOL_F_NODE: libc::c_ulong = 1;
const MPOL_F_MEMS_ALLOWED: libc::c_ulong = 4;
/// Bits of CPU masks, which distributions' kernels have at most, and of node masks (`CONFIG_NODES_SHIFT` is at most 10).
const MASK_BITS: usize = 8192;
const WORD_BITS: usize = libc::c_ulong::BITS as usize;
type Mask = [libc::c_ulong; MASK_BITS / WORD_BITS];

/// A process's memory policy (`set_mempolicy(2)`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemoryPolicy {
    /// Page by page over these nodes.
    Interleave(Vec<u32>),
    /// The same by the kernel's weights (Linux 6.9).
    WeightedInterleave(Vec<u32>),
    /// On these nodes only; with kernel NUMA balancing among them.
    Bind {
        /// Nodes to allocate on.
        nodes: Vec<u32>,
        /// Let the kernel move pages among them.
        balancing: bool,
    },
    /// On this node while it has room.
    Preferred(u32),
    /// On these nodes while they have room (Linux 5.15).
    PreferredMany(Vec<u32>),
    /// On the node of the CPU that touches a page.
    Local,
}

/// What a process may be given before its program runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessPolicy {
    /// Memory policy; as it is where `None`.
    pub memory: Option<MemoryPolicy>,
    /// CPUs; as they are where `None`.
    pub cpus: Option<Vec<u32>>,
}

fn mask(ids: &[u32]) -> Mask {
    let mut mask = [0; MASK_BITS / WORD_BITS];
    for id in ids.iter().map(|id| *id as usize).filter(|id| *id < MASK_BITS) {
        mask[id / WORD_BITS] |= 1 << (id % WORD_BITS);
    }
    mask
}

fn ids(mask: &Mask) -> Vec<u32> {
    (0..MASK_BITS as u32).filter(|id| mask[*id as usize / WORD_BITS] >> (*id as usize % WORD_BITS) & 1 == 1).collect()
}

/// Sets policy and CPUs of this process, to be inherited.
///
/// # Errors
/// The kernel refuses: with what it lacks.
pub fn apply_here(policy: &ProcessPolicy) -> Result<(), ApplyError> {
    if let Some(cpus) = &policy.cpus {
        let mask = mask(cpus);
        // SAFETY: reads a mask of the length given.
        let result = unsafe { libc::syscall(libc::SYS_sched_setaffinity, 0, size_of::<Mask>(), mask.as_ptr()) };
        if result != 0 {
            return Err(refused(
                "cannot pin to these CPUs (sched_setaffinity)",
                "name CPUs that are online and that the cpuset of this process allows",
            ));
        }
    }
    let Some(memory) = &policy.memory else { return Ok(()) };
    let (mode, nodes, remedy): (_, &[u32], _) = match memory {
        MemoryPolicy::Interleave(nodes) => (MPOL_INTERLEAVE, nodes, "name nodes that have memory"),
        MemoryPolicy::WeightedInterleave(nodes) => (
            MPOL_WEIGHTED_INTERLEAVE,
            nodes,
            "--weighted-interleave needs Linux 6.9; --interleave works with older kernels too",
        ),
        MemoryPolicy::Bind { nodes, balancing: false } => (MPOL_BIND, nodes, "name nodes that have memory"),
        MemoryPolicy::Bind { nodes, balancing: true } => {
            (MPOL_BIND | MPOL_F_NUMA_BALANCING, nodes, "--balancing needs Linux 5.12; leave it out on older kernels")
        }
        MemoryPolicy::Preferred(node) => (MPOL_PREFERRED, std::slice::from_ref(node), "name a node that has memory"),
        MemoryPolicy::PreferredMany(nodes) => {
            (MPOL_PREFERRED_MANY, nodes, "--preferred-many needs Linux 5.15; --preferred works with older kernels too")
        }
        MemoryPolicy::Local => {
            (MPOL_LOCAL, &[], "this kernel has no memory policies; use one that is built with CONFIG_NUMA")
        }
    };
    let mask = mask(nodes);
    let (pointer, bits) = if nodes.is_empty() { (std::ptr::null(), 0) } else { (mask.as_ptr(), MASK_BITS + 1) };
    // SAFETY: reads a mask of the length given, or none.
    let result = unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, pointer, bits) };
    if result == 0 { Ok(()) } else { Err(refused("cannot set the memory policy (set_mempolicy)", remedy)) }
}

fn refused(what: &'static str, remedy: &'static str) -> ApplyError {
    ApplyError::System { what, source: io::Error::last_os_error(), remedy }
}

/// What this process has, for `--show`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Current {
    /// The kernel's number of the policy, flags included.
    pub mode: i32,
    /// Nodes of the policy.
    pub nodes: Vec<u32>,
    /// Where an interleaving policy puts the next page.
    pub next: Option<u32>,
    /// CPUs that it may run on.
    pub cpus: Vec<u32>,
    /// Nodes whose memory it may use (cpuset).
    pub allowed_nodes: Vec<u32>,
}

fn get_mempolicy(flags: libc::c_ulong) -> io::Result<(i32, Mask)> {
    let (mut mode, mut mask): (libc::c_int, Mask) = (0, [0; MASK_BITS / WORD_BITS]);
    let no_address = std::ptr::null::<libc::c_void>();
    let (with_mask, bits) =
        if flags & MPOL_F_NODE != 0 { (std::ptr::null_mut(), 0) } else { (mask.as_mut_ptr(), MASK_BITS) };
    // SAFETY: writes one integer and a mask of the length given.
    let result = unsafe { libc::syscall(libc::SYS_get_mempolicy, &raw mut mode, with_mask, bits, no_address, flags) };
    if result == 0 { Ok((mode, mask)) } else { Err(io::Error::last_os_error()) }
}

/// CPUs that this process may run on, and so what it starts, ascending.
///
/// # Errors
/// The machine has more CPUs than this version supports.
pub(super) fn cpus_here() -> Result<Vec<u32>, ApplyError> {
    let mut cpus: Mask = [0; MASK_BITS / WORD_BITS];
    // SAFETY: writes a mask of the length given.
    let result = unsafe { libc::syscall(libc::SYS_sched_getaffinity, 0, size_of::<Mask>(), cpus.as_mut_ptr()) };
    if result < 0 {
        return Err(refused(
            "cannot read the CPUs of this process (sched_getaffinity)",
            "numapilot supports machines of up to 8,192 CPUs",
        ));
    }
    Ok(ids(&cpus))
}

/// Why this process, and so what it starts, cannot place memory where `plan` says: the kernel allows no placement at all, or not these nodes.
/// `None`: nothing is known to be in the way.
pub(super) fn placement_problem(plan: &Plan) -> Option<String> {
    if let Some(error) = mbind_refusal() {
        return Some(format!(
            "no memory can be placed here: the system refuses mbind ({error}). Containers forbid it unless they have the capability SYS_NICE \
             (`docker run --cap-add SYS_NICE`)"
        ));
    }
    let allowed = Current::read().ok()?.allowed_nodes;
    let forbidden = forbidden_nodes(plan, &allowed);
    let list = |nodes: &[u32]| numapilot_machine::format_cpu_list(nodes.iter().copied());
    (!forbidden.is_empty()).then(|| {
        format!(
            "the plan puts memory on nodes {}, but this process's cpuset allows only nodes {}: memory for the others is not placed; \
             run numapilot in a cpuset that allows them",
            list(&forbidden),
            list(&allowed)
        )
    })
}

/// Nodes of the plan's memory rules that are not among the allowed ones, ascending.
fn forbidden_nodes(plan: &Plan, allowed: &[u32]) -> Vec<u32> {
    let mut nodes: Vec<u32> = Vec::new();
    for rule in &plan.objects {
        match &rule.policy {
            Policy::Node { node, .. } => nodes.push(u32::from(*node)),
            Policy::Interleave(NodeSet::Listed(listed)) | Policy::Split(NodeSet::Listed(listed)) => {
                nodes.extend(listed.iter().map(|node| u32::from(*node)));
            }
            Policy::WeightedInterleave(weights) => nodes.extend(weights.iter().map(|(node, _)| u32::from(*node))),
            _ => {}
        }
    }
    nodes.sort_unstable();
    nodes.dedup();
    nodes.retain(|node| !allowed.contains(node));
    nodes
}

/// What the system says to a request for no policy of a page of our own, if it refuses even that.
fn mbind_refusal() -> Option<io::Error> {
    let (bytes, none) = (4096, std::ptr::null_mut());
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping, at an address that the kernel chooses; it is unmapped below, and nothing else knows of it.
    let page = unsafe { libc::mmap(none, bytes, libc::PROT_READ, flags, -1, 0) };
    if page == libc::MAP_FAILED {
        return None;
    }
    let no_mask = std::ptr::null::<libc::c_ulong>();
    // SAFETY: sets the policy of the page above; no mask is read.
    let result =
        unsafe { libc::syscall(libc::SYS_mbind, page, bytes, 0 as libc::c_int, no_mask, 0_usize, 0 as libc::c_uint) };
    let error = (result != 0).then(io::Error::last_os_error);
    // SAFETY: the mapping made above.
    unsafe { libc::munmap(page, bytes) };
    error
}

impl Current {
    /// Reads the policy of this process from the kernel.
    ///
    /// # Errors
    /// The kernel has no memory policies, or forbids asking (seccomp in containers).
    pub fn read() -> Result<Current, ApplyError> {
        let fail = |source| ApplyError::System {
            what: "cannot read the memory policy (get_mempolicy)",
            source,
            remedy: "use a kernel that is built with CONFIG_NUMA; in a container, give it the capability SYS_NICE",
        };
        let (mode, nodes) = get_mempolicy(0).map_err(fail)?;
        let (_, allowed) = get_mempolicy(MPOL_F_MEMS_ALLOWED).map_err(fail)?;
        let interleaves = mode == MPOL_INTERLEAVE || mode == MPOL_WEIGHTED_INTERLEAVE;
        let next =
            if interleaves { get_mempolicy(MPOL_F_NODE).ok().map(|(node, _)| node.unsigned_abs()) } else { None };
        let cpus = cpus_here()?;
        Ok(Current { mode, nodes: ids(&nodes), next, cpus, allowed_nodes: ids(&allowed) })
    }

    /// The policy's name as numactl prints it.
    #[must_use]
    pub fn policy_name(&self) -> String {
        let name = match self.mode {
            0 => "default",
            MPOL_PREFERRED => "preferred",
            MPOL_BIND => "bind",
            MPOL_INTERLEAVE => "interleave",
            MPOL_LOCAL => "local",
            MPOL_PREFERRED_MANY => "preferred-many",
            MPOL_WEIGHTED_INTERLEAVE => "weighted interleave",
            other => return format!("[{other}]"),
        };
        name.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_that_a_cpuset_forbids_are_found_in_every_rule_of_memory() {
        let text = "version = 1\n[[object]]\nname = \"a\"\npolicy = \"node\"\nnode = 3\n[[object]]\nname = \"b\"\npolicy = \"interleave\"\nnodes = \"0-1\"\n\
                    [[object]]\nname = \"c\"\npolicy = \"weighted-interleave\"\nweights = \"2:3,0:1\"\n[[object]]\nname = \"d\"\npolicy = \"local\"\n";
        let plan = Plan::parse(text, "plan.toml").expect("a plan");
        assert_eq!(forbidden_nodes(&plan, &[0, 1]), [2, 3]);
        assert!(forbidden_nodes(&plan, &[0, 1, 2, 3]).is_empty());
    }
}
