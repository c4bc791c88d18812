/* remap_reasons.h: why a mapping was left, or its copies collapsed. The log has the word in the second column; src/reason.rs knows the same words (a test
 * compares the lists) and says what each means to the user. */
#ifndef NUMAPILOT_REMAP_REASONS_H
#define NUMAPILOT_REMAP_REASONS_H

/* The first: there is none. */
#define REMAP_REASONS(REASON)                       \
    REASON(NONE, "-")                               \
    REASON(UNREADABLE, "unreadable")                \
    REASON(SPECIAL, "special")                      \
    REASON(CHANGED_PAGES, "changed-pages")          \
    REASON(FILE_NOT_OPENED, "file-not-opened")      \
    REASON(NOT_REGULAR, "not-regular")              \
    REASON(OTHER_FILE, "other-file")                \
    REASON(BEYOND_END, "beyond-end")                \
    REASON(NOT_SEALED, "not-sealed")                \
    REASON(FILE_TOO_LARGE, "file-too-large")        \
    REASON(NO_ADDRESSES, "no-addresses")            \
    REASON(NODE_REFUSED, "node-refused")            \
    REASON(NO_MEMORY, "no-memory")                  \
    REASON(NODE_FULL, "node-full")                  \
    REASON(FILE_UNREADABLE, "file-unreadable")      \
    REASON(FILE_CHANGED, "file-changed")            \
    REASON(FOLDER_UNWRITABLE, "folder-unwritable")  \
    REASON(COPY_INCOMPLETE, "copy-incomplete")      \
    REASON(FOLDER_NOEXEC, "folder-noexec")          \
    REASON(NO_FILE_ADDRESSES, "no-file-addresses")  \
    REASON(MAPPING_CHANGED, "mapping-changed")      \
    REASON(MOVE_REFUSED, "move-refused")            \
    REASON(ALREADY_THERE, "already-there")          \
    REASON(IS_COLLAPSED, "is-collapsed")            \
    REASON(NOT_PINNED, "not-pinned")                \
    REASON(FILE_GONE, "file-gone")                  \
    REASON(TOO_MANY_GUARDS, "too-many-guards")      \
    REASON(NOT_GUARDED, "not-guarded")              \
    REASON(MADE_WRITABLE, "made-writable")          \
    REASON(UNMAPPED, "unmapped")                    \
    REASON(WRITTEN, "written")

#define REMAP_REASON_NAME(name, word) REASON_##name,
enum remap_reason { REMAP_REASONS(REMAP_REASON_NAME) };
#undef REMAP_REASON_NAME

#endif
