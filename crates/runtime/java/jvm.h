/* jvm.h: what the agent uses of the JVM's interfaces. Both are tables of functions by number: JNI's as its specification lists them (chapter 4, from 0), and
 * JVMTI's as its own does (from 1); so are events, error 0 for success, and the bits of capabilities. Stated here, because who builds need not have a JDK.
 */
#ifndef NUMAPILOT_JVM_H
#define NUMAPILOT_JVM_H

#include <stddef.h>
#include <stdint.h>

/* An environment or a virtual machine: its first word is its table. */
typedef void *np_jvmti, *np_jni, *np_jvm;

static inline void *np_jvm_function(void *environment, unsigned index) { return (*(void ***)environment)[index]; }
#define NP_JVM_CALL(environment, index, type, ...) (((type)np_jvm_function(environment, index))(environment, ##__VA_ARGS__))
/* JVMTI's numbers begin at 1. */
#define NP_JVMTI_CALL(environment, number, types, ...) NP_JVM_CALL(environment, (number) - 1, int32_t(*) types, ##__VA_ARGS__)

#define NP_JVMTI_VERSION 0x30010200 /* 1.2 */

enum np_jvm_event {
    NP_JVM_EVENT_FIRST = 50,
    NP_JVM_INIT = 50,
    NP_JVM_DEATH = 51,
    NP_JVM_THREAD_START = 52,
    NP_JVM_COLLECTION_BEGINS = 81,
    NP_JVM_COLLECTION_ENDS = 82,
    NP_JVM_OBJECT_SAMPLED = 86,
    NP_JVM_EVENT_LAST = 86,
};

/* Bits of the 128 capabilities. */
enum np_jvm_capability {
    NP_JVM_CAN_GET_FILES = 11,
    NP_JVM_CAN_GET_LINES = 12,
    NP_JVM_CAN_TELL_COLLECTIONS = 31,
    NP_JVM_CAN_SAMPLE_OBJECTS = 43,
};
struct np_jvm_capabilities { uint8_t bits[16]; };

struct np_jvm_frame { void *method; int64_t index; };
struct np_jvm_line { int64_t index; int32_t line; };
/* The name is given back by np_jvmti_release, group and loader are local references. */
struct np_jvm_thread { char *name; int32_t priority; uint8_t is_daemon; void *group, *loader; };

static inline np_jvmti np_jvm_jvmti(np_jvm jvm) {
    np_jvmti found = NULL;
    int32_t error = NP_JVM_CALL(jvm, 6, int32_t(*)(np_jvm, void **, int32_t), &found, NP_JVMTI_VERSION);
    return error == 0 ? found : NULL;
}

static inline int32_t np_jvmti_enable(np_jvmti jvmti, int32_t event, int is_on) {
    return NP_JVMTI_CALL(jvmti, 2, (np_jvmti, int32_t, int32_t, void *, ...), is_on, event, NULL);
}
static inline void np_jvmti_release(np_jvmti jvmti, void *memory) {
    if (memory != NULL) NP_JVMTI_CALL(jvmti, 47, (np_jvmti, void *), memory);
}
static inline int32_t np_jvmti_thread(np_jvmti jvmti, void *thread, struct np_jvm_thread *found) {
    return NP_JVMTI_CALL(jvmti, 9, (np_jvmti, void *, struct np_jvm_thread *), thread, found);
}
/* Texts are given back by np_jvmti_release. */
static inline int32_t np_jvmti_class_signature(np_jvmti jvmti, void *class, char **signature) {
    return NP_JVMTI_CALL(jvmti, 48, (np_jvmti, void *, char **, char **), class, signature, NULL);
}
static inline int32_t np_jvmti_source_file(np_jvmti jvmti, void *class, char **name) {
    return NP_JVMTI_CALL(jvmti, 50, (np_jvmti, void *, char **), class, name);
}
static inline int32_t np_jvmti_method_name(np_jvmti jvmti, void *method, char **name) {
    return NP_JVMTI_CALL(jvmti, 64, (np_jvmti, void *, char **, char **, char **), method, name, NULL, NULL);
}
static inline int32_t np_jvmti_method_class(np_jvmti jvmti, void *method, void **class) {
    return NP_JVMTI_CALL(jvmti, 65, (np_jvmti, void *, void **), method, class);
}
static inline int32_t np_jvmti_lines(np_jvmti jvmti, void *method, int32_t *count, struct np_jvm_line **lines) {
    return NP_JVMTI_CALL(jvmti, 70, (np_jvmti, void *, int32_t *, struct np_jvm_line **), method, count, lines);
}
/* Of the calling thread. */
static inline int32_t np_jvmti_stack(np_jvmti jvmti, int32_t most, struct np_jvm_frame *frames, int32_t *count) {
    return NP_JVMTI_CALL(jvmti, 104, (np_jvmti, void *, int32_t, int32_t, struct np_jvm_frame *, int32_t *), NULL, 0, most, frames, count);
}
static inline int32_t np_jvmti_set_callbacks(np_jvmti jvmti, void *const *callbacks, int32_t bytes) {
    return NP_JVMTI_CALL(jvmti, 122, (np_jvmti, void *const *, int32_t), callbacks, bytes);
}
static inline int32_t np_jvmti_possible(np_jvmti jvmti, struct np_jvm_capabilities *capabilities) {
    return NP_JVMTI_CALL(jvmti, 140, (np_jvmti, struct np_jvm_capabilities *), capabilities);
}
static inline int32_t np_jvmti_take(np_jvmti jvmti, const struct np_jvm_capabilities *capabilities) {
    return NP_JVMTI_CALL(jvmti, 142, (np_jvmti, const struct np_jvm_capabilities *), capabilities);
}
static inline int32_t np_jvmti_sample_every(np_jvmti jvmti, int32_t bytes) {
    return NP_JVMTI_CALL(jvmti, 156, (np_jvmti, int32_t), bytes);
}

static inline void np_jni_clear_exception(np_jni jni) { NP_JVM_CALL(jni, 17, void (*)(np_jni)); }
static inline void np_jni_release_local(np_jni jni, void *object) { NP_JVM_CALL(jni, 23, void (*)(np_jni, void *), object); }
static inline int32_t np_jni_array_length(np_jni jni, void *array) { return NP_JVM_CALL(jni, 171, int32_t(*)(np_jni, void *), array); }
static inline void *np_jni_int_array(np_jni jni, int32_t length) { return NP_JVM_CALL(jni, 179, void *(*)(np_jni, int32_t), length); }
static inline void *np_jni_weak(np_jni jni, void *object) { return NP_JVM_CALL(jni, 226, void *(*)(np_jni, void *), object); }
static inline void np_jni_release_weak(np_jni jni, void *weak) { NP_JVM_CALL(jni, 227, void (*)(np_jni, void *), weak); }

#endif
