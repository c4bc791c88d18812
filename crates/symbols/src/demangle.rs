//! Demangles and shortens names of functions.

use std::borrow::Cow;

/// Longest mangled name, bytes, that is demangled.
const MANGLED_BYTES_MAX: usize = 16 << 10;
/// Longest name that is kept, in bytes.
const NAME_BYTES_MAX: usize = 1024;

/// Demangles a C++ or Rust name; other names are unchanged. The result is cut at 1024 bytes, and its control characters are replaced.
#[must_use]
pub fn demangle(name: &str) -> String {
    if name.len() > MANGLED_BYTES_MAX {
        return tidy(name);
    }
    if let Some(demangled) = rust(name) {
        return tidy(&demangled);
    }
    if let Some(demangled) = cpp(name) {
        return tidy(&demangled);
    }
    tidy(&fortran_module(name).unwrap_or_else(|| name.to_owned()))
}

/// Rust's own names only. Its first mangling is that of variables of C++ and a hash, and the library takes each last part like `head` or `h`, an `h` and
/// hexadecimal digits, for the hash, and leaves it out: C++'s `list::head` would be `list`.
fn rust(name: &str) -> Option<String> {
    const HASH: &str = "17h";
    let is_hash = |at: usize| {
        let hash = name.as_bytes().get(at + HASH.len()..at + HASH.len() + 16);
        hash.is_some_and(|hash| hash.iter().all(u8::is_ascii_hexdigit)) && name[at + HASH.len() + 16..].starts_with('E')
    };
    let is_rust =
        name.starts_with("_R") || name.starts_with("_ZN") && name.match_indices(HASH).any(|(at, _)| is_hash(at));
    let demangled = rustc_demangle::try_demangle(name).ok().filter(|_| is_rust)?;
    Some(format!("{demangled:#}"))
}

fn cpp(name: &str) -> Option<String> {
    let options = cpp_demangle::DemangleOptions::new().no_params().no_return_type().recursion_limit(192);
    if !name.starts_with("_Z") && !name.starts_with("___Z") {
        return None;
    }
    if let Some(demangled) =
        cpp_demangle::Symbol::new(name).ok().and_then(|symbol| symbol.demangle_with_options(&options).ok())
    {
        return Some(demangled);
    }
    // Old compilers' conditions on templates (`enable_if` with `Xsr...`) are none to the parser. They stand in return types and parameters, which are not
    // shown: the name before them is whole, where it is that of a template, which ends in its arguments.
    let (symbol, rest) = cpp_demangle::BorrowedSymbol::with_tail(name.as_bytes()).ok()?;
    let whole = name.len() - rest.len();
    let is_template = name[..whole].ends_with('E') && rest.first().is_some_and(u8::is_ascii_alphabetic);
    symbol.demangle_with_options(&options).ok().filter(|_| is_template)
}

/// Demangles gfortran's name of a module variable: `__grid_MOD_u` gives `grid::u`, in debuggers' notation, because Fortran has none.
fn fortran_module(name: &str) -> Option<String> {
    let (module, entity) = name.strip_prefix("__")?.split_once("_MOD_")?;
    (!module.is_empty() && !entity.is_empty()).then(|| format!("{module}::{entity}"))
}

/// Makes a name printable and bounds its length, because names in files are untrusted.
#[must_use]
pub fn tidy(name: &str) -> String {
    let mut tidy = String::with_capacity(name.len().min(NAME_BYTES_MAX));
    for character in name.chars() {
        if tidy.len() + character.len_utf8() > NAME_BYTES_MAX {
            tidy.push('…');
            break;
        }
        tidy.push(if character.is_control() { '\u{fffd}' } else { character });
    }
    tidy
}

/// A function's name without its parameter list and return type: `void ns::run<int>(int*) const` becomes `ns::run<int>`.
#[must_use]
pub fn short_function(name: &str) -> &str {
    let name = name.trim();
    let without_parameters = &name[..parameter_start(name).unwrap_or(name.len())];
    if without_parameters.contains("operator") {
        return without_parameters;
    }
    let mut depth = 0i32;
    let mut start = 0;
    for (index, byte) in without_parameters.bytes().enumerate() {
        match byte {
            b'<' | b'(' | b'{' | b'[' => depth += 1,
            b'>' | b')' | b'}' | b']' => depth -= 1,
            b' ' if depth == 0 => start = index + 1,
            _ => {}
        }
    }
    // `<T as Trait>::call` has a blank inside its brackets only; a cut that leaves nothing is none.
    if start < without_parameters.len() { &without_parameters[start..] } else { without_parameters }
}

/// A function's name without the arguments of its templates: `ns::Pool<T, 4>::take<int>` becomes `ns::Pool::take`. A name that begins with a bracket is
/// Rust's, of a trait's function, and stays as it is.
pub(crate) fn without_arguments(name: &str) -> Cow<'_, str> {
    if name.starts_with('<') || !name.contains('<') {
        return name.into();
    }
    let (mut depth, mut last) = (0_usize, ' ');
    let mut shown = String::with_capacity(name.len());
    for character in name.chars() {
        match character {
            '<' => depth += 1,
            // Of `operator->`.
            '>' if last == '-' => {}
            '>' => depth = depth.saturating_sub(1),
            _ if depth == 0 => shown.push(character),
            _ => {}
        }
        last = character;
    }
    shown.into()
}

/// Where the parameter list begins: the last "(" outside all brackets that does not belong to `(anonymous namespace)` or
/// `operator()`.
fn parameter_start(name: &str) -> Option<usize> {
    let bytes = name.as_bytes();
    let mut depth = 0i32;
    let mut found = None;
    for (index, &byte) in bytes.iter().enumerate() {
        match byte {
            b'<' if index == 0 || !name[..index].ends_with("operator") => depth += 1,
            b'>' if depth > 0 && bytes[index - 1] != b'-' => depth -= 1,
            b'(' if depth == 0 => {
                let rest = &name[index..];
                // Go: `main.(*Grid).fill` is the method of a pointer.
                let receiver = name[..index].ends_with('.');
                let special =
                    rest.starts_with("(anonymous namespace)") || name[..index].ends_with("operator") || receiver;
                if !special && index > 0 {
                    found = found.or(Some(index));
                }
                depth += 1;
            }
            // Go: `main.apply[go.shape.func(int) bool]` has a type of functions as its argument.
            b'(' | b'[' => depth += 1,
            b')' | b']' if depth > 0 => depth -= 1,
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpp_and_rust_names_are_demangled() {
        assert_eq!(demangle("_ZN5Point4moveEi"), "Point::move");
        assert_eq!(demangle("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE"), "core::fmt::Write::write_fmt");
        assert_eq!(demangle("main"), "main");
        assert_eq!(demangle("__grid_MOD_u"), "grid::u");
        assert_eq!(demangle("__MOD_"), "__MOD_");
        assert_eq!(demangle("_Znonsense"), "_Znonsense");
        assert_eq!(demangle("_RNvC6_123foo3bar"), "123foo::bar");
    }

    /// Their last parts read like the hashes of Rust's names.
    #[test]
    fn variables_of_cpp_keep_their_last_names() {
        for (mangled, name) in [
            ("_ZN4list4headE", "list::head"),
            ("_ZN4grid1hE", "grid::h"),
            ("_ZN5Queue2haE", "Queue::ha"),
            ("_ZN12_GLOBAL__N_14headE", "(anonymous namespace)::head"),
            ("_ZN12_GLOBAL__N_15cacheE.lto_priv.0", "(anonymous namespace)::cache"),
            ("_ZN4grid5tableE", "grid::table"),
        ] {
            assert_eq!(demangle(mangled), name);
        }
    }

    /// As gcc writes conditions on templates (these are of libstdc++ and Arrow), which the grammar of the Itanium ABI has no rule for.
    #[test]
    fn templates_with_conditions_that_do_not_parse_keep_their_names() {
        let libstdcpp = "_ZSt14__copy_move_a1ILb0EPbbEN9__gnu_cxx11__enable_ifIXsrSt23__is_random_access_iterIT0_NSt15iterator_traitsIS4_E\
                         17iterator_categoryEE7__valueESt15_Deque_iteratorIT1_RSA_PSA_EE6__typeES4_S4_SD_";
        assert_eq!(demangle(libstdcpp), "std::__copy_move_a1<false, bool*, bool>");
        let arrow = "_ZN5arrow7compute8internalL17GenericFromScalarIlEENSt9enable_ifIXsrSt10is_base_ofINS_14PrimitiveCTypeENS_11CTypeTraitsIT_E\
                     9ArrowTypeEE5valueENS_6ResultIS7_EEE4typeERKSt10shared_ptrINS_6ScalarEE.lto_priv.0";
        assert_eq!(demangle(arrow), "arrow::compute::internal::GenericFromScalar<long>");
        for junk in ["_Z3foo!", "_Z3fooIiE!", "_Z3fooQQ", "_ZN1a1bQ"] {
            assert_eq!(demangle(junk), junk);
        }
    }

    #[test]
    fn arguments_of_templates_are_left_out() {
        for (name, shown) in [
            ("xmalloc<ns::Node>", "xmalloc"),
            ("ns::Pool<std::map<int, A<4> >, 4>::take<int>", "ns::Pool::take"),
            ("Pool<T>::operator new[]", "Pool::operator new[]"),
            ("Pool<decltype(a->b)>::take", "Pool::take"),
            ("plain", "plain"),
            ("<T as ns::Trait>::call", "<T as ns::Trait>::call"),
            ("a>::b", "a>::b"),
            ("a<b", "a"),
            ("é<ß>ü", "éü"),
        ] {
            assert_eq!(without_arguments(name), shown, "{name}");
        }
    }

    #[test]
    fn hostile_names_stay_short_and_printable() {
        let nested = format!("_Z{}", "N".repeat(20_000));
        assert!(demangle(&nested).len() <= NAME_BYTES_MAX + '…'.len_utf8());
        assert_eq!(tidy("a\x1b[31mb\n"), "a\u{fffd}[31mb\u{fffd}");
        let _ = demangle(&format!("_Z{}1fv", "PK".repeat(4000)));
    }

    #[test]
    fn functions_lose_parameters_and_return_types() {
        assert_eq!(short_function("void ns::run<int, char>(int*, char) const"), "ns::run<int, char>");
        assert_eq!(short_function("pgain(long, Points*)"), "pgain");
        assert_eq!(short_function("(anonymous namespace)::make(int)"), "(anonymous namespace)::make");
        assert_eq!(short_function("operator new(unsigned long)"), "operator new");
        assert_eq!(short_function("main.(*Grid).fill"), "main.(*Grid).fill");
        assert_eq!(short_function("main.(*Grid).fill.func1"), "main.(*Grid).fill.func1");
        for go in ["main.apply[go.shape.func(int) bool]", "main.rows[go.shape.struct { main.x int }]"] {
            assert_eq!(short_function(go), go);
        }
        assert_eq!(short_function("Matrix::operator()(int, int)"), "Matrix::operator()");
        assert_eq!(short_function("double& Matrix::operator[](int) const"), "double& Matrix::operator[]");
        assert_eq!(
            short_function("<alloc::vec::Vec<T> as core::clone::Clone>::clone"),
            "<alloc::vec::Vec<T> as core::clone::Clone>::clone"
        );
        assert_eq!(short_function(""), "");
    }
}
