/* hotspot.h: which virtual machine this is, and whether its objects can be followed. */
#ifndef NUMAPILOT_JAVA_HOTSPOT_H
#define NUMAPILOT_JAVA_HOTSPOT_H

#include "jvm.h"

#include <stdbool.h>

enum np_collector { NP_COLLECTOR_NO_HOTSPOT, NP_COLLECTOR_OTHER, NP_COLLECTOR_PAUSES };
/* By HotSpot's own tables of its flags. */
enum np_collector np_hotspot_collector(np_jvm jvm);
/* Whether references are laid out as objects.c reads them: tried with an array. */
bool np_hotspot_layout_is_known(np_jni jni);

#endif
