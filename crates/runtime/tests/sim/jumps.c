/* jumps.c: a signal handler jumps out of plain computation many times, mostly out of a call-out; then fresh memory is swept, which must all be seen.
 * Compiled with call-outs; ../sim_model.rs has what must come out. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/time.h>

#define JUMPS 300
#define SWEPT (4ul << 20)

static sigjmp_buf home;
static volatile int jumps;
static volatile char small[8192];

__attribute__((no_sanitize_thread)) static void on_alarm(int number) {
    (void)number;
    jumps++;
    siglongjmp(home, 1);
}

int main(void) {
    struct sigaction action = {.sa_handler = on_alarm};
    struct itimerval often = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
    sigaction(SIGALRM, &action, NULL);
    sigsetjmp(home, 1);
    setitimer(ITIMER_REAL, &often, NULL);
    while (jumps < JUMPS)
        for (unsigned i = 0; i < sizeof small; i++) small[i * 8191u % sizeof small]++;
    setitimer(ITIMER_REAL, &never, NULL);
    volatile char *block = malloc(SWEPT);
    for (unsigned long i = 0; i < SWEPT; i += 64) block[i] = 1;
    return 0;
}
