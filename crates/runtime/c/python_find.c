/* python_find.c: whether this process has a Python interpreter that is known, and where its objects, and those of its threads, are found. */
#define _GNU_SOURCE
#include "python.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>

#define NONE NP_PYTHON_NONE

static const struct np_python_layout layouts[] = {
    {9, 24, NONE, 32, 24, 104, NONE, 112, 104, 120, 40, NONE, 48, 72},
    {10, 24, NONE, 32, 24, 96, NONE, 112, 104, 120, 40, NONE, 48, 72},
    {11, 56, 8, 32, 48, 56, NONE, 128, 112, 136, 72, 184, 48, 72},
    {12, 56, 0, 0, 8, 56, 70, 128, 112, 136, 68, 200, 40, 56},
    {13, 72, NONE, 0, 8, 56, 70, 128, 112, 136, 68, 200, 40, 56},
    {14, 72, NONE, 0, 8, 56, 74, 128, 112, 136, 68, 208, 40, 56},
};

static struct np_python_known found;
const struct np_python_known *np_python = &found;
static void *(*own_state)(void);     /* of the calling thread */
static void *(*current_state)(void); /* of the thread that holds the lock; from 3.12 on of the calling thread, if it holds its interpreter's */

static const struct np_python_layout *known_layout(const char *version) {
    /* "3.11.2 (main, ...) [GCC ...]"; the free-threaded build has other objects. */
    if (version == NULL || strncmp(version, "3.", 2) != 0 || strstr(version, "free-threading") != NULL) return NULL;
    unsigned minor = 0;
    for (const char *at = version + 2; *at >= '0' && *at <= '9'; at++) minor = minor * 10 + (unsigned)(*at - '0');
    for (unsigned i = 0; i < sizeof layouts / sizeof *layouts; i++)
        if (layouts[i].minor == minor) return &layouts[i];
    return NULL;
}

static void find_in(void *scope) {
#define FIND(name) dlsym(scope, name)
    const char *(*version)(void) = (const char *(*)(void))FIND("Py_GetVersion");
    const struct np_python_layout *layout = version != NULL ? known_layout(version()) : NULL;
    if (layout == NULL) return;
    own_state = (void *(*)(void))FIND("PyGILState_GetThisThreadState");
    current_state = (void *(*)(void))FIND(layout->minor < 13 ? "_PyThreadState_UncheckedGet" : "PyThreadState_GetUnchecked");
    found.code_type = (uintptr_t)FIND("PyCode_Type");
    found.text_type = (uintptr_t)FIND("PyUnicode_Type");
    found.bytes_type = (uintptr_t)FIND("PyBytes_Type");
    found.evaluator_lo = (uintptr_t)FIND("_PyEval_EvalFrameDefault");
#undef FIND
    Dl_info info;
    ElfW(Sym) *symbol = NULL;
    if (found.evaluator_lo != 0 && dladdr1((void *)found.evaluator_lo, &info, (void **)&symbol, RTLD_DL_SYMENT) != 0 && symbol != NULL)
        found.evaluator_hi = found.evaluator_lo + symbol->st_size;
    if (own_state == NULL || current_state == NULL) return;
    if (found.code_type == 0 || found.text_type == 0 || found.bytes_type == 0) return;
    __atomic_store_n(&found.layout, layout, __ATOMIC_RELEASE);
}

void np_python_find(const char *library) {
    if (np_load(found.layout) != NULL) return;
    if (library == NULL) {
        find_in(RTLD_DEFAULT);
        return;
    }
    /* By its handle: its symbols need not be global. It stays open: what any thread may call from now on must not be unloaded. */
    void *(*real_dlopen)(const char *, int) = (void *(*)(const char *, int))np_real("dlopen");
    void *handle = real_dlopen != NULL ? real_dlopen(library, RTLD_LAZY | RTLD_NOLOAD) : NULL;
    if (handle == NULL) return;
    find_in(handle);
    if (np_load(found.layout) != NULL) return;
    int (*real_dlclose)(void *) = (int (*)(void *))np_real("dlclose");
    if (real_dlclose != NULL) real_dlclose(handle);
}

/* The emulator's plugin, which cannot call the interpreter, takes the state that this thread was seen with last. */
uintptr_t np_python_thread(bool *is_held) {
    uintptr_t own = (uintptr_t)own_state(), current = (uintptr_t)current_state();
    bool is_of_thread = found.layout->minor >= 12;
    *is_held = current != 0 && (is_of_thread || current == own);
    return np_tls.python_state = *is_held ? current : own;
}

void np_python_give_up(void) { np_store(found.given_up, 1); }
