/* A program that says it is a Python interpreter (fields as in 3.11) and is none that can be followed. Usage: fake_python MODE
 * good: one frame; cycle: a frame that is its own caller; unlocked: the interpreter's lock is not held; wild: pointers to nothing;
 * latin, wide: a name with characters beyond ASCII, of one byte and of two; odd: pointers that are not aligned; other: a version that is not known;
 * threaded: the build without an interpreter lock, whose objects are others. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct object { intptr_t references; void *type; };
struct object PyCode_Type, PyUnicode_Type, PyBytes_Type;

struct text { struct object head; intptr_t length, hash; uint32_t state; void *wide; char text[64]; };
struct bytes { struct object head; intptr_t size, hash; unsigned char bytes[32]; };

static const char *mode = "good";
static char code[256], frame[96], cframe[24], state[128];
static struct text name = {.state = 1 << 2 | 0x60, .text = "invented"}, file = {.state = 1 << 2 | 0x60, .text = "/nowhere/made.py"};
static struct bytes table = {.size = 6, .bytes = {0x80 | 13 << 3 | 3, 4, 0x80 | 13 << 3 | 3, 8, 0x80 | 13 << 3, 2}};

static void put(char *to, unsigned at, const void *pointer) {
    memcpy(to + at, &pointer, sizeof pointer);
}

/* Text that is not ASCII has two words more before it. */
static void put_name(unsigned width, const void *text, intptr_t length) {
    name.state = width << 2 | 0x20;
    memcpy(name.text + 24, text, (size_t)length * width);
    name.length = length;
}

static void set_up(void) {
    name.head.type = file.head.type = &PyUnicode_Type;
    name.length = (intptr_t)strlen(name.text);
    file.length = (intptr_t)strlen(file.text);
    table.head.type = &PyBytes_Type;
    int first_line = 10;
    put(code, 8, &PyCode_Type);
    memcpy(code + 72, &first_line, sizeof first_line);
    put(code, 112, &file);
    put(code, 128, &name);
    put(code, 136, &table);
    put(frame, 32, code);
    put(frame, 56, code + 184 + 2 * 5); /* the sixth instruction: line 10 + 2 + 4 */
    put(cframe, 8, frame);
    put(state, 56, cframe);
    static const uint16_t wide[] = {'t', 'r', 'o', 'u', 'v', 0xe9, 0x20ac};
    if (strcmp(mode, "latin") == 0) put_name(1, "trouv\xe9", 6);
    if (strcmp(mode, "wide") == 0) put_name(2, wide, 7);
    if (strcmp(mode, "cycle") == 0) put(frame, 48, frame);
    if (strcmp(mode, "wild") == 0) put(frame, 32, (void *)0x123456789000);
    if (strcmp(mode, "odd") == 0) put(frame, 32, code + 3);
}

const char *Py_GetVersion(void) {
    /* Asked before main begins. */
    FILE *given = fopen("/proc/self/cmdline", "r");
    static char line[4096];
    size_t bytes = given ? fread(line, 1, sizeof line - 1, given) : 0;
    if (given) fclose(given);
    const char *last = line + strlen(line) + 1;
    if (last < line + bytes && strcmp(last, "other") == 0) return "3.99.0 (main)";
    if (last < line + bytes && strcmp(last, "threaded") == 0) return "3.13.0 experimental free-threading build (main)";
    return "3.11.2 (main)";
}

void *PyGILState_GetThisThreadState(void) {
    return state;
}

void *_PyThreadState_UncheckedGet(void) {
    return strcmp(mode, "unlocked") == 0 ? NULL : state;
}

static void write_to(volatile char *block, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) block[i] = 1;
}

/* What the interpreter calls. */
__attribute__((noinline)) static void called(char *block, size_t bytes) { write_to(block, bytes); }

__attribute__((noinline)) void *_PyEval_EvalFrameDefault(size_t bytes) {
    void *volatile block = malloc(bytes); /* LINE block */
    called(block, bytes / 2);
    write_to((char *)block + bytes / 2, bytes / 2);
    return block;
}

/* What the interpreter has no part in. */
__attribute__((noinline)) static void outside(void) {
    static char other[1 << 16];
    write_to(other, sizeof other);
}

int main(int argc, char **argv) {
    if (argc > 1) mode = argv[1];
    set_up();
    size_t sum = 0;
    for (int i = 0; i < 100; i++) {
        char *block = _PyEval_EvalFrameDefault(5000);
        memset(block, i, 5000);
        sum += (size_t)block[7];
        free(block);
    }
    outside();
    printf("%zu\n", sum);
    return 0;
}
