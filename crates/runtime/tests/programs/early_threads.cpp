/* A library whose constructor starts threads and waits for them, one after another: each is the first to call a function of its own. While the constructor
 * runs, its thread holds the loader's lock. */
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <new>
#include <thread>

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static std::mutex mutex;
static std::condition_variable condition;
static void *volatile block;

static void allocate() {
    block = operator new[](100, std::nothrow);
    operator delete[](block);
    block = operator new(100, std::align_val_t(64));
    operator delete(block, std::align_val_t(64));
    block = aligned_alloc(64, 128);
    free(block);
}

static void wait_a_while() {
    std::unique_lock<std::mutex> lock(mutex);
    condition.wait_for(lock, std::chrono::milliseconds(1));
    condition.notify_all();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    sched_yield();
    syscall(SYS_gettid);
}

static void lock_everything() {
    sem_t semaphore;
    pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
    pthread_spinlock_t spin;
    sem_init(&semaphore, 0, 1);
    sem_wait(&semaphore);
    sem_post(&semaphore);
    pthread_rwlock_rdlock(&lock);
    pthread_rwlock_unlock(&lock);
    pthread_spin_init(&spin, 0);
    pthread_spin_lock(&spin);
    pthread_spin_unlock(&spin);
}

static void use_files() {
    char byte;
    int file = open("/dev/null", O_RDWR);
    struct pollfd ready = {file, POLLOUT, 0};
    if (write(file, "x", 1) != 1 || read(file, &byte, 1) != 0 || poll(&ready, 1, 0) != 1) abort();
    close(file);
    FILE *stream = fopen("/dev/null", "r");
    if (stream == nullptr) abort();
    fclose(stream);
}

static void ask_and_map() {
    cpu_set_t cpus;
    sched_getaffinity(0, sizeof cpus, &cpus);
    if (sysconf(_SC_NPROCESSORS_ONLN) < 1 || sched_getcpu() < 0) abort();
    prctl(PR_SET_NAME, "early", 0, 0, 0);
    void *page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(page, 4096);
    if (sbrk(0) == nullptr) abort();
}

static void jump() {
    static jmp_buf place;
    if (setjmp(place) == 0) longjmp(place, 1);
}

static struct Early {
    Early() {
        for (void (*work)() : {allocate, wait_a_while, lock_everything, use_files, ask_and_map, jump}) std::thread(work).join();
    }
} early;

extern "C" int early_answer() { return 42; }
