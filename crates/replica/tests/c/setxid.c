/* setxid.c: a program that changes its user, to the one that it has: the C library has every thread do so, and waits for each. Prints "changed". */
#define _GNU_SOURCE
#include <stdio.h>
#include <unistd.h>

int main(void) {
    uid_t user = getuid();
    alarm(60); /* for ever is longer */
    if (setresuid(user, user, user) != 0) return 2;
    puts("changed");
    return 0;
}
