/* agent.c: an agent in a Java virtual machine that tells the recorder where objects lie: each sampled object is a block of a pool that has its class's name,
 * with the Java methods that allocated it (docs/guides/languages.md).
 *
 * The virtual machine loads it by `-agentpath:` (JAVA_TOOL_OPTIONS). Whatever it finds, it lets the program run: without a recorder, or in a virtual machine
 * that it does not understand, it does nothing, and the recording says why.
 */
#define _GNU_SOURCE
#include "hotspot.h"
#include "jvm.h"
#include "names.h"
#include "objects.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define INTERVAL_OPTION "interval="
#define DEAD_AT_ONCE 16u
/* From so many followed objects on, sampling becomes rarer, each time after so many more. */
#define CROWD (NP_OBJECTS_MAX / 4 * 3)
#define CROWD_STEP (NP_OBJECTS_MAX / 16)
#define INTERVAL_MAX (1 << 30)
/* What the kernel keeps of a thread's name, and what is told of it. */
#define KERNEL_NAME_BYTES 15
#define THREAD_NAME_BYTES 128

static const struct np_java_functions *recorder;
static np_jvm machine;
static int32_t interval = 512 << 10;
static bool can_follow;
static uint32_t next_crowd = CROWD;

static void delete_dead(np_jni jni) {
    void *references[DEAD_AT_ONCE];
    unsigned count = np_objects_dead(references, DEAD_AT_ONCE);
    for (unsigned i = 0; i < count; i++) np_jni_release_weak(jni, references[i]);
}

static void sample_less(np_jvmti jvmti, uint32_t count) {
    uint32_t expected = __atomic_load_n(&next_crowd, __ATOMIC_RELAXED);
    if (count < expected || !__atomic_compare_exchange_n(&next_crowd, &expected, expected + CROWD_STEP, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) return;
    int32_t now = __atomic_load_n(&interval, __ATOMIC_RELAXED);
    int32_t next = now == 0 ? 64 << 10 : now < INTERVAL_MAX ? now * 2 : now;
    __atomic_store_n(&interval, next, __ATOMIC_RELAXED);
    np_jvmti_sample_every(jvmti, next);
    recorder->trouble(NP_JAVA_FULL, "warning: very many Java objects are followed: from here on, fewer small ones are");
}

/* In the thread that allocates, before it has the object. */
static void object_sampled(np_jvmti jvmti, np_jni jni, void *thread, void *object, void *class, int64_t bytes) {
    (void)thread;
    delete_dead(jni);
    struct np_object followed = {.bytes = (uint64_t)bytes, .thread = recorder->thread(), .earliest = np_objects_settled()};
    followed.interval = (uint32_t)__atomic_load_n(&interval, __ATOMIC_RELAXED);
    followed.pool = np_names_pool(jvmti, class, &followed.earliest);
    if (followed.pool == 0) return;
    followed.stack = np_names_stack(jvmti, jni);
    followed.weak = np_jni_weak(jni, object);
    if (followed.weak == NULL) {
        np_jni_clear_exception(jni);
        return;
    }
    uint32_t count;
    if (!np_objects_add(followed, object, &count)) np_jni_release_weak(jni, followed.weak);
    sample_less(jvmti, count);
}

static void collection_begins(np_jvmti jvmti) {
    (void)jvmti;
    np_objects_collection_begins();
}

static void collection_ends(np_jvmti jvmti) {
    (void)jvmti;
    np_objects_collection_ends();
}

static void follow(np_jvmti jvmti, np_jni jni) {
    switch (np_hotspot_collector(machine)) {
    case NP_COLLECTOR_NO_HOTSPOT:
        recorder->trouble(NP_JAVA_OTHER, "warning: Java objects are not followed: this is no HotSpot virtual machine");
        return;
    case NP_COLLECTOR_OTHER:
        recorder->trouble(NP_JAVA_COLLECTOR, "warning: Java objects are not followed: the collector is not Serial, Parallel or G1");
        return;
    case NP_COLLECTOR_PAUSES: break;
    }
    /* Collections first: an address is only read where their beginnings are told. */
    bool is_on = np_jvmti_enable(jvmti, NP_JVM_COLLECTION_BEGINS, 1) == 0 && np_jvmti_enable(jvmti, NP_JVM_COLLECTION_ENDS, 1) == 0;
    if (!is_on || !np_hotspot_layout_is_known(jni)) {
        np_jvmti_enable(jvmti, NP_JVM_COLLECTION_BEGINS, 0);
        np_jvmti_enable(jvmti, NP_JVM_COLLECTION_ENDS, 0);
        recorder->trouble(NP_JAVA_LAYOUT, "warning: Java objects are not followed: this virtual machine's references are not known");
        return;
    }
    if (np_jvmti_enable(jvmti, NP_JVM_OBJECT_SAMPLED, 1) != 0)
        recorder->trouble(NP_JAVA_NO_EVENTS, "warning: Java objects are not followed: this virtual machine does not sample them");
}

/* In the new thread. The virtual machine tells the kernel of the name, which keeps the beginning. */
static void thread_started(np_jvmti jvmti, np_jni jni, void *thread) {
    struct np_jvm_thread found = {0};
    char name[THREAD_NAME_BYTES];
    if (np_jvmti_thread(jvmti, thread, &found) != 0) return;
    if (found.name != NULL && np_names_text(found.name, name, sizeof name) > KERNEL_NAME_BYTES) recorder->thread_name(name);
    np_jvmti_release(jvmti, found.name);
    if (found.group != NULL) np_jni_release_local(jni, found.group);
    if (found.loader != NULL) np_jni_release_local(jni, found.loader);
}

static void started(np_jvmti jvmti, np_jni jni, void *thread) {
    (void)thread;
    np_jvmti_enable(jvmti, NP_JVM_THREAD_START, 1);
    if (can_follow) follow(jvmti, jni);
}

/* The last event: daemon threads may still be about to add an object, and a collection that they cause is reported to nobody. */
static void ended(np_jvmti jvmti, np_jni jni) {
    (void)jni;
    np_jvmti_enable(jvmti, NP_JVM_OBJECT_SAMPLED, 0);
    uint64_t dropped = np_objects_end();
    if (dropped > 0) recorder->dropped(dropped);
}

static bool has(const struct np_jvm_capabilities *capabilities, unsigned bit) { return capabilities->bits[bit / 8] >> bit % 8 & 1; }
static void add(struct np_jvm_capabilities *capabilities, unsigned bit) { capabilities->bits[bit / 8] |= (uint8_t)(1 << bit % 8); }

static bool take_capabilities(np_jvmti jvmti) {
    static const uint8_t needed[] = {NP_JVM_CAN_SAMPLE_OBJECTS, NP_JVM_CAN_TELL_COLLECTIONS}, useful[] = {NP_JVM_CAN_GET_FILES, NP_JVM_CAN_GET_LINES};
    struct np_jvm_capabilities possible = {{0}}, wanted = {{0}};
    if (np_jvmti_possible(jvmti, &possible) != 0) return false;
    for (unsigned i = 0; i < sizeof needed; i++) {
        if (!has(&possible, needed[i])) return false;
        add(&wanted, needed[i]);
    }
    for (unsigned i = 0; i < sizeof useful; i++)
        if (has(&possible, useful[i])) add(&wanted, useful[i]);
    return np_jvmti_take(jvmti, &wanted) == 0;
}

static bool set_up(np_jvmti jvmti) {
    static void *callbacks[NP_JVM_EVENT_LAST - NP_JVM_EVENT_FIRST + 1];
    callbacks[NP_JVM_INIT - NP_JVM_EVENT_FIRST] = (void *)started;
    callbacks[NP_JVM_DEATH - NP_JVM_EVENT_FIRST] = (void *)ended;
    callbacks[NP_JVM_THREAD_START - NP_JVM_EVENT_FIRST] = (void *)thread_started;
    callbacks[NP_JVM_COLLECTION_BEGINS - NP_JVM_EVENT_FIRST] = (void *)collection_begins;
    callbacks[NP_JVM_COLLECTION_ENDS - NP_JVM_EVENT_FIRST] = (void *)collection_ends;
    callbacks[NP_JVM_OBJECT_SAMPLED - NP_JVM_EVENT_FIRST] = (void *)object_sampled;
    /* The interval now: a thread draws its first sample when it begins, and the first one begins soon. */
    can_follow = take_capabilities(jvmti) && np_jvmti_sample_every(jvmti, interval) == 0;
    /* Threads have names without them, too. */
    bool is_told = np_jvmti_set_callbacks(jvmti, callbacks, sizeof callbacks) == 0 && np_jvmti_enable(jvmti, NP_JVM_INIT, 1) == 0
        && np_jvmti_enable(jvmti, NP_JVM_DEATH, 1) == 0;
    return can_follow && is_told;
}

/* Anything but 0 would end the virtual machine. */
EXPORT int32_t Agent_OnLoad(np_jvm jvm, const char *options, void *reserved) {
    (void)reserved;
    const struct np_java_functions *found = dlsym(RTLD_DEFAULT, NP_JAVA_SYMBOL);
    if (found == NULL || found->version != NP_JAVA_VERSION || recorder != NULL || !found->begin()) return 0;
    recorder = found;
    machine = jvm;
    if (options != NULL && strncmp(options, INTERVAL_OPTION, strlen(INTERVAL_OPTION)) == 0) interval = atoi(options + strlen(INTERVAL_OPTION));
    np_objects_use(recorder);
    np_names_use(recorder);
    np_jvmti jvmti = np_jvm_jvmti(jvm);
    if (jvmti == NULL || !set_up(jvmti))
        recorder->trouble(NP_JAVA_NO_EVENTS, "warning: Java objects are not followed: before Java 11, or another agent has taken the sampled events");
    return 0;
}
