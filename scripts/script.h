/* script.h: what the scripts share: an open trace with the few columns that all of them look up, and rows of CSV. README.md says what is printed. */
#ifndef SCRIPT_H
#define SCRIPT_H

#include <numapilot.h>

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct script {
    numapilot_trace trace;
    numapilot_info info;
    uint32_t *site_of;    /* by object */
    uint32_t *owner_of;   /* by object: its allocating thread, or NUMAPILOT_NONE */
    uint32_t *process_of; /* by thread */
} script;

static const char *script_name;

static inline void script_die(const char *why) {
    fprintf(stderr, "%s: %s\n", script_name, why);
    exit(1);
}

static inline void script_must(int code) {
    if (code != NUMAPILOT_OK) script_die(numapilot_message());
}

/* Zeroed memory for so many things; at least one, so that null means that there is none left. */
static inline void *script_memory(size_t count, size_t bytes) {
    void *memory = calloc(count > 0 ? count : 1, bytes);
    if (memory == NULL) script_die("out of memory");
    return memory;
}

static inline script script_open(const char *path) {
    script self;
    memset(&self, 0, sizeof self);
    script_must(numapilot_trace_open(path, &self.trace));
    self.info.type_size = sizeof self.info;
    script_must(numapilot_trace_info(self.trace, &self.info));
    self.site_of = script_memory(self.info.objects, sizeof *self.site_of);
    self.owner_of = script_memory(self.info.objects, sizeof *self.owner_of);
    self.process_of = script_memory(self.info.threads, sizeof *self.process_of);
    for (uint32_t number = 0; number < self.info.objects; number++) {
        numapilot_object object = {.type_size = sizeof object};
        script_must(numapilot_object_at(self.trace, number, &object));
        self.site_of[number] = object.site;
        self.owner_of[number] = object.thread;
    }
    for (uint32_t number = 0; number < self.info.threads; number++) {
        numapilot_thread thread = {.type_size = sizeof thread};
        script_must(numapilot_thread_at(self.trace, number, &thread));
        self.process_of[number] = thread.process;
    }
    return self;
}

/* The usual beginning: SCRIPT TRACE. */
static inline script script_start(int argc, char **argv) {
    script_name = argv[0];
    if (argc != 2) script_die("give one trace: the folder that `numapilot record` wrote");
    return script_open(argv[1]);
}

static inline int script_end(script *self) {
    free(self->site_of);
    free(self->owner_of);
    free(self->process_of);
    script_must(numapilot_trace_close(self->trace));
    if (fflush(stdout) != 0) script_die("standard output cannot be written");
    return 0;
}

/* The flow of everything, in order of rows. */
static inline numapilot_flow script_flow(const script *self) {
    numapilot_flow flow;
    script_must(numapilot_flow_open(self->trace, NULL, &flow));
    return flow;
}

/* Whether it is a memory access: no cache of the accessing core or node answered it (levels 1 L1, 2 L2, 3 L3, 6 line fill buffer). */
static inline bool script_is_memory_access(const numapilot_access *access) {
    return access->level != 1 && access->level != 2 && access->level != 3 && access->level != 6;
}

static inline bool script_is_remote(const numapilot_access *access) { return (access->flags & NUMAPILOT_ACCESS_FLAG_REMOTE) != 0; }
static inline bool script_is_local(const numapilot_access *access) { return (access->flags & NUMAPILOT_ACCESS_FLAG_LOCAL) != 0; }
static inline bool script_is_write(const numapilot_access *access) { return (access->flags & NUMAPILOT_ACCESS_FLAG_WRITE) != 0; }

/* The site's place in arrays of info.sites + 1: the last one is of accesses to no known object. */
static inline uint32_t script_site(const script *self, const numapilot_access *access) {
    return access->object == NUMAPILOT_NONE ? (uint32_t)self->info.sites : self->site_of[access->object];
}

/* Cells: the first of a row begins it, the others bring their comma. */
static inline void script_text(const char *text) {
    if (strpbrk(text, ",\"\r\n") == NULL) {
        fputs(text, stdout);
        return;
    }
    putchar('"');
    for (; *text != 0; text++) {
        if (*text == '"') putchar('"');
        putchar(*text);
    }
    putchar('"');
}

static inline void script_number(uint64_t number) { printf(",%" PRIu64, number); }

/* Parts per million; empty where the whole is 0. */
static inline void script_ppm(uint64_t part, uint64_t whole) {
    if (whole == 0) putchar(',');
    else script_number((uint64_t)((unsigned __int128)1000000 * part / whole));
}

/* A number, or nothing where it is that which stands for "unknown". */
static inline void script_known(uint64_t number, uint64_t unknown) {
    if (number == unknown) putchar(',');
    else script_number(number);
}

/* site,kind,name of a place in arrays of sites. */
static inline void script_print_site(const script *self, uint32_t place) {
    if (place == self->info.sites) {
        fputs(",unknown,", stdout);
        return;
    }
    numapilot_site site = {.type_size = sizeof site};
    script_must(numapilot_site_at(self->trace, place, &site));
    printf("%" PRIu32 ",", place);
    script_text(site.kind_name);
    putchar(',');
    script_text(site.name);
}

/* Places in order of `accesses`, most first, then of their numbers. */
static const uint64_t *script_by;
static inline int script_compare(const void *a, const void *b) {
    uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
    if (script_by[left] != script_by[right]) return script_by[left] < script_by[right] ? 1 : -1;
    return left < right ? -1 : left > right;
}

static inline uint32_t *script_order(const uint64_t *accesses, size_t places) {
    uint32_t *order = script_memory(places, sizeof *order);
    for (size_t place = 0; place < places; place++) order[place] = (uint32_t)place;
    script_by = accesses;
    qsort(order, places, sizeof *order, script_compare);
    return order;
}

#endif
