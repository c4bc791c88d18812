/* Appended to a program with the functions `twice` and `main`: Go's table of the first, and the runtime's description that says where the code begins. */
__asm__(".text\n"
        "go_end:\n"
        ".section .gopclntab, \"a\", @progbits\n"
        ".balign 8\n"
        "go_table: .long 0xfffffff1\n .byte 0, 0, 1, 8\n"
        " .quad 1, 1, 0, go_names - go_table, go_units - go_table, go_files - go_table, go_values - go_table, go_index - go_table\n"
        "go_names: .asciz \"\"\n .asciz \"main.twice\"\n"
        ".balign 4\n"
        "go_units: .long 0\n"
        "go_files: .asciz \"main.go\"\n"
        /* Line 12, and file 0, of 16,383 bytes of code. */
        "go_values: .byte 0, 26, 0xff, 0x7f, 0, 2, 0xff, 0x7f, 0\n"
        ".balign 4\n"
        "go_index: .long 0, go_function - go_index, go_end - twice\n"
        "go_function: .long 0, 1, 0, 0, 0, 5, 1, 0, 0\n"
        ".section .go.module, \"aw\", @progbits\n"
        " .quad go_table\n .zero 152\n .quad twice, go_end, twice\n"
        ".text\n");
