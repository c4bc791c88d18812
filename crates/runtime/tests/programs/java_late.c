/* A class of Java that is met where nothing can be recorded any more, in a thread whose last destructors run: it has no pool, so that it is asked for again. */
#define _GNU_SOURCE
#include "../../c/java.h"

#include "truth.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>

static const struct np_java_functions *java;
static pthread_key_t key;
static uint32_t pools[PTHREAD_DESTRUCTOR_ITERATIONS];
static unsigned rounds;

static void at_end(void *value) {
    uint64_t order = java->order();
    pools[rounds++] = java->pool("byte[]", &order);
    if (rounds < PTHREAD_DESTRUCTOR_ITERATIONS) pthread_setspecific(key, value);
}

static void *ends(void *argument) {
    pthread_setspecific(key, argument);
    return argument;
}

int main(void) {
    java = dlsym(RTLD_DEFAULT, NP_JAVA_SYMBOL);
    CHECK(java != NULL && java->begin());
    pthread_t id;
    CHECK(pthread_key_create(&key, at_end) == 0 && pthread_create(&id, NULL, ends, &key) == 0 && pthread_join(id, NULL) == 0);
    CHECK(rounds == PTHREAD_DESTRUCTOR_ITERATIONS && pools[0] != 0); /* the thread can still record */
    CHECK(pools[rounds - 1] == 0);
    truth("ended %u", rounds);
    truth_write();
    return 0;
}
