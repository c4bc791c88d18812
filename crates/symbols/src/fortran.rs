//! Finds the objects that Fortran statements allocate.

/// The objects of the `allocate` statements in `statement`, in their order: `u`, `grid%cells`, `list(i)%v`.
pub(crate) fn allocated(statement: &str) -> Vec<String> {
    let lower = statement.to_ascii_lowercase();
    let is_name = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    let mut names = Vec::new();
    for (at, word) in lower.match_indices("allocate") {
        let is_word = !is_name(at.checked_sub(1).and_then(|before| lower.as_bytes().get(before)));
        let Some(arguments) = statement[at + word.len()..].trim_start().strip_prefix('(') else { continue };
        if is_word {
            names.extend(items(arguments).into_iter().filter_map(target));
        }
    }
    names
}

/// The items of a list, up to the bracket that closes it. A type given first ends in two colons.
fn items(arguments: &str) -> Vec<&str> {
    let mut depth = 0_usize;
    let mut start = 0;
    let mut items = Vec::new();
    for (at, byte) in arguments.bytes().enumerate() {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' if depth > 0 => depth -= 1,
            b')' => {
                items.push(&arguments[start..at]);
                return items;
            }
            b',' if depth == 0 => {
                items.push(&arguments[start..at]);
                start = at + 1;
            }
            b':' if depth == 0 && arguments[at..].starts_with("::") => start = at + 2,
            _ => {}
        }
    }
    // Never closed: cut off.
    Vec::new()
}

/// The object of one item, without its bounds; `None` for `stat=` and its like.
fn target(item: &str) -> Option<String> {
    let item: String = item.chars().filter(|c| !c.is_whitespace()).collect();
    let mut depth = 0_usize;
    let mut name_end = item.len();
    for (at, byte) in item.bytes().enumerate() {
        match byte {
            b'(' | b'[' => {
                if depth == 0 {
                    name_end = at;
                }
                depth += 1;
            }
            b')' | b']' => depth = depth.saturating_sub(1),
            b'=' if depth == 0 => return None,
            // What stands in brackets before a component is an element, not the bounds.
            b'%' if depth == 0 => name_end = item.len(),
            _ => {}
        }
    }
    let name = &item[..name_end];
    let sound = |byte: u8| byte.is_ascii_alphanumeric() || b"_%(),+-*:".contains(&byte);
    (name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.bytes().all(sound)).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_object_of_the_list_in_its_order() {
        assert_eq!(allocated("allocate(u(n), v(2*n, m), r(f(n,1)), stat = ios)"), ["u", "v", "r"]);
        assert_eq!(allocated("if (x) ALLOCATE ( grid%cells(n,m) )"), ["grid%cells"]);
        assert_eq!(allocated("allocate(real(8) :: a(n), b(0:n))"), ["a", "b"]);
        assert_eq!(allocated("allocate(list(i)%v(n), source=w)"), ["list(i)%v"]);
        assert_eq!(allocated("allocate(character(len=n) :: text)"), ["text"]);
        assert!(allocated("deallocate(u, v)").is_empty());
        assert!(allocated("allocate(u(n)").is_empty(), "never closed");
    }
}
