/* numapilot.h: queries on a recorded program's memory accesses, for C11 and C++11. Link with -lnumapilot (pkg-config: numapilot).
 *
 * Generated from the library's sources: do not edit. docs/c-api.md is the manual, with complete programs. In short:
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
 * Rules: functions return NUMAPILOT_OK (0) or an error code, and numapilot_message() returns the error's message. No function ends the program. Handles are
 * numbers: a closed or invalid one gives NUMAPILOT_BAD_HANDLE. Texts are UTF-8, belong to the trace, and are valid until it is closed. Set `type_size` of
 * a struct to its sizeof before a call, so that programs and libraries of different versions work together. Any number of threads may read a trace; a
 * flow is for one thread at a time. After fork() the handles work in the parent and in the child. */

#ifndef NUMAPILOT_H
#define NUMAPILOT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
/* The Arrow C data and stream interfaces (arrow.apache.org/docs/format/CDataInterface.html), with the guards that the specification prescribes. */
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

// The handle is closed, or is not a handle of this kind.
#define NUMAPILOT_BAD_HANDLE 2

// The file does not exist, or cannot be read.
#define NUMAPILOT_IO 3

// The file is not a trace, is damaged, or has a newer format.
#define NUMAPILOT_BAD_TRACE 4

// There is no row with that number.
#define NUMAPILOT_NOT_FOUND 5

// Another thread is using this flow (one thread at a time may use a flow; any number may read a trace), or the trace is still being
// recorded.
#define NUMAPILOT_BUSY 6

// Too many traces or flows are open.
#define NUMAPILOT_TOO_MANY 7

// An internal error of the library: please report it with its message.
#define NUMAPILOT_INTERNAL 8

// Version of this header: 0.1.0.
#define NUMAPILOT_API_VERSION 256

// The time of an event that did not occur: the object or thread lived until the end of the recording.
#define NUMAPILOT_NEVER UINT64_MAX

// An object, thread, process or CPU that is not known.
#define NUMAPILOT_NONE UINT32_MAX

// A node that is not known.
#define NUMAPILOT_NO_NODE UINT16_MAX

// Which fields of a filter are conditions.
typedef enum numapilot_condition {
  // Compare `thread`.
  NUMAPILOT_CONDITION_THREAD = 1,
  // Compare `process`.
  NUMAPILOT_CONDITION_PROCESS = 2,
  // Compare `object`.
  NUMAPILOT_CONDITION_OBJECT = 4,
  // Compare `site`.
  NUMAPILOT_CONDITION_SITE = 8,
  // Compare `kind`.
  NUMAPILOT_CONDITION_KIND = 16,
  // Compare `node`.
  NUMAPILOT_CONDITION_NODE = 32,
  // Compare `home`.
  NUMAPILOT_CONDITION_HOME = 64,
  // Compare `is_write`.
  NUMAPILOT_CONDITION_WRITE = 128,
  // Compare `is_remote`.
  NUMAPILOT_CONDITION_REMOTE = 256,
} numapilot_condition;

// Kinds of objects.
typedef enum numapilot_kind {
  // A data symbol of a binary.
  NUMAPILOT_KIND_STATIC = 0,
  // A heap block; each allocation is an object.
  NUMAPILOT_KIND_HEAP = 1,
  // An anonymous mapping.
  NUMAPILOT_KIND_ANONYMOUS = 2,
  // Memory of an allocator that no block of the program covers.
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
  // A block of a pool that the program carries itself.
  NUMAPILOT_KIND_POOL = 9,
} numapilot_kind;

// Properties of an access, as bits.
typedef enum numapilot_access_flag {
  // It is a store or a read-modify-write.
  NUMAPILOT_ACCESS_FLAG_WRITE = 1,
  // It is an atomic operation.
  NUMAPILOT_ACCESS_FLAG_ATOMIC = 2,
  // It is part of a ranged operation, such as memcpy.
  NUMAPILOT_ACCESS_FLAG_RANGE = 4,
  // It is remote: node and home differ. If neither this bit nor `Local` is set, node or home is unknown.
  NUMAPILOT_ACCESS_FLAG_REMOTE = 8,
  // It is local: node and home are the same.
  NUMAPILOT_ACCESS_FLAG_LOCAL = 16,
} numapilot_access_flag;

// An open trace. The handle is a number: it may be copied, and must be closed once. `{0}` is no trace.
typedef struct numapilot_trace {
  // Opaque: only the library interprets it.
  uint64_t handle;
} numapilot_trace;

// Facts about a whole trace. Its texts are valid until the trace is closed.
typedef struct numapilot_info {
  // Set to sizeof(struct numapilot_info).
  size_t type_size;
  // Number of sampled accesses.
  uint64_t accesses;
  // Number of object instances.
  uint64_t objects;
  // Number of sites: the objects of a site come from one place in the source.
  uint64_t sites;
  // Number of threads.
  uint64_t threads;
  // Number of processes.
  uint64_t processes;
  // Number of call stacks; stack 0 is "unknown".
  uint64_t stacks;
  // Number of resolved code addresses; address 0 is "unknown".
  uint64_t locations;
  // Program time of the recording, in nanoseconds.
  uint64_t duration_ns;
  // One cache line in this many was simulated; 1: all.
  uint64_t line_sampling;
  // Number of records that were lost, each damaged or torn chunk counting as one: totals are lower bounds if this is not 0.
  uint64_t lost;
  // 1: the machine, page homes and program time are simulated, not measured.
  uint32_t is_simulated;
  // 1: its accesses are page faults, whose rates do not measure memory traffic.
  uint32_t holds_faults;
  // Engine that recorded it, such as "instrument".
  const char *engine;
  // Command line that was recorded.
  const char *command;
  // Name of the machine.
  const char *machine;
  // 1: the recorder was killed, so what came later is missing, and totals are lower bounds.
  uint32_t is_interrupted;
  // What its samples are evidence of. 0: memory accesses; 1: page faults; 2: neither. If it is not 0, no figure about accesses is known.
  uint32_t evidence;
} numapilot_info;

// An object instance, with what it shares with others of its site.
typedef struct numapilot_object {
  // Set to sizeof(struct numapilot_object).
  size_t type_size;
  // Its number, from 0.
  uint32_t object;
  // Number of its site.
  uint32_t site;
  // First address.
  uint64_t address;
  // Size in bytes.
  uint64_t bytes;
  // Program time of its birth in nanoseconds; 0: it existed when the recording began.
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
  // Name of its variable, symbol, file or section.
  const char *name;
  // Function that allocates it, or empty.
  const char *function;
  // Source file that allocates or declares it, or empty.
  const char *file;
  // Binary of that code or symbol, or empty.
  const char *module;
  // Its kind as a word, such as "heap".
  const char *kind_name;
  // Number of sampled accesses to it.
  uint64_t accesses;
} numapilot_object;

// A site: what the objects from one place in the source share.
typedef struct numapilot_site {
  // Set to sizeof(struct numapilot_site).
  size_t type_size;
  // Its number, from 0.
  uint32_t site;
  // One of enum numapilot_kind.
  uint16_t kind;
  // 0.
  uint16_t reserved;
  // As in numapilot_object.
  const char *name;
  // As in numapilot_object.
  const char *function;
  // As in numapilot_object.
  const char *file;
  // As in numapilot_object.
  const char *module;
  // As in numapilot_object.
  const char *kind_name;
  // As in numapilot_object.
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
  // The kernel's id of it.
  uint32_t tid;
  // Thread that created it, or NUMAPILOT_NONE.
  uint32_t parent;
  // CPU that it started on, or NUMAPILOT_NONE.
  uint32_t cpu;
  // Its stack as an object, or NUMAPILOT_NONE.
  uint32_t stack_object;
  // Node of that CPU, or NUMAPILOT_NO_NODE.
  uint16_t node;
  // 1: the engine counted the totals below; 0: it does not count, and they are 0.
  uint16_t has_totals;
  // 0.
  uint32_t reserved;
  // Program time of its start in nanoseconds.
  uint64_t start_ns;
  // Program time of its end, or NUMAPILOT_NEVER.
  uint64_t end_ns;
  // Its name, or empty.
  const char *name;
  // Its start function, or empty.
  const char *start_function;
  // Number of all its memory accesses, whether sampled or not.
  uint64_t memory_accesses;
  // How many of these are writes.
  uint64_t memory_writes;
  // Number of its sampled accesses.
  uint64_t accesses;
} numapilot_thread;

// A process.
typedef struct numapilot_process {
  // Set to sizeof(struct numapilot_process).
  size_t type_size;
  // Its number, from 0.
  uint32_t process;
  // The kernel's id of it.
  uint32_t pid;
  // Process that forked it or that it replaced, or NUMAPILOT_NONE.
  uint32_t parent;
  // 1: it replaced its parent by exec.
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

// Conditions on accesses: every one that is set must hold. Start with `NUMAPILOT_FILTER_ALL`, which every access passes.
typedef struct numapilot_filter {
  // Set to sizeof(struct numapilot_filter).
  size_t type_size;
  // Earliest program time, in nanoseconds.
  uint64_t from_ns;
  // Program time in nanoseconds before which accesses pass; 0: no limit.
  uint64_t to_ns;
  // Bits of enum numapilot_condition: which of the fields below are conditions.
  uint32_t conditions;
  // Number of the thread that made the access.
  uint32_t thread;
  // Number of the process of that thread.
  uint32_t process;
  // Number of the object instance.
  uint32_t object;
  // Number of the site of the object.
  uint32_t site;
  // Kind of the object: one of enum numapilot_kind; NUMAPILOT_KIND_UNKNOWN selects the accesses without an object.
  uint32_t kind;
  // Node of the CPU that made the access.
  uint16_t node;
  // Home node of the page.
  uint16_t home;
  // 1: stores only; 0: loads only.
  uint8_t is_write;
  // 1: remote only; 0: local only. Accesses to a page of unknown home pass neither.
  uint8_t is_remote;
  // 0.
  uint8_t reserved[2];
} numapilot_filter;

// An open flow. The handle is a number: it may be copied, and must be closed once. `{0}` is no flow. One thread at a time may advance a flow.
typedef struct numapilot_flow {
  // Opaque: only the library interprets it.
  uint64_t handle;
} numapilot_flow;

// One sampled access, 64 bytes. Later versions may only use the reserved bytes.
typedef struct numapilot_access {
  // Program time in nanoseconds.
  uint64_t time_ns;
  // Virtual address accessed.
  uint64_t address;
  // Memory accesses that all samples of its cache line represent: lines are sampled as a whole.
  double cluster;
  // Its row in the trace; rows are in order of time.
  uint32_t row;
  // Thread that made the access.
  uint32_t thread;
  // Object that was live at that address then, or NUMAPILOT_NONE.
  uint32_t object;
  // Number of the code address; 0: unknown.
  uint32_t location;
  // Number of the call stack; 0: unknown.
  uint32_t stack;
  // Number of memory accesses that the sample represents.
  uint32_t weight;
  // Latency in cycles as the hardware measured it, or NUMAPILOT_NONE.
  uint32_t latency_cycles;
  // CPU that executed it, or NUMAPILOT_NONE.
  uint32_t cpu;
  // Node of that CPU, or NUMAPILOT_NO_NODE.
  uint16_t node;
  // Home node of the page at that moment, or NUMAPILOT_NO_NODE.
  uint16_t home;
  // Bits of enum numapilot_access_flag.
  uint8_t flags;
  // Level that served it: 0 unknown, 1 L1, 2 L2, 3 L3, 4 memory, 5 another core's cache, 6 line-fill buffer.
  uint8_t level;
  // 0.
  uint8_t reserved[2];
} numapilot_access;

// A figure with its 95 % interval; the interval is a point if the figure was counted and not sampled.
typedef struct numapilot_estimate {
  // Best value.
  double value;
  // Lower end of the interval.
  double low;
  // Upper end of the interval.
  double high;
} numapilot_estimate;

// Figures over some accesses. Shares lie between 0 and 1. If `evidence` of numapilot_info is not 0, samples are counted and every estimate is NaN: unknown.
typedef struct numapilot_statistics {
  // Set to sizeof(struct numapilot_statistics).
  size_t type_size;
  // Samples that pass the filter.
  uint64_t samples;
  // How many of these are remote.
  uint64_t remote_samples;
  // How many of these are writes.
  uint64_t write_samples;
  // Memory accesses that the samples represent.
  struct numapilot_estimate accesses;
  // Share of these accesses that is remote, among those whose home is known. NaN if no home is known.
  struct numapilot_estimate remote;
  // Share of these accesses that writes. If no sample writes, `high` is the upper bound on that share.
  struct numapilot_estimate writes;
  // Their share of the trace's memory accesses.
  struct numapilot_estimate share;
} numapilot_statistics;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The message of the last failure on this thread: one line of English. Never null. Valid until the next failure on this thread.
const char *numapilot_message(void);

// Name of a code, such as `NUMAPILOT_BAD_HANDLE`; "unknown code" for another number. Never null.
const char *numapilot_code_name(int code);

// Version of the library, as `0xMMmmpp`; the header's is `NUMAPILOT_API_VERSION`.
uint32_t numapilot_version(void);

// Opens a trace: the folder NAME.numatrace that `numapilot record` wrote; the extension may be omitted. If its recorder was killed, this
// first writes the tables into the folder.
//
// Returns 0, or NUMAPILOT_IO, NUMAPILOT_BAD_TRACE, NUMAPILOT_BUSY (it is still being recorded), NUMAPILOT_BAD_ARGUMENT or NUMAPILOT_TOO_MANY;
// `*trace` is `{0}` then.
//
// # Safety
// `path` is null or a text that ends with a zero byte; `trace` is null or good for a write.
int numapilot_trace_open(const char *path, struct numapilot_trace *trace);

// Closes a trace. Its texts become invalid; open flows and streams keep the data that they need, and still work.
int numapilot_trace_close(struct numapilot_trace trace);

// Gets facts about the whole trace.
//
// # Safety
// `info` is null or points to a struct whose `type_size` is set.
int numapilot_trace_info(struct numapilot_trace trace, struct numapilot_info *info);

// Gets object number `object`, which is less than `objects` of numapilot_info.
//
// # Safety
// `row` is null or points to a struct whose `type_size` is set.
int numapilot_object_at(struct numapilot_trace trace, uint32_t object, struct numapilot_object *row);

// Gets site number `site`, which is less than `sites` of numapilot_info.
//
// # Safety
// `row` is null or points to a struct whose `type_size` is set.
int numapilot_site_at(struct numapilot_trace trace, uint32_t site, struct numapilot_site *row);

// Gets thread number `thread`, which is less than `threads` of numapilot_info.
//
// # Safety
// `row` is null or points to a struct whose `type_size` is set.
int numapilot_thread_at(struct numapilot_trace trace, uint32_t thread, struct numapilot_thread *row);

// Gets process number `process`, which is less than `processes` of numapilot_info.
//
// # Safety
// `row` is null or points to a struct whose `type_size` is set.
int numapilot_process_at(struct numapilot_trace trace, uint32_t process, struct numapilot_process *row);

// Gets a function at a code address: number `depth`, from 0 (the innermost inlined one) to the function that contains the code; NUMAPILOT_NOT_FOUND beyond.
//
// # Safety
// `frame` is null or points to a struct whose `type_size` is set.
int numapilot_frame_at(struct numapilot_trace trace,
                       uint32_t location,
                       size_t depth,
                       struct numapilot_frame *frame);

// Gets a call stack: up to `capacity` locations, innermost first; `*count` is how many it has, which may be more. Stack 0 is unknown and empty.
//
// # Safety
// `locations` is null or good for `capacity` writes; `count` is null or good for a write.
int numapilot_stack_at(struct numapilot_trace trace, uint32_t stack, uint32_t *locations, size_t capacity, size_t *count);

// Opens the flow of all accesses that pass the filter (null: all), in order of program time. With the condition `object` alone it is that
// object's Object Event Flow, with `thread` alone that thread's Thread Event Flow.
//
// # Safety
// `filter` is null or points to a struct whose `type_size` is set; `flow` is null or good for a write.
int numapilot_flow_open(struct numapilot_trace trace, const struct numapilot_filter *filter, struct numapilot_flow *flow);

// Writes the next accesses of the flow, up to `capacity`, to `rows`, and their number to `*count`; 0 at the end of the flow. `row_size` is
// sizeof(struct numapilot_access). Most programs use `numapilot_foreach` instead.
//
// # Safety
// `rows` is null or good for `capacity` rows; `count` is null or good for a write.
int numapilot_flow_next(struct numapilot_flow flow, struct numapilot_access *rows, size_t capacity, size_t row_size, size_t *count);

// Goes back to the beginning of the flow.
int numapilot_flow_rewind(struct numapilot_flow flow);

// Closes a flow. Its handle is invalid afterwards.
int numapilot_flow_close(struct numapilot_flow flow);

// Computes figures over the accesses that pass the filter (null: all). Cache hits, which hardware recordings may hold, are excluded, as in the report.
//
// # Safety
// `filter` is null or points to a struct whose `type_size` is set, and so is `statistics`.
int numapilot_statistics_of(struct numapilot_trace trace,
                            const struct numapilot_filter *filter,
                            struct numapilot_statistics *statistics);

// Exports the accesses that pass the filter (null: all) as an Arrow stream. The caller releases it, as the interface says.
//
// # Safety
// `filter` is null or points to a struct whose `type_size` is set; `stream` is null or good for a write.
int numapilot_export_accesses(struct numapilot_trace trace, const struct numapilot_filter *filter, ArrowArrayStream *stream);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* NUMAPILOT_H */


/* As all above: once, however often the file is included. */
#ifndef NUMAPILOT_INLINE_H
#define NUMAPILOT_INLINE_H

/* A filter without conditions: every access passes. */
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

/* State of numapilot_foreach, on the stack: a batch of accesses. */
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

/* Iterates over a flow from its current position to its end: `access` is a const numapilot_access *, valid until the next iteration. The loop also ends
 * when the flow gives an error; to detect that, call numapilot_batch_next() in a loop of your own and check `code`. */
#define numapilot_foreach(flow, access)                                                                                  \
  for (numapilot_batch numapilot_batch_of_##access = numapilot_batch_start(), *numapilot_once_##access = &numapilot_batch_of_##access; \
       numapilot_once_##access; numapilot_once_##access = NULL)                                                          \
    for (const numapilot_access *access; (access = numapilot_batch_next(numapilot_once_##access, flow)) != NULL;)

#endif  /* NUMAPILOT_INLINE_H */
