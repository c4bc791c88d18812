/* lastthread.c: a program whose first thread ends before its second, and which ends with that. Prints "done". */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static void *finish(void *nothing) {
    usleep(200000);
    puts("done"); /* written out at the program's end */
    return nothing;
}

int main(void) {
    pthread_t thread;
    alarm(60); /* for ever is longer */
    if (pthread_create(&thread, NULL, finish, NULL) != 0) return 2;
    pthread_exit(NULL);
}
