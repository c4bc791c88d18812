/* copying.h: for programs that do something while the preload library copies a file for them. */
#ifndef COPYING_H
#define COPYING_H

#include <dirent.h>
#include <stddef.h>
#include <string.h>

/* A copy is being written to the folder of copies: until it is whole, its name begins with a dot. */
static int is_copying(const char *folder_path) {
    DIR *folder = opendir(folder_path);
    int found = 0;
    for (struct dirent *entry; folder && (entry = readdir(folder)) != NULL;) {
        found |= entry->d_name[0] == '.' && strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..");
    }
    if (folder) closedir(folder);
    return found;
}

#endif
