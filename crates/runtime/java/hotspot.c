/* hotspot.c: which virtual machine this is, and whether its objects can be followed.
 *
 * HotSpot describes its data in tables for debuggers (src/hotspot/share/runtime/vmStructs.cpp), among them the list of its flags; the names of the tables and
 * of what they describe are what its own serviceability agent goes by. From the flags follows the collector. Serial, Parallel and G1 move objects only in
 * pauses that JVMTI reports; ZGC and Shenandoah move them while the program runs, so that nobody can say where an object lies.
 */
#define _GNU_SOURCE
#include "hotspot.h"
#include "objects.h"

#include <dlfcn.h>
#include <string.h>

#define TABLE_ENTRIES_MAX 100000u
#define FLAGS_MAX 10000u
#define TRIES 100u
#define PROBE_LENGTH 4099

struct fields {
    uintptr_t list, count;     /* addresses of the array of flags and of their number */
    uint64_t name, value;      /* offsets in a flag */
    uint64_t flag_bytes;
    bool has_name, has_value;
};

static uint64_t number(void *library, const char *symbol) {
    const uint64_t *found = dlsym(library, symbol);
    return found != NULL ? *found : 0;
}

static bool is(const char *text, const char *wanted) { return text != NULL && strcmp(text, wanted) == 0; }

static void read_fields(void *library, struct fields *fields) {
    const char **table = dlsym(library, "gHotSpotVMStructs");
    uint64_t stride = number(library, "gHotSpotVMStructEntryArrayStride");
    if (table == NULL || *table == NULL || stride == 0) return;
    uint64_t type = number(library, "gHotSpotVMStructEntryTypeNameOffset"), field = number(library, "gHotSpotVMStructEntryFieldNameOffset");
    uint64_t offset = number(library, "gHotSpotVMStructEntryOffsetOffset"), address = number(library, "gHotSpotVMStructEntryAddressOffset");
    const char *entry = *table;
    for (unsigned i = 0; i < TABLE_ENTRIES_MAX && *(const char *const *)(entry + type) != NULL; i++, entry += stride) {
        if (!is(*(const char *const *)(entry + type), "JVMFlag")) continue;
        const char *name = *(const char *const *)(entry + field);
        if (is(name, "flags")) fields->list = *(const uintptr_t *)(entry + address);
        if (is(name, "numFlags")) fields->count = *(const uintptr_t *)(entry + address);
        if (is(name, "_name")) fields->name = *(const uint64_t *)(entry + offset), fields->has_name = true;
        if (is(name, "_addr")) fields->value = *(const uint64_t *)(entry + offset), fields->has_value = true;
    }
}

static void read_size(void *library, struct fields *fields) {
    const char **table = dlsym(library, "gHotSpotVMTypes");
    uint64_t stride = number(library, "gHotSpotVMTypeEntryArrayStride");
    if (table == NULL || *table == NULL || stride == 0) return;
    uint64_t type = number(library, "gHotSpotVMTypeEntryTypeNameOffset"), size = number(library, "gHotSpotVMTypeEntrySizeOffset");
    const char *entry = *table;
    for (unsigned i = 0; i < TABLE_ENTRIES_MAX && *(const char *const *)(entry + type) != NULL; i++, entry += stride)
        if (is(*(const char *const *)(entry + type), "JVMFlag")) fields->flag_bytes = *(const uint64_t *)(entry + size);
}

static enum np_collector collector_of(const struct fields *fields) {
    if (fields->list == 0 || fields->count == 0 || !fields->has_name || !fields->has_value || fields->flag_bytes == 0) return NP_COLLECTOR_NO_HOTSPOT;
    const char *flag = *(const char *const *)fields->list;
    uint64_t count = *(const uint64_t *)fields->count;
    bool pauses = false, other = false;
    for (uint64_t i = 0; flag != NULL && i < count && i < FLAGS_MAX; i++, flag += fields->flag_bytes) {
        const char *name = *(const char *const *)(flag + fields->name);
        const bool *value = *(const bool *const *)(flag + fields->value);
        if (name == NULL || value == NULL) continue;
        if (is(name, "UseSerialGC") || is(name, "UseParallelGC") || is(name, "UseG1GC")) pauses |= *value;
        if (is(name, "UseZGC") || is(name, "UseShenandoahGC") || is(name, "UseEpsilonGC")) other |= *value;
    }
    return pauses && !other ? NP_COLLECTOR_PAUSES : NP_COLLECTOR_OTHER;
}

enum np_collector np_hotspot_collector(np_jvm jvm) {
    /* A program may have loaded the virtual machine with its symbols hidden: by the library that one of its functions is in. */
    Dl_info info;
    if (dladdr(np_jvm_function(jvm, 6), &info) == 0 || info.dli_fname == NULL) return NP_COLLECTOR_NO_HOTSPOT;
    void *library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (library == NULL) return NP_COLLECTOR_NO_HOTSPOT;
    struct fields fields = {0};
    read_fields(library, &fields);
    read_size(library, &fields);
    enum np_collector found = collector_of(&fields);
    dlclose(library);
    return found;
}

bool np_hotspot_layout_is_known(np_jni jni) {
    void *local = np_jni_int_array(jni, PROBE_LENGTH), *weak = local != NULL ? np_jni_weak(jni, local) : NULL;
    bool is_known = false;
    for (unsigned i = 0; weak != NULL && i < TRIES; i++) {
        uintptr_t by_local, by_weak;
        uint32_t words[5];
        if (np_objects_peek(local, weak, &by_local, &by_weak, words)) {
            /* An array's length stands behind its header, whose size depends on how classes are referred to: 8, 12 or 16 bytes. */
            is_known = by_local == by_weak && (words[2] == PROBE_LENGTH || words[3] == PROBE_LENGTH || words[4] == PROBE_LENGTH);
            break;
        }
        np_jni_array_length(jni, local); /* returns when the collection has ended */
    }
    if (weak != NULL) np_jni_release_weak(jni, weak);
    if (local != NULL) np_jni_release_local(jni, local);
    np_jni_clear_exception(jni);
    return is_known;
}
