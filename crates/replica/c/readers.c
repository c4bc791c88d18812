/* readers.c: the process's readers: a record for each thread, handed back when the thread ends and on fork. */
#define _GNU_SOURCE
#include "readers.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct npr_domain npr_the_domain = {.epoch = 1};
uint32_t npr_span = 1;
__thread struct npr_reader *npr_self __attribute__((tls_model("initial-exec")));
/* Sections of a thread that has no record as there was no memory for one: they are counted, and nothing is freed meanwhile. */
static __thread uint32_t stray_depth __attribute__((tls_model("initial-exec")));
/* The thread has handed its record back: what it still runs may be a signal handler, which may not allocate another one. */
static __thread bool has_ended __attribute__((tls_model("initial-exec")));

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_key_t thread_end;
static void (*on_fork)(void), (*on_thread_end)(void);

void npr_lock(void) { pthread_mutex_lock(&lock); }
void npr_unlock(void) { pthread_mutex_unlock(&lock); }

static void hand_back(struct npr_reader *reader) {
    reader->depth = 0;
    npr_store(&reader->epoch, 0);
    npr_store(&reader->is_owned, 0);
}

/* A thread ends, perhaps inside a section, perhaps cancelled. Destructors that run after this one may read again: then it is called again. */
static void end_thread(void *reader) {
    has_ended = true;
    npr_compiler_barrier();
    npr_self = NULL;
    hand_back(reader);
    npr_lock();
    on_thread_end();
    npr_unlock();
}

static void in_child(void) {
    for (struct npr_reader *reader = (struct npr_reader *)npr_load(&npr_the_domain.readers); reader; reader = reader->next) {
        if (reader != npr_self) hand_back(reader);
    }
    npr_store(&npr_the_domain.strays, stray_depth > 0);
    if (npr_the_domain.has_heavy) npr_register_barrier();
    on_fork();
    pthread_mutex_init(&lock, NULL);
}

static void start(void) {
    npr_span = npr_nodes()->span;
    npr_the_domain.has_heavy = npr_register_barrier();
    pthread_key_create(&thread_end, end_thread);
    pthread_atfork(npr_lock, npr_unlock, in_child);
}

void npr_start(void (*after_fork)(void), void (*at_thread_end)(void)) {
    __atomic_store_n(&on_fork, after_fork, __ATOMIC_RELAXED);
    __atomic_store_n(&on_thread_end, at_thread_end, __ATOMIC_RELAXED);
    pthread_once(&once, start);
}

static struct npr_reader *take_record(void) {
    for (struct npr_reader *reader = (struct npr_reader *)npr_load(&npr_the_domain.readers); reader; reader = reader->next) {
        npr_word is_owned = 0;
        if (__atomic_compare_exchange_n(&reader->is_owned, &is_owned, 1, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) return reader;
    }
    struct npr_reader *made = NULL;
    if (has_ended || posix_memalign((void **)&made, _Alignof(struct npr_reader), sizeof *made) != 0) return NULL;
    memset(made, 0, sizeof *made);
    made->is_owned = 1;
    npr_word head = npr_load(&npr_the_domain.readers);
    do made->next = (struct npr_reader *)head;
    while (!__atomic_compare_exchange_n(&npr_the_domain.readers, &head, (npr_word)made, false, __ATOMIC_SEQ_CST, __ATOMIC_ACQUIRE));
    return made;
}

void npr_enter_first(void) {
    struct npr_reader *record = stray_depth == 0 ? take_record() : NULL;
    if (record && pthread_setspecific(thread_end, record) == 0) {
        npr_self = record;
        npr_pin(&npr_the_domain, record);
        return;
    }
    if (record) hand_back(record);
    stray_depth++;
    npr_add(&npr_the_domain.strays, 1);
}

void npr_leave_stray(void) {
    if (stray_depth == 0) return;
    stray_depth--;
    npr_add(&npr_the_domain.strays, (npr_word)-1);
}

npr_word npr_inside_since(void) { return stray_depth > 0 ? 1 : npr_self ? npr_own(&npr_self->epoch) : 0; }
