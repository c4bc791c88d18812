//! Functions of MariaDB and MySQL that allocate for their callers, and have names that other programs give to constructors of their own (of a tree's root, of a
//! heap). They count in binaries of these two alone. (`mysys/my_alloc.c`, `storage/innobase/include/mem0mem.h`.)

/// Beginnings of the names of their servers, clients and libraries, and of engines that are loaded.
const BINARIES: [&str; 5] = ["mariadb", "mysql", "libmariadb", "libmysql", "ha_"];
const NAMES: [&str; 3] = ["alloc_root", "root_alloc", "mem_heap_create"];

/// Whether a function of the binary at `module` is one of these.
pub(crate) fn allocates_for_callers(module: &str, function: &str) -> bool {
    let base = module.rsplit('/').next().unwrap_or("");
    NAMES.contains(&function) && BINARIES.iter().any(|binary| base.starts_with(binary))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn general_names_count_in_its_binaries_only() {
        for name in NAMES {
            for binary in ["/usr/sbin/mariadbd", "/usr/sbin/mysqld", "/usr/lib/mysql/plugin/ha_rocksdb.so"] {
                assert!(allocates_for_callers(binary, name), "{binary} {name}");
            }
            for other in ["/srv/tree", "/opt/mysql/tree", ""] {
                assert!(!allocates_for_callers(other, name), "{other} {name}");
            }
        }
        assert!(!allocates_for_callers("/usr/sbin/mariadbd", "my_load"));
    }
}
