//! Objects of functions that allocate for others are named after the callers: known by name, by their source, or by the user.

use crate::common::*;
use serde_json::Value;

const PROGRAM: &str = r#"
#include <stdlib.h>
#include <string.h>
enum { PREFIX = 16, CELLS = 1 << 17 };
/* As servers have it: the size is kept in front, and failure ends the program. */
__attribute__((noinline)) void *grab(size_t size) {
    void *ptr = malloc(size + PREFIX);
    if (ptr == NULL) abort();
    *(size_t *)ptr = size;
    return (char *)ptr + PREFIX;
}
struct node { struct node *next; char body[8 * CELLS]; };
__attribute__((noinline)) struct node *node_new(struct node *next) {
    struct node *fresh = malloc(sizeof(struct node));
    fresh->next = next;
    return fresh;
}
static char arena[64 << 20];
static size_t used;
/* From a pool that it makes itself: nothing in its source shows that it allocates for others. */
__attribute__((noinline)) char *pool_take(size_t size) {
    char *chunk = malloc(size);
    memset(arena + used % 4096, 1, 64);
    used += size;
    char *result = chunk;
    return result;
}
int main(void) {
    char *table = grab(8 * CELLS), *index_of = NULL;
    index_of = grab(8 * CELLS);
    struct node *list = node_new(node_new(NULL));
    char *pages = pool_take(8 * CELLS);
    for (int pass = 0; pass < 20; pass++)
        for (int i = 0; i < 8 * CELLS; i += 64) {
            table[i]++;
            index_of[i]++;
            list->body[i]++;
            list->next->body[i]++;
            pages[i]++;
        }
    return table[64] + index_of[64] == 0;
}
"#;

/// Names of heap objects and the functions that allocate them, by name.
fn names(options: &[&str]) -> Vec<(String, String)> {
    let folder = scratch();
    let program = build(folder.path(), "wrapped", "cc", PROGRAM, &["-g", "-O1"]);
    let trace = folder.path().join("t.numatrace");
    record(&trace, &[&["--machine", "opteron-8385"], options].concat(), &program, &[] as &[&str]).succeeded();
    let ran = finish(numapilot(&["report", "--json"]).arg(&trace)).succeeded();
    let report: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let rows = report["sites"].as_array().unwrap_or_else(|| panic!("{report:#}"));
    let text = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
    let heap = rows.iter().filter(|row| row["kind"] == "heap");
    let mut names: Vec<_> = heap.map(|row| (text(row, "name"), text(row, "function"))).collect();
    names.sort();
    names
}

#[test]
fn heap_objects_are_those_of_the_callers_of_allocation_wrappers() {
    let pairs = |list: &[(&str, &str)]| -> Vec<(String, String)> {
        list.iter().map(|(name, function)| ((*name).to_owned(), (*function).to_owned())).collect()
    };
    let by_source = pairs(&[("chunk", "pool_take"), ("fresh", "node_new"), ("index_of", "main"), ("table", "main")]);
    assert_eq!(names(&[]), by_source);
    let by_user = pairs(&[("fresh", "node_new"), ("index_of", "main"), ("pages", "main"), ("table", "main")]);
    assert_eq!(names(&["--wrapper", "pool_.*"]), by_user);
}

#[test]
fn what_is_no_regular_expression_is_refused_before_anything_runs() {
    let ran = finish(&mut numapilot(&["record", "--wrapper", "(", "--", "/bin/true"]));
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(ran.stderr.contains("no regular expression"), "{}", ran.stderr);
}
