//! The documents: no dead link, every page in the book, and the reference of commands as the program prints it. The book itself takes mdBook (`make docs`).

use std::process::Command;

use crate::common::*;

#[test]
fn the_tools_of_the_documents_do_what_they_say() {
    finish(Command::new("python3").arg(root().join("tools/test_docs.py"))).succeeded();
}

#[test]
fn no_link_is_dead_and_no_page_is_missing() {
    finish(Command::new("python3").arg(root().join("tools/docs-links"))).succeeded();
}

#[test]
fn the_reference_of_commands_is_what_the_program_prints() {
    finish(Command::new("python3").arg(root().join("tools/docs-reference")).args([BINARY, "--check"])).succeeded();
}
