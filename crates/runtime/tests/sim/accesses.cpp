// accesses.cpp: every kind of access that C++ has, so that compilers emit their call-outs: sizes, bit fields, packed and over-aligned members, volatile,
// virtual tables, unions, vectors, atomics with each order, large copies.
#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

struct __attribute__((packed)) Packed {
    char c;
    short s;
    int i;
    long l;
    double d;
    long double x;
    __int128 w;
};

struct Bits {
    unsigned a : 3, b : 13, c : 16;
    unsigned long d : 40;
};

struct alignas(64) Wide {
    double values[8];
};

struct Base {
    virtual ~Base() {}
    virtual int value() const { return field; }
    int field = 1;
};

struct Derived : Base {
    int value() const override { return field + more; }
    int more = 2;
};

typedef float vector4 __attribute__((vector_size(16)));
typedef double vector8 __attribute__((vector_size(64)));

volatile unsigned char volatile1;
volatile unsigned short volatile2;
volatile unsigned volatile4;
volatile uint64_t volatile8;
volatile __int128 volatile16;

template <class T> T mix(T *p, T add) {
    *p += add;
    T old = *p;
    *p = old ^ add;
    return old;
}

__int128 mix_all(Packed *p, Bits *b, vector4 *v, vector8 *w) {
    p->c++, p->s++, p->i++, p->l++, p->d++, p->x += 1, p->w++;
    b->a++, b->b++, b->c++, b->d++;
    *v += 1;
    *w += 1;
    volatile1 = volatile1 + 1, volatile2 = volatile2 + 1, volatile4 = volatile4 + 1, volatile8 = volatile8 + 1, volatile16 = volatile16 + 1;
    return p->w + b->d;
}

template <class T> T atomics(std::atomic<T> &a) {
    T seen = a.load(std::memory_order_relaxed) + a.load(std::memory_order_acquire) + a.load();
    a.store(1, std::memory_order_relaxed);
    a.store(2, std::memory_order_release);
    a.store(3);
    a.fetch_add(1), a.fetch_sub(1), a.fetch_and(3), a.fetch_or(4), a.fetch_xor(5), a.exchange(6);
    a.compare_exchange_weak(seen, 7);
    a.compare_exchange_strong(seen, 8, std::memory_order_acq_rel);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    return seen;
}

uint64_t everything(Wide *wide, unsigned char *c, unsigned short *s, unsigned *i, uint64_t *l) {
    static std::atomic<uint8_t> a8;
    static std::atomic<uint16_t> a16;
    static std::atomic<uint32_t> a32;
    static std::atomic<uint64_t> a64;
    wide[0] = wide[1];
    std::memcpy(wide + 2, wide + 3, 40);
    std::memset(wide + 4, 0, 640);
    Base *object = new Derived;
    uint64_t sum = static_cast<uint64_t>(object->value());
    delete object;
    std::string text(1000, 'x');
    std::vector<int> numbers(100, 1);
    for (int number : numbers) sum += static_cast<uint64_t>(number) + static_cast<unsigned char>(text[static_cast<size_t>(number)]);
    static const std::string once = text + "!";
    return sum + mix<unsigned char>(c, 1) + mix<unsigned short>(s, 1) + mix<unsigned>(i, 1) + mix<uint64_t>(l, 1) + atomics(a8) + atomics(a16) +
           atomics(a32) + atomics(a64) + once.size();
}
