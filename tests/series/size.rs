//! How large scrapes are.
