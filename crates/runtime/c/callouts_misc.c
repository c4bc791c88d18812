/* callouts_misc.c: entry points that record nothing, but must exist: compilers emit them, or programs built for a thread
 * sanitizer call them (they see __SANITIZE_THREAD__, or declare the functions themselves).
 *
 * Those of the sanitizer's public interface are weak: a program that brings its own keeps it. */
#include "callouts.h"

#define NP_NOTHING(name, parameters) \
    NP_ENTRY void name parameters {}
#define NP_WEAK_NOTHING(name, parameters) \
    NP_ENTRY __attribute__((weak)) void name parameters {}

#pragma GCC diagnostic ignored "-Wunused-parameter"

/* ---- emitted by compilers ---- */
NP_NOTHING(__tsan_init, (void))
NP_NOTHING(__tsan_func_entry, (void *caller))
NP_NOTHING(__tsan_func_exit, (void))
NP_NOTHING(__tsan_ignore_thread_begin, (void))
NP_NOTHING(__tsan_ignore_thread_end, (void))

/* ---- the sanitizer's public interface ---- */
NP_WEAK_NOTHING(__tsan_acquire, (void *address))
NP_WEAK_NOTHING(__tsan_release, (void *address))
NP_WEAK_NOTHING(__tsan_flush_memory, (void))
NP_WEAK_NOTHING(__tsan_mutex_create, (void *mutex, unsigned flags))
NP_WEAK_NOTHING(__tsan_mutex_destroy, (void *mutex, unsigned flags))
NP_WEAK_NOTHING(__tsan_mutex_pre_lock, (void *mutex, unsigned flags))
NP_WEAK_NOTHING(__tsan_mutex_post_lock, (void *mutex, unsigned flags, int recursion))
NP_WEAK_NOTHING(__tsan_mutex_post_unlock, (void *mutex, unsigned flags))
NP_WEAK_NOTHING(__tsan_mutex_pre_signal, (void *mutex, unsigned flags))
NP_WEAK_NOTHING(__tsan_mutex_post_signal, (void *mutex, unsigned flags))
NP_WEAK_NOTHING(__tsan_mutex_pre_divert, (void *mutex, unsigned flags))
NP_WEAK_NOTHING(__tsan_mutex_post_divert, (void *mutex, unsigned flags))
NP_WEAK_NOTHING(__tsan_external_register_header, (void *tag, const char *header))
NP_WEAK_NOTHING(__tsan_external_assign_tag, (void *address, void *tag))
NP_WEAK_NOTHING(__tsan_external_read, (void *address, void *caller, void *tag))
NP_WEAK_NOTHING(__tsan_external_write, (void *address, void *caller, void *tag))
NP_WEAK_NOTHING(__tsan_destroy_fiber, (void *fiber))
NP_WEAK_NOTHING(__tsan_switch_to_fiber, (void *fiber, unsigned flags))
NP_WEAK_NOTHING(__tsan_set_fiber_name, (void *fiber, const char *name))

/* The number of recursive locks given up: none that we know of. */
NP_ENTRY __attribute__((weak)) int __tsan_mutex_pre_unlock(void *mutex, unsigned flags) { return 0; }
NP_ENTRY __attribute__((weak)) void *__tsan_external_register_tag(const char *name) { return (void *)1; }

/* Fibers: one value that is not NULL will do, as nothing is kept per fiber. Stacks are unwound from the registers at each sample. */
static char one_fiber;
NP_ENTRY __attribute__((weak)) void *__tsan_get_current_fiber(void) { return &one_fiber; }
NP_ENTRY __attribute__((weak)) void *__tsan_create_fiber(unsigned flags) { return &one_fiber; }

/* ---- dynamic annotations, the older interface ---- */
NP_WEAK_NOTHING(AnnotateHappensBefore, (const char *file, int line, const volatile void *address))
NP_WEAK_NOTHING(AnnotateHappensAfter, (const char *file, int line, const volatile void *address))
NP_WEAK_NOTHING(AnnotateCondVarSignal, (const char *file, int line, const volatile void *address))
NP_WEAK_NOTHING(AnnotateCondVarSignalAll, (const char *file, int line, const volatile void *address))
NP_WEAK_NOTHING(AnnotateCondVarWait, (const char *file, int line, const volatile void *address, const volatile void *lock))
NP_WEAK_NOTHING(AnnotateMutexIsNotPHB, (const char *file, int line, const volatile void *address))
NP_WEAK_NOTHING(AnnotateMutexIsUsedAsCondVar, (const char *file, int line, const volatile void *address))
NP_WEAK_NOTHING(AnnotateRWLockCreate, (const char *file, int line, const volatile void *lock))
NP_WEAK_NOTHING(AnnotateRWLockCreateStatic, (const char *file, int line, const volatile void *lock))
NP_WEAK_NOTHING(AnnotateRWLockDestroy, (const char *file, int line, const volatile void *lock))
NP_WEAK_NOTHING(AnnotateRWLockAcquired, (const char *file, int line, const volatile void *lock, long is_write))
NP_WEAK_NOTHING(AnnotateRWLockReleased, (const char *file, int line, const volatile void *lock, long is_write))
NP_WEAK_NOTHING(AnnotateBenignRace, (const char *file, int line, const volatile void *address, const char *description))
NP_WEAK_NOTHING(AnnotateBenignRaceSized, (const char *file, int line, const volatile void *address, size_t bytes, const char *description))
NP_WEAK_NOTHING(AnnotateIgnoreReadsBegin, (const char *file, int line))
NP_WEAK_NOTHING(AnnotateIgnoreReadsEnd, (const char *file, int line))
NP_WEAK_NOTHING(AnnotateIgnoreWritesBegin, (const char *file, int line))
NP_WEAK_NOTHING(AnnotateIgnoreWritesEnd, (const char *file, int line))
NP_WEAK_NOTHING(AnnotateIgnoreSyncBegin, (const char *file, int line))
NP_WEAK_NOTHING(AnnotateIgnoreSyncEnd, (const char *file, int line))
NP_WEAK_NOTHING(AnnotateEnableRaceDetection, (const char *file, int line, int enable))
NP_WEAK_NOTHING(AnnotateFlushState, (const char *file, int line))
NP_WEAK_NOTHING(AnnotateNewMemory, (const char *file, int line, const volatile void *address, size_t bytes))
NP_WEAK_NOTHING(AnnotateNoOp, (const char *file, int line, const volatile void *address))
NP_WEAK_NOTHING(AnnotatePublishMemoryRange, (const char *file, int line, const volatile void *address, size_t bytes))
NP_WEAK_NOTHING(AnnotateUnpublishMemoryRange, (const char *file, int line, const volatile void *address, size_t bytes))
NP_WEAK_NOTHING(AnnotateThreadName, (const char *file, int line, const char *name))
NP_WEAK_NOTHING(WTFAnnotateHappensBefore, (const char *file, int line, const volatile void *address))
NP_WEAK_NOTHING(WTFAnnotateHappensAfter, (const char *file, int line, const volatile void *address))
