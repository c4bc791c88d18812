//! Collects the facts: files under /proc and /sys, the processor's CPUID, and events that are opened and closed at once.

use std::os::fd::{AsRawFd, OwnedFd};

use numapilot_host::{Root, TaskStatus, cpuinfo, in_user_namespace};
use numapilot_machine::{CpuId, parse_cpu_list};
use numapilot_perf::EventAttr;
use numapilot_perf::pmu::{self, Offer, Pmu, SampleRequest, Sampler};

use crate::cpus::ONLINE;
use crate::event::EventRequest;
use crate::facts::{Answer, EventFacts, Kernel, SamplerFact, Vendor};
use crate::pmu::name_of;
use crate::syscall::open_event;
use crate::syscall::open_or_less;

/// Collects the facts about this machine. It opens and closes events, and changes nothing.
#[must_use]
pub fn probe() -> EventFacts {
    let (root, mut text) = (Root::default(), Vec::new());
    let own = TaskStatus::read_own(&root, &mut text).unwrap_or_default();
    let cpuinfo = cpuinfo::read(&root);
    let pmus = pmu::read(root.path()).unwrap_or_default();
    let fault = [EventRequest::page_faults(true, 0).completed()];
    let cpu = first_online();
    EventFacts {
        kernel: Kernel::from(root.text("proc/sys/kernel/osrelease").unwrap_or_default()),
        arch: std::env::consts::ARCH.to_owned(),
        cpu: cpuinfo::field(&cpuinfo, &["model name"]).unwrap_or_default().to_owned(),
        vendor: vendor(&cpuinfo),
        cpus: cpus_online(),
        nodes: root.text("sys/devices/system/node/has_memory").and_then(|list| count_of(&list)).unwrap_or(1),
        hypervisor: hypervisor(&root, &cpuinfo),
        machine: machine(&root),
        container: container(&root),
        in_user_namespace: in_user_namespace(&root),
        has_seccomp_filter: own.field("Seccomp") == Some("2"),
        lockdown: root.text("sys/kernel/security/lockdown").and_then(|text| bracketed(&text)),
        paranoid: root.text("proc/sys/kernel/perf_event_paranoid").and_then(|text| text.parse().ok()),
        is_privileged: own.mask("CapEff").is_some_and(is_privileged),
        numa_balancing: root.text("proc/sys/kernel/numa_balancing").and_then(|text| text.parse().ok()),
        fault: group(&fault, SELF, cpu),
        fault_system: group(&fault, ANY_TASK, cpu),
        samplers: try_samplers(&pmus, cpu),
        pmus: pmus.into_iter().map(|pmu| pmu.name).collect(),
    }
}

const SELF: i32 = 0;
const ANY_TASK: i32 = -1;

/// The flag of an event that does not count yet (`disabled`).
const DISABLED: u64 = 1;

/// Opens events that belong together, the first as the leader of the others, and closes them again.
fn group(events: &[EventAttr], task: i32, cpu: CpuId) -> Answer {
    let mut opened: Vec<OwnedFd> = Vec::new();
    for attr in events {
        let mut attr = EventAttr { flags: attr.flags | DISABLED, ..attr.clone() };
        let leader = opened.first().map_or(-1, AsRawFd::as_raw_fd);
        let open = |attr: &EventAttr| open_event(&EventRequest::default().bytes(attr, 0), task, cpu, leader);
        match open_or_less(&mut attr, open) {
            Ok(event) => opened.push(event),
            refused => return answer(refused),
        }
    }
    Answer::Works
}

/// The result of a system call.
pub fn answer<T>(result: std::io::Result<T>) -> Answer {
    match result {
        Ok(_) => Answer::Works,
        Err(error) => Answer::Refused(error.raw_os_error().unwrap_or(0)),
    }
}

/// Tries every way of sampling that this machine's PMUs offer: the part of [`probe`] that takes no time to speak of.
#[must_use]
pub fn samplers(pmus: &[Pmu]) -> Vec<SamplerFact> {
    try_samplers(pmus, first_online())
}

fn first_online() -> CpuId {
    first_of(&online()).map_or(CpuId(0), CpuId)
}

/// List of the CPUs that are online; empty where the kernel does not say.
fn online() -> String {
    Root::default().text(ONLINE).unwrap_or_default()
}

fn try_samplers(pmus: &[Pmu], cpu: CpuId) -> Vec<SamplerFact> {
    let request = SampleRequest { callchain: false, ..SampleRequest::default() };
    let offers = pmu::offers(pmus, &request).unwrap_or_default();
    let with_physical = pmu::offers(pmus, &SampleRequest { physical: true, ..request }).unwrap_or_default();
    let pairs = offers.iter().zip(&with_physical);
    pairs.map(|(offer, physical)| sampler(pmus, offer, physical, cpu)).collect()
}

fn sampler(pmus: &[Pmu], offer: &Offer, physical: &Offer, cpu: CpuId) -> SamplerFact {
    // The driver lists its CPUs whether they are online or not, and refuses those that are not (ENODEV).
    let cpu = offer.cpus.as_deref().and_then(|cpus| first_online_of(cpus, &online())).map_or(cpu, CpuId);
    let own = group(&offer.events, SELF, cpu);
    SamplerFact {
        sampler: name_of(offer.sampler).to_owned(),
        pmu: offer.pmu.clone(),
        own,
        physical: if own.works() { group(&physical.events, SELF, cpu) } else { Answer::Untried },
        system: group(&offer.events, ANY_TASK, cpu),
        can_leave_kernel_out: offer.sampler != Sampler::IbsOp
            || pmus.iter().any(|pmu| pmu.name == offer.pmu && pmu.format.contains_key("swfilt")),
    }
}

/// The first CPU of a list.
fn first_of(list: &str) -> Option<u32> {
    parse_cpu_list(list).ok()?.first().copied()
}

/// The first CPU of a list that is online; the first at all where none is known to be.
fn first_online_of(list: &str, online: &str) -> Option<u32> {
    let online = parse_cpu_list(online).unwrap_or_default();
    let cpus = parse_cpu_list(list).ok()?;
    cpus.iter().find(|cpu| online.contains(cpu)).or(cpus.first()).copied()
}

fn count_of(list: &str) -> Option<u32> {
    u32::try_from(parse_cpu_list(list).ok()?.len()).ok()
}

fn cpus_online() -> u32 {
    // SAFETY: sysconf takes an integer and returns one.
    u32::try_from(unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }).unwrap_or(0)
}

fn vendor(cpuinfo: &str) -> Vendor {
    match cpuinfo::field(cpuinfo, &["vendor_id"]) {
        Some("AuthenticAMD" | "HygonGenuine") => Vendor::Amd,
        Some("GenuineIntel") => Vendor::Intel,
        _ if cpuinfo::field(cpuinfo, &["CPU implementer"]).is_some() => Vendor::Arm,
        _ => Vendor::Other,
    }
}

/// CAP_SYS_ADMIN is bit 21, CAP_PERFMON bit 38 (`include/uapi/linux/capability.h`).
fn is_privileged(mask: u64) -> bool {
    mask & (1 << 21 | 1 << 38) != 0
}

/// Whether this process has a capability, in its own user namespace.
pub(crate) fn has_capability(bit: u32) -> bool {
    let mut text = Vec::new();
    let status = TaskStatus::read_own(&Root::default(), &mut text);
    status.and_then(|status| status.mask("CapEff")).is_some_and(|mask| mask >> bit & 1 != 0)
}

/// `integrity` of `none [integrity] confidentiality`.
fn bracketed(text: &str) -> Option<String> {
    Some(text.split_once('[')?.1.split_once(']')?.0.to_owned())
}

/// Maker and model, as the firmware says.
fn machine(root: &Root) -> String {
    let field = |name: &str| root.text(&format!("sys/class/dmi/id/{name}"));
    let words = [field("sys_vendor"), field("product_name")];
    words.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

fn container(root: &Root) -> Option<String> {
    if root.has(".dockerenv") {
        return Some("Docker".to_owned());
    }
    if root.has("run/.containerenv") {
        return Some("Podman".to_owned());
    }
    if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() {
        return Some("Kubernetes".to_owned());
    }
    let said = root.text("run/systemd/container").or_else(|| std::env::var("container").ok());
    if let Some(name) = said.filter(|name| !name.is_empty()) {
        return Some(name);
    }
    let cgroup = root.text("proc/1/cgroup").unwrap_or_default();
    let known = [
        ("docker", "Docker"),
        ("kubepods", "Kubernetes"),
        ("libpod", "Podman"),
        ("/lxc", "LXC"),
        ("containerd", "containerd"),
    ];
    known.into_iter().find(|(mark, _)| cgroup.contains(mark)).map(|(_, name)| name.to_owned())
}

/// The hypervisor's own name, from the leaf that all of them answer; elsewhere from what the kernel knows.
fn hypervisor(root: &Root, cpuinfo: &str) -> Option<String> {
    let kind = root.text("sys/hypervisor/type");
    #[cfg(target_arch = "x86_64")]
    {
        let is_virtual =
            cpuinfo::field(cpuinfo, &["flags"]).is_some_and(|flags| flags.split(' ').any(|f| f == "hypervisor"));
        if !is_virtual {
            return None;
        }
        const HYPERVISOR: u32 = 0x4000_0000;
        let leaf = std::arch::x86_64::__cpuid(HYPERVISOR);
        let signature: Vec<u8> = [leaf.ebx, leaf.ecx, leaf.edx].iter().flat_map(|word| word.to_le_bytes()).collect();
        let name = signature_name(&String::from_utf8_lossy(&signature));
        Some(name.map(str::to_owned).or(kind).unwrap_or_else(|| "a hypervisor".to_owned()))
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = cpuinfo;
        let compatible = root.text("proc/device-tree/hypervisor/compatible");
        let maker = root.text("sys/class/dmi/id/sys_vendor").unwrap_or_default();
        let product = root.text("sys/class/dmi/id/product_name").unwrap_or_default();
        kind.or(compatible.map(|text| text.trim_end_matches('\0').to_owned()))
            .or(guest_by_firmware(&maker, &product).map(str::to_owned))
            .or(is_qemus_tree(root).then(|| "QEMU".to_owned()))
    }
}

/// Whether the device tree has the device through which QEMU configures a guest (systemd-detect-virt looks for it, too). Without firmware nothing else names
/// the maker of its own machine for Arm (`create_fw_cfg` in QEMU's hw/arm/virt.c).
#[cfg(any(test, not(target_arch = "x86_64")))]
fn is_qemus_tree(root: &Root) -> bool {
    root.names("proc/device-tree").iter().any(|name| name.starts_with("fw-cfg@"))
}

/// The hypervisor of machines whose processors do not tell of one, by the maker and product that their firmware names (as systemd-detect-virt has them).
#[cfg(any(test, not(target_arch = "x86_64")))]
fn guest_by_firmware(maker: &str, product: &str) -> Option<&'static str> {
    if maker.contains("Amazon EC2") && product.contains(".metal") {
        return None;
    }
    let known = [
        ("Amazon EC2", "KVM"),
        ("QEMU", "KVM"),
        ("KVM", "KVM"),
        ("OpenStack", "KVM"),
        ("KubeVirt", "KVM"),
        ("Google Compute Engine", "KVM"),
        ("Alibaba Cloud ECS", "KVM"),
        ("VMware", "VMware"),
        ("Parallels", "Parallels"),
    ];
    let named =
        known.into_iter().find(|(mark, _)| maker.contains(mark) || product.contains(mark)).map(|(_, name)| name);
    // Microsoft makes machines, too.
    let is_hyper_v = maker.contains("Microsoft") && product.contains("Virtual Machine");
    named.or(is_hyper_v.then_some("Hyper-V"))
}

#[cfg(target_arch = "x86_64")]
fn signature_name(signature: &str) -> Option<&'static str> {
    let known = [
        ("KVMKVMKVM", "KVM"),
        ("Microsoft Hv", "Hyper-V"),
        ("VMwareVMware", "VMware"),
        ("XenVMMXenVMM", "Xen"),
        ("TCGTCGTCGTCG", "QEMU without KVM"),
        ("bhyve bhyve", "bhyve"),
        ("ACRNACRNACRN", "ACRN"),
        ("prl hyperv", "Parallels"),
    ];
    known.into_iter().find(|(mark, _)| signature.contains(mark)).map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    //! The parsers of what the kernel writes, and one look at the machine under the test.

    use std::fs;

    use super::*;

    #[test]
    fn guests_are_told_by_their_firmware() {
        let guests = [
            ("QEMU", "QEMU Virtual Machine", "KVM"),
            ("Amazon EC2", "m7g.large", "KVM"),
            ("Google", "Google Compute Engine", "KVM"),
            ("Microsoft Corporation", "Virtual Machine", "Hyper-V"),
            ("OpenStack Foundation", "OpenStack Nova", "KVM"),
            ("VMware, Inc.", "VMware20,1", "VMware"),
        ];
        for (maker, product, name) in guests {
            assert_eq!(guest_by_firmware(maker, product), Some(name), "{maker} {product}");
        }
        for (maker, product) in
            [("Amazon EC2", "m7g.metal"), ("Microsoft Corporation", "C2080"), ("Ampere(TM)", "Mt. Jade")]
        {
            assert_eq!(guest_by_firmware(maker, product), None, "{maker} {product}");
        }
    }

    #[test]
    fn guests_of_qemu_without_firmware_are_told_by_their_device_tree() {
        let folder = tempfile::tempdir().unwrap();
        let (root, tree) = (Root::new(folder.path()), folder.path().join("proc/device-tree"));
        assert!(!is_qemus_tree(&root), "no device tree");
        fs::create_dir_all(tree.join("memory@40000000")).unwrap();
        assert!(!is_qemus_tree(&root), "a machine's own");
        fs::create_dir(tree.join("fw-cfg@9020000")).unwrap();
        assert!(is_qemus_tree(&root));
    }

    #[test]
    fn this_machine_gives_facts() {
        let facts = probe();
        assert!(facts.kernel.is_at_least(3, 0), "{facts:?}");
        assert!(facts.cpus > 0 && facts.nodes > 0, "{facts:?}");
        // Where the level allows it and nothing filters, the kernel gives a software event.
        if facts.paranoid.is_some_and(|level| level <= 2) && !facts.has_seccomp_filter {
            assert_eq!(facts.fault, Answer::Works, "{facts:?}");
        }
    }

    #[test]
    fn containers_are_told_by_their_marks() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        fs::create_dir_all(folder.path().join("proc/1")).unwrap();
        fs::write(folder.path().join("proc/1/cgroup"), "0::/lxc/7\n").unwrap();
        assert_eq!(container(&root).as_deref(), Some("LXC"));
        fs::write(folder.path().join(".dockerenv"), "").unwrap();
        assert_eq!(container(&root).as_deref(), Some("Docker"));
    }

    #[test]
    fn the_kernels_words_are_read() {
        assert!(is_privileged(0x40_0000_0000) && is_privileged(0x20_0000));
        assert!(!is_privileged(0x400) && !is_privileged(0));
        assert_eq!(bracketed("none [integrity] confidentiality").as_deref(), Some("integrity"));
        let intel = "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Some CPU\n";
        assert_eq!((vendor(intel), vendor("CPU implementer\t: 0x41\n")), (Vendor::Intel, Vendor::Arm));
        assert_eq!((first_of("16-23"), count_of("0-3,8")), (Some(16), Some(5)));
        assert_eq!([first_online_of("0-15", "2-23"), first_online_of("0-15", "16")], [Some(2), Some(0)]);
        assert_eq!([first_online_of("4-7", ""), first_online_of("", "0-3")], [Some(4), None]);
    }
}
