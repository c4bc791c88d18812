/* names.h: classes and stacks of Java, as the recorder numbers them. Each function calls the virtual machine, and must not be called with the agent's lock
 * of objects held. */
#ifndef NUMAPILOT_JAVA_NAMES_H
#define NUMAPILOT_JAVA_NAMES_H

#include "../c/java.h"
#include "jvm.h"

void np_names_use(const struct np_java_functions *functions);
/* The pool of a class, and the stamp from which on it may have objects; 0: there is none. A pool that is new has the stamp that is there. */
uint32_t np_names_pool(np_jvmti jvmti, void *class, uint64_t *order);
/* The calling thread's stack; 0: unknown. */
uint32_t np_names_stack(np_jvmti jvmti, np_jni jni);

#endif
