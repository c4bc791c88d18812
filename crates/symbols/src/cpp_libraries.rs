//! Allocators and containers of well-known C++ libraries and programs, by the qualified names of their functions: what they allocate is their callers'.
//!
//! Names have no arguments of templates (`without_arguments`), and none of the namespaces that a library puts its version into.

use crate::demangle::without_arguments;

/// Beginnings of names. Classes that allocate and do other things, too, stand here with their functions that allocate.
const BEGINNINGS: [&str; 86] = [
    // MariaDB and MySQL.
    "ut_allocator::allocate",
    "ut::malloc_withkey",
    "ut::zalloc_withkey",
    "ut::aligned_alloc_withkey",
    "ut::aligned_zalloc_withkey",
    "ut::detail::Alloc",
    "ut::detail::Aligned_alloc",
    "ut::detail::Page_alloc",
    "ut::detail::Large_",
    "ut::detail::page_aligned_alloc",
    "ut::detail::large_page_aligned_alloc",
    "MEM_ROOT::Alloc",
    "MEM_ROOT::ForceNewBlock",
    "Mem_root_allocator::allocate",
    "Malloc_allocator::allocate",
    "Query_arena::alloc",
    "Query_arena::calloc",
    // RocksDB and LevelDB.
    "rocksdb::Arena::Allocate",
    "rocksdb::ConcurrentArena::Allocate",
    "leveldb::Arena::Allocate",
    // DuckDB.
    "duckdb::Allocator::Allocate",
    "duckdb::Allocator::Reallocate",
    "duckdb::Allocator::DefaultAllocate",
    "duckdb::Allocator::DefaultReallocate",
    "duckdb::ArenaAllocator::Allocate",
    // LLVM.
    "llvm::BumpPtrAllocatorImpl::Allocate",
    "llvm::BumpPtrAllocatorImpl::StartNewSlab",
    "llvm::SpecificBumpPtrAllocator::Allocate",
    "llvm::MallocAllocator::Allocate",
    "llvm::AllocatorBase::Allocate",
    "llvm::allocate_buffer",
    "llvm::safe_malloc",
    "llvm::safe_calloc",
    "llvm::safe_realloc",
    "llvm::SmallVector",
    // V8 and Node.
    "v8::internal::AllocWithRetry",
    "v8::internal::AllocAtLeastWithRetry",
    "v8::internal::AlignedAllocWithRetry",
    "v8::internal::NewArray",
    "v8::internal::StrDup",
    "v8::internal::StrNDup",
    "v8::internal::AccountingAllocator::",
    "v8::internal::Zone::",
    "v8::base::Malloc",
    "v8::base::Calloc",
    "v8::base::Realloc",
    "v8::base::AlignedAlloc",
    "v8::base::AllocateAtLeast",
    // Pages of V8's heap are those of its spaces.
    "v8::base::OS::Allocate",
    "v8::base::PageAllocator::",
    "v8::base::BoundedPageAllocator::",
    "v8::internal::AllocatePages",
    "v8::internal::VirtualMemory::",
    "v8::internal::VirtualMemoryCage::",
    "v8::internal::MemoryAllocator::",
    "node::Malloc",
    "node::Calloc",
    "node::Realloc",
    "node::Unchecked",
    // Qt, which has all names of an upper-case Q before another upper-case letter to itself.
    "QArrayData::",
    "QTypedArrayData::",
    "QArrayDataPointer::",
    "QListData::",
    "QHashData::",
    "QHashPrivate::",
    "QMapDataBase::",
    "QByteArray::",
    "QString::",
    // Abseil and Protocol Buffers.
    "absl::base_internal::LowLevelAlloc::",
    "absl::container_internal::",
    "absl::inlined_vector_internal::",
    "absl::InlinedVector::",
    "google::protobuf::Arena::",
    "google::protobuf::internal::SerialArena::",
    "google::protobuf::internal::ThreadSafeArena::",
    // folly.
    "folly::checkedMalloc",
    "folly::checkedCalloc",
    "folly::checkedRealloc",
    "folly::smartRealloc",
    "folly::aligned_malloc",
    // Boost, and TBB's allocator.
    "boost::container::",
    "boost::pool::",
    "boost::object_pool::",
    "boost::singleton_pool::",
    "boost::default_user_allocator_",
    "rml::internal::",
];

/// Qt's containers, with the bracket of their arguments: lists, maps and hash tables that programs call so themselves are rarely templates.
const CONTAINERS: [&str; 4] = ["QVector<", "QList<", "QHash<", "QMap<"];

/// Whether a function is one of these libraries', or a class's own `operator new`: by its meaning, it allocates for what stands behind `new`.
pub(crate) fn allocates_for_callers(function: &str) -> bool {
    if !function.contains("::") && !function.contains('<') {
        return false;
    }
    let name = without_arguments(function);
    let name = without_version(&name);
    let is_operator = name.ends_with("::operator new") || name.ends_with("::operator new[]");
    let is_container = CONTAINERS.iter().any(|container| function.starts_with(container));
    is_operator || is_container || BEGINNINGS.iter().any(|beginning| name.starts_with(beginning))
}

/// The name without the namespace of Abseil's version: `absl::lts_20240722::container_internal::Allocate`, or Debian's `absl::debian3`.
fn without_version(name: &str) -> std::borrow::Cow<'_, str> {
    let versioned = name.strip_prefix("absl::").and_then(|rest| rest.split_once("::"));
    match versioned.filter(|(space, _)| space.starts_with("lts_") || space.starts_with("debian")) {
        Some((_, rest)) => format!("absl::{rest}").into(),
        None => name.into(),
    }
}

/// Whether a function is the allocator of a container of the standard library: `allocate` of a class, or `do_allocate` of a memory resource, called by the
/// library's step that allocates and does nothing else. (What makes elements, starts threads or calls function objects calls methods of such names, too.)
pub(crate) fn is_allocator_of_container(function: &str, caller: &str) -> bool {
    const STEPS: [&str; 12] = [
        "allocate",
        "allocate_at_least",
        "allocate_bytes",
        "_S_allocate",
        "__allocate_at_least",
        "__allocate_guarded",
        "_M_allocate",
        "_M_allocate_map",
        "_M_allocate_node",
        "_M_allocate_buckets",
        "_M_get_node",
        "_M_create",
    ];
    let is_standard = caller.starts_with("std::") || caller.starts_with("__gnu_cxx::");
    if !is_standard || !function.contains("::") {
        return false;
    }
    let (name, caller) = (without_arguments(function), without_arguments(caller));
    let step = caller.rsplit("::").next().unwrap_or("");
    STEPS.contains(&step) && (name.ends_with("::allocate") || name.ends_with("::do_allocate"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocators_of_real_programs_allocate_for_their_callers() {
        for function in [
            "ut_allocator<unsigned char, true>::allocate",
            "ut::detail::Alloc_pfs::alloc<false>",
            "MEM_ROOT::AllocSlow",
            "Sql_alloc::operator new",
            "v8::internal::Malloced::operator new",
            "Pool<std::pair<int, ns::T> >::operator new[]",
            "v8::internal::Zone::NewExpand",
            "v8::internal::NewArray<char>",
            "node::UncheckedRealloc<char>",
            "v8::base::OS::Allocate",
            "v8::internal::MemoryAllocator::AllocateUninitializedChunkAt",
            "rocksdb::Arena::AllocateNewBlock",
            "rocksdb::ConcurrentArena::AllocateImpl<rocksdb::ConcurrentArena::Allocate::{lambda()#1}>",
            "leveldb::Arena::AllocateFallback",
            "duckdb::Allocator::DefaultAllocate",
            "llvm::BumpPtrAllocatorImpl<llvm::MallocAllocator, 4096ul, 4096ul, 128ul>::StartNewSlab",
            "llvm::SmallVectorBase<unsigned int>::grow_pod",
            "QVector<ns::Point>::reallocData",
            "absl::lts_20240722::container_internal::raw_hash_set<P, H, E, A>::resize",
            "absl::container_internal::raw_hash_set<P, H, E, A>::resize",
            "google::protobuf::internal::SerialArena::AllocateNewBlock",
            "folly::checkedMalloc",
            "boost::pool<boost::default_user_allocator_new_delete>::malloc_need_resize",
            "rml::internal::MemoryPool::getEmptyBlock",
        ] {
            assert!(allocates_for_callers(function), "{function}");
        }
    }

    #[test]
    fn functions_of_programs_with_similar_names_do_not() {
        for function in [
            "",
            "main",
            "allocate",
            "Grid::allocate",
            "Grid<double>::Allocate",
            "game::Arena::load",
            "rocksdb::ArenaWrappedDBIter::Init",
            "rocksdb::DBImpl::Open",
            "duckdb::Allocator::Allocator",
            "duckdb::Catalog::CreateTable",
            "llvm::Module::Module",
            "v8::internal::Heap::SetUp",
            "v8::internal::ZoneList<ns::Zone>::Expand",
            "v8::internal::PagedSpaceBase::TryExpand",
            "node::Environment::Environment",
            // Its objects are what programs have in buffers.
            "node::NodeArrayBufferAllocator::Allocate",
            "QListWidget::addItem",
            "QList::grow",
            "QMap::load",
            "QMap::load<double>",
            "ut::detail::load_grid",
            "operator new",
            "Grid::operator new_grid",
            "absl::lts_20240722::Cord::Append",
            "mine::absl::container_internal::load",
            "<app::Grid as alloc::borrow::ToOwned>::to_owned",
            "a<b",
            ">>",
        ] {
            assert!(!allocates_for_callers(function), "{function}");
        }
    }

    #[test]
    fn the_allocator_of_a_container_is_known_by_its_caller() {
        for (function, caller) in [
            ("mine::Huge<double>::allocate", "std::allocator_traits<mine::Huge<double> >::allocate"),
            ("mine::Huge<double>::allocate", "std::_Vector_base<double, mine::Huge<double> >::_M_allocate"),
            ("Huge<char>::allocate", "std::__cxx11::basic_string<char, T, Huge<char> >::_M_create"),
            ("Huge<char>::allocate", "std::__1::allocator_traits<Huge<char> >::allocate"),
            ("NodeLocal::do_allocate", "std::pmr::memory_resource::allocate"),
        ] {
            assert!(is_allocator_of_container(function, caller), "{function} for {caller}");
        }
        let thread = "std::thread::_State_impl<std::thread::_Invoker<std::tuple<void (Grid::*)(), Grid*> > >::_M_run";
        for (function, caller) in [
            ("Grid::allocate", "main"),
            ("Grid::allocate", "mine::allocate"),
            ("Grid::allocate", thread),
            ("Grid::allocate", "std::__invoke_impl<void, void (Grid::*)(), Grid*>"),
            ("Grid::allocate", "std::vector<Grid, std::allocator<Grid> >::emplace_back<int>"),
            ("Grid::allocate", "std::allocator_traits<std::allocator<Grid> >::construct<Grid>"),
            ("Grid::reallocate", "std::_Vector_base<Grid, A>::_M_allocate"),
            ("allocate", "std::_Vector_base<int, A>::_M_allocate"),
            ("", ""),
        ] {
            assert!(!is_allocator_of_container(function, caller), "{function} for {caller}");
        }
    }
}
