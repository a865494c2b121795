//! What the operating system provides, as the stages use it.
//!
//! | module | what it is |
//! |---|---|
//! | [`clock`] | the kernel's clocks |
//! | [`console`] | standard output, safe for terminals |
//! | [`descriptors`] | how many files and sockets the process may have open |
//! | [`error`] | an operation of the system that has failed |
//! | [`files`] | the operator's files, which are read again when they change |
//! | [`lacks`] | what some kernels and sandboxes lack, logged once |
//! | [`priority`] | which threads get a CPU first |
//! | [`proc`] | the files of `/proc` |
//! | [`settle`] | releases unneeded pages of the program file and its libraries |
//! | [`stop`] | the signals that end a command |
//! | [`terminal`] | what standard output can show: colours, and how long a line may be |
//! | [`table`] | tables for terminals, and the figures in them |
//! | [`wall`] | work that may panic without ending the program |

pub mod clock;
pub mod console;
pub mod descriptors;
pub mod error;
pub mod files;
pub mod lacks;
pub mod priority;
pub mod proc;
pub mod settle;
pub mod stop;
pub mod table;
pub mod terminal;
pub mod wall;
