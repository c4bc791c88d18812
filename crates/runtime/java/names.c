/* names.c: classes and stacks of Java, as the recorder numbers them.
 *
 * Each class has one pool and each method one record, written when it is first met. A table says what was met; it is looked at under a lock, under which the
 * virtual machine is not called. Two threads that meet a method at once may both write it, and so may a thread that finds the table full: that costs a record.
 * The virtual machine gives a method's number to no other as long as it runs, also after its class was unloaded.
 */
#include "names.h"
#include "lock.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define FRAMES_MAX 64
#define LINES_MAX 2048
#define NAME_BYTES 256u
#define TABLE_LOG2 14
#define TABLE_ENTRIES (1u << TABLE_LOG2)
#define PROBES 32u
#define FACTOR 0x9e3779b97f4a7c15ull
/* Before what older virtual machines append to the names of classes that they make themselves, each of which has another. */
#define LAMBDA "$$Lambda"
#define CLASS_BYTES_MAX (NAME_BYTES - 60)

struct numbered { uint64_t key, order; uint32_t number; };
struct table { uint32_t lock; struct numbered entries[TABLE_ENTRIES]; };
static struct table classes, methods;
static const struct np_java_functions *recorder;

void np_names_use(const struct np_java_functions *functions) { recorder = functions; }

static struct numbered *find(struct table *table, uint64_t key) {
    for (unsigned probe = 0; probe < PROBES; probe++) {
        struct numbered *entry = &table->entries[((key * FACTOR >> (64 - TABLE_LOG2)) + probe) & (TABLE_ENTRIES - 1)];
        if (entry->key == key || entry->key == 0) return entry;
    }
    return NULL;
}

/* Number 0: it was not met. */
static struct numbered known(struct table *table, uint64_t key) {
    np_agent_lock(&table->lock);
    const struct numbered *entry = find(table, key);
    struct numbered found = entry != NULL && entry->key == key ? *entry : (struct numbered){key, 0, 0};
    np_agent_unlock(&table->lock);
    return found;
}

static void remember(struct table *table, struct numbered met) {
    np_agent_lock(&table->lock);
    struct numbered *entry = find(table, met.key);
    if (entry != NULL) *entry = met;
    np_agent_unlock(&table->lock);
}

/* -- texts -- */

/* The character of two surrogates, of three bytes each, that begin there; 0: there are none. */
static uint32_t paired(const uint8_t *at) {
    bool is_high = at[0] == 0xed && (at[1] & 0xf0) == 0xa0 && (at[2] & 0xc0) == 0x80;
    if (!is_high || at[3] != 0xed || (at[4] & 0xf0) != 0xb0 || (at[5] & 0xc0) != 0x80) return 0;
    uint32_t high = (uint32_t)(at[1] & 0xf) << 6 | (at[2] & 0x3f), low = (uint32_t)(at[4] & 0xf) << 6 | (at[5] & 0x3f);
    return 0x10000 + (high << 10) + low;
}

static unsigned bytes_of_character(const uint8_t *at) {
    unsigned bytes = at[0] < 0xc0 || at[0] >= 0xf0 ? 1 : at[0] < 0xe0 ? 2 : 3;
    for (unsigned i = 1; i < bytes; i++)
        if ((at[i] & 0xc0) != 0x80) return 1;
    return bytes;
}

size_t np_names_text(const char *modified, char *text, size_t room) {
    const uint8_t *at = (const uint8_t *)modified;
    size_t used = 0;
    while (*at != 0) {
        uint32_t character = paired(at);
        unsigned taken = character != 0 ? 6 : bytes_of_character(at), made = character != 0 ? 4 : taken;
        if (used + made >= room) break;
        memcpy(text + used, at, made);
        if (character != 0) {
            text[used] = (char)(0xf0 | character >> 18);
            for (unsigned i = 1; i < 4; i++) text[used + i] = (char)(0x80 | (character >> (18 - 6 * i) & 0x3f));
        }
        at += taken;
        used += made;
    }
    text[used] = 0;
    return used;
}

/* -- classes -- */

static const char *primitive(char letter) {
    switch (letter) {
    case 'Z': return "boolean";
    case 'B': return "byte";
    case 'C': return "char";
    case 'S': return "short";
    case 'I': return "int";
    case 'J': return "long";
    case 'F': return "float";
    case 'D': return "double";
    default: return "";
    }
}

/* `[[Ljava/lang/String;` as `java.lang.String[][]`, `[D` as `double[]`. A dot is only before what makes the name of a hidden class its own: objects of all
 * that one place makes are of one pool. */
static void class_name(const char *signature, char name[NAME_BYTES]) {
    unsigned dimensions = 0;
    while (*signature == '[') signature++, dimensions++;
    const char *base = *signature == 'L' ? signature + 1 : primitive(*signature);
    np_names_text(base, name, CLASS_BYTES_MAX + 1);
    size_t used = strcspn(name, ";.");
    name[used] = 0;
    for (char *slash = strchr(name, '/'); slash != NULL; slash = strchr(slash, '/')) *slash = '.';
    char *made = strstr(name, LAMBDA);
    if (made != NULL) made[sizeof LAMBDA - 1] = 0, used = strlen(name);
    for (; dimensions > 0 && used + 3 <= NAME_BYTES; dimensions--, used += 2) memcpy(name + used, "[]", 3);
}

static uint64_t text_key(const char *text) {
    uint64_t hash = 0xcbf29ce484222325ull;
    for (; *text != 0; text++) hash = (hash ^ (uint8_t)*text) * 0x100000001b3ull;
    return hash | 1;
}

uint32_t np_names_pool(np_jvmti jvmti, void *class, uint64_t *order) {
    char *signature = NULL, name[NAME_BYTES];
    if (np_jvmti_class_signature(jvmti, class, &signature) != 0 || signature == NULL) return 0;
    class_name(signature, name);
    np_jvmti_release(jvmti, signature);
    struct numbered pool = known(&classes, text_key(name));
    if (pool.number == 0) {
        pool.order = *order;
        pool.number = recorder->pool(name, &pool.order);
        if (pool.number != 0) remember(&classes, pool);
    }
    if (*order < pool.order) *order = pool.order;
    return pool.number;
}

/* -- methods -- */

/* Of the class `La/b/C$D;` with the source file `C.java`: the file `a/b/C.java`, the class `a.b.C$D`. */
static void place_names(const char *signature, const char *source, char class[NAME_BYTES], char file[NAME_BYTES]) {
    class_name(signature, class);
    const char *slash = strrchr(signature, '/');
    int folder = slash != NULL ? (int)(slash - signature) : 0; /* without the L, with the slash */
    file[0] = 0;
    if (source == NULL || strchr(source, '/') != NULL) return;
    char path[NAME_BYTES];
    /* A path that is too long would lose the file's own name, not the folder's. */
    bool fits = snprintf(path, sizeof path, "%.*s%s", folder, signature + 1, source) < (int)sizeof path;
    np_names_text(fits ? path : source, file, NAME_BYTES);
}

static size_t lines_of(np_jvmti jvmti, void *method, struct np_java_line *lines) {
    struct np_jvm_line *found = NULL;
    int32_t count = 0;
    if (np_jvmti_lines(jvmti, method, &count, &found) != 0) return 0;
    size_t used = 0;
    for (int32_t i = 0; i < count && used < LINES_MAX; i++)
        if (found[i].index >= 0 && found[i].index <= 0xffff && found[i].line > 0 && found[i].line <= 0xffff)
            lines[used++] = (struct np_java_line){(uint16_t)found[i].index, (uint16_t)found[i].line};
    np_jvmti_release(jvmti, found);
    return used;
}

static uint32_t write_method(np_jvmti jvmti, np_jni jni, void *method) {
    void *class = NULL;
    char *name = NULL, *signature = NULL, *source = NULL;
    uint32_t number = 0;
    if (np_jvmti_method_class(jvmti, method, &class) != 0) return 0;
    if (np_jvmti_method_name(jvmti, method, &name) == 0 && np_jvmti_class_signature(jvmti, class, &signature) == 0) {
        if (np_jvmti_source_file(jvmti, class, &source) != 0) source = NULL;
        char class_text[NAME_BYTES], file[NAME_BYTES], name_text[NAME_BYTES], function[2 * NAME_BYTES];
        struct np_java_line lines[LINES_MAX];
        place_names(signature, source, class_text, file);
        np_names_text(name, name_text, sizeof name_text);
        snprintf(function, sizeof function, "%s.%s", class_text, name_text);
        number = recorder->method(function, file, lines, lines_of(jvmti, method, lines));
    }
    np_jvmti_release(jvmti, name);
    np_jvmti_release(jvmti, signature);
    np_jvmti_release(jvmti, source);
    np_jni_release_local(jni, class);
    return number;
}

static uint32_t method_number(np_jvmti jvmti, np_jni jni, void *method) {
    struct numbered found = known(&methods, (uintptr_t)method);
    if (found.number == 0 && (found.number = write_method(jvmti, jni, method)) != 0) remember(&methods, found);
    return found.number;
}

uint32_t np_names_stack(np_jvmti jvmti, np_jni jni) {
    struct np_jvm_frame found[FRAMES_MAX];
    uint64_t frames[FRAMES_MAX];
    int32_t count = 0;
    if (np_jvmti_stack(jvmti, FRAMES_MAX, found, &count) != 0) return 0;
    for (int32_t i = 0; i < count; i++) {
        uint32_t number = method_number(jvmti, jni, found[i].method);
        if (number == 0) return 0;
        frames[i] = np_java_frame(number, found[i].index);
    }
    return recorder->stack(frames, (unsigned)count, count == FRAMES_MAX);
}
