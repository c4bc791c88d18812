//! The parts from which a guest is started, and QEMU's command line for them.

use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

use crate::accelerator::Accelerator;
use crate::arch::Arch;
use crate::kernel::KernelFiles;
use crate::qemu::Qemu;

/// Placeholder of the exchange folder in arguments of devices and plugins.
pub(crate) const FILES: &str = "{files}";

/// The parts from which a guest is started.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) arch: Arch,
    pub(crate) qemu: Qemu,
    pub(crate) kernel: KernelFiles,
    pub(crate) initramfs: PathBuf,
    pub(crate) initramfs_hash: u64,
    /// Its file tree on the host ([`crate::tree`]).
    pub(crate) root: PathBuf,
    pub(crate) topology: Vec<String>,
    pub(crate) devices: Vec<String>,
}

impl Machine {
    /// The command that starts it, with its file tree, `work` and `files` offered as tags `root`, `work` and `files`; where the tree is not the host's, that
    /// one as `host`, too.
    pub(crate) fn command(&self, accelerator: Accelerator, work: &Path, files: &Path) -> Command {
        let mut command = self.qemu.command();
        command.args(accelerator.arguments()).args(&self.topology);
        command.args(["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-cpu", self.arch.cpu()]);
        command.arg("-kernel").arg(&self.kernel.vmlinux).arg("-initrd").arg(&self.initramfs);
        command.args(["-append", self.arch.kernel_line()]);
        let host = (!self.has_hosts_tree()).then_some(("host", Path::new("/"), ",readonly=on"));
        let always = [("root", self.root.as_path(), ",readonly=on"), ("work", work, ""), ("files", files, "")];
        for (tag, path, mode) in always.into_iter().chain(host) {
            let path = path.display();
            command.args(["-fsdev", &format!("local,id={tag},path={path},security_model=none,multidevs=remap{mode}")]);
            command.args(["-device", &format!("virtio-9p-pci,fsdev={tag},mount_tag={tag}")]);
        }
        let files = files.display().to_string();
        command.args(self.devices.iter().map(|word| word.replace(FILES, &files)));
        command
    }

    fn has_hosts_tree(&self) -> bool {
        self.root == Path::new("/")
    }

    /// Everything that a snapshot depends on; not the folders, which the guest mounts later.
    pub(crate) fn key(&self, accelerator: Accelerator) -> String {
        let here = Path::new("-");
        let shape = Machine {
            arch: self.arch,
            qemu: self.qemu.clone(),
            kernel: self.kernel.clone(),
            initramfs: PathBuf::new(),
            initramfs_hash: 0,
            root: self.root.clone(),
            topology: self.topology.clone(),
            devices: Vec::new(),
        };
        let words = shape.command(accelerator, here, here);
        format!(
            "{} {} {:016x} {words:?} {:?}",
            self.qemu.version, self.kernel.release, self.initramfs_hash, self.devices
        )
    }
}
