//! Layers of the Java virtual machine HotSpot through which it takes memory from the system: what they map or allocate is for what calls them, such as a
//! generation of the heap (`PSOldGen::initialize_virtual_space`), the code cache or a card table. (`src/hotspot/share/memory/virtualspace.cpp`,
//! `memoryReserver.cpp`, `os/linux/os_linux.cpp`, `gc/*` of OpenJDK.)

/// The machine's library.
const LIBRARY: &str = "libjvm.so";
/// Beginnings of names of its functions.
const LAYERS: [&str; 24] = [
    "os::",
    "commit_memory_impl",
    "anon_mmap",
    "map_or_reserve_memory",
    "attempt_map_or_reserve_memory",
    "reserve_memory",
    "AllocateHeap",
    "ReallocateHeap",
    "MemoryReserver::",
    "HeapReserver::",
    "CodeMemoryReserver::",
    "ReservedSpace::",
    "ReservedHeapSpace::",
    "ReservedCodeSpace::",
    "VirtualSpace::",
    "PSVirtualSpace::",
    "PSVirtualSpaceHighToLow::",
    "G1PageBasedVirtualSpace::",
    "G1RegionToSpaceMapper::",
    "G1RegionsLargerThanCommitSizeMapper::",
    "G1RegionsSmallerThanCommitSizeMapper::",
    "Generation::Generation",
    "CardGeneration::CardGeneration",
    "GrowableArray",
];

/// Whether a function of the binary at `module` is one of these layers.
pub(crate) fn takes_memory(module: &str, function: &str) -> bool {
    module.rsplit('/').next() == Some(LIBRARY) && LAYERS.iter().any(|layer| function.starts_with(layer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_those_of_the_machines_own_library() {
        let own = "/usr/lib/jvm/java-17-openjdk-amd64/lib/server/libjvm.so";
        for layer in ["os::pd_commit_memory", "PSVirtualSpace::expand_by", "Generation::Generation"] {
            assert!(
                takes_memory(own, layer) && !takes_memory("/srv/app", layer) && !takes_memory("", layer),
                "{layer}"
            );
        }
        for user in ["PSOldGen::initialize_virtual_space", "TenuredGeneration::TenuredGeneration", "CodeHeap::reserve"]
        {
            assert!(!takes_memory(own, user), "{user}");
        }
    }
}
