/* names.h: classes and stacks of Java, as the recorder numbers them. Pools and stacks call the virtual machine, and must not be asked for with the agent's
 * lock of objects held. */
#ifndef NUMAPILOT_JAVA_NAMES_H
#define NUMAPILOT_JAVA_NAMES_H

#include "../c/java.h"
#include "jvm.h"

/* A text of the virtual machine, which is modified UTF-8, as UTF-8: whole characters, in less than `room` bytes. Returns how many. */
size_t np_names_text(const char *modified, char *text, size_t room);
void np_names_use(const struct np_java_functions *functions);
/* The pool of a class, and the stamp from which on it may have objects; 0: there is none. A pool that is new has the stamp that is there. */
uint32_t np_names_pool(np_jvmti jvmti, void *class, uint64_t *order);
/* The calling thread's stack; 0: unknown. */
uint32_t np_names_stack(np_jvmti jvmti, np_jni jni);

#endif
