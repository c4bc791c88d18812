//! The service around the balancer: its configuration, control socket, state, journal and metrics. The balancer itself decides and moves.
//!
//! Nothing here may block the loop: clients are served by their own threads under [`Limits`]. They reach the loop through a board that it writes, and a channel
//! that it reads between two steps.

mod address;
pub mod config;
mod connection;
pub mod control;
pub mod daemon;
mod error;
pub mod explain;
mod guest_lines;
pub mod identity;
pub mod journal;
pub mod metrics;
mod notify;
mod places;
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
pub use server::ConnectionCounts;
pub use server::Limits;
pub use server::Server;
