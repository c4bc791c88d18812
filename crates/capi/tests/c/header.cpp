// header.cpp: the header in C++11.
#include <numapilot.h>
// Headers of a program may each include it.
#include <numapilot.h>

int main() {
    numapilot_filter filter = NUMAPILOT_FILTER_ALL;
    filter.conditions = NUMAPILOT_CONDITION_WRITE;
    numapilot_flow flow = {0};
    unsigned long count = 0;
    numapilot_foreach (flow, access) count += access->weight;
    return filter.conditions == 128 && count == 0 && numapilot_version() == NUMAPILOT_API_VERSION ? 0 : 1;
}
