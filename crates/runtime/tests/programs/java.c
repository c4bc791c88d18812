/* What the agent in a Java virtual machine tells the tracker, without one: a method, stacks in it, and an object that moves. */
#define _GNU_SOURCE
#include "../../c/java.h"

#include "truth.h"

#include <dlfcn.h>
#include <errno.h>
#include <sys/mman.h>

static char memory[4096];

int main(void) {
    const struct np_java_functions *java = dlsym(RTLD_DEFAULT, NP_JAVA_SYMBOL);
    CHECK(java != NULL && java->version == NP_JAVA_VERSION && java->begin());
    static const struct np_java_line lines[] = {{9, 14}, {0, 12}};
    errno = 77;
    uint64_t begin = java->order(), order = begin;
    uint32_t pool = java->pool("double[]", &order), method = java->method("a.B.fill", "a/B.java", lines, 2), other = java->method("a.B.main", "", NULL, 0);
    CHECK(pool != 0 && method != 0 && other != 0 && method != other);
    uint64_t frames[] = {np_java_frame(method, 10), np_java_frame(other, -1)};
    uint32_t whole = java->stack(frames, 2, 0), again = java->stack(frames, 2, 0), cut = java->stack(frames, 2, 1);
    CHECK(whole != 0 && again == whole && cut != 0 && cut != whole && java->stack(frames, 0, 0) == 0);
    uint32_t thread = java->thread();
    CHECK(order == begin);
    CHECK(java->mapped(begin) == begin);
    CHECK(mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
    CHECK(java->mapped(begin) > begin && java->mapped(begin) <= java->order());
    begin = java->order();
    /* Before now, but neither before that nor for longer than clearing takes. */
    uint64_t cleared = java->cleared(begin, 1 << 30), now = java->order();
    CHECK(cleared == begin && java->cleared(begin, 0) >= now && java->cleared(now, 1 << 30) >= now);
    java->made(pool, (uintptr_t)memory, 80, whole, thread, cleared, np_java_sample(4096, 0));
    java->gone(pool, (uintptr_t)memory, now);
    java->made(pool, (uintptr_t)memory + 160, 80, whole, thread + 1, now, np_java_sample(4096, 1));
    java->thread_name("a name of many words");
    java->trouble(NP_JAVA_FULL, "warning: many");
    java->dropped(3);
    CHECK(errno == 77);
    truth("made %lx", (unsigned long)memory);
    truth_write();
    return 0;
}
