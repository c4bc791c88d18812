/* numapilot.h: questions about a recorded program's memory accesses, in C11 and C++11. Link with -lnumapilot (pkg-config: numapilot).
 *
 * Made from the library's sources: do not edit. docs/c-api.md explains, with complete programs. In short:
 *
 *     numapilot_trace trace;
 *     if (numapilot_trace_open("program.numatrace", &trace) != NUMAPILOT_OK) errx(1, "%s", numapilot_message());
 *     numapilot_filter filter = NUMAPILOT_FILTER_ALL;
 *     filter.conditions = NUMAPILOT_CONDITION_OBJECT;
 *     filter.object = 17;
 *     numapilot_flow flow;                                     // the Object Event Flow of object 17
 *     if (numapilot_flow_open(trace, &filter, &flow) != NUMAPILOT_OK) errx(1, "%s", numapilot_message());
 *     numapilot_foreach (flow, access)
 *         printf("%llu ns: thread %u\n", (unsigned long long)access->time_ns, access->thread);
 *     numapilot_flow_close(flow);
 *     numapilot_trace_close(trace);
 *
 * Rules: functions return NUMAPILOT_OK (0) or another code, and numapilot_message() says more. None ends the program. Handles are numbers: a closed or
 * made-up one is NUMAPILOT_BAD_HANDLE. Texts are UTF-8, belong to the trace, and stay until it is closed. Set `type_size` of a struct to its sizeof before
 * a call: so programs and libraries of different versions understand each other. Any number of threads may read a trace; a flow belongs to
 * one thread at a time. After fork() parent and child both go on. */

#ifndef NUMAPILOT_H
#define NUMAPILOT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
/* The Arrow C data and stream interfaces (arrow.apache.org/docs/format/CDataInterface.html), as every header that has them defines them. */
#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE
struct ArrowSchema {
  const char *format;
  const char *name;
  const char *metadata;
  int64_t flags;
  int64_t n_children;
  struct ArrowSchema **children;
  struct ArrowSchema *dictionary;
  void (*release)(struct ArrowSchema *);
  void *private_data;
};
struct ArrowArray {
  int64_t length;
  int64_t null_count;
  int64_t offset;
  int64_t n_buffers;
  int64_t n_children;
  const void **buffers;
  struct ArrowArray **children;
  struct ArrowArray *dictionary;
  void (*release)(struct ArrowArray *);
  void *private_data;
};
#endif
#ifndef ARROW_C_STREAM_INTERFACE
#define ARROW_C_STREAM_INTERFACE
struct ArrowArrayStream {
  int (*get_schema)(struct ArrowArrayStream *, struct ArrowSchema *out);
  int (*get_next)(struct ArrowArrayStream *, struct ArrowArray *out);
  const char *(*get_last_error)(struct ArrowArrayStream *);
  void (*release)(struct ArrowArrayStream *);
  void *private_data;
};
#endif
#ifndef __cplusplus
typedef struct ArrowArrayStream ArrowArrayStream;
#endif


// No error.
#define NUMAPILOT_OK 0

// An argument is null, out of range, or of a wrong size.
#define NUMAPILOT_BAD_ARGUMENT 1

// The handle was closed, or never was one of this kind.
#define NUMAPILOT_BAD_HANDLE 2

// The file is not there, or cannot be read.
#define NUMAPILOT_IO 3

// The file is no trace, is damaged, or is of a later version.
#define NUMAPILOT_BAD_TRACE 4

// There is no row of that number.
#define NUMAPILOT_NOT_FOUND 5

// Another thread is using this flow at this moment (a flow belongs to one thread at a time; a trace may be read by all), or the trace is still being
// recorded.
#define NUMAPILOT_BUSY 6

// Too many traces or flows are open.
#define NUMAPILOT_TOO_MANY 7

// A mistake inside of the library; its message says where. Please report it.
#define NUMAPILOT_INTERNAL 8

// Version of this header: 0.1.0.
#define NUMAPILOT_API_VERSION 256

// A time that never came: the object or thread lived until the end.
#define NUMAPILOT_NEVER UINT64_MAX

// An object, thread, process or CPU that is not known.
#define NUMAPILOT_NONE UINT32_MAX

// A node that is not known.
#define NUMAPILOT_NO_NODE UINT16_MAX

// Which fields of a filter count.
typedef enum numapilot_condition {
  // `thread`.
  NUMAPILOT_CONDITION_THREAD = 1,
  // `process`.
  NUMAPILOT_CONDITION_PROCESS = 2,
  // `object`.
  NUMAPILOT_CONDITION_OBJECT = 4,
  // `site`.
  NUMAPILOT_CONDITION_SITE = 8,
  // `kind`.
  NUMAPILOT_CONDITION_KIND = 16,
  // `node`.
  NUMAPILOT_CONDITION_NODE = 32,
  // `home`.
  NUMAPILOT_CONDITION_HOME = 64,
  // `is_write`.
  NUMAPILOT_CONDITION_WRITE = 128,
  // `is_remote`.
  NUMAPILOT_CONDITION_REMOTE = 256,
} numapilot_condition;

// Kinds of objects.
typedef enum numapilot_kind {
  // A data symbol of a binary.
  NUMAPILOT_KIND_STATIC = 0,
  // A heap block; each instance apart.
  NUMAPILOT_KIND_HEAP = 1,
  // An anonymous mapping.
  NUMAPILOT_KIND_ANONYMOUS = 2,
  // An allocator's own memory, where no block of the program covers it.
  NUMAPILOT_KIND_ALLOCATOR = 3,
  // A mapped file.
  NUMAPILOT_KIND_FILE = 4,
  // A section of a binary: code, PLT, GOT, read-only data.
  NUMAPILOT_KIND_SECTION = 5,
  // A thread's stack.
  NUMAPILOT_KIND_STACK = 6,
  // Shared memory.
  NUMAPILOT_KIND_SHARED = 7,
  // No object is known.
  NUMAPILOT_KIND_UNKNOWN = 8,
} numapilot_kind;

// What an access was.
typedef enum numapilot_access_flag {
  // A store or read-modify-write.
  NUMAPILOT_ACCESS_FLAG_WRITE = 1,
  // An atomic operation.
  NUMAPILOT_ACCESS_FLAG_ATOMIC = 2,
  // Part of a ranged operation, such as memcpy.
  NUMAPILOT_ACCESS_FLAG_RANGE = 4,
  // It crossed nodes. Neither this nor `Local`: node or home is unknown.
  NUMAPILOT_ACCESS_FLAG_REMOTE = 8,
  // It stayed on its node.
  NUMAPILOT_ACCESS_FLAG_LOCAL = 16,
} numapilot_access_flag;

// An open trace. A number: copy it as you like, close it once. `{0}` is none.
typedef struct numapilot_trace {
  // Of no meaning but to the library.
  uint64_t handle;
} numapilot_trace;

// What a trace is as a whole. Texts stay until the trace is closed.
typedef struct numapilot_info {
  // Set to sizeof(struct numapilot_info).
  size_t type_size;
  // Sampled accesses.
  uint64_t accesses;
  // Object instances.
  uint64_t objects;
  // Sites: what objects from one place in the source share.
  uint64_t sites;
  // Threads.
  uint64_t threads;
  // Processes.
  uint64_t processes;
  // Call stacks; number 0 is "unknown".
  uint64_t stacks;
  // Resolved code addresses; number 0 is "unknown".
  uint64_t locations;
  // Program time of the recording, in nanoseconds.
  uint64_t duration_ns;
  // One cache line in so many was simulated; 1: all.
  uint64_t line_sampling;
  // Records that were lost: totals are lower bounds if this is not 0.
  uint64_t lost;
  // 1: the machine, page homes and program time are simulated, not measured.
  uint32_t is_simulated;
  // 1: its accesses are page faults, whose rates say nothing of memory traffic.
  uint32_t holds_faults;
  // Engine that recorded it, such as "instrument".
  const char *engine;
  // Command line that was recorded.
  const char *command;
  // Name of the machine.
  const char *machine;
} numapilot_info;

// An object instance, with what it shares with others of its site.
typedef struct numapilot_object {
  // Set to sizeof(struct numapilot_object).
  size_t type_size;
  // Its number.
  uint32_t object;
  // Number of its site.
  uint32_t site;
  // First address.
  uint64_t address;
  // Size in bytes.
  uint64_t bytes;
  // Program time of its birth in nanoseconds; 0: it was there when the recording began.
  uint64_t birth_ns;
  // Program time of its death, or NUMAPILOT_NEVER.
  uint64_t death_ns;
  // Thread that allocated it, or NUMAPILOT_NONE.
  uint32_t thread;
  // CPU of that thread then, or NUMAPILOT_NONE.
  uint32_t cpu;
  // Process in which it was born.
  uint32_t process;
  // Call stack of the allocation; 0: unknown.
  uint32_t stack;
  // Node of that CPU, or NUMAPILOT_NO_NODE.
  uint16_t node;
  // One of enum numapilot_kind.
  uint16_t kind;
  // Line in `file`, or 0.
  uint32_t line;
  // The name that people know: of the variable, symbol, file or section.
  const char *name;
  // Function that allocates it, or empty.
  const char *function;
  // Source file that allocates or declares it, or empty.
  const char *file;
  // Binary of that code or symbol, or empty.
  const char *module;
  // Its kind in a word, such as "heap".
  const char *kind_name;
  // Sampled accesses to it.
  uint64_t accesses;
} numapilot_object;

// What objects from one place in the source share.
typedef struct numapilot_site {
  // Set to sizeof(struct numapilot_site).
  size_t type_size;
  // Its number.
  uint32_t site;
  // One of enum numapilot_kind.
  uint16_t kind;
  // 0.
  uint16_t reserved;
  // As of an object.
  const char *name;
  // As of an object.
  const char *function;
  // As of an object.
  const char *file;
  // As of an object.
  const char *module;
  // As of an object.
  const char *kind_name;
  // As of an object.
  uint32_t line;
  // 0.
  uint32_t reserved_too;
} numapilot_site;

// A thread.
typedef struct numapilot_thread {
  // Set to sizeof(struct numapilot_thread).
  size_t type_size;
  // Its number, in order of creation.
  uint32_t thread;
  // Number of its process.
  uint32_t process;
  // The kernel's id.
  uint32_t tid;
  // Thread that created it, or NUMAPILOT_NONE.
  uint32_t parent;
  // CPU that it started on, or NUMAPILOT_NONE.
  uint32_t cpu;
  // Its stack as an object, or NUMAPILOT_NONE.
  uint32_t stack_object;
  // Node of that CPU, or NUMAPILOT_NO_NODE.
  uint16_t node;
  // 1: its totals below were counted, not estimated; 0: the engine does not count, and they are 0.
  uint16_t has_totals;
  // 0.
  uint32_t reserved;
  // Program time of its start in nanoseconds.
  uint64_t start_ns;
  // Program time of its end, or NUMAPILOT_NEVER.
  uint64_t end_ns;
  // Its name, or empty.
  const char *name;
  // Function that it began in, or empty.
  const char *start_function;
  // Memory accesses that it made: all of them, not the sampled ones.
  uint64_t memory_accesses;
  // How many of them wrote.
  uint64_t memory_writes;
  // Sampled accesses that it made.
  uint64_t accesses;
} numapilot_thread;

// A process.
typedef struct numapilot_process {
  // Set to sizeof(struct numapilot_process).
  size_t type_size;
  // Its number.
  uint32_t process;
  // The kernel's id.
  uint32_t pid;
  // Process that made it, or NUMAPILOT_NONE.
  uint32_t parent;
  // 1: it began by exec in its parent's place.
  uint32_t by_exec;
  // Program time of its start in nanoseconds.
  uint64_t start_ns;
  // Program time of its end, or NUMAPILOT_NEVER.
  uint64_t end_ns;
  // Path of its executable.
  const char *executable;
  // Its command line.
  const char *command;
} numapilot_process;

// One function at a code address.
typedef struct numapilot_frame {
  // Set to sizeof(struct numapilot_frame).
  size_t type_size;
  // Demangled name; for an address that could not be resolved, `module+0xoffset`.
  const char *function;
  // Source file, or empty.
  const char *file;
  // Path of the binary, or empty.
  const char *module;
  // Offset of the address in the binary.
  uint64_t offset;
  // Line in `file`, or 0.
  uint32_t line;
  // 1: it was inlined into the next frame of the same location.
  uint32_t is_inlined;
} numapilot_frame;

// Conditions on accesses: every one that is set must hold. Begin with `NUMAPILOT_FILTER_ALL`, which lets all pass.
typedef struct numapilot_filter {
  // Set to sizeof(struct numapilot_filter).
  size_t type_size;
  // Program time in nanoseconds from which on.
  uint64_t from_ns;
  // Program time before which; 0: until the end.
  uint64_t to_ns;
  // Bits of enum numapilot_condition: which of the fields below count.
  uint32_t conditions;
  // Thread.
  uint32_t thread;
  // Process.
  uint32_t process;
  // Object instance.
  uint32_t object;
  // Site of the object.
  uint32_t site;
  // Kind of the object: one of enum numapilot_kind; NUMAPILOT_KIND_UNKNOWN takes the accesses without an object.
  uint32_t kind;
  // Node of the CPU that made the access.
  uint16_t node;
  // Home node of the page.
  uint16_t home;
  // 1: stores only; 0: loads only.
  uint8_t is_write;
  // 1: remote only; 0: local only. Accesses of unknown home are neither.
  uint8_t is_remote;
  // 0.
  uint8_t reserved[2];
} numapilot_filter;

// An open flow. A number: copy it as you like, close it once. `{0}` is none. One thread at a time may advance it.
typedef struct numapilot_flow {
  // Of no meaning but to the library.
  uint64_t handle;
} numapilot_flow;

// One sampled access. 64 bytes; later versions only give meaning to what is reserved.
typedef struct numapilot_access {
  // Program time in nanoseconds.
  uint64_t time_ns;
  // Address.
  uint64_t address;
  // Memory accesses that all samples of its cache line stand for: lines are sampled as a whole.
  double cluster;
  // Its row in the trace; rows are in order of time.
  uint32_t row;
  // Thread that made it.
  uint32_t thread;
  // Object that was live at that address then, or NUMAPILOT_NONE.
  uint32_t object;
  // Code address; 0: unknown.
  uint32_t location;
  // Call stack; 0: unknown.
  uint32_t stack;
  // Memory accesses that it stands for.
  uint32_t weight;
  // Latency in cycles as the hardware measured it, or NUMAPILOT_NONE.
  uint32_t latency_cycles;
  // CPU, or NUMAPILOT_NONE.
  uint32_t cpu;
  // Node of that CPU, or NUMAPILOT_NO_NODE.
  uint16_t node;
  // Home node of the page at that moment, or NUMAPILOT_NO_NODE.
  uint16_t home;
  // Bits of enum numapilot_access_flag.
  uint8_t flags;
  // Level that answered: 0 unknown, 1 L1, 2 L2, 3 L3, 4 memory, 5 another core's cache, 6 line-fill buffer.
  uint8_t level;
  // 0.
  uint8_t reserved[2];
} numapilot_access;

// A figure with its 95 % interval; a point where nothing was left out.
typedef struct numapilot_estimate {
  // Best value.
  double value;
  // Lower end of the interval.
  double low;
  // Upper end of the interval.
  double high;
} numapilot_estimate;

// Figures over some accesses. Shares lie between 0 and 1.
typedef struct numapilot_statistics {
  // Set to sizeof(struct numapilot_statistics).
  size_t type_size;
  // Samples that passed.
  uint64_t samples;
  // How many of these crossed nodes.
  uint64_t remote_samples;
  // How many of these wrote.
  uint64_t write_samples;
  // Memory accesses that they stand for.
  struct numapilot_estimate accesses;
  // Share of them that is remote, of all whose home is known.
  struct numapilot_estimate remote;
  // Share of them that writes. Of 0 samples that write, `high` is the bound on what "read-only" can mean.
  struct numapilot_estimate writes;
  // Share of the trace's memory accesses that they are.
  struct numapilot_estimate share;
} numapilot_statistics;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// What the last function that failed on this thread said, in English, one line. Never null. Valid until the next failure on this thread.
const char *numapilot_message(void);

// The name of a code, such as `NUMAPILOT_BAD_HANDLE`; never null.
const char *numapilot_code_name(int code);

// Version of the library, as `0xMMmmpp`; the header's is `NUMAPILOT_API_VERSION`.
uint32_t numapilot_version(void);

// Opens a trace: the folder NAME.numatrace that `numapilot record` wrote; the ending may be left out. If its recorder was killed, the
// tables are made first, in the folder.
//
// Returns 0, or NUMAPILOT_IO, NUMAPILOT_BAD_TRACE, NUMAPILOT_BUSY (it is still being recorded), NUMAPILOT_BAD_ARGUMENT or NUMAPILOT_TOO_MANY;
// `*trace` is `{0}` then.
//
// # Safety
// `path` is null or a text that ends with a zero byte; `trace` is null or good for a write.
int numapilot_trace_open(const char *path, struct numapilot_trace *trace);

// Closes a trace. Texts and rows of it are gone; flows that are open keep what they need and go on.
int numapilot_trace_close(struct numapilot_trace trace);

// What the trace is as a whole.
//
// # Safety
// `info` is null or points to a struct whose `type_size` is set.
int numapilot_trace_info(struct numapilot_trace trace, struct numapilot_info *info);

// Object number `object`, from 0 up to the trace's `objects`.
//
// # Safety
// `row` is null or points to a struct whose `type_size` is set.
int numapilot_object_at(struct numapilot_trace trace, uint32_t object, struct numapilot_object *row);

// Site number `site`, from 0 up to the trace's `sites`.
//
// # Safety
// `row` is null or points to a struct whose `type_size` is set.
int numapilot_site_at(struct numapilot_trace trace, uint32_t site, struct numapilot_site *row);

// Thread number `thread`, from 0 up to the trace's `threads`.
//
// # Safety
// `row` is null or points to a struct whose `type_size` is set.
int numapilot_thread_at(struct numapilot_trace trace, uint32_t thread, struct numapilot_thread *row);

// Process number `process`, from 0 up to the trace's `processes`.
//
// # Safety
// `row` is null or points to a struct whose `type_size` is set.
int numapilot_process_at(struct numapilot_trace trace, uint32_t process, struct numapilot_process *row);

// Functions at a code address: number `depth`, from 0 (the innermost inlined one) up to the one that has the code. NUMAPILOT_NOT_FOUND beyond.
//
// # Safety
// `frame` is null or points to a struct whose `type_size` is set.
int numapilot_frame_at(struct numapilot_trace trace, uint32_t location, size_t depth, struct numapilot_frame *frame);

// A call stack: up to `capacity` locations, innermost first; `*count` is how many it has, which may be more. Stack 0 is unknown and empty.
//
// # Safety
// `locations` is null or good for `capacity` writes; `count` is null or good for a write.
int numapilot_stack_at(struct numapilot_trace trace, uint32_t stack, uint32_t *locations, size_t capacity, size_t *count);

// Opens the flow of all accesses that pass the filter (null: all), in order of program time. With `object` alone it is that object's Object
// Event Flow, with `thread` alone that thread's Thread Event Flow.
//
// # Safety
// `filter` is null or points to a struct whose `type_size` is set; `flow` is null or good for a write.
int numapilot_flow_open(struct numapilot_trace trace, const struct numapilot_filter *filter, struct numapilot_flow *flow);

// The next accesses of the flow, up to `capacity`: `*count` of them are in `rows`; 0: the flow is at its end. `row_size` is sizeof(struct
// numapilot_access). Most programs use `numapilot_foreach` instead.
//
// # Safety
// `rows` is null or good for `capacity` rows; `count` is null or good for a write.
int numapilot_flow_next(struct numapilot_flow flow, struct numapilot_access *rows, size_t capacity, size_t row_size, size_t *count);

// Goes back to the beginning of the flow.
int numapilot_flow_rewind(struct numapilot_flow flow);

// Closes a flow.
int numapilot_flow_close(struct numapilot_flow flow);

// Figures over the accesses that pass the filter (null: all). Hits in caches, which recordings of hardware may hold, are left out as in the report.
//
// # Safety
// `filter` is null or points to a struct whose `type_size` is set, and so is `statistics`.
int numapilot_statistics_of(struct numapilot_trace trace, const struct numapilot_filter *filter, struct numapilot_statistics *statistics);

// Exports the accesses that pass the filter (null: all) as an Arrow stream. The caller releases it, as the interface says.
//
// # Safety
// `filter` is null or points to a struct whose `type_size` is set; `stream` is null or good for a write.
int numapilot_export_accesses(struct numapilot_trace trace, const struct numapilot_filter *filter, ArrowArrayStream *stream);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* NUMAPILOT_H */


/* A filter that lets all pass. */
#ifdef __cplusplus
#define NUMAPILOT_FILTER_ALL (numapilot_filter_all())
static inline numapilot_filter numapilot_filter_all(void) {
  numapilot_filter filter = numapilot_filter();
  filter.type_size = sizeof filter;
  return filter;
}
#else
#define NUMAPILOT_FILTER_ALL ((numapilot_filter){.type_size = sizeof(numapilot_filter)})
#endif

/* What numapilot_foreach keeps on the stack: accesses are handed out many at a time. */
typedef struct numapilot_batch {
  size_t at, count;
  int code;
  numapilot_access rows[128];
} numapilot_batch;

static inline numapilot_batch numapilot_batch_start(void) {
  numapilot_batch batch;
  memset(&batch, 0, sizeof batch);
  return batch;
}

static inline const numapilot_access *numapilot_batch_next(numapilot_batch *batch, numapilot_flow flow) {
  if (batch->at == batch->count) {
    batch->at = batch->count = 0;
    batch->code = numapilot_flow_next(flow, batch->rows, sizeof batch->rows / sizeof batch->rows[0], sizeof batch->rows[0], &batch->count);
    if (batch->code != NUMAPILOT_OK || batch->count == 0) return NULL;
  }
  return &batch->rows[batch->at++];
}

/* Walks a flow from where it is to its end: `access` is a const numapilot_access * that is good until the next turn. Ends early, too, when the
 * flow cannot be used; where that matters, call numapilot_batch_next() in a loop of your own and look at `code`. */
#define numapilot_foreach(flow, access)                                                                                  \
  for (numapilot_batch numapilot_batch_of_##access = numapilot_batch_start(), *numapilot_once_##access = &numapilot_batch_of_##access; \
       numapilot_once_##access; numapilot_once_##access = NULL)                                                          \
    for (const numapilot_access *access; (access = numapilot_batch_next(numapilot_once_##access, flow)) != NULL;)
