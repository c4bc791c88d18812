//! Processes and threads, as the side band tells of them.
//!
//! A process is written when it gets its first sample, or when a forked child of it does (which sees its memory): system-wide
//! recordings list every process of the machine. Until then its mappings wait.

use std::collections::HashMap;

use numapilot_perf::file::Features;
use numapilot_perf::{FileIdentity, Mapping, TaskChange};
use numapilot_trace::ids::{ModuleId, ProcessIndex, ThreadIndex, VirtAddr};
use numapilot_trace::record::Event;
use numapilot_trace::wire::layout;

use super::binaries::{Binaries, Placed};
use super::output::Output;
use crate::error::SourceError;

/// A process image: from fork or exec to exec or the end.
#[derive(Debug, Default)]
struct Image {
    pid: u32,
    parent: Option<usize>,
    by_exec: bool,
    exe: String,
    start: u64,
    index: Option<ProcessIndex>,
    /// What happened to it before it was written.
    waiting: Vec<(u64, Event)>,
    modules: Vec<(String, Placed)>,
    /// Ranges of anonymous memory, newest last.
    anonymous: Vec<(u64, u64)>,
    living: u32,
}

#[derive(Debug, Default)]
struct Task {
    tid: u32,
    image: usize,
    parent: Option<usize>,
    start: u64,
    name: String,
    thread: Option<ThreadIndex>,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    images: Vec<Image>,
    tasks: Vec<Task>,
    by_pid: HashMap<u32, usize>,
    by_tid: HashMap<u32, usize>,
    binaries: Binaries,
    build_ids: HashMap<String, Vec<u8>>,
}

impl Tasks {
    /// Knows the build ids that stand in the file's own section.
    pub fn new(features: &Features) -> Tasks {
        let build_ids = features.build_ids.iter().map(|(id, path)| (path.clone(), id.clone())).collect();
        Tasks { build_ids, ..Tasks::default() }
    }

    fn image(&mut self, pid: u32, time: u64) -> usize {
        if let Some(&image) = self.by_pid.get(&pid) {
            return image;
        }
        let image = self.images.len();
        self.images.push(Image { pid, start: time, ..Image::default() });
        self.by_pid.insert(pid, image);
        image
    }

    fn task(&mut self, pid: u32, tid: u32, time: u64) -> usize {
        let image = self.image(pid, time);
        if let Some(&task) = self.by_tid.get(&tid)
            && self.images[self.tasks[task].image].pid == pid
        {
            return task;
        }
        let task = self.tasks.len();
        self.tasks.push(Task { tid, image, start: time, ..Task::default() });
        self.by_tid.insert(tid, task);
        self.images[image].living += 1;
        task
    }

    /// Process of a thread that is known.
    pub fn pid_of(&self, tid: u32) -> Option<u32> {
        self.by_tid.get(&tid).map(|&task| self.images[self.tasks[task].image].pid)
    }

    /// The thread of a sample, written if it was not yet.
    pub fn thread(&mut self, out: &mut Output, pid: u32, tid: u32, time: u64) -> Result<ThreadIndex, SourceError> {
        let task = self.task(pid, tid, time);
        self.written(out, task)
    }

    /// Process number of a written thread's process.
    pub fn process(&self, pid: u32) -> Option<ProcessIndex> {
        self.images[*self.by_pid.get(&pid)?].index
    }

    fn written(&mut self, out: &mut Output, task: usize) -> Result<ThreadIndex, SourceError> {
        if let Some(thread) = self.tasks[task].thread {
            return Ok(thread);
        }
        let image = self.tasks[task].image;
        if self.images[image].index.is_none() {
            self.write_image(out, image, task)?;
        }
        match self.tasks[task].thread {
            Some(thread) => Ok(thread),
            None => self.write_thread(out, task),
        }
    }

    fn write_thread(&mut self, out: &mut Output, task: usize) -> Result<ThreadIndex, SourceError> {
        let parent = self.tasks[task].parent.and_then(|parent| self.tasks[parent].thread);
        let Task { tid, image, start, ref name, .. } = self.tasks[task];
        let name = name.clone();
        let image = &self.images[image];
        let (start, thread) = (start.max(image.start), out.new_thread());
        let event = Event::ThreadStart {
            index: thread,
            pid: image.pid,
            tid,
            parent,
            process: image.index.unwrap_or_default(),
            cpu: None,
            node: None,
            stack_low: VirtAddr(0),
            stack_high: VirtAddr(0),
            start_routine: VirtAddr(0),
            created_at: numapilot_trace::ids::StackId(0),
        };
        out.put(thread, start, event)?;
        if !name.is_empty() {
            out.put(thread, start, Event::ThreadName { name })?;
        }
        self.tasks[task].thread = Some(thread);
        Ok(thread)
    }

    /// Writes a process, its first thread, and what waited. A forked one needs its parent written before.
    fn write_image(&mut self, out: &mut Output, image: usize, task: usize) -> Result<(), SourceError> {
        let parent = self.images[image].parent;
        if let Some(parent) = parent
            && self.images[parent].index.is_none()
        {
            let pid = self.images[parent].pid;
            let creator = self.tasks[task].parent.filter(|&creator| self.tasks[creator].image == parent);
            let creator = creator.unwrap_or_else(|| self.task(pid, pid, 0));
            self.write_image(out, parent, creator)?;
        }
        let index = out.new_process();
        self.images[image].index = Some(index);
        // The main thread first, if it is known: others may have been its children.
        let pid = self.images[image].pid;
        let main = self.by_tid.get(&pid).copied().filter(|&main| self.tasks[main].image == image);
        let first = self.write_thread(out, main.unwrap_or(task))?;
        let parent_image = parent.map(|parent| &self.images[parent]);
        let (start, by_exec) = (self.images[image].start, self.images[image].by_exec);
        let event = Event::ProcessStart {
            index,
            pid,
            parent_pid: parent_image.map_or(0, |parent| parent.pid),
            parent: parent_image.and_then(|parent| parent.index),
            by_exec,
            exe: self.images[image].exe.clone(),
            arguments: Vec::new(),
        };
        out.put(first, start, event)?;
        for (time, event) in std::mem::take(&mut self.images[image].waiting) {
            out.put(first, time, event)?;
        }
        Ok(())
    }

    /// Writes an event of a process, or keeps it until the process is written.
    fn tell(&mut self, out: &mut Output, image: usize, time: u64, event: Event) -> Result<(), SourceError> {
        let pid = self.images[image].pid;
        let written = self.images[image].index.is_some();
        let on_behalf = || {
            let main = self.by_tid.get(&pid).filter(|&&task| self.tasks[task].image == image);
            let any = || self.tasks.iter().position(|task| task.image == image && task.thread.is_some());
            main.copied().filter(|&main| self.tasks[main].thread.is_some()).or_else(any)
        };
        let thread = if written { on_behalf().and_then(|task| self.tasks[task].thread) } else { None };
        match thread {
            Some(thread) => out.put(thread, time, event),
            None => {
                self.images[image].waiting.push((time, event));
                Ok(())
            }
        }
    }

    /// A name, or with `by_exec` a new image.
    pub fn comm(
        &mut self,
        out: &mut Output,
        pid: u32,
        tid: u32,
        name: &[u8],
        by_exec: bool,
        time: u64,
    ) -> Result<(), SourceError> {
        let name = String::from_utf8_lossy(name).into_owned();
        if by_exec {
            self.exec(out, pid, tid, time)?;
        }
        let task = self.task(pid, tid, time);
        self.tasks[task].name.clone_from(&name);
        match self.tasks[task].thread {
            Some(thread) => out.put(thread, time, Event::ThreadName { name }),
            None => Ok(()),
        }
    }

    fn exec(&mut self, out: &mut Output, pid: u32, tid: u32, time: u64) -> Result<(), SourceError> {
        let old = self.by_pid.get(&pid).copied();
        let parent = old.filter(|&old| self.images[old].index.is_some());
        if let Some(old) = parent {
            let index = self.images[old].index.unwrap_or_default();
            // The caller's thread lives on under the main thread's number; all others are gone.
            let threads: Vec<ThreadIndex> =
                self.tasks.iter().filter(|task| task.image == old).filter_map(|task| task.thread).collect();
            for &thread in &threads {
                out.put(thread, time, Event::ThreadEnd { index: thread })?;
            }
            self.tell(out, old, time, Event::ProcessEnd { index, by_exec: true, code: 0 })?;
        }
        if let Some(old) = old {
            self.by_tid.retain(|_, task| self.tasks[*task].image != old);
        }
        let image = self.images.len();
        self.images.push(Image { pid, parent, by_exec: true, start: time, ..Image::default() });
        self.by_pid.insert(pid, image);
        self.task(pid, tid, time);
        Ok(())
    }

    /// A new thread, or a new process.
    pub fn fork(&mut self, change: &TaskChange) {
        let time = change.time;
        let parent = self.task(change.parent_pid, change.parent_tid, time);
        if change.pid != change.parent_pid {
            let image = self.images.len();
            // What perf lists of processes that ran already (at time 0) tells of no inheritance: they may have executed others since.
            let inherits = (time > 0).then_some(self.tasks[parent].image);
            self.images.push(Image { pid: change.pid, parent: inherits, start: time, ..Image::default() });
            self.by_pid.insert(change.pid, image);
        }
        self.by_tid.remove(&change.tid);
        let task = self.task(change.pid, change.tid, time);
        let is_forked = time > 0 || change.pid == change.parent_pid;
        self.tasks[task].parent = is_forked.then_some(parent);
    }

    /// A thread's end, and that of its process if it was the last.
    pub fn exit(&mut self, out: &mut Output, change: &TaskChange) -> Result<(), SourceError> {
        let Some(&task) = self.by_tid.get(&change.tid) else { return Ok(()) };
        let image = self.tasks[task].image;
        self.images[image].living = self.images[image].living.saturating_sub(1);
        if let Some(thread) = self.tasks[task].thread {
            if self.images[image].living == 0
                && let Some(index) = self.images[image].index
            {
                // The recording has no exit status: this way of ending says none.
                out.put(thread, change.time, Event::ProcessEnd { index, by_exec: true, code: 0 })?;
            }
            out.put(thread, change.time, Event::ThreadEnd { index: thread })?;
        }
        self.by_tid.remove(&change.tid);
        if self.images[image].living == 0 {
            self.by_pid.remove(&self.images[image].pid);
        }
        Ok(())
    }

    /// A mapping of a process: a binary's, or memory.
    pub fn map(&mut self, out: &mut Output, mapping: &Mapping<'_>, time: u64) -> Result<(), SourceError> {
        const KERNEL: u32 = u32::MAX;
        if mapping.pid == KERNEL || mapping.len == 0 {
            return Ok(());
        }
        let image = self.image(mapping.pid, time);
        let path = String::from_utf8_lossy(mapping.path).into_owned();
        let is_file = path.starts_with('/') && !path.starts_with("//") && !path.starts_with("/SYSV");
        let inside = |module: &(String, Placed)| {
            mapping.addr >= module.1.start && mapping.addr - module.1.start < module.1.bytes
        };
        let module = self.images[image].modules.iter().rfind(|module| inside(module));
        let is_anonymous = path.starts_with("//anon") || path.is_empty();
        // A binary's further segments and its zeroed data are part of it.
        if module.is_some_and(|module| module.0 == path || is_anonymous) {
            return Ok(());
        }
        if is_file && mapping.is_executable {
            return self.map_binary(out, image, mapping, path, time);
        }
        if !is_file {
            self.images[image].anonymous.push((mapping.addr, mapping.len));
        }
        let shared = mapping.flags.is_some_and(|flags| flags & 1 != 0);
        let flags = [
            (is_anonymous, layout::MAP_ANONYMOUS),
            (shared, layout::MAP_SHARED),
            (mapping.is_executable, layout::MAP_EXEC),
            (path.starts_with("/SYSV"), layout::MAP_SHM),
        ];
        let event = Event::Map {
            address: VirtAddr(mapping.addr),
            bytes: mapping.len,
            flags: flags.into_iter().filter(|(set, _)| *set).fold(0, |all, (_, flag)| all | flag),
            file_offset: mapping.file_offset,
            path: if is_anonymous { String::new() } else { path },
            stack: numapilot_trace::ids::StackId(0),
        };
        self.tell(out, image, time, event)
    }

    fn map_binary(
        &mut self,
        out: &mut Output,
        image: usize,
        mapping: &Mapping<'_>,
        path: String,
        time: u64,
    ) -> Result<(), SourceError> {
        let build_id = match mapping.identity {
            FileIdentity::BuildId(id) => id.to_vec(),
            _ => self.build_ids.get(&path).cloned().unwrap_or_default(),
        };
        let placed = self.binaries.place(&path, &build_id, mapping.addr, mapping.len, mapping.file_offset);
        if self.images[image].exe.is_empty() {
            self.images[image].exe.clone_from(&path);
        }
        self.images[image].modules.push((path.clone(), placed));
        let id: ModuleId = out.new_module();
        let event = Event::Module {
            id,
            address: VirtAddr(placed.start),
            bytes: placed.bytes,
            bias: placed.bias,
            path,
            build_id,
        };
        self.tell(out, image, time, event)
    }

    /// Whether an address lies in memory that is no file's: there a page's first touch gives it its home, under the default policy.
    pub fn is_anonymous(&self, pid: u32, address: u64) -> bool {
        let image = self.by_pid.get(&pid).map(|&image| &self.images[image]);
        image.is_some_and(|image| {
            image.anonymous.iter().any(|&(start, bytes)| address >= start && address - start < bytes)
        })
    }
}
