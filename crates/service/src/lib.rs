//! What makes the pilot a service: its configuration, control socket, kept state, journal and metrics. Deciding and moving are the pilot's.
//!
//! Nothing here may hold up the loop: clients are served by threads of their own under [`Limits`], and the loop is reached through a board that it writes
//! and a channel that it looks into when it likes.

mod address;
pub mod config;
mod connection;
pub mod control;
pub mod daemon;
mod error;
pub mod explain;
pub mod identity;
pub mod journal;
pub mod metrics;
mod notify;
mod places;
pub mod quantity;
pub mod served;
mod server;
pub mod state;

pub use address::Address;
pub use connection::Connection;
pub use connection::Peer;
pub use connection::read_line;
pub use error::ServiceError;
pub use places::Places;
pub use places::SYSTEM_CONFIG;
pub use places::SYSTEM_CONTROL;
pub use server::Limits;
pub use server::Server;
pub use server::Visits;
