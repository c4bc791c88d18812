//! Command lines as build systems write them, and what the wrapper makes of them.

use std::ffi::OsString;

use super::arguments::Invocation;

fn parse(line: &str) -> Invocation {
    let args: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
    Invocation::parse(&args)
}

#[test]
fn steps_are_told_apart() {
    let compile = parse("-O2 -MD -MF a.d -c a.c -o a.o");
    assert!(compile.compiles && !compile.links && !compile.is_query);
    let link = parse("a.o b.o -L. -lm -o a");
    assert!(!link.compiles && link.links && !link.shared);
    let both = parse("a.c -o a");
    assert!(both.compiles && both.links);
    let library = parse("-shared -fPIC a.o libb.so.1 -o libx.so");
    assert!(library.links && library.shared && !library.compiles);
    assert!(!parse("-r a.o b.o -o c.o").links);
    assert!(!parse("-fsyntax-only a.c").links);
    let preprocess = parse("-E -dM -x c /dev/null");
    assert!(!preprocess.compiles && !preprocess.links && !preprocess.is_query);
    let header = parse("-x c++-header all.hpp -o all.hpp.gch");
    assert!(header.compiles && !header.links);
    assert!(!parse("-O2 all.h").links);
    let piped = parse("-pipe -xc - -o a");
    assert!(piped.compiles && piped.links && piped.language_was_set);
}

/// clang says of each of the link's options that it is unused where it links nothing, and fails with `-Werror`.
#[test]
fn what_links_nothing_gets_no_options_of_the_link() {
    for line in ["--analyze a.c", "--precompile a.cppm -o a.pcm", "-emit-ast a.c", "--compile a.c", "--assemble a.c"] {
        assert!(parse(line).compiles && !parse(line).runs_linker, "{line:?}");
    }
    let preprocess = parse("--preprocess a.c -o a.i");
    assert!(!preprocess.compiles && !preprocess.runs_linker && !preprocess.is_query);
    // Nor does a link of objects get those of compilers: SCons names the objects of libraries so.
    let link = parse("-shared -o libx.so a.os b.os -T x.lds");
    assert!(link.links && !link.compiles);
}

/// `g++ *.cpp *.h`: the headers are precompiled, the program is linked.
#[test]
fn headers_beside_sources_do_not_stop_the_link() {
    assert!(parse("main.cpp helper.hpp -o main").links && parse("main.o helper.h").links);
    let alone = parse("helper.h");
    assert!(!alone.links && alone.compiles && !alone.is_query);
    assert!(!parse("-c main.cpp helper.hpp").links);
}

/// A library of archives alone, and the program whose `main` lies in one.
#[test]
fn libraries_alone_are_linked() {
    let library = parse("-shared -o libx.so -Wl,--whole-archive -lparts -Wl,--no-whole-archive");
    assert!(library.links && library.shared && !library.is_query && !library.compiles);
    assert!(parse("-L. -l parts -o x").links);
    assert!(parse("-lparts --version").is_query);
}

#[test]
fn partial_links_asked_of_the_linker_are_partial_links() {
    for line in ["-nostdlib -Wl,-r a.o b.o -o c.o", "-nostdlib -Wl,-d,--relocatable a.o b.o -o c.o"] {
        assert!(!parse(line).links && parse(line).runs_linker, "{line:?}");
    }
    assert!(parse("a.o -Wl,-rpath,/opt/lib").links);
}

/// clang warns of `-U` where there is nothing to preprocess, and fails with `-Werror`.
#[test]
fn code_that_was_preprocessed_gets_no_options_of_the_preprocessor() {
    for line in ["-c a.i", "-c a.ii", "-c a.ll", "-c a.bc", "-x cpp-output -c a", "-xc++-cpp-output -c a.txt"] {
        assert!(parse(line).compiles && !parse(line).preprocesses, "{line:?}");
    }
    for line in ["-c a.c", "a.c b.i", "-x c -c a.i", "all.h"] {
        assert!(parse(line).preprocesses, "{line:?}");
    }
    assert!(!parse("a.o").preprocesses && !parse("-E a.c").preprocesses);
}

#[test]
fn questions_pass_through() {
    for line in [
        "--version",
        "-v",
        "-print-search-dirs",
        "--print-multiarch",
        "-dumpmachine",
        "-### a.c",
        "",
        "--help=target",
        "-dumpversion",
    ] {
        assert!(parse(line).is_query, "{line:?}");
    }
    for line in ["-v a.c", "a.c", "-c a.c", "a.o"] {
        assert!(!parse(line).is_query, "{line:?}");
    }
}

#[test]
fn values_of_options_are_no_inputs() {
    assert!(parse("-o out.c -I -x").is_query);
    assert!(!parse("-include config.h -c a.c").links);
    assert!(parse("-Xlinker -s a.o").links);
    for line in ["-Xlinker -r a.o", "-Wl,-r a.o", "-Xlinker --relocatable a.o"] {
        assert!(parse(line).runs_linker && !parse(line).links, "{line:?}");
    }
}

#[test]
fn code_for_other_machines_is_left_alone() {
    for line in ["-target bpf -c a.c", "--target=riscv64-linux-gnu -c a.c", "-m32 a.c", "-m64 -m32 a.c", "-mx32 -c a.c"]
    {
        assert!(parse(line).is_foreign, "{line:?}");
    }
    let own = format!("--target={}-linux-gnu -c a.c", std::env::consts::ARCH);
    for line in ["-c a.c", "-m32 -m64 a.c", "-mavx2 a.c", own.as_str(), "-MT -m32 -c a.c", "-o -m32 a.c"] {
        assert!(!parse(line).is_foreign, "{line:?}");
    }
}

#[test]
fn what_the_user_chose_stays() {
    for line in ["-g a.c", "-g0 a.c", "-ggdb3 a.c", "-gdwarf-4 a.c", "-gsplit-dwarf -g a.c"] {
        assert!(parse(line).has_debug_option, "{line:?}");
    }
    // Of these, none makes debug information by itself.
    for option in ["-grecord-gcc-switches", "-gno-column-info", "-gsplit-dwarf", "-gdwarf64", "-gctf", "-gbtf", "-gz"] {
        assert!(!parse(&format!("{option} a.c")).has_debug_option, "{option}");
    }
    assert!(parse("-fomit-frame-pointer a.c").has_frame_option);
}

#[test]
fn conflicts_are_named() {
    assert_eq!(parse("-fsanitize=undefined,address a.c").conflict().as_deref(), Some("-fsanitize=address"));
    assert_eq!(parse("-fsanitize=thread -c a.c").conflict().as_deref(), Some("-fsanitize=thread"));
    assert_eq!(parse("-fsanitize=undefined a.c").conflict(), None);
    for line in ["-fsanitize=address -E a.c", "-fsanitize=thread -M a.c"] {
        assert_eq!(parse(line).conflict(), None, "{line:?}: nothing is compiled");
    }
    assert_eq!(parse("-fsanitize=address -fno-sanitize=address a.c").conflict(), None);
    assert_eq!(parse("-static a.c").static_option.as_deref(), Some("-static"));
    assert_eq!(parse("-static-libgcc -static-libstdc++ a.c").static_option, None);
}

/// The tracker cannot be loaded into a static program: it would be recorded as one that accesses nothing.
#[test]
fn static_links_are_refused_by_their_option() {
    for option in ["-static", "--static", "-static-pie"] {
        let args = [option, "a.o", "-o", "a"].map(OsString::from);
        let refused = super::command(&super::Language::C.into(), &args).expect_err("a static link");
        assert!(refused.to_string().starts_with(&format!("{option}: ")), "{refused}");
        assert!(!parse(&format!("{option} -c a.c")).links, "{option}: nothing is linked, and nothing refused");
    }
    let last = |line: &str| parse(line).static_option;
    assert_eq!(last("-static-libgcc a.o -Wl,-static").as_deref(), Some("-Wl,-static"));
    assert_eq!(last("a.o -Xlinker -Bstatic").as_deref(), Some("-Wl,-Bstatic"));
    // Of single libraries, and of what a library is made of.
    assert_eq!(last("a.o -Wl,-Bstatic -lm -Wl,-Bdynamic"), None);
    assert_eq!(last("a.o -Wl,--push-state,-Bstatic -lm -Wl,--pop-state"), None);
    assert_eq!(last("-shared a.o -Wl,-Bstatic -lm"), None);
}

#[test]
fn response_files_are_read() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("args");
    std::fs::write(&file, "-c \"a b.c\"\n'-o' a\\ b.o -g").expect("written");
    let found = Invocation::parse(&[OsString::from(format!("@{}", file.display()))]);
    assert!(found.compiles && !found.links && found.has_debug_option);
    std::fs::write(&file, b"-shared caf\xe9.o").expect("written");
    assert!(Invocation::parse(&[OsString::from(format!("@{}", file.display()))]).shared, "a path in Latin-1");
}

/// `-save-temps` has gcc append `-fasynchronous-unwind-tables` and the like to the last option without a blank: nothing was compiled.
#[test]
fn the_specs_end_their_last_option() {
    for has_entry_exit_param in [true, false] {
        let (program, leading) = ("gcc".into(), Vec::new());
        let toolchain =
            super::Toolchain { program, leading, family: super::Family::Gcc, has_entry_exit_param, depth: 1 };
        let specs = super::gcc_specs(&toolchain);
        assert_eq!(specs.contains(" --param=tsan-instrument-func-entry-exit=0 \n"), has_entry_exit_param, "{specs:?}");
        assert!(specs.starts_with("*cc1_options:\n+ -fsanitize=thread ") && specs.ends_with(" \n\n"), "{specs:?}");
    }
}
