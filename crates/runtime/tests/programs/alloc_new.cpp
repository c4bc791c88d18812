// Every form of C++'s operators new and delete, a replaced pair in a library, and bad_alloc on its way through the hooks.
#include "truth.h"
#include <new>
#include <string>
#include <vector>

struct alignas(128) Wide { char bytes[256]; };

static void forms() {
    void *a = ::operator new(24), *b = ::operator new[](48);
    MADE(a, 24, "New");
    MADE(b, 48, "NewArray");
    void *c = ::operator new(25, std::nothrow), *d = ::operator new[](49, std::nothrow);
    MADE(c, 25, "New");
    MADE(d, 49, "NewArray");
    auto align = std::align_val_t(256);
    void *e = ::operator new(26, align), *f = ::operator new[](50, align);
    MADE(e, 26, "New");
    MADE(f, 50, "NewArray");
    void *g = ::operator new(27, align, std::nothrow), *h = ::operator new[](51, align, std::nothrow);
    MADE(g, 27, "New");
    MADE(h, 51, "NewArray");
    for (void *block : {e, f, g, h}) CHECK((uintptr_t)block % 256 == 0);
    for (void *block : {a, b, c, d, e, f, g, h}) GONE(block);
    ::operator delete(a);
    ::operator delete[](b);
    ::operator delete(c, std::nothrow);
    ::operator delete[](d, std::nothrow);
    ::operator delete(e, align);
    ::operator delete[](f, align);
    ::operator delete(g, align, std::nothrow);
    ::operator delete[](h, align, std::nothrow);
    void *i = ::operator new(28), *j = ::operator new[](52), *k = ::operator new(29, align), *l = ::operator new[](53, align);
    MADE(i, 28, "New");
    MADE(j, 52, "NewArray");
    MADE(k, 29, "New");
    MADE(l, 53, "NewArray");
    for (void *block : {i, j, k, l}) GONE(block);
    ::operator delete(i, 28);
    ::operator delete[](j, 52);
    ::operator delete(k, 29, align);
    ::operator delete[](l, 53, align);
    Wide *wide = new Wide;
    CHECK((uintptr_t)wide % 128 == 0);
    MADE(wide, 256, "New");
    GONE(wide);
    delete wide;
}

static void exceptions() {
    volatile size_t much = PTRDIFF_MAX;
    for (int i = 0; i < 10; i++) {
        bool thrown = false;
        try {
            void *block = ::operator new(much);
            CHECK(block == nullptr);
        } catch (const std::bad_alloc &) {
            thrown = true;
        }
        CHECK(thrown);
        // The hooks must be awake again.
        void *after = malloc(60 + i);
        MADE(after, 60 + i, "Malloc");
        GONE(after);
        free(after);
    }
    CHECK(::operator new(much, std::nothrow) == nullptr);
}

static void containers() {
    std::vector<std::string> texts;
    for (int i = 0; i < 1000; i++) texts.push_back(std::string(50 + i % 7, 'x'));
}

int main() {
    forms();
    exceptions();
    containers();
    truth_write();
}
