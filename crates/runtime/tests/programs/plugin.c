/* A plugin, and (with -DDEPENDENCY) the library next to it that only its RUNPATH finds. */
#include <stdlib.h>
#ifdef DEPENDENCY
int plugin_table[100000] = {1};
void *dependency_make(void) { void *block = malloc(555); return plugin_table[0] ? block : NULL; }
#else
void *dependency_make(void);
void *plugin_make(void) { void *block = dependency_make(); ((char *)block)[0] = 1; return block; }
__attribute__((constructor)) static void begin(void) { free(malloc(556)); }
#endif
