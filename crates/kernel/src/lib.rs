//! What the agent needs of the kernel and no library has in a safe form. It knows nothing of
//! probes.
//!
//! | module | what it is |
//! |---|---|
//! | [`batch`] | many packets by one system call |
//! | [`control`] | the control messages of a packet, which go with its bytes |
//! | [`ntp`] | how well the real-time clock is synchronized |
//! | [`poll`] | which of many sockets are ready |
//! | [`process`] | children that end with their parent, and namespaces |
//! | [`region`] | memory that is planned once, touched as it is used, and released |
//! | [`relro`] | protects the constants that were relocated at the start |
//! | [`scheduling`] | how the kernel schedules a thread |
//! | [`socket`] | descriptors, and options of sockets |
//! | [`stack`] | releases the part of a thread's stack that is not in use |
//! | [`tcp_info`] | what the kernel knows of a TCP socket |
//! | [`text`] | strings stored one after the other |
//! | [`tun`] | a network interface, whose packets a process reads and writes |

pub mod batch;
pub mod control;
mod name;
pub mod ntp;
pub mod poll;
pub mod process;
pub mod region;
pub mod relro;
pub mod scheduling;
pub mod socket;
pub mod stack;
pub mod tcp_info;
pub mod text;
pub mod tun;
