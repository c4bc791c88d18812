//! Processes and threads, from the kernel's side band.
//!
//! A process is written when it gets its first sample, or when a forked child of it does (which sees its memory): system-wide
//! recordings list every process of the machine. Until then its mappings wait. What a written process forks is written with it, as the join gives a child
//! the memory that its parent has at that moment.
//!
//! Where the tracker is loaded into programs, it announces threads itself ([`Announcement`]), and records more than the side band. Then
//! a thread's samples wait until it has been announced. A thread that is not announced for long ([`Tasks::settle`]) is
//! written from the side band.
//!
//! What they map is in `mappings`.
//!
//! Most processes of a machine end unwritten. Nothing is kept of them then, unless a child that they forked may still be written.

mod mappings;

use std::path::PathBuf;
use std::sync::Arc;

use foldhash::HashMap;
use numapilot_host::Pid;
use numapilot_host::Tid;
use numapilot_host::VirtAddr;
use numapilot_perf::TaskChange;
use numapilot_ranges::{Piece, RangeMap};
use numapilot_trace::chunk::ChunkError;
use numapilot_trace::ids::{ProcessIndex, ThreadIndex};
use numapilot_trace::record::Event;

use super::binaries::{Binaries, LoadedBinary};
use super::extents::Extents;
use super::files::Files;
use super::output::Output;
use super::shared::{Owner, SharedMemory};

/// A process image: from fork or exec to exec or the end.
#[derive(Debug, Default)]
struct Image {
    pid: Pid,
    parent: Option<usize>,
    by_exec: bool,
    exe: String,
    start: u64,
    index: Option<ProcessIndex>,
    /// The process has ended, or executed another image.
    has_ended: bool,
    /// It is written and has ended: its place is free once nothing needs it as a parent.
    is_over: bool,
    /// Its tasks: those that live, and those whose announcement may still come.
    tasks: Vec<usize>,
    /// Its thread that was written first.
    speaker: Option<ThreadIndex>,
    /// Images that it forked, or executed once it was written, and that are not written. Each would be written after this one.
    heirs: Vec<usize>,
    /// What happened to it before it was written.
    waiting: Vec<(u64, Event)>,
    modules: Vec<LoadedBinary>,
    /// End of the writable part of a binary's file that was mapped last, and the binary: what is mapped there next without a file is its zeroed data.
    data_end: Option<(u64, String)>,
    /// What is mapped, as far as it is known.
    owners: Arc<RangeMap<u64, Owner>>,
    /// The part of `owners` that was looked at last: most samples are in the same one as the sample before.
    last_owner: Option<Piece<u64, Owner>>,
    /// The mappings as they were made or grew.
    extents: Arc<Extents>,
    living: u32,
    /// Whether the tracker is loaded and records its lifecycle.
    is_tracked: bool,
    /// Address ranges of the tracker's code.
    tracker_code: Arc<RangeMap<u64, bool>>,
}

#[derive(Debug, Default)]
struct Task {
    tid: Tid,
    /// Tells it from others that had its place among the tasks; 0: the place is free.
    serial: u64,
    image: usize,
    /// Place and serial number of the task that created it.
    parent: Option<(usize, u64)>,
    /// That task's thread, once it has ended and nothing is kept of it.
    creator: Option<ThreadIndex>,
    start: u64,
    name: String,
    thread: Option<ThreadIndex>,
    /// Whether the tracker is loaded and records its lifecycle.
    is_tracked: bool,
    /// The tracker will send no more records about it.
    is_settled: bool,
}

/// A written process image that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EndedImage {
    /// Its number among all images, which another one may get from now on.
    pub image: usize,
    /// Its number in the trace.
    pub process: Option<ProcessIndex>,
    /// Its threads that had not ended before, and the one that was written first.
    pub threads: Vec<ThreadIndex>,
}

/// A thread that the tracker has announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// Process id.
    pub pid: Pid,
    /// Thread id.
    pub tid: Tid,
    /// Number of the thread in the trace.
    pub thread: ThreadIndex,
    /// Number of the process image in the trace.
    pub process: ProcessIndex,
    /// Order stamp from which the thread and all of its process's memory are known.
    pub ready: u64,
    /// Order stamp at which the recorder read the announcement; the kernel's records of the thread are older.
    pub seen: u64,
}

/// How a recording knows of processes.
#[derive(Clone, Debug, Default)]
pub struct TaskSource {
    /// Build ids of files, by path.
    pub build_ids: HashMap<String, Vec<u8>>,
    /// Where the `/proc` is that lists the processes; `None`: they ran elsewhere, or another time.
    pub root: Option<PathBuf>,
    /// Path of the tracker that is loaded into programs and announces their threads; `None`: none is.
    pub tracker: Option<String>,
    /// All mappings are known, so that memory outside them (a stack that grew) is the process's own.
    pub knows_all_mappings: bool,
    /// Records go on as they are written, not in order of their stamps: what a written process forks must be written at that moment.
    pub writes_forks: bool,
}

/// What is left to do when a process image is written, by its number.
enum Step {
    /// It is to be written, by this task of it, and its parent before.
    Begin(usize, usize),
    /// Its parent is written.
    Write(usize, usize),
    /// It is written; these, which it has forked, may not be.
    Forked(usize, std::vec::IntoIter<usize>),
}

/// All tasks of a recording: process images and their threads.
#[derive(Debug, Default)]
pub struct Tasks {
    images: Vec<Image>,
    tasks: Vec<Task>,
    /// Places of images and tasks of which nothing is kept.
    free_images: Vec<usize>,
    free_tasks: Vec<usize>,
    serial: u64,
    /// Written images that have ended since [`Tasks::ended`], and threads of images that have not.
    ended: Vec<usize>,
    ended_threads: Vec<ThreadIndex>,
    by_pid: HashMap<Pid, usize>,
    by_tid: HashMap<Tid, usize>,
    binaries: Binaries,
    /// The processes' files, where the processes run here.
    files: Option<Files>,
    shared: SharedMemory,
    known: TaskSource,
    /// Tasks whose announcement may still come, oldest first.
    unannounced: Vec<usize>,
}

impl Tasks {
    /// An empty list, with a source of what is known about tasks beside the records.
    pub fn new(known: TaskSource) -> Tasks {
        let files = known.root.as_deref().map(Files::new);
        Tasks { known, files, ..Tasks::default() }
    }

    fn image(&mut self, pid: Pid, time: u64) -> usize {
        if let Some(&image) = self.by_pid.get(&pid) {
            return image;
        }
        self.new_image(Image { pid, start: time, ..Image::default() })
    }

    fn new_image(&mut self, image: Image) -> usize {
        let pid = image.pid;
        let at = self.free_images.pop().unwrap_or(self.images.len());
        match self.images.get_mut(at) {
            Some(place) => *place = image,
            None => self.images.push(image),
        }
        // The record of another's end was lost.
        if let Some(old) = self.by_pid.insert(pid, at) {
            self.end(old);
        }
        at
    }

    fn new_task(&mut self, tid: Tid, image: usize, start: u64) -> usize {
        self.serial += 1;
        let task = Task { tid, serial: self.serial, image, start, is_settled: true, ..Task::default() };
        let at = self.free_tasks.pop().unwrap_or(self.tasks.len());
        match self.tasks.get_mut(at) {
            Some(place) => *place = task,
            None => self.tasks.push(task),
        }
        self.images[image].tasks.push(at);
        at
    }

    /// The living thread with these numbers, new if there was none.
    pub(crate) fn task(&mut self, pid: Pid, tid: Tid, time: u64) -> usize {
        let image = self.image(pid, time);
        if let Some(&task) = self.by_tid.get(&tid)
            && self.images[self.tasks[task].image].pid == pid
        {
            return task;
        }
        let task = self.new_task(tid, image, time);
        if self.known.tracker.is_some() {
            self.tasks[task].is_settled = false;
            self.unannounced.push(task);
        }
        self.by_tid.insert(tid, task);
        self.images[image].living += 1;
        task
    }

    /// Process of a thread that is known.
    pub(crate) fn pid_of(&self, tid: Tid) -> Option<Pid> {
        self.by_tid.get(&tid).map(|&task| self.images[self.tasks[task].image].pid)
    }

    /// The thread of a sample, written if it was not yet. `None`: the tracker may still announce it.
    pub(crate) fn thread(&mut self, out: &mut Output, task: usize) -> Result<Option<ThreadIndex>, ChunkError> {
        match self.tasks[task].thread {
            Some(thread) => Ok(Some(thread)),
            None if self.tasks[task].is_settled => self.written(out, task).map(Some),
            None => Ok(None),
        }
    }

    /// Number of a task's process image, among all images.
    pub(crate) fn image_of(&self, task: usize) -> usize {
        self.tasks[task].image
    }

    /// Process number of a task whose process is written.
    pub(crate) fn process(&self, task: usize) -> ProcessIndex {
        self.images[self.tasks[task].image].index.unwrap_or_default()
    }

    /// The tracker has announced a thread: the task gets its number. Returns the task.
    pub(crate) fn announce(&mut self, announced: &Announcement) -> usize {
        let Announcement { pid, tid, ready, .. } = *announced;
        let is_it = |&task: &usize| {
            let Task { tid: other, image, start, .. } = self.tasks[task];
            other == tid && self.images[image].pid == pid && start <= ready
        };
        // The child of vfork(2) or posix_spawn(3) is a task of its own until it executes its program, and the tracker announces the program alone: what
        // began last by then is it.
        let waiting = self.unannounced.iter().rposition(is_it);
        let task = match waiting {
            Some(at) => self.unannounced.remove(at),
            None => self.task(pid, tid, ready),
        };
        self.unannounced.retain(|&other| other != task);
        let state = &mut self.tasks[task];
        (state.thread, state.is_tracked, state.is_settled) = (Some(announced.thread), true, true);
        let image = &mut self.images[state.image];
        (image.index, image.is_tracked) = (Some(announced.process), true);
        image.speaker.get_or_insert(announced.thread);
        image.waiting = Vec::new();
        task
    }

    /// Waits no longer for the tracker's word on tasks that began before `limit`. Returns them.
    pub(crate) fn settle(&mut self, limit: u64) -> Vec<usize> {
        let tasks = &mut self.tasks;
        let count = self.unannounced.iter().position(|&task| tasks[task].start >= limit);
        let settled: Vec<usize> = self.unannounced.drain(..count.unwrap_or(self.unannounced.len())).collect();
        settled.iter().for_each(|&task| tasks[task].is_settled = true);
        settled
    }

    fn written(&mut self, out: &mut Output, task: usize) -> Result<ThreadIndex, ChunkError> {
        if let Some(thread) = self.tasks[task].thread {
            return Ok(thread);
        }
        let image = self.tasks[task].image;
        if self.images[image].index.is_none() {
            let before = out.waiting();
            self.write_image(out, image, task)?;
            out.sort(before);
        }
        match self.tasks[task].thread {
            Some(thread) => Ok(thread),
            None => self.write_thread(out, task, None),
        }
    }

    /// The task that created another, if anything is kept of it.
    fn creator(&self, task: usize) -> Option<usize> {
        let (creator, serial) = self.tasks[task].parent?;
        (self.tasks[creator].serial == serial).then_some(creator)
    }

    /// `forker`: the thread that created it, if nothing is known of its own creator.
    fn write_thread(
        &mut self,
        out: &mut Output,
        task: usize,
        forker: Option<ThreadIndex>,
    ) -> Result<ThreadIndex, ChunkError> {
        let creator = self.creator(task).and_then(|creator| self.tasks[creator].thread);
        let parent = creator.or(self.tasks[task].creator).or(forker);
        let Task { tid, image, start, ref name, .. } = self.tasks[task];
        let name = name.clone();
        let image = &mut self.images[image];
        let (start, thread) = (start.max(image.start), out.new_thread());
        image.speaker.get_or_insert(thread);
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

    /// Writes a process, its first thread, and what waited: behind the processes that it was forked from, where these are not written yet, and before those
    /// that it has forked, where they must be written at once. A line of processes may be as long as the recording, so nothing is recursive here.
    fn write_image(&mut self, out: &mut Output, image: usize, task: usize) -> Result<(), ChunkError> {
        let mut steps = vec![Step::Begin(image, task)];
        while let Some(step) = steps.pop() {
            match step {
                Step::Begin(image, task) => {
                    steps.push(Step::Write(image, task));
                    steps.extend(self.unwritten_parent(image, task).map(|(parent, task)| Step::Begin(parent, task)));
                }
                // It may have been written with its parent.
                Step::Write(image, _) if self.images[image].index.is_some() => {}
                Step::Write(image, task) => {
                    let forked = self.write_own(out, image, task)?;
                    steps.push(Step::Forked(image, forked.into_iter()));
                }
                Step::Forked(image, mut rest) => {
                    let Some(forked) = rest.next() else {
                        self.forget(image);
                        continue;
                    };
                    steps.push(Step::Forked(image, rest));
                    let Image { pid, start, index, has_ended, .. } = self.images[forked];
                    match (index, has_ended) {
                        (Some(_), _) => {}
                        (None, false) => {
                            let main = self.task(pid, Tid::first_of(pid), start);
                            steps.push(Step::Begin(forked, main));
                        }
                        // Its own children may still be written, and need this one.
                        (None, true) => self.images[image].heirs.push(forked),
                    }
                }
            }
        }
        Ok(())
    }

    /// The process that this one was forked from, if it is not written, and the task of it that did so, or any other.
    fn unwritten_parent(&mut self, image: usize, task: usize) -> Option<(usize, usize)> {
        let parent = self.images[image].parent.filter(|&parent| self.images[parent].index.is_none())?;
        let creator = self.creator(task).filter(|&creator| self.tasks[creator].image == parent);
        Some((parent, creator.unwrap_or_else(|| self.any_task(parent))))
    }

    /// Writes a process whose parent is written. Returns those that it has forked, where they must be written at once.
    fn write_own(&mut self, out: &mut Output, image: usize, task: usize) -> Result<Vec<usize>, ChunkError> {
        let parent = self.images[image].parent;
        let index = out.new_process();
        self.images[image].index = Some(index);
        // The main thread first, if it is known: others may have been its children.
        let pid = self.images[image].pid;
        let main = self.by_tid.get(&Tid::first_of(pid)).copied().filter(|&main| self.tasks[main].image == image);
        let main = main.unwrap_or(task);
        let forker = self.forker(out, image, main)?;
        let first = self.write_thread(out, main, forker)?;
        let parent_image = parent.map(|parent| &self.images[parent]);
        let (start, by_exec) = (self.images[image].start, self.images[image].by_exec);
        let event = Event::ProcessStart {
            index,
            pid,
            parent_pid: parent_image.map_or(Pid(0), |parent| parent.pid),
            parent: parent_image.and_then(|parent| parent.index),
            by_exec,
            exe: self.images[image].exe.clone(),
            arguments: Vec::new(),
        };
        out.put(first, start, event)?;
        for (time, event) in std::mem::take(&mut self.images[image].waiting) {
            out.put(first, time, event)?;
        }
        if let Some(parent) = parent {
            self.images[parent].heirs.retain(|&heir| heir != image);
            self.free_written(parent);
        }
        Ok(if self.known.writes_forks { std::mem::take(&mut self.images[image].heirs) } else { Vec::new() })
    }

    /// The thread that forked a process, whose first thread `first` is, written if it was not: the join knows by it that the process has its parent's memory.
    fn forker(&mut self, out: &mut Output, image: usize, first: usize) -> Result<Option<ThreadIndex>, ChunkError> {
        let Image { parent: Some(parent), by_exec: false, .. } = self.images[image] else { return Ok(None) };
        match self.creator(first).filter(|&creator| self.tasks[creator].image == parent) {
            Some(creator) if self.tasks[creator].thread.is_some() => Ok(self.tasks[creator].thread),
            Some(creator) if self.tasks[creator].is_settled => self.write_thread(out, creator, None).map(Some),
            // Any of the parent's threads does as well.
            _ => Ok(self.images[parent].speaker),
        }
    }

    /// A task of an image that is to be written. Of one that has ended there may be none.
    fn any_task(&mut self, image: usize) -> usize {
        let Image { pid, start, ref tasks, .. } = self.images[image];
        let first = Tid::first_of(pid);
        let main = tasks.iter().copied().find(|&task| self.tasks[task].tid == first);
        main.or(tasks.first().copied()).unwrap_or_else(|| self.new_task(first, image, start))
    }

    /// Writes an event of a process, or keeps it until the process is written.
    fn tell(&mut self, out: &mut Output, image: usize, time: u64, event: Event) -> Result<(), ChunkError> {
        if self.images[image].is_tracked {
            return Ok(());
        }
        let pid = self.images[image].pid;
        let on_behalf = || {
            let main = self.by_tid.get(&Tid::first_of(pid)).filter(|&&task| self.tasks[task].image == image);
            main.and_then(|&main| self.tasks[main].thread).or(self.images[image].speaker)
        };
        match self.images[image].index.and_then(|_| on_behalf()) {
            Some(thread) => out.put(thread, time, event),
            None => {
                self.images[image].waiting.push((time, event));
                Ok(())
            }
        }
    }

    /// A name, or with `by_exec` a new image.
    pub(crate) fn comm(
        &mut self,
        out: &mut Output,
        pid: Pid,
        tid: Tid,
        name: &[u8],
        by_exec: bool,
        time: u64,
    ) -> Result<(), ChunkError> {
        let name = String::from_utf8_lossy(name).into_owned();
        if by_exec {
            self.exec(out, pid, tid, time)?;
        }
        let task = self.task(pid, tid, time);
        self.tasks[task].name.clone_from(&name);
        match self.tasks[task].thread {
            Some(thread) if !self.tasks[task].is_tracked => out.put(thread, time, Event::ThreadName { name }),
            _ => Ok(()),
        }
    }

    fn exec(&mut self, out: &mut Output, pid: Pid, tid: Tid, time: u64) -> Result<(), ChunkError> {
        let old = self.by_pid.get(&pid).copied();
        let parent = old.filter(|&old| self.images[old].index.is_some());
        if let Some(old) = parent {
            let index = self.images[old].index.unwrap_or_default();
            // The caller's thread lives on under the main thread's number; all others are gone.
            for &task in &self.images[old].tasks {
                let Task { tid, thread, is_tracked, .. } = self.tasks[task];
                let is_own = !is_tracked && self.by_tid.get(&tid) == Some(&task);
                if let Some(index) = thread.filter(|_| is_own) {
                    out.put(index, time, Event::ThreadEnd { index })?;
                }
            }
            self.tell(out, old, time, Event::ProcessEnd { index, by_exec: true, code: 0 })?;
        }
        if let Some(old) = old {
            self.end(old);
        }
        let new = self.new_image(Image { pid, parent, by_exec: true, start: time, ..Image::default() });
        if let Some(parent) = parent {
            self.images[parent].heirs.push(new);
        }
        self.task(pid, tid, time);
        Ok(())
    }

    /// A new thread, or a new process.
    pub(crate) fn fork(&mut self, out: &mut Output, change: &TaskChange) -> Result<(), ChunkError> {
        let time = change.time;
        let parent = self.task(change.parent_pid, change.parent_tid, time);
        if change.pid != change.parent_pid {
            // perf's records of processes that were running already (at time 0) do not show inheritance: they may have executed others since.
            let inherits = (time > 0).then_some(self.tasks[parent].image);
            let copied = inherits.map(|parent| &self.images[parent]);
            let (owners, extents, tracker_code) = copied
                .map(|image| (image.owners.clone(), image.extents.clone(), image.tracker_code.clone()))
                .unwrap_or_default();
            let pid = change.pid;
            let forked =
                Image { pid, parent: inherits, start: time, owners, extents, tracker_code, ..Image::default() };
            let image = self.new_image(forked);
            if let Some(parent) = inherits {
                self.images[parent].heirs.push(image);
            }
        }
        self.by_tid.remove(&change.tid);
        let task = self.task(change.pid, change.tid, time);
        let is_forked = time > 0 || change.pid == change.parent_pid;
        self.tasks[task].parent = is_forked.then_some((parent, self.tasks[parent].serial));
        let is_of_written = self.images[self.tasks[parent].image].index.is_some();
        if self.known.writes_forks && is_forked && change.pid != change.parent_pid && is_of_written {
            self.written(out, task)?;
        }
        Ok(())
    }

    /// A thread's end, and that of its process if it was the last.
    pub(crate) fn exit(&mut self, out: &mut Output, change: &TaskChange) -> Result<(), ChunkError> {
        let Some(&task) = self.by_tid.get(&change.tid) else { return Ok(()) };
        let Task { image, thread, is_tracked, is_settled, .. } = self.tasks[task];
        self.images[image].living = self.images[image].living.saturating_sub(1);
        let is_last = self.images[image].living == 0;
        // Whichever thread ends last, with samples or without.
        if let Some(index) = self.images[image].index.filter(|_| is_last) {
            // The recording has no exit status: this way of ending says none.
            self.tell(out, image, change.time, Event::ProcessEnd { index, by_exec: true, code: 0 })?;
        }
        if let Some(index) = thread.filter(|_| !is_tracked) {
            out.put(index, change.time, Event::ThreadEnd { index })?;
        }
        self.by_tid.remove(&change.tid);
        if is_last {
            self.end(image);
        } else if is_settled {
            self.drop_task(task);
        }
        Ok(())
    }

    /// An image has ended: its process, or it executed another.
    fn end(&mut self, image: usize) {
        let Image { pid, ref tasks, .. } = self.images[image];
        for &task in tasks {
            let tid = self.tasks[task].tid;
            if self.by_tid.get(&tid) == Some(&task) {
                self.by_tid.remove(&tid);
            }
        }
        if self.by_pid.get(&pid) == Some(&image) {
            self.by_pid.remove(&pid);
        }
        self.images[image].has_ended = true;
        self.forget(image);
    }

    /// Drops what no record can need any more of an image, if it has ended, and of those that it was forked from.
    fn forget(&mut self, image: usize) {
        let mut next = Some(image);
        while let Some(image) = next.take() {
            if self.images[image].is_over {
                self.free_written(image);
                return;
            }
            let state = &mut self.images[image];
            // The tracker may still announce a thread, whose samples wait.
            let is_awaited = state.tasks.iter().any(|&task| !self.tasks[task].is_settled);
            let has_heirs = state.index.is_none() && !state.heirs.is_empty();
            if !state.has_ended || is_awaited || has_heirs {
                return;
            }
            let Image { pid, parent, by_exec, start, index, has_ended, speaker, is_tracked, .. } = *state;
            let old = std::mem::take(state);
            if index.is_some() {
                let (tasks, heirs) = (old.tasks, old.heirs);
                *state = Image {
                    pid,
                    parent,
                    by_exec,
                    start,
                    index,
                    has_ended,
                    is_over: true,
                    tasks,
                    heirs,
                    speaker,
                    is_tracked,
                    ..Image::default()
                };
                self.ended.push(image);
                return;
            }
            old.tasks.into_iter().for_each(|task| self.free_task(task));
            self.free_images.push(image);
            if let Some(parent) = parent {
                self.images[parent].heirs.retain(|&heir| heir != image);
                next = Some(parent);
            }
        }
    }

    /// The threads of an image that a task has created and that are not written keep its number.
    fn name_creator(&mut self, image: usize, task: usize, thread: ThreadIndex) {
        let parent = Some((task, self.tasks[task].serial));
        for &other in &self.images[image].tasks {
            let created = &mut self.tasks[other];
            if created.parent == parent && created.thread.is_none() {
                created.creator = Some(thread);
            }
        }
    }

    /// Threads that have ended since the last call, of processes that had not.
    pub(crate) fn ended_threads(&mut self) -> Vec<ThreadIndex> {
        std::mem::take(&mut self.ended_threads)
    }

    /// Keeps nothing of a thread that has ended while its process runs.
    fn drop_task(&mut self, task: usize) {
        let Task { image, thread, .. } = self.tasks[task];
        if let Some(index) = thread {
            self.name_creator(image, task, index);
            self.ended_threads.push(index);
        }
        self.images[image].tasks.retain(|&other| other != task);
        self.free_task(task);
    }

    fn free_task(&mut self, task: usize) {
        self.tasks[task] = Task::default();
        self.free_tasks.push(task);
    }

    /// Drops what is kept of a task that was unsettled, or of its image, if it has ended meanwhile. Nothing of the task may wait any more.
    pub(crate) fn settled(&mut self, task: usize) {
        let Task { tid, serial, image, .. } = self.tasks[task];
        if serial == 0 {
            return;
        }
        if self.images[image].has_ended {
            self.forget(image);
        } else if self.by_tid.get(&tid) != Some(&task) {
            self.drop_task(task);
        }
    }

    /// Gives the place of a written image that has ended to others, unless an image that is not written may still need it as its parent.
    fn free_written(&mut self, image: usize) {
        let state = &mut self.images[image];
        if !state.is_over || !state.heirs.is_empty() || self.ended.contains(&image) {
            return;
        }
        let old = std::mem::take(state);
        old.tasks.into_iter().for_each(|task| self.free_task(task));
        self.free_images.push(image);
    }

    /// Written process images that have ended since the last call.
    pub(crate) fn ended(&mut self) -> Vec<EndedImage> {
        let ended = std::mem::take(&mut self.ended);
        let mut told = Vec::with_capacity(ended.len());
        for image in ended {
            let Image { index, speaker, ref tasks, .. } = self.images[image];
            // What came of the process last may have been written on behalf of a thread that had ended long before.
            let threads = tasks.iter().filter_map(|&task| self.tasks[task].thread).chain(speaker).collect();
            told.push(EndedImage { image, process: index, threads });
            self.free_written(image);
        }
        told
    }

    /// Numbers of images and tasks of which something is kept, and of what else is kept of them.
    #[cfg(test)]
    pub(crate) fn kept(&self) -> (usize, usize, usize) {
        let of = |image: &Image| image.waiting.len() + image.modules.len() + image.owners.len() + image.heirs.len();
        let images = self.images.len() - self.free_images.len();
        (images, self.tasks.len() - self.free_tasks.len(), self.images.iter().map(of).sum())
    }
}
