"""A C header as cbindgen writes it, or one in the same plain style, and what a C compiler makes of its types. For tools/abi.

Names and types come from the header's text, bytes and values from a program that the compiler builds from it. Only what crosses the interface counts: structs
that no function takes (those of the header's inline functions) are compiled into programs.
"""

import os
import pathlib
import re
import subprocess
import tempfile

from interface import Member, Struct


class Failed(Exception):
    """Why the header says nothing."""


def plain(text):
    """C without comments and preprocessor lines."""
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL)
    text = re.sub(r"//[^\n]*", "", text)
    return re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*$", "", text, flags=re.MULTILINE)


def type_text(text):
    """A type in one form: `struct x` is `x`, and spaces stand only where words need them."""
    text = re.sub(r"\b(?:struct|enum) ", "", " ".join(text.split()))
    return re.sub(r" ?\* ?", "*", text).replace("*", " *", 1) if "*" in text else text


def parameter(text):
    """The type of a parameter, without its name."""
    text = " ".join(text.split())
    named = re.fullmatch(r"(.*[ *])\w+", text)
    # `struct x` and `const int` have no name.
    if named and named[1].split()[-1] not in ("struct", "enum", "const"):
        text = named[1]
    return type_text(text.strip())


def signature(returned, parameters):
    """A signature in one form."""
    space = "" if returned.endswith("*") else " "
    return f"{returned}{space}({', '.join(parameter(part) for part in parameters.split(','))})"


def functions(text):
    """Signatures of the functions that the header declares, by name. `text` is plain C."""
    found = {}
    # Declarations begin their line; calls in inline functions do not.
    for returned, name, parameters in re.findall(r"^([A-Za-z_][\w \t*]*?)(\w+)\(([^;{}()]*)\);", text, re.MULTILINE):
        found[name] = signature(type_text(returned.strip()), parameters)
    return found


def field(declaration):
    """Name and type of one field: a plain one, an array or a pointer to a function. Raises Failed for other forms, which cbindgen does not write."""
    pointer = re.fullmatch(r"(.+)\(\*(\w+)\)\((.*)\)", declaration)
    if pointer:
        return pointer[2], signature(f"{type_text(pointer[1].strip())} (*)", pointer[3]).replace("(*) (", "(*)(")
    plain_one = re.fullmatch(r"([^,:]*[\w*][ *]+)(\w+)((?:\[\w+\])*)", declaration)
    if not plain_one:
        raise Failed(f"a field is not understood: {declaration}")
    return plain_one[2], type_text(plain_one[1].strip()) + plain_one[3]


def structs(text):
    """Declarations of fields, by the struct. `text` is plain C."""
    found = {}
    for name, body in re.findall(r"\bstruct (\w+) \{([^{}]*)\}", text):
        found[name] = [" ".join(part.split()) for part in body.split(";") if part.strip()]
    return found


def enums(text):
    """Names of enumerators, by the enum. `text` is plain C."""
    return {name: re.findall(r"(\w+) *=", body) for name, body in re.findall(r"\benum (\w+) \{([^{}]*)\}", text)}


def constants(header):
    """Names of macros that are numbers, and of enumerators whose enum has no name, of a header's text."""
    macros = re.findall(r"^#define (NUMAPILOT_\w+) (?:\d+|UINT\d+_MAX)$", header, re.MULTILINE)
    return macros + [name for body in re.findall(r"\benum \{([^{}]*)\}", plain(header)) for name in re.findall(r"(\w+) *=", body)]


def crossing(signatures, declared):
    """The structs that functions take or that these contain: types of fields by name, by the struct, in the header's order."""
    wanted, words = set(), " ".join(signatures.values())
    while True:
        more = {name for name in declared if name not in wanted and re.search(rf"\b{name}\b", words)}
        if not more:
            return {name: dict(field(part) for part in parts) for name, parts in declared.items() if name in wanted}
        wanted |= more
        words = " ".join(part for name in more for part in declared[name])


def numbers(header, expressions):
    """Values of constant expressions as a C compiler (`CC`, else gcc) sees them behind the header, a path."""
    lines = "".join(f'printf("%lld\\n", (long long)({expression}));\n' for expression in expressions)
    # Looked up first where the header is: in <> it could be another version's that is installed.
    source = f'#include <stddef.h>\n#include <stdio.h>\n#include "{header.name}"\nint main(void) {{\n{lines}return 0;\n}}\n'
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder) / "numbers"
        compiler = [os.environ.get("CC", "gcc"), "-std=c11", "-w", f"-I{header.parent}", "-x", "c", "-", "-o", str(program)]
        try:
            subprocess.run(compiler, input=source, text=True, check=True, capture_output=True)
            said = subprocess.run([program], text=True, check=True, capture_output=True).stdout
        except subprocess.CalledProcessError as error:
            raise Failed(f"{header}: {error.stderr.strip() or error}") from None
        except OSError as error:
            raise Failed(f"no C compiler runs: {error}") from None
    return [int(line) for line in said.split()]


def types(header):
    """What a header, a path, declares: signatures, structs, enums and constants, as `Interface` has them."""
    text = header.read_text(encoding="utf-8")
    code, names = plain(text), constants(text)
    signatures, lists = functions(code), enums(code)
    fields = crossing(signatures, structs(code))
    asked = list(names) + [one for values in lists.values() for one in values]
    for name, types_of in fields.items():
        asked += [f"sizeof(struct {name})", f"_Alignof(struct {name})"]
        asked += [what for one in types_of for what in (f"offsetof(struct {name}, {one})", f"sizeof(((struct {name} *)0)->{one})")]
    answers = iter(numbers(header, asked))
    values = {name: next(answers) for name in names}
    enumerators = {name: {one: next(answers) for one in ones} for name, ones in lists.items()}
    made = {}
    for name, types_of in fields.items():
        size, alignment = next(answers), next(answers)
        made[name] = Struct(size, alignment, {one: Member(next(answers), next(answers), kind) for one, kind in types_of.items()})
    return signatures, made, enumerators, values
