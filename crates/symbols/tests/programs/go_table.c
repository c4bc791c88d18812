/* Appended to a program with the functions `twice` and `main`: Go's table of the first, into which `main.once` is inlined behind its first byte, and the
 * runtime's description that says where the code begins, and where the data of functions lie. */
__asm__(".text\n"
        "go_end:\n"
        ".section .gopclntab, \"a\", @progbits\n"
        ".balign 8\n"
        "go_table: .long 0xfffffff1\n .byte 0, 0, 1, 8\n"
        " .quad 1, 1, 0, go_names - go_table, go_units - go_table, go_files - go_table, go_values - go_table, go_index - go_table\n"
        "go_names: .asciz \"\"\n .asciz \"main.twice\"\n .asciz \"main.once\"\n"
        ".balign 4\n"
        "go_units: .long 0\n"
        "go_files: .asciz \"main.go\"\n"
        /* Of 16,383 bytes of code: line 4 of the first byte, 12 of the rest; file 0; nothing inlined in the first byte, call 0 in the rest. */
        "go_values: .byte 0, 10, 1, 16, 0xfe, 0x7f, 0, 2, 0xff, 0x7f, 0, 0, 1, 2, 0xfe, 0x7f, 0\n"
        ".balign 4\n"
        "go_index: .long 0, go_function - go_index, go_end - twice\n"
        "go_function: .long 0, 1, 0, 0, 0, 7, 1, 3, 0, 2\n .byte 0, 0, 0, 4\n .long 0, 0, 11\n .long -1, -1, -1, 4\n"
        /* The call: the function's name, and the place of the call, the first byte. */
        "go_data: .long 0\n .long 0, 12, 0, 2\n"
        "go_table_end:\n"
        ".section .go.module, \"aw\", @progbits\n"
        " .quad go_table\n .zero 152\n .quad twice, go_end, twice\n .zero 136\n .quad go_data, go_table_end\n"
        ".text\n");
