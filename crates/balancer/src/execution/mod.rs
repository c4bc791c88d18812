//! Carries orders out on the running system: moves of pages ([`migration_executor`]), CPUs of threads ([`binding`]) and of the children that inherit them
//! ([`births`]), copies of files ([`copies`]), system settings ([`settings`]), what long work asks meanwhile ([`progress`]), and who maps pages that several
//! processes map ([`sharers`]).
//!
//! Affinities and settings are in the record for undoing changes ([`crate::system::undo_log`]) before they change.

pub mod binding;
pub mod births;
pub mod copies;
pub mod migration_executor;
pub mod progress;
pub mod settings;
pub mod sharers;
