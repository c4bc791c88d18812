//! What makes the pilot a service: its configuration, control socket, kept state, journal and metrics. Deciding and moving are the pilot's.
