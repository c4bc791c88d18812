/* region.c: `region begin` opens a region of interest of the lab's plugin, `region end` closes it and has the counts written. */
#include "mark.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

int main(int count, char **arguments) {
    if (count != 2 || (strcmp(arguments[1], "begin") != 0 && strcmp(arguments[1], "end") != 0)) {
        fputs("usage: region begin|end\n", stderr);
        return 2;
    }
    np_mark(strcmp(arguments[1], "begin") == 0 ? NP_MARK_BEGIN : NP_MARK_END, NULL);
    return 0;
}
