/* plan_charged.c: memory that one block gave back, and another takes, under a limit that holds one of them (`ulimit -d`; vm.overcommit_memory=2). The
 * second has another size, so that a rule may take the first alone. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void) {
    size_t bytes = 100 << 20;
    for (int i = 0; i < 3; i++) {
        char *volatile first = malloc(bytes);
        if (first == NULL) return puts("no first"), 1;
        memset(first, 1, bytes);
        free(first);
        char *volatile second = malloc(bytes + 4096);
        if (second == NULL) return puts("no second"), 1;
        memset(second, 2, bytes);
        free(second);
    }
    puts("both");
    return 0;
}
